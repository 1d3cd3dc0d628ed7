//! Days on which the media errors of drives grew. A single error is repaired from redundancy; errors on several days
//! of a week announce a failure.

use std::collections::BTreeMap;

/// The days that count.
const WEEK: u64 = 7;
/// Days of the week with new errors after which a drive should be replaced.
const DAYS_MAX: usize = 3;

/// The error counters of drives, by path, since the start of the daemon.
#[derive(Default)]
pub(crate) struct MediaErrors(BTreeMap<String, Seen>);

#[derive(Default)]
struct Seen {
    errors: u64,
    /// Days with new errors, oldest first.
    days: Vec<u64>,
}

impl MediaErrors {
    /// Notes the counter of the drive at `path` on a day, which is a number that grows by 1 each day.
    pub(crate) fn note(&mut self, path: &str, errors: u64, day: u64) {
        let Some(seen) = self.0.get_mut(path) else {
            // Errors before the start of the daemon have no day.
            self.0.insert(path.to_owned(), Seen { errors, days: Vec::new() });
            return;
        };
        if errors > seen.errors && seen.days.last() != Some(&day) {
            seen.days.push(day);
        }
        seen.errors = errors;
        seen.days.retain(|with_errors| with_errors + WEEK > day);
    }

    /// Forgets all drives that are not at one of these paths.
    pub(crate) fn retain(&mut self, is_there: impl Fn(&str) -> bool) {
        self.0.retain(|path, _| is_there(path));
    }

    /// Returns the reason why the drive at `path` should be replaced, if any.
    pub(crate) fn judge(&self, path: &str) -> Option<String> {
        let days = self.0.get(path)?.days.len();
        (days >= DAYS_MAX)
            .then(|| format!("the drive had new media errors on {days} of {WEEK} days"))
    }
}

#[cfg(test)]
mod tests {
    use super::MediaErrors;

    /// Notes the counters in turn, and returns the verdict after each.
    fn verdicts(counters: &[(u64, u64)]) -> Vec<bool> {
        let mut media = MediaErrors::default();
        let verdict = |(day, errors): &(u64, u64)| {
            media.note("/dev/nvme0n1", *errors, *day);
            media.judge("/dev/nvme0n1").is_some()
        };
        counters.iter().map(verdict).collect()
    }

    #[test]
    fn errors_on_three_days_of_a_week_announce_a_failure() {
        assert_eq!(verdicts(&[(0, 9), (0, 10), (1, 11), (6, 12)]), [false, false, false, true]);
        assert_eq!(verdicts(&[(0, 9), (0, 10), (1, 11), (7, 12)]), [false; 4], "the first is past");
        assert_eq!(verdicts(&[(0, 0), (0, 1), (0, 2), (0, 3), (0, 4)]), [false; 5], "one day");
        assert_eq!(verdicts(&[(0, 500), (1, 500), (2, 500), (3, 500)]), [false; 4], "no growth");
        assert_eq!(verdicts(&[(0, 9), (1, 10), (2, 11)]), [false; 3], "earlier errors have no day");
        // Another drive is at the path, and counts from 0.
        assert_eq!(verdicts(&[(0, 5), (1, 6), (2, 7), (3, 0), (4, 1)])[2..], [false, false, true]);
    }

    #[test]
    fn a_drive_that_is_gone_is_forgotten() {
        let mut media = MediaErrors::default();
        (0..4).for_each(|day| media.note("/dev/nvme0n1", day, day));
        assert!(media.judge("/dev/nvme0n1").is_some_and(|why| why.contains("3 of 7 days")));
        assert_eq!(media.judge("/dev/nvme1n1"), None);
        media.retain(|path| path == "/dev/nvme1n1");
        assert_eq!(media.judge("/dev/nvme0n1"), None);
    }
}
