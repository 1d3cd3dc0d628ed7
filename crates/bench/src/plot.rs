//! A report as a picture: every row's ratio to its anchor.

use std::fmt::Write as _;

use crate::page::groups;
use crate::report::{Report, Row};

const FONT: &str = r#"font-family="sans-serif" font-size="13""#;
const WIDTH: f64 = 960.0;
const LEFT: f64 = 250.0;
const LINE: f64 = 24.0;
const TOP: f64 = 70.0;
/// The ratio at the right edge; larger ones are drawn there.
const RATIO_MAX: f64 = 3.0;

/// One line per group of rows, a dot per row: green where the goal is met, red where it is not.
#[must_use]
pub fn svg(report: &Report) -> String {
    let groups = groups(report);
    let height = TOP + LINE * groups.len() as f64 + 20.0;
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write_svg(&mut out, report, &groups, height);
    out
}

fn write_svg(
    out: &mut String,
    report: &Report,
    groups: &[(String, Vec<&Row>)],
    height: f64,
) -> std::fmt::Result {
    writeln!(
        out,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" {FONT}>"#
    )?;
    writeln!(out, r#"<rect width="{WIDTH}" height="{height}" fill="white"/>"#)?;
    let (name, theirs) = (&report.benchmark, escaped(&report.compared_with));
    let title = format!("{name}: our speed divided by that of the anchor ({theirs})");
    writeln!(out, r#"<text x="12" y="24" font-size="16">{title}</text>"#)?;
    for tenths in (0..=30).step_by(5) {
        let ratio = f64::from(tenths) / 10.0;
        let (at, bottom) = (x(ratio), height - 12.0);
        let colour = if tenths == 10 { "black" } else { "#dddddd" };
        writeln!(out, r#"<path d="M{at:.1} 58V{bottom}" stroke="{colour}"/>"#)?;
        writeln!(out, r#"<text x="{at:.1}" y="50" text-anchor="middle">{ratio:.1}</text>"#)?;
    }
    for (nth, (name, rows)) in groups.iter().enumerate() {
        let y = TOP + LINE * (nth as f64 + 0.5);
        writeln!(out, r#"<text x="12" y="{:.1}">{name}</text>"#, y + 4.0)?;
        for row in rows {
            write_dot(out, row, y)?;
        }
    }
    writeln!(out, "</svg>")
}

fn write_dot(out: &mut String, row: &Row, y: f64) -> std::fmt::Result {
    let Some(ratio) = row.ratio else {
        return Ok(());
    };
    let colour = if row.meets == Some(true) { "#2a8f3c" } else { "#c8322b" };
    let at = x(ratio.min(RATIO_MAX));
    let title = format!("{}: {ratio:.2}", row.case);
    // The small stripes above, the large ones below, so that dots do not hide each other.
    let shift = (row.strip as f64).log2() - 16.0;
    let y = y + shift * 2.0;
    write!(out, r#"<circle cx="{at:.1}" cy="{y:.1}" r="3" fill="{colour}" fill-opacity="0.6">"#)?;
    writeln!(out, "<title>{title}</title></circle>")
}

fn x(ratio: f64) -> f64 {
    LEFT + (WIDTH - LEFT - 30.0) * ratio / RATIO_MAX
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
