//! The severity of an event.

/// The severities in ascending order, so that `>=` means "at least this severity".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Severity {
    Info,
    Warning,
    Critical,
}

impl Severity {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "info" => Some(Self::Info),
            "warning" => Some(Self::Warning),
            "critical" => Some(Self::Critical),
            _ => None,
        }
    }

    /// Returns the severity of an event. An unknown word counts as critical, because an unnecessary message is better
    /// than a missing one.
    pub(crate) fn of(event: &strake_api::v1::Event) -> Self {
        Self::parse(&event.severity).unwrap_or(Self::Critical)
    }

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}
