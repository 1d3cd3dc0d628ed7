//! Times of day for people. Each time states its zone: an offset from UTC for the time zone of this host, or `Z` for
//! UTC.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// How times are printed: this machine's time, or UTC.
pub struct Clock {
    zone: TimeZone,
}

impl Clock {
    /// This machine's time zone (`TZ`, or the system's), or UTC.
    #[must_use]
    pub fn new(utc: bool) -> Self {
        Self { zone: if utc { TimeZone::UTC } else { TimeZone::system() } }
    }

    /// Microseconds since 1970 as `2026-11-21 06:12:03+01:00`, or `2026-11-21 05:12:03Z` if the zone is UTC.
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
                let zoned = time.to_zoned(self.zone.clone());
                let offset = if zoned.offset().is_zero() { "Z" } else { "%:z" };
                zoned.strftime(&format!("{format}{offset}")).to_string()
            }
            None => "at an unknown time".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Clock;
    use jiff::tz::{Offset, TimeZone};

    #[test]
    fn every_time_states_its_zone() {
        let at = |seconds| {
            let zone = TimeZone::fixed(Offset::from_seconds(seconds).expect("it is small"));
            Clock { zone }.show(1_795_241_523_000_000)
        };
        assert_eq!(at(3600), "2026-11-21 07:12:03+01:00");
        assert_eq!(at(-12_600), "2026-11-21 02:42:03-03:30");
        assert_eq!(at(0), "2026-11-21 06:12:03Z");
        assert_eq!(Clock::new(true).show_ms(1_795_241_523_004_000), "2026-11-21 06:12:03.004Z");
    }
}
