//! A report as a picture: how far every row is from its goal.

use std::fmt::Write as _;

use crate::latency;
use crate::page::groups;
use crate::report::{Meets, Report, Row, number};

const FONT: &str = r#"font-family="sans-serif" font-size="13""#;
const WIDTH: f64 = 960.0;
const LEFT: f64 = 400.0;
const LINE: f64 = 24.0;
const TOP: f64 = 70.0;
/// The ratio at the right edge; larger ones are drawn there.
const RATIO_MAX: f64 = 2.5;

/// Of latencies, bars of their percentiles. Else one line per group of rows, a dot per row: green where the goal is
/// met, red where it is not. A tick is the moonshot, a cross the anchor, where a line has one row.
#[must_use]
pub fn svg(report: &Report) -> String {
    if report.id == "latency" {
        return latency::draw::svg(report);
    }
    draw(&report.id, groups(report))
}

/// One line per report, a dot per row.
#[must_use]
pub fn overview(reports: &[&Report]) -> String {
    let lines = reports.iter().map(|report| (report.id.clone(), report.rows.iter().collect()));
    draw("All goals", lines.collect())
}

fn draw(what: &str, mut groups: Vec<(String, Vec<&Row>)>) -> String {
    groups.retain(|(_, rows)| rows.iter().any(|row| row.progress().is_some()));
    let height = TOP + LINE * groups.len() as f64 + 20.0;
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write_svg(&mut out, what, &groups, height);
    out
}

fn write_svg(
    out: &mut String,
    what: &str,
    groups: &[(String, Vec<&Row>)],
    height: f64,
) -> std::fmt::Result {
    writeln!(
        out,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" {FONT}>"#
    )?;
    writeln!(out, r#"<rect width="{WIDTH}" height="{height}" fill="white"/>"#)?;
    let title = format!("{what}: result divided by goal; right of 1.0 is better than the goal");
    writeln!(out, r#"<text x="12" y="24" font-size="16">{title}</text>"#)?;
    for halves in 0..=5 {
        let ratio = f64::from(halves) / 2.0;
        let (at, bottom) = (x(ratio), height - 12.0);
        let colour = if halves == 2 { "black" } else { "#dddddd" };
        writeln!(out, r#"<path d="M{at:.1} 58V{bottom}" stroke="{colour}"/>"#)?;
        writeln!(out, r#"<text x="{at:.1}" y="50" text-anchor="middle">{ratio:.1}</text>"#)?;
    }
    for (nth, (name, rows)) in groups.iter().enumerate() {
        let y = TOP + LINE * (nth as f64 + 0.5);
        writeln!(out, r#"<text x="12" y="{:.1}">{}</text>"#, y + 4.0, escaped(name))?;
        if let [row] = rows.as_slice() {
            write_marks(out, row, y)?;
        }
        for (nth, row) in rows.iter().enumerate() {
            // One above the other, so that dots do not hide each other.
            let shift = 8.0 * ((nth as f64 + 0.5) / rows.len() as f64 - 0.5);
            write_dot(out, row, y + shift)?;
        }
    }
    writeln!(out, "</svg>")
}

/// Where the moonshot and the anchor are, on the scale of the goal.
fn write_marks(out: &mut String, row: &Row, y: f64) -> std::fmt::Result {
    let Some(goal) = row.goal else { return Ok(()) };
    let place = |value: f64| x(if row.metric.is_cost() { goal / value } else { value / goal });
    let title = |what: &str, value| format!("<title>{what}: {}</title>", number(value, &row.unit));
    if let Some(value) = row.moonshot {
        let (at, top) = (place(value), y - 7.0);
        let title = title("moonshot", value);
        writeln!(
            out,
            r##"<path d="M{at:.1} {top:.1}v14" stroke="#2a5f8f" stroke-width="2">{title}</path>"##
        )?;
    }
    if let Some(value) = row.anchor {
        let (at, top) = (place(value) - 4.0, y - 4.0);
        let title = title("anchor", value);
        writeln!(
            out,
            r##"<path d="M{at:.1} {top:.1}l8 8m0 -8l-8 8" stroke="#777777" stroke-width="2">{title}</path>"##
        )?;
    }
    Ok(())
}

fn write_dot(out: &mut String, row: &Row, y: f64) -> std::fmt::Result {
    let (Some(ratio), Some(median)) = (row.progress(), row.median) else {
        return Ok(());
    };
    let colour = if row.meets == Meets::None { "#c8322b" } else { "#2a8f3c" };
    let at = x(ratio);
    let title =
        format!("{}: {}, {ratio:.2} of the goal", escaped(&row.case), number(median, &row.unit));
    write!(out, r#"<circle cx="{at:.1}" cy="{y:.1}" r="4" fill="{colour}" fill-opacity="0.6">"#)?;
    writeln!(out, "<title>{title}</title></circle>")
}

fn x(ratio: f64) -> f64 {
    LEFT + (WIDTH - LEFT - 30.0) * ratio.clamp(0.0, RATIO_MAX) / RATIO_MAX
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
