//! Tests that the kept files and documents match the tables of metrics, alerts and panels.
//!
//! `cargo xtask monitoring` writes the files.

use super::alerts::{Alert, GROUPS};
use super::dashboard::{ROWS, dashboard};
use super::families::FAMILIES;
use super::rules::{rules, trials};
use super::text::Kind;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Series that Prometheus itself has.
const OF_PROMETHEUS: [&str; 2] = ["ALERTS", "up"];

fn path_of(file: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(file)
}

fn alerts() -> impl Iterator<Item = &'static Alert> {
    GROUPS.iter().flat_map(|group| group.alerts)
}

fn queries() -> impl Iterator<Item = &'static str> {
    let panels = ROWS.iter().flat_map(|row| row.panels);
    panels.flat_map(|panel| panel.queries).map(|(expr, _)| *expr)
}

/// The names of all samples that the daemon serves.
fn samples() -> BTreeSet<String> {
    let suffix = |kind| match kind {
        Kind::Counter => "_total",
        Kind::Gauge => "",
        Kind::Histogram => "_bucket",
    };
    FAMILIES.iter().map(|family| format!("{}{}", family.name, suffix(family.kind))).collect()
}

/// The names of metrics in an expression: those words that are no labels, functions, keywords or texts.
fn metrics_of(expr: &str) -> BTreeSet<String> {
    let outside: String = expr.split('"').step_by(2).collect();
    let words = outside.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let is_metric = |word: &&str| word.starts_with("strake_") || OF_PROMETHEUS.contains(word);
    words.filter(is_metric).map(str::to_owned).collect()
}

#[test]
fn the_kept_files_for_monitoring_are_those_of_the_tables() {
    let is_writing = std::env::var_os("STRAKE_WRITE_MONITORING").is_some();
    for (file, fresh) in [
        ("packaging/prometheus/strake.rules.yml", rules()),
        ("packaging/prometheus/strake.test.yml", trials()),
        ("packaging/grafana/strake.json", dashboard()),
    ] {
        let path = path_of(file);
        if is_writing {
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("it can be created");
            std::fs::write(path, fresh).expect("it can be written");
        } else {
            let is_same = std::fs::read_to_string(path).is_ok_and(|kept| kept == fresh);
            assert!(is_same, "{file} differs from the tables: run cargo xtask monitoring");
        }
    }
}

#[test]
fn monitoring_uses_only_metrics_that_exist() {
    let known = samples();
    for expr in alerts().map(|alert| alert.expr).chain(queries()) {
        let named = metrics_of(expr);
        assert!(!named.is_empty(), "{expr} names no metric");
        for name in named.iter().filter(|name| !OF_PROMETHEUS.contains(&name.as_str())) {
            assert!(known.contains(name), "{name} does not exist: {expr}");
        }
    }
    for series in alerts().flat_map(|alert| alert.trial.series).map(|(series, _)| *series) {
        let named = metrics_of(series);
        assert_eq!(named.len(), 1, "{series}");
        assert!(named.iter().all(|name| known.contains(name) || name == "up"), "{series}");
    }
}

#[test]
fn the_dashboard_shows_every_metric() {
    let shown: BTreeSet<String> = queries().flat_map(metrics_of).collect();
    for name in samples() {
        assert!(shown.contains(&name), "no panel shows {name}");
    }
}

#[test]
fn the_trial_of_an_alert_has_a_metric_of_its_expression() {
    for alert in alerts() {
        let named = metrics_of(alert.expr);
        let of_trial: BTreeSet<String> =
            alert.trial.series.iter().flat_map(|(series, _)| metrics_of(series)).collect();
        assert!(of_trial.is_subset(&named), "{}: {of_trial:?}", alert.name);
        assert!(alert.expr.is_ascii() && !alert.meaning.is_empty(), "{}", alert.name);
    }
}

#[test]
fn the_document_lists_every_alert_and_no_other() {
    let text = std::fs::read_to_string(path_of("docs/alerts.md")).expect("the document is there");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `Strake"));
    let documented: BTreeSet<[String; 3]> = rows
        .map(|row| {
            let mut cells = row.split('|').map(|cell| cell.trim().replace('`', ""));
            let mut next = || cells.next().expect("a row has four cells");
            [format!("Strake{}", next()), next(), next()]
        })
        .collect();
    let listed = alerts().map(|alert| {
        let hold = if alert.hold == "0s" { "-" } else { alert.hold };
        [alert.name, alert.severity.word(), hold].map(str::to_owned)
    });
    let listed: Vec<[String; 3]> = listed.collect();
    assert_eq!(documented, listed.iter().cloned().collect());
    assert_eq!(documented.len(), listed.len(), "a name is there twice");
}
