//! The text form of OpenMetrics 1.0.0 (section "Text Format").

use super::Snapshot;
use std::fmt::{Display, Write as _};

/// The content type of the text that [`Text::end`] returns.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The value only increases, until its subject restarts. Samples have the suffix `_total`.
    Counter,
    /// The value can increase and decrease.
    Gauge,
    /// Counts of values by their upper limits, with the number and the sum of all values. All only increase.
    Histogram,
}

impl Kind {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A metric family: the samples of one name.
pub struct Family {
    pub name: &'static str,
    pub kind: Kind,
    pub help: &'static str,
    /// Writes all samples of the family.
    pub samples: fn(&Snapshot, &mut Text),
}

/// Writes the text.
#[derive(Default)]
pub struct Text {
    out: String,
    /// The name of the current samples, with its suffix.
    name: String,
}

impl Text {
    /// Starts `family`. The samples that follow belong to it.
    pub fn begin(&mut self, family: &Family) {
        let Family { name, kind, help, .. } = family;
        let word = kind.word();
        // Writing to a string does not fail.
        let _ = write!(self.out, "# HELP {name} {help}\n# TYPE {name} {word}\n");
        let suffix = if *kind == Kind::Counter { "_total" } else { "" };
        self.name = format!("{name}{suffix}");
    }

    /// Writes a sample.
    pub fn say(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.sample("", labels, value);
    }

    /// Writes a histogram (section "Histogram"): the number of values up to each limit, the number of all values, and
    /// their sum. The limits increase, and are texts of numbers with a decimal point.
    pub fn histogram<'a>(
        &mut self,
        labels: &[(&'a str, &'a str)],
        up_to: impl IntoIterator<Item = (&'a str, u64)>,
        (count, sum): (u64, f64),
    ) {
        let mut labels = labels.to_vec();
        for (limit, count) in up_to.into_iter().chain([("+Inf", count)]) {
            labels.push(("le", limit));
            self.sample("_bucket", &labels, count);
            labels.pop();
        }
        self.sample("_count", &labels, count);
        self.sample("_sum", &labels, sum);
    }

    fn sample(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl Display) {
        self.out.push_str(&self.name);
        self.out.push_str(suffix);
        for (at, (label, text)) in labels.iter().enumerate() {
            let before = if at == 0 { '{' } else { ',' };
            let _ = write!(self.out, "{before}{label}=\"");
            self.quote(text);
            self.out.push('"');
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.out, "{end} {value}");
    }

    /// Adds the value of a label. Three characters are escaped (section "ABNF", `escaped-char`).
    fn quote(&mut self, text: &str) {
        for character in text.chars() {
            match character {
                '\n' => self.out.push_str("\\n"),
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                other => self.out.push(other),
            }
        }
    }

    /// Returns the whole text.
    pub fn end(mut self) -> String {
        self.out.push_str("# EOF\n");
        self.out
    }
}
