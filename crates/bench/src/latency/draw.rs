//! Latencies as a picture: for each case a bar per state, from the median to the slowest thousandth.

use std::fmt::Write as _;

use super::{PERCENTILES, State, names};
use crate::report::{Report, Row};

const WIDTH: f64 = 960.0;
const LEFT: f64 = 340.0;
/// Of a case: a bar for each state, and what keeps it from the next.
const LINE: f64 = 34.0;
const TOP: f64 = 78.0;
/// The ends of the scale, as powers of ten of a microsecond.
const POWERS: std::ops::RangeInclusive<i32> = 0..=5;

/// The picture; empty of bars where there are no numbers.
#[must_use]
pub fn svg(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write_svg(&mut out, report);
    out
}

fn write_svg(out: &mut String, report: &Report) -> std::fmt::Result {
    let names = names(report);
    let height = TOP + LINE * names.len() as f64 + 12.0;
    let font = r#"font-family="sans-serif" font-size="13""#;
    writeln!(
        out,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" {font}>"#
    )?;
    writeln!(out, r#"<rect width="{WIDTH}" height="{height}" fill="white"/>"#)?;
    let title = "latency: from p50 to p99.9, with a tick at p99; left is better";
    writeln!(out, r#"<text x="12" y="24" font-size="16">{title}</text>"#)?;
    for (nth, state) in State::ALL.into_iter().enumerate() {
        let (at, word, colour) = (12.0 + 90.0 * nth as f64, state.word(), colour(state));
        writeln!(out, r#"<text x="{at}" y="48" fill="{colour}">{word}</text>"#)?;
    }
    for power in POWERS {
        let (at, bottom) = (x(10_f64.powi(power)), height - 8.0);
        writeln!(out, r##"<path d="M{at:.1} 66V{bottom}" stroke="#dddddd"/>"##)?;
        let value = 10_u64.pow(power.unsigned_abs());
        writeln!(out, r#"<text x="{at:.1}" y="60" text-anchor="middle">{value} us</text>"#)?;
    }
    for (nth, name) in names.into_iter().enumerate() {
        let y = TOP + LINE * nth as f64;
        writeln!(out, r#"<text x="12" y="{:.1}">{name}</text>"#, y + 15.0)?;
        for (line, state) in State::ALL.into_iter().enumerate() {
            write_bar(out, report, (name, state), y + 4.0 + 8.0 * line as f64)?;
        }
    }
    writeln!(out, "</svg>")
}

fn write_bar(
    out: &mut String,
    report: &Report,
    (name, state): (&str, State),
    y: f64,
) -> std::fmt::Result {
    let median = |percentile: &str| {
        let case = format!("{name} {}: {percentile}", state.word());
        report.rows.iter().find(|row: &&Row| row.case == case)?.median
    };
    let found = PERCENTILES.map(|(percentile, _)| median(percentile));
    let [Some(p50), Some(p99), Some(p999)] = found else { return Ok(()) };
    let [from, tick, to] = [p50, p99, p999].map(x);
    let (colour, word, top) = (colour(state), state.word(), y - 3.0);
    write!(
        out,
        r#"<path d="M{from:.1} {y:.1}H{to:.1}M{tick:.1} {top:.1}v6" stroke="{colour}" stroke-width="2">"#
    )?;
    writeln!(out, "<title>{name} {word}: {p50:.1} / {p99:.1} / {p999:.1} us</title></path>")?;
    writeln!(out, r#"<circle cx="{from:.1}" cy="{y:.1}" r="3" fill="{colour}"/>"#)
}

const fn colour(state: State) -> &'static str {
    match state {
        State::Healthy => "#2a8f3c",
        State::Degraded => "#d08a1d",
        State::Rebuilding => "#c8322b",
    }
}

/// Where `us` is, on a logarithmic scale.
fn x(us: f64) -> f64 {
    let span = f64::from(POWERS.end() - POWERS.start());
    let at = us.max(1.0).log10().clamp(0.0, span);
    LEFT + (WIDTH - LEFT - 40.0) * at / span
}

#[cfg(test)]
mod tests {
    use super::svg;
    use crate::measure::Samples;
    use crate::report::{Metric, Report, Row, Target};

    #[test]
    fn a_bar_goes_from_the_median_to_the_tail() {
        let mut report = Report::new("latency", "how long");
        for (name, us) in [("p50", 10.0), ("p99", 100.0), ("p99.9", 1000.0)] {
            let samples = Samples::new(vec![us]);
            let case = format!("raid9 randread healthy: {name}");
            report.rows.push(Row::new(case, Metric::Latency, &samples, Target::NONE));
        }
        let picture = svg(&report);
        assert_eq!(picture.matches("<circle").count(), 1, "{picture}");
        assert!(picture.contains(r#"d="M456.0 82.0H688.0M572.0 79.0v6""#), "{picture}");
        assert!(picture.contains("raid9 randread healthy: 10.0 / 100.0 / 1000.0 us"), "{picture}");
    }
}
