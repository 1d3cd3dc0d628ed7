use super::{ArrayState, Fact, facts_of, pattern_of};
use crate::policy::samples::member;
use std::collections::BTreeSet;
use strake_dev_uring::Pattern;
use strake_raid::MemberState;

/// The order of the documentation, as a chain of conditions.
fn documented(facts: &BTreeSet<Fact>) -> Pattern {
    let has = |fact| facts.contains(&fact);
    if has(Fact::Located) {
        Pattern::Locate
    } else if has(Fact::Failed) {
        Pattern::Fail
    } else if has(Fact::Filled) {
        Pattern::Rebuild
    } else if has(Fact::Sick) {
        Pattern::Pfa
    } else if has(Fact::Spare) {
        Pattern::Hotspare
    } else if has(Fact::Member(ArrayState::Lost)) {
        Pattern::Ifa
    } else if has(Fact::Member(ArrayState::Critical)) {
        Pattern::Ica
    } else if has(Fact::Member(ArrayState::Sound)) {
        Pattern::Ok
    } else {
        Pattern::Off
    }
}

#[test]
fn every_set_of_facts_has_the_documented_pattern_exhaustive() {
    let all = [
        Fact::Member(ArrayState::Sound),
        Fact::Member(ArrayState::Critical),
        Fact::Member(ArrayState::Lost),
        Fact::Spare,
        Fact::Sick,
        Fact::Filled,
        Fact::Failed,
        Fact::Located,
    ];
    let mut seen = BTreeSet::new();
    for set in 0..1_u32 << all.len() {
        let facts: BTreeSet<Fact> = all
            .into_iter()
            .enumerate()
            .filter(|(at, _)| set >> at & 1 == 1)
            .map(|(_, f)| f)
            .collect();
        assert_eq!(pattern_of(&facts), documented(&facts), "{facts:?}");
        seen.insert(pattern_of(&facts));
    }
    assert_eq!(seen, Pattern::ALL.into_iter().collect(), "every pattern has a reason");
}

#[test]
fn every_state_of_a_member_has_its_facts_exhaustive() {
    let states = [
        MemberState::InSync,
        MemberState::Rebuilding { recovered_stripes: 0 },
        MemberState::Faulty,
        MemberState::Missing,
    ];
    for state in states {
        for array in [ArrayState::Sound, ArrayState::Critical, ArrayState::Lost] {
            for sick in [false, true] {
                let facts = facts_of(&member(state), array, sick);
                let facts: BTreeSet<Fact> = facts.into_iter().collect();
                let want = match (state, array, sick) {
                    (MemberState::Faulty | MemberState::Missing, _, _) => Pattern::Fail,
                    (MemberState::Rebuilding { .. }, _, _) => Pattern::Rebuild,
                    (MemberState::InSync, _, true) => Pattern::Pfa,
                    (MemberState::InSync, ArrayState::Lost, false) => Pattern::Ifa,
                    (MemberState::InSync, ArrayState::Critical, false) => Pattern::Ica,
                    (MemberState::InSync, ArrayState::Sound, false) => Pattern::Ok,
                };
                assert_eq!(pattern_of(&facts), want, "{state:?} {array:?} {sick}");
            }
        }
    }
}
