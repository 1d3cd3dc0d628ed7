//! Times of day for people.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// How times are printed: this machine's time, or UTC.
pub struct Clock {
    zone: TimeZone,
    suffix: &'static str,
}

impl Clock {
    /// This machine's time zone (`TZ`, or the system's), or UTC.
    #[must_use]
    pub fn new(utc: bool) -> Self {
        match utc {
            true => Self { zone: TimeZone::UTC, suffix: "Z" },
            false => Self { zone: TimeZone::system(), suffix: "" },
        }
    }

    /// Microseconds since 1970 as `2026-11-21 06:12:03`, with a `Z` when it is UTC.
    #[must_use]
    pub fn show(&self, time_us: u64) -> String {
        self.shown(time_us, "%Y-%m-%d %H:%M:%S")
    }

    /// As [`show`](Self::show), with milliseconds.
    #[must_use]
    pub fn show_ms(&self, time_us: u64) -> String {
        self.shown(time_us, "%Y-%m-%d %H:%M:%S%.3f")
    }

    fn shown(&self, time_us: u64, format: &str) -> String {
        let time = i64::try_from(time_us).ok().and_then(|us| Timestamp::from_microsecond(us).ok());
        match time {
            Some(time) => {
                let shown = time.to_zoned(self.zone.clone()).strftime(format);
                format!("{shown}{}", self.suffix)
            }
            None => "at an unknown time".to_owned(),
        }
    }
}
