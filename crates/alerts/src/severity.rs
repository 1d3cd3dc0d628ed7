//! How bad an event is.

/// From harmless to bad, so that `>=` asks "this bad or worse".
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

    /// Of an event. A word that is not known counts as the worst: rather one message too many.
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
