//! Automatic re-adding of members whose drives were unresponsive, when the drives answer again, unless this happened
//! too often.
//!
//! Such members are recorded, so that a restart does not change the result. Both the selection of these members and the
//! reaction to their return are functions of the known state.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use strake_block::IoErrorKind;
use strake_engine::{MemberCause, MemberStatus};
use strake_raid::MemberState;
use strake_units::Uuid;

use crate::limits::{RETURN_RETRY, RETURN_WINDOW, RETURNS_MAX};
use crate::record::store::SilentRecord;

/// The reason why a member is out of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Away {
    /// The drive was not found, or disappeared.
    Missing,
    /// The drive did not answer in time.
    Silent,
    /// The member failed otherwise, or the operator failed it.
    Failed,
}

/// The reaction to a member that is out when its drive answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The member is re-added.
    TakeBack,
    /// Re-adding the member requires a command.
    ByHand,
    /// The member was re-added too often. From now on, re-adding requires a command.
    Unsteady,
}

/// Returns the reaction to a member that is out for the reason `away` when its drive answers at `now`. `auto` is the
/// setting of the array, and `tries` are the times of earlier automatic re-adds of the member.
pub(crate) fn verdict(away: Away, auto: bool, tries: &[Instant], now: Instant) -> Verdict {
    let lately = tries.iter().filter(|at| now.duration_since(**at) < RETURN_WINDOW).count();
    match away {
        Away::Failed => Verdict::ByHand,
        Away::Missing | Away::Silent if !auto => Verdict::ByHand,
        Away::Missing => Verdict::TakeBack,
        Away::Silent if lately < RETURNS_MAX => Verdict::TakeBack,
        Away::Silent => Verdict::Unsteady,
    }
}

/// Returns the members to re-add when they answer. `known` is the earlier record. The labels do not contain the reason
/// of a failure, so the record of an earlier activation is kept until this activation knows more.
pub(crate) fn silent_members(
    members: &[MemberStatus],
    known: &[SilentRecord],
    is_by_hand: impl Fn(Uuid) -> bool,
) -> Vec<SilentRecord> {
    let record = |(slot, member): (usize, &MemberStatus)| {
        let uuid = member.uuid.to_string();
        let before = known.iter().find(|k| usize::from(k.slot) == slot && k.member == uuid);
        match (member.state, member.cause) {
            (MemberState::Faulty, Some(MemberCause::Error(IoErrorKind::Timeout))) => {
                let path = match member.path.as_str() {
                    "" => before?.path.clone(),
                    path => path.to_owned(),
                };
                (!is_by_hand(member.uuid)).then_some(SilentRecord {
                    slot: slot as u8,
                    member: uuid,
                    path,
                })
            }
            (MemberState::Faulty, None) => before.cloned(),
            (MemberState::Faulty, Some(MemberCause::ByHand | MemberCause::Error(_)))
            | (MemberState::Missing | MemberState::InSync | MemberState::Rebuilding { .. }, _) => {
                None
            }
        }
    };
    members.iter().enumerate().filter_map(record).collect()
}

/// The history of one member.
#[derive(Default)]
struct Tries {
    at: Vec<Instant>,
    /// Time before which its drive is not checked.
    not_before: Option<Instant>,
    by_hand: bool,
}

/// Automatic re-adds and failed attempts, by identity of the member.
#[derive(Default)]
pub(crate) struct Returns {
    members: BTreeMap<Uuid, Tries>,
}

impl Returns {
    /// Returns the times of automatic re-adds of `member`.
    pub(crate) fn tries(&self, member: Uuid) -> &[Instant] {
        self.members.get(&member).map_or(&[], |tries| &tries.at)
    }

    pub(crate) fn is_by_hand(&self, member: Uuid) -> bool {
        self.members.get(&member).is_some_and(|tries| tries.by_hand)
    }

    pub(crate) fn is_due(&self, member: &str) -> bool {
        let now = Instant::now();
        let of = self.members.iter().find(|(uuid, _)| uuid.to_string() == member);
        of.and_then(|(_, tries)| tries.not_before).is_none_or(|at| at <= now)
    }

    /// Counts an automatic re-add of `member`.
    pub(crate) fn count(&mut self, member: Uuid) {
        let tries = self.members.entry(member).or_default();
        let now = Instant::now();
        tries.at.retain(|at| now.duration_since(*at) < RETURN_WINDOW);
        tries.at.push(now);
    }

    /// Postpones the next check of the drive of `member`.
    fn postpone(&mut self, member: Uuid, time: Duration) {
        self.members.entry(member).or_default().not_before = Some(Instant::now() + time);
    }

    /// Postpones the next check after a failed check or re-add.
    pub(crate) fn look_later(&mut self, member: Uuid) {
        self.postpone(member, RETURN_RETRY);
    }

    /// Disables automatic re-adding of `member`.
    pub(crate) fn leave_to_hand(&mut self, member: Uuid) {
        self.members.entry(member).or_default().by_hand = true;
    }

