//! The table of alerts for Prometheus. `docs/alerts.md` has the same table, and a test compares them.
//!
//! An expression compares gauges wherever there is one: it then also holds at the first sample after a start of the
//! daemon or of Prometheus. Each alert has a trial, in which it fires and resolves. `promtool` runs the trials.

mod arrays;
mod drives;
mod pools;
mod services;

use strake_wording::Text;

/// The groups of all alerts.
pub const GROUPS: [Group; 4] = [
    Group { name: "strake-arrays", alerts: arrays::ALERTS },
    Group { name: "strake-drives", alerts: drives::ALERTS },
    Group { name: "strake-pools", alerts: pools::ALERTS },
    Group { name: "strake-services", alerts: services::ALERTS },
];

/// Time between two evaluations of the rules. An alert without a wait fires at most two such times after the metrics
/// changed, if Prometheus reads the metrics as often.
pub const INTERVAL: &str = "5s";

/// Alerts that are evaluated together.
pub struct Group {
    pub name: &'static str,
    pub alerts: &'static [Alert],
}

/// How urgent an alert is. The words are those of the events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Data are not served, are lost, or may be lost in one more failure.
    Critical,
    /// Action is needed, and no data are lost.
    Warning,
    /// No action is needed.
    Info,
}

impl Severity {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Warning => "warning",
            Self::Info => "info",
        }
    }
}

/// One alert.
pub struct Alert {
    pub name: &'static str,
    pub severity: Severity,
    /// The expression in PromQL. The alert fires for each series of its result.
    pub expr: &'static str,
    /// Time for which the expression must hold before the alert fires.
    pub hold: &'static str,
    /// One line, with templates of Prometheus for labels and the value.
    pub summary: &'static str,
    /// The meaning for the data, as sentences.
    pub meaning: &'static str,
    /// What the operator does.
    pub remedy: fn() -> Text,
    pub trial: Trial,
}

/// A test of an alert: the series, one sample per minute, and when the alert fires and has resolved. At [`QUIET`], it
/// does not fire yet. Series of other arrays and drives must not fire. Names and values are in the notation of
/// `promtool test rules`.
pub struct Trial {
    pub series: &'static [(&'static str, &'static str)],
    pub fires: &'static str,
    pub resolved: &'static str,
    /// The labels of the alert, without those of [`TARGET`] and the severity.
    pub labels: &'static [(&'static str, &'static str)],
    /// The value as the summary shows it.
    pub value: &'static str,
}

/// The time in each trial at which the alert does not fire yet.
pub const QUIET: &str = "4m";

/// Labels that Prometheus adds to each sample in a trial. The rules require this name of the job.
pub const TARGET: [(&str, &str); 2] = [("instance", "127.0.0.1:9464"), ("job", "strake")];

/// Values of a series that exists from the fifth to the tenth minute.
const PRESENT: &str = "_x5 1x5 stale";

/// Values of a gauge that is 1 from the fifth to the tenth minute.
const RAISED: &str = "0x4 1x5 0x5";

/// Values of a gauge that is 0 from the fifth to the tenth minute.
const LOWERED: &str = "1x4 0x5 1x5";

/// Values of a counter that increases in the fifth minute.
const COUNTED: &str = "0x4 2x80";

/// The name of the array in the labels of the alert.
const ARRAY: &str = "{{ $labels.array }}";
