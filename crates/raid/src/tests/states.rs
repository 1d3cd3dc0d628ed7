//! Tests of every transition of the member states, and of the condition of the array for states of its members.

use strake_units::{MemberSet, StripeIndex};

use super::geometry;
use crate::{ConditionSet, IllegalTransition, Level, MemberEvent, MemberState, absent_members};

const IN_SYNC: MemberState = MemberState::InSync;
const FAULTY: MemberState = MemberState::Faulty;
const MISSING: MemberState = MemberState::Missing;

const fn rebuilding(recovered_stripes: u64) -> MemberState {
    MemberState::Rebuilding { recovered_stripes }
}

/// The table contains the next state for every state and every event, or none if the transition is illegal.
#[test]
fn every_transition_is_in_this_table() {
    use MemberEvent as E;
    let from = [IN_SYNC, rebuilding(5), FAULTY, MISSING];
    let table: [(MemberEvent, [Option<MemberState>; 4]); 10] = [
        (E::WriteFailed, [Some(FAULTY), Some(FAULTY), Some(FAULTY), Some(MISSING)]),
        (E::OperatorFailed, [Some(FAULTY), Some(FAULTY), Some(FAULTY), Some(FAULTY)]),
        (E::Vanished, [Some(MISSING), Some(MISSING), Some(FAULTY), Some(MISSING)]),
        (E::Replaced, [None, None, Some(rebuilding(0)), Some(rebuilding(0))]),
        (E::Readded, [None, None, Some(rebuilding(0)), Some(rebuilding(0))]),
        (E::ReturnedCurrent, [None, None, None, Some(IN_SYNC)]),
        (E::ReturnedStale, [None, None, None, Some(rebuilding(0))]),
        (E::Progress { stripes: 7 }, [None, Some(rebuilding(7)), None, None]),
        (E::Progress { stripes: 4 }, [None, None, None, None]),
        (E::Finished, [None, Some(IN_SYNC), None, None]),
    ];
    for (event, row) in table {
        for (state, want) in from.into_iter().zip(row) {
            let want = want.ok_or(IllegalTransition { state, event });
            assert_eq!(state.next(event), want, "{state:?} {event:?}");
        }
    }
    assert_eq!(rebuilding(5).next(E::Progress { stripes: 5 }), Ok(rebuilding(5)));
    let error = IN_SYNC.next(E::Progress { stripes: 9 }).expect_err("nothing to rebuild");
    assert!(
        error.to_string().contains("in sync cannot change because its rebuild reached stripe 9")
    );
}

#[test]
fn absence_follows_the_rebuild() {
    let states = [IN_SYNC, rebuilding(5), FAULTY, MISSING];
    let check = |states: &[MemberState], stripe, want: MemberSet| {
        assert_eq!(absent_members(states, StripeIndex(stripe)), want);
    };
    check(&states, 0, MemberSet::of(2).with(3));
    check(&states, 4, MemberSet::of(2).with(3));
    check(&states, 5, MemberSet::of(1).with(2).with(3));
    check(&[MISSING; 64], 0, MemberSet::ALL);
}

#[test]
fn conditions_follow_from_states() {
    let check = |level: Level, states: &[MemberState], want: &str| {
        let groups = level.is_grouped().then_some(level.parity_strips() + 2);
        let geometry = geometry(level, states.len(), groups, 1, 10);
        assert_eq!(ConditionSet::of(&geometry, states).to_string(), want, "{level} {states:?}");
    };
    check(Level::Raid0, &[IN_SYNC, IN_SYNC], "online");
    check(Level::Raid0, &[IN_SYNC, FAULTY], "lost");
    check(Level::Raid1, &[MISSING, IN_SYNC, IN_SYNC], "online degraded");
    check(Level::Raid1, &[MISSING, IN_SYNC, FAULTY], "online degraded no_redundancy");
    check(Level::Raid10, &[IN_SYNC, MISSING, MISSING, IN_SYNC], "online degraded no_redundancy");
    check(Level::Raid10, &[MISSING, MISSING, IN_SYNC, IN_SYNC], "lost");
    check(Level::Raid5, &[IN_SYNC, IN_SYNC, IN_SYNC], "online");
    check(
        Level::Raid5,
        &[IN_SYNC, rebuilding(5), IN_SYNC],
        "online degraded no_redundancy rebuilding",
    );
    check(Level::Raid5, &[IN_SYNC, rebuilding(10), IN_SYNC], "online rebuilding");
    check(Level::Raid5, &[IN_SYNC, rebuilding(5), MISSING], "rebuilding lost");
    check(Level::Raid6, &[IN_SYNC, FAULTY, IN_SYNC, IN_SYNC], "online degraded");
    let grouped = [IN_SYNC, MISSING, IN_SYNC, FAULTY, IN_SYNC, IN_SYNC];
    check(Level::Raid50, &grouped, "online degraded no_redundancy");
    let grouped = [IN_SYNC, MISSING, FAULTY, IN_SYNC, IN_SYNC, IN_SYNC];
    check(Level::Raid50, &grouped, "lost");
}
