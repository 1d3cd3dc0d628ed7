//! Days on which the media errors of drives grew. A single error is repaired from redundancy; errors on several days
//! of a week announce a failure.

use std::collections::BTreeMap;

use strake_units::Uuid;

/// The days that count.
const WEEK: u64 = 7;
/// Days of the week with new errors after which a drive should be replaced.
const DAYS_MAX: usize = 3;

/// The error counters of the drives of members, by identity of the member, since the start of the daemon.
#[derive(Default)]
pub(crate) struct MediaErrors(BTreeMap<Uuid, Seen>);

#[derive(Default)]
struct Seen {
    errors: u64,
    /// Days with new errors, oldest first.
    days: Vec<u64>,
}

impl MediaErrors {
    /// Notes the counter of the drive of `member` on a day, which is a number that grows by 1 each day.
    pub(crate) fn note(&mut self, member: Uuid, errors: u64, day: u64) {
        let Some(seen) = self.0.get_mut(&member) else {
            // Errors before the start of the daemon have no day.
            self.0.insert(member, Seen { errors, days: Vec::new() });
            return;
        };
        if errors < seen.errors {
            // The counter was reset, or belongs to another drive with a copy of the label.
            seen.days.clear();
        }
        if errors > seen.errors && seen.days.last() != Some(&day) {
            seen.days.push(day);
        }
        seen.errors = errors;
        seen.days.retain(|with_errors| with_errors + WEEK > day);
    }

    /// Forgets all members but these.
    pub(crate) fn retain(&mut self, is_member: impl Fn(&Uuid) -> bool) {
        self.0.retain(|member, _| is_member(member));
    }

    /// Returns the reason why the drive of `member` should be replaced, if any.
    pub(crate) fn judge(&self, member: Uuid) -> Option<String> {
        let days = self.0.get(&member)?.days.len();
        (days >= DAYS_MAX)
            .then(|| format!("the drive had new media errors on {days} of {WEEK} days"))
    }
}

#[cfg(test)]
mod tests {
    use super::MediaErrors;
    use strake_units::Uuid;

    const MEMBER: Uuid = Uuid([1; 16]);
    const OTHER: Uuid = Uuid([2; 16]);

    /// Notes the counters in turn, and returns the verdict after each.
    fn verdicts(counters: &[(u64, u64)]) -> Vec<bool> {
        let mut media = MediaErrors::default();
        let verdict = |(day, errors): &(u64, u64)| {
            media.note(MEMBER, *errors, *day);
            media.judge(MEMBER).is_some()
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
    }

    #[test]
    fn a_counter_that_falls_starts_again() {
        assert_eq!(verdicts(&[(0, 5), (1, 6), (2, 7), (3, 0), (4, 1), (5, 2)]), [false; 6]);
        assert!(verdicts(&[(0, 5), (1, 0), (2, 1), (3, 2), (4, 3)])[4]);
    }

    #[test]
    fn a_member_that_is_gone_is_forgotten() {
        let mut media = MediaErrors::default();
        (0..4).for_each(|day| media.note(MEMBER, day, day));
        assert!(media.judge(MEMBER).is_some_and(|why| why.contains("3 of 7 days")));
        assert_eq!(media.judge(OTHER), None);
        media.retain(|member| *member == OTHER);
        assert_eq!(media.judge(MEMBER), None);
    }
}
