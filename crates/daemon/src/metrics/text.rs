//! The text form of OpenMetrics 1.0.0 (section "Text Format").

use super::Snapshot;
use std::fmt::{Display, Write as _};

/// The content type of what [`Text::end`] returns.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Whether a figure only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It does, until its subject begins again. Samples have the suffix `_total`.
    Counter,
    /// It does not.
    Gauge,
}

impl Kind {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
        }
    }
}

/// Samples of one name.
pub struct Family {
    pub name: &'static str,
    pub kind: Kind,
    pub help: &'static str,
    /// Says all of them.
    pub samples: fn(&Snapshot, &mut Text),
}

/// Text that is being written.
#[derive(Default)]
pub struct Text {
    out: String,
    /// What is before the labels of a sample.
    name: String,
}

impl Text {
    /// What is said from here on is of `family`.
    pub fn begin(&mut self, family: &Family) {
        let Family { name, kind, help, .. } = family;
        let word = kind.word();
        // Writing to a string does not fail.
        let _ = write!(self.out, "# HELP {name} {help}\n# TYPE {name} {word}\n");
        let suffix = if *kind == Kind::Counter { "_total" } else { "" };
        self.name = format!("{name}{suffix}");
    }

    /// A sample.
    pub fn say(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.out.push_str(&self.name);
        for (at, (label, text)) in labels.iter().enumerate() {
            let before = if at == 0 { '{' } else { ',' };
            let _ = write!(self.out, "{before}{label}=\"");
            self.quote(text);
            self.out.push('"');
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.out, "{end} {value}");
    }

    /// Adds the value of a label, in which three characters mean something else (section "ABNF", `escaped-char`).
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

    /// All of it.
    pub fn end(mut self) -> String {
        self.out.push_str("# EOF\n");
        self.out
    }
}
