//! The rules file of Prometheus and its tests, as YAML.

use std::fmt::Write as _;

use super::alerts::{Alert, GROUPS, INTERVAL, QUIET, TARGET};

/// Columns of a wrapped description.
const COLUMNS: usize = 110;

const GENERATED: &str = "\
# Generated from crates/daemon/src/metrics/alerts.rs. docs/alerts.md explains the alerts.
";

/// Returns the rules file.
pub fn rules() -> String {
    let mut out = format!("{GENERATED}groups:\n");
    for group in &GROUPS {
        // Writing to a string does not fail.
        let _ = write!(out, "  - name: {}\n    interval: {INTERVAL}\n    rules:\n", group.name);
        for alert in group.alerts {
            let (expr, severity) = (single(alert.expr), alert.severity.word());
            let _ = write!(out, "      - alert: {}\n        expr: {expr}\n", alert.name);
            let _ = writeln!(out, "        for: {}", alert.hold);
            let _ = write!(out, "        labels:\n          severity: {severity}\n");
            let summary = double(alert.summary);
            let _ = write!(out, "        annotations:\n          summary: {summary}\n");
            out.push_str("          description: >-\n");
            for line in wrapped(&description(alert)) {
                let _ = writeln!(out, "            {line}");
            }
        }
    }
    out
}

/// Returns the tests of the rules file for `promtool test rules`.
pub fn trials() -> String {
    let head = "rule_files:\n  - strake.rules.yml\nevaluation_interval: 15s\ntests:\n";
    let mut out = format!("{GENERATED}{head}");
    for alert in GROUPS.iter().flat_map(|group| group.alerts) {
        trial(alert, &mut out);
    }
    out
}

fn trial(alert: &Alert, out: &mut String) {
    let Alert { name, trial, .. } = alert;
    let _ = write!(out, "  - name: {name}\n    interval: 1m\n    input_series:\n");
    for (series, values) in trial.series {
        let series = single(&of_target(series));
        let _ = write!(out, "      - series: {series}\n        values: {}\n", single(values));
    }
    out.push_str("    alert_rule_test:\n");
    for at in [QUIET, trial.resolved] {
        let _ = writeln!(out, "      - {{eval_time: {at}, alertname: {name}, exp_alerts: []}}");
    }
    let _ = write!(
        out,
        "      - eval_time: {}\n        alertname: {name}\n        exp_alerts:\n          - exp_labels:\n",
        trial.fires
    );
    let severity = [("severity", alert.severity.word())];
    for (label, value) in TARGET.iter().chain(trial.labels).chain(&severity) {
        let _ = writeln!(out, "              {label}: {}", double(value));
    }
    let _ = writeln!(out, "            exp_annotations:");
    for (label, text) in [("summary", alert.summary), ("description", description(alert).as_str())]
    {
        let _ = writeln!(out, "              {label}: {}", double(&expanded(alert, text)));
    }
}

/// Returns the description of an alert: its meaning and its remedy.
fn description(alert: &Alert) -> String {
    format!("{} {}", alert.meaning, (alert.remedy)())
}

/// Adds the labels of [`TARGET`] to a series.
fn of_target(series: &str) -> String {
    let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
    let target: Vec<String> =
        TARGET.iter().map(|(label, to)| format!("{label}=\"{to}\"")).collect();
    let between = if labels == "}" { "" } else { "," };
    format!("{name}{{{}{between}{labels}", target.join(","))
}

/// Replaces the templates of `text` by the labels and the value of the trial.
fn expanded(alert: &Alert, text: &str) -> String {
    let mut text = text.to_owned();
    for (label, value) in TARGET.iter().chain(alert.trial.labels) {
        text = text.replace(&format!("{{{{ $labels.{label} }}}}"), value);
    }
    for value in ["{{ $value }}", "{{ $value | humanize1024 }}"] {
        text = text.replace(value, alert.trial.value);
    }
    text
}

/// Quotes a scalar in the single-quoted style (YAML 1.2.2, section 7.3.2).
fn single(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Quotes a scalar in the double-quoted style (YAML 1.2.2, section 7.3.1).
fn double(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Breaks `text` between words, but not inside a template. The folded style joins the lines with spaces (YAML 1.2.2,
/// section 8.1.3).
fn wrapped(text: &str) -> Vec<String> {
    // The unit separator is no character of a text.
    let text = text.replace("{{ ", "{{\x1f").replace(" }}", "\x1f}}");
    let mut lines = vec![String::new()];
    for word in text.split(' ').map(|word| word.replace('\x1f', " ")) {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(&word),
            Some(line) if line.len() + 1 + word.len() <= COLUMNS => {
                line.push(' ');
                line.push_str(&word);
            }
            Some(_) | None => lines.push(word),
        }
    }
    lines
}