    /// Clears the history of `member` after a command re-added it.
    pub(crate) fn forget(&mut self, member: Uuid) {
        self.members.remove(&member);
    }
}

#[cfg(test)]
mod tests {
    use super::{Away, Returns, Verdict, silent_members, verdict};
    use crate::limits::{RETURN_WINDOW, RETURNS_MAX};
    use crate::policy::samples;
    use crate::record::store::SilentRecord;
    use std::time::{Duration, Instant};
    use strake_block::IoErrorKind;
    use strake_engine::{MemberCause, MemberStatus};
    use strake_raid::MemberState;
    use strake_units::Uuid;

    #[test]
    fn a_drive_that_answers_again_is_taken_back_unless_it_hangs_again_and_again() {
        let now = Instant::now() + 2 * RETURN_WINDOW;
        let ago = |minutes: u64| now - Duration::from_secs(60 * minutes);
        let few: Vec<Instant> = (1..RETURNS_MAX as u64).map(ago).collect();
        let many: Vec<Instant> = (1..=RETURNS_MAX as u64).map(ago).collect();
        let old: Vec<Instant> = (1..=RETURNS_MAX as u64).map(|n| ago(59 + n)).collect();
        let check = |away, auto, tries: &[Instant], want| {
            assert_eq!(verdict(away, auto, tries, now), want, "{away:?} {auto} {}", tries.len());
        };
        check(Away::Silent, true, &[], Verdict::TakeBack);
        check(Away::Silent, true, &few, Verdict::TakeBack);
        check(Away::Silent, true, &many, Verdict::Unsteady);
        check(Away::Silent, true, &old, Verdict::TakeBack);
        check(Away::Silent, false, &[], Verdict::ByHand);
        check(Away::Silent, false, &many, Verdict::ByHand);
        // The removal of a drive does not imply a defect.
        check(Away::Missing, true, &many, Verdict::TakeBack);
        check(Away::Missing, false, &[], Verdict::ByHand);
        check(Away::Failed, true, &[], Verdict::ByHand);
    }

    #[test]
    fn a_member_that_hung_is_remembered_until_it_is_known_to_be_out_for_another_reason() {
        let uuid = Uuid([7; 16]);
        let record =
            |path: &str| SilentRecord { slot: 1, member: uuid.to_string(), path: path.to_owned() };
        let check = |state, cause, path: &str, known: &[SilentRecord], by_hand, want: &str| {
            let path = path.to_owned();
            let member = |uuid, state, cause| MemberStatus {
                uuid,
                cause,
                path: path.clone(),
                ..samples::member(state)
            };
            let well = member(Uuid([1; 16]), MemberState::InSync, None);
            let seen = silent_members(&[well, member(uuid, state, cause)], known, |of| {
                assert_eq!(of, uuid);
                by_hand
            });
            let want: Vec<SilentRecord> =
                (!want.is_empty()).then(|| record(want)).into_iter().collect();
            assert_eq!(seen, want, "{state:?} {cause:?} {path} {by_hand}");
        };
        let (faulty, error) = (MemberState::Faulty, MemberCause::Error);
        let timeout = Some(error(IoErrorKind::Timeout));
        check(faulty, timeout, "/a", &[], false, "/a");
        check(faulty, timeout, "/b", &[record("/a")], false, "/b");
        check(faulty, timeout, "/a", &[record("/a")], true, "");
        // After a restart, only the record contains the reason and the path.
        check(faulty, None, "", &[record("/a")], false, "/a");
        check(faulty, None, "", &[], false, "");
        let other = SilentRecord { member: Uuid([9; 16]).to_string(), ..record("/a") };
        check(faulty, None, "", &[other], false, "");
        // Since then, the member was failed by the operator, failed otherwise, disappeared, or returned.
        let known = [record("/a")];
        check(faulty, Some(MemberCause::ByHand), "/a", &known, false, "");
        check(faulty, Some(error(IoErrorKind::Device)), "/a", &known, false, "");
        check(MemberState::Missing, Some(error(IoErrorKind::Gone)), "/a", &known, false, "");
        check(MemberState::InSync, None, "/a", &known, false, "");
    }

    #[test]
    fn a_command_makes_good_what_was_before() {
        let (mut returns, member) = (Returns::default(), Uuid([3; 16]));
        returns.count(member);
        returns.leave_to_hand(member);
        assert!(returns.is_by_hand(member) && returns.tries(member).len() == 1);
        returns.forget(member);
        assert!(!returns.is_by_hand(member) && returns.tries(member).is_empty());
    }

    #[test]
    fn a_drive_is_not_looked_at_before_its_time() {
        let (mut returns, member) = (Returns::default(), Uuid([3; 16]));
        assert!(returns.is_due(&member.to_string()));
        returns.postpone(member, Duration::from_secs(3600));
        assert!(!returns.is_due(&member.to_string()));
        assert!(returns.is_due(&Uuid([4; 16]).to_string()));
    }
}
