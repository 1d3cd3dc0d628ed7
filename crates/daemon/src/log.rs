//! The log on standard error.

use crate::args::LogFormat;
use std::io::{IsTerminal, stderr};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::{ParseError, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Starts to log, in `format`, the lines that `RUST_LOG` selects, and warns if it cannot be parsed.
pub fn start(format: LogFormat) {
    let text = std::env::var("RUST_LOG").unwrap_or_default();
    let (filter, wrong) = match filter(&text) {
        Ok(filter) => (filter, None),
        Err(error) => (of_level_info(), Some(error)),
    };
    let lines = tracing_subscriber::registry().with(filter);
    let log = tracing_subscriber::fmt::layer().with_writer(stderr).with_target(false);
    match format {
        LogFormat::Text => lines.with(log.with_ansi(stderr().is_terminal())).init(),
        LogFormat::Json => lines.with(log.json().flatten_event(true)).init(),
    }
    if let Some(reason) = wrong {
        tracing::warn!(%reason, "RUST_LOG={text:?} cannot be parsed, so level info is used; it takes levels and \
                                 TARGET=LEVEL, such as warn,strake_control=debug");
    }
}

/// Returns the filter that `text` describes: levels, and levels of targets, such as `warn,strake_control=debug`; level
/// `info` if it is empty. The daemon has no spans, and a filter with spans would link an engine of regular expressions.
///
/// # Errors
/// `text` cannot be parsed.
fn filter(text: &str) -> Result<Targets, ParseError> {
    if text.is_empty() { Ok(of_level_info()) } else { text.parse() }
}

fn of_level_info() -> Targets {
    Targets::new().with_default(LevelFilter::INFO)
}

#[cfg(test)]
mod tests {
    use super::filter;
    use tracing::Level;

    #[test]
    fn the_text_chooses_levels_of_targets() {
        let check = |text: &str, other: Level, ours: Level| {
            let filter = filter(text).expect("it can be parsed");
            for (target, most) in [("other", other), ("strake_control::watch", ours)] {
                for level in [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE] {
                    let logged = filter.would_enable(target, &level);
                    assert_eq!(logged, level <= most, "{text:?}: {target} at {level}");
                }
            }
        };
        check("", Level::INFO, Level::INFO);
        check("info", Level::INFO, Level::INFO);
        check("debug", Level::DEBUG, Level::DEBUG);
        check("warn,strake_control=debug", Level::WARN, Level::DEBUG);
        for wrong in ["a=b=c", "strake_control=loud"] {
            assert!(filter(wrong).is_err(), "{wrong}");
        }
    }
}
