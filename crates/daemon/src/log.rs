//! The log on standard error.

use crate::args::LogFormat;
use std::io::{IsTerminal, stderr};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Starts to log, in `format`, the lines that `RUST_LOG` chooses.
pub fn start(format: LogFormat) {
    let filter = filter(std::env::var("RUST_LOG").ok().as_deref());
    let lines = tracing_subscriber::registry().with(filter);
    let log = tracing_subscriber::fmt::layer().with_writer(stderr).with_target(false);
    match format {
        LogFormat::Text => lines.with(log.with_ansi(stderr().is_terminal())).init(),
        LogFormat::Json => lines.with(log.json().flatten_event(true)).init(),
    }
}

/// The lines that `text` chooses: levels, and levels of targets, such as `warn,strake_control=debug`. Level `info`
/// without a text, or with one that cannot be parsed. The daemon has no spans to filter by, and a filter that knows
/// them links an engine of regular expressions.
fn filter(text: Option<&str>) -> Targets {
    let chosen = text.filter(|text| !text.is_empty()).and_then(|text| text.parse().ok());
    chosen.unwrap_or_else(|| Targets::new().with_default(LevelFilter::INFO))
}

#[cfg(test)]
mod tests {
    use super::filter;
    use tracing::Level;

    #[test]
    fn the_text_chooses_levels_of_targets() {
        let check = |text: Option<&str>, other: Level, ours: Level| {
            let filter = filter(text);
            for (target, most) in [("other", other), ("strake_control::watch", ours)] {
                for level in [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE] {
                    let logged = filter.would_enable(target, &level);
                    assert_eq!(logged, level <= most, "{text:?}: {target} at {level}");
                }
            }
        };
        for text in [None, Some(""), Some("info"), Some("a=b=c"), Some("strake_control=loud")] {
            check(text, Level::INFO, Level::INFO);
        }
        check(Some("debug"), Level::DEBUG, Level::DEBUG);
        check(Some("warn,strake_control=debug"), Level::WARN, Level::DEBUG);
    }
}
