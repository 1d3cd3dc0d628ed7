//! A tree of calls as a picture: time from left to right, calls upwards.

use std::fmt::Write as _;

use super::fold::{Call, by_crate, crate_of};

const WIDTH: f64 = 1400.0;
const LINE: f64 = 17.0;
const TOP: f64 = 62.0;
/// Narrower than this is not drawn.
const WIDTH_MIN: f64 = 1.0;
/// Of a letter.
const LETTER: f64 = 6.4;

/// The picture. Names are shortened to what fits; the whole name and its share are in the tooltip.
pub fn svg(title: &str, tree: &Call) -> String {
    let height = TOP + LINE * (tree.depth() as f64 + 1.0);
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write_all(&mut out, title, tree, height);
    out
}

fn write_all(out: &mut String, title: &str, tree: &Call, height: f64) -> std::fmt::Result {
    let font = r#"font-family="monospace" font-size="11""#;
    writeln!(
        out,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" {font}>"#
    )?;
    writeln!(out, r#"<rect width="{WIDTH}" height="{height}" fill="white"/>"#)?;
    writeln!(out, r#"<text x="8" y="20" font-size="15">{}</text>"#, escaped(title))?;
    let about = format!("{} samples of the data core: {}", tree.count, by_crate(tree));
    writeln!(out, r#"<text x="8" y="40">{}</text>"#, escaped(&about))?;
    let scale = WIDTH / tree.count.max(1) as f64;
    write_calls(out, tree, 0.0, height - LINE, (scale, tree.count))?;
    writeln!(out, "</svg>")
}

/// What `call` calls, from `x` on, with their lower line at `y`.
fn write_calls(
    out: &mut String,
    call: &Call,
    mut x: f64,
    y: f64,
    (scale, all): (f64, u64),
) -> std::fmt::Result {
    for (name, below) in &call.calls {
        let width = below.count as f64 * scale;
        if width >= WIDTH_MIN {
            let share = 100.0 * below.count as f64 / all as f64;
            let (text, colour) = (escaped(name), colour(name));
            let w = width - 0.5;
            write!(
                out,
                r#"<g><rect x="{x:.1}" y="{y:.1}" width="{w:.1}" height="16" fill="{colour}"/>"#
            )?;
            write!(out, "<title>{text}: {share:.1} %</title>")?;
            let fits = ((width - 4.0) / LETTER) as usize;
            if fits >= 3 {
                let short: String = short(name).chars().take(fits).collect();
                let (at, line) = (x + 2.0, y + 12.0);
                write!(out, r#"<text x="{at:.1}" y="{line:.1}">{}</text>"#, escaped(&short))?;
            }
            writeln!(out, "</g>")?;
            write_calls(out, below, x, y - LINE, (scale, all))?;
        }
        x += width;
    }
    Ok(())
}

/// A name without what is in angle brackets, and without its path: `<A as B>::c<D>` is `A::c`.
pub(super) fn short(name: &str) -> String {
    let name = name.strip_prefix('<').map_or_else(
        || name.to_owned(),
        |rest| match rest.split_once(" as ") {
            Some((kind, method)) => {
                format!("{kind}::{}", method.rsplit("::").next().unwrap_or_default())
            }
            None => rest.replacen('>', "", 1),
        },
    );
    let plain = name.split('<').next().unwrap_or_default();
    let words: Vec<&str> = plain.rsplit("::").take(2).collect();
    words.into_iter().rev().collect::<Vec<_>>().join("::")
}

/// Crates have colours of their own; what is inlined, or of the standard library or the kernel, is grey.
fn colour(name: &str) -> &'static str {
    match crate_of(name) {
        Some("strake_engine") => "#f4a259",
        Some("strake_parity") => "#d96c75",
        Some("strake_raid") => "#f2d16b",
        Some("strake_block") => "#8cb369",
        Some("strake_dev_mem") => "#7fb7be",
        Some("strake_load") => "#a5a6d6",
        Some("strake_reactor") => "#c9b79c",
        _ => "#dddddd",
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
