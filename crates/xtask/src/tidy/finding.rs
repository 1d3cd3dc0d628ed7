//! What a check finds.

use std::fmt;

/// One broken rule at one place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Path of the file, relative to the repository.
    pub path: String,
    /// Line, counted from 1; 0 when the finding is about the whole file.
    pub line: usize,
    /// Name of the rule, one of [`RULES`](super::RULES).
    pub rule: &'static str,
    /// What is wrong and what to do about it.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding { path, line, rule, message } = self;
        if *line == 0 {
            write!(f, "{path}: [{rule}] {message}")
        } else {
            write!(f, "{path}:{line}: [{rule}] {message}")
        }
    }
}
