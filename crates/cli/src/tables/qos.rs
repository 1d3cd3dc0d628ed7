//! Limits of I/O.

use super::grid::{Column, Grid};
use super::{count, field, sentence, size, steps};
use std::fmt::Write as _;
use strake_api::v1::{ListQosResponse, Qos, QosChange, QosLimit};

/// Every limit, one a line.
#[must_use]
pub fn list(answer: &ListQosResponse, width: usize) -> String {
    if answer.objects.is_empty() {
        return sentence("No limits. Set one: strake qos set volume POOL/NAME --iops RATE", width);
    }
    let mut grid = Grid::new(&[
        Column::Word("kind"),
        Column::Name("name"),
        Column::Word("limit"),
        Column::Number("rate"),
        Column::Number("burst"),
        Column::Number("throttled"),
        Column::Number("mean wait"),
    ]);
    for object in &answer.objects {
        for limit in &object.limits {
            grid.row([
                object.kind.clone(),
                object.name.clone(),
                limit.aspect.clone(),
                rate(limit),
                format!("{} ms", limit.burst_ms),
                limit.throttled.to_string(),
                mean_wait(limit),
            ]);
        }
    }
    grid.render(width)
}

/// The limits of one object.
#[must_use]
pub fn show(object: &Qos, width: usize) -> String {
    let mut out = String::new();
    field(&mut out, &object.kind, &object.name, width);
    if object.limits.is_empty() {
        field(&mut out, "limits", "none", width);
    }
    for limit in &object.limits {
        let waits = match limit.throttled {
            0 => "no request has waited".to_owned(),
            requests => {
                format!("{} waited, {} on average", count(requests, "request"), mean_wait(limit))
            }
        };
        let text = format!("{}, burst {} ms; {waits}", rate(limit), limit.burst_ms);
        field(&mut out, &limit.aspect, &text, width);
    }
    out
}

/// What a command did.
#[must_use]
pub fn change(change: &QosChange, width: usize) -> String {
    let mut out = String::new();
    let object = change.qos.as_ref();
    let name = object.map_or(String::new(), |of| format!("{} {}", of.kind, of.name));
    let _ = writeln!(out, "limits of {name}: {}", change.result);
    if change.result == "planned" {
        steps(&mut out, &change.plan, width);
        return out;
    }
    if let Some(object) = object {
        out.push_str(&show(object, width));
    }
    out
}

/// The limits of an object in one line; empty without limits.
#[must_use]
pub fn line(limits: &[QosLimit]) -> String {
    let one = |limit: &QosLimit| format!("{} {}", limit.aspect, rate(limit));
    limits.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn rate(limit: &QosLimit) -> String {
    match limit.aspect.ends_with("bandwidth") {
        true => format!("{}/s", size(limit.rate)),
        false => format!("{}/s", limit.rate),
    }
}

/// The mean wait of the requests that waited; empty without one.
fn mean_wait(limit: &QosLimit) -> String {
    match limit.throttled_ns.checked_div(limit.throttled) {
        None => String::new(),
        Some(ns) => format!("{:.1} ms", ns as f64 / 1e6),
    }
}
