//! One scenario for each row of the failure matrix that concerns assembly.

use strake_units::{MemberIndex, Uuid};

use super::{label, uuid};
use crate::{
    Activation, Assembled, COMPAT_CLEAN_START, COMPAT_HISTORY, COMPAT_MEMBER_BITMAPS, Found,
    IgnoreReason, Lacks, Policy, RecordedState, Refusal, Returning, StaleReason, Superblock,
    Verdict, assemble, returning,
};
use RecordedState::{Faulty, InSync, Missing, Rebuilding};

const WAIT: Policy = Policy { allow_degraded: false };
const START: Policy = Policy { allow_degraded: true };

/// Returns the label `array` on the member of `slot`, on the drive with the same number.
fn on(array: &Superblock, slot: u8) -> Found {
    let mut label = array.clone();
    label.slot = MemberIndex(slot);
    label.member = label.members[usize::from(slot)].uuid;
    let (drive, device_bytes) = (usize::from(slot), 64 << 20);
    Found { drive, label, device_bytes, confirmed: false, before: None }
}

/// Returns the next label of `array`, with the given states.
fn after(array: &Superblock, changes: &[(usize, RecordedState)]) -> Superblock {
    let mut next = array.clone();
    next.generation += 1;
    for (slot, state) in changes {
        next.members[*slot].state = *state;
        if *state == InSync {
            next.members[*slot].in_sync_generation = next.generation;
        }
    }
    next
}

/// Returns a new activation of `array` with the given states.
fn activated(array: &Superblock, epoch: Uuid, changes: &[(usize, RecordedState)]) -> Superblock {
    let mut next = after(array, changes);
    next.parent_epoch = array.epoch;
    next.epoch = epoch;
    next
}

fn assembled(found: Vec<Found>, policy: Policy) -> Assembled {
    match assemble(found, policy).pop() {
        Some(Verdict::Assembled(assembled)) => assembled,
        other => panic!("expected an assembled array, got {other:?}"),
    }
}

fn states(found: Vec<Found>, policy: Policy) -> Vec<RecordedState> {
    assembled(found, policy).members.iter().map(|member| member.state).collect()
}

fn waits_for(found: Vec<Found>) -> Vec<u8> {
    match assemble(found, WAIT).pop() {
        Some(Verdict::Waiting { missing, .. }) => missing.iter().map(|slot| slot.0).collect(),
        other => panic!("expected a wait, got {other:?}"),
    }
}

fn refusal(found: Vec<Found>) -> Refusal {
    match assemble(found, START).pop() {
        Some(Verdict::Refused { reason, .. }) => reason,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

#[test]
fn f20_drives_in_any_order_make_the_same_array() {
    let array = label(3, 5);
    for order in [[0, 1, 2], [2, 0, 1], [1, 2, 0], [2, 1, 0]] {
        let found = order.map(|slot| on(&array, slot)).to_vec();
        let drives = assembled(found, WAIT).members.into_iter().map(|member| member.drive);
        assert_eq!(drives.collect::<Vec<_>>(), [Some(0), Some(1), Some(2)]);
    }
}

#[test]
fn f15_a_member_left_behind_is_stale() {
    for gone in [Faulty, Missing] {
        let old = label(3, 5);
        let new = after(&after(&old, &[(2, gone)]), &[]);
        let result = assembled(vec![on(&new, 0), on(&new, 1), on(&old, 2)], WAIT);
        assert_eq!((result.members[2].drive, result.members[2].state), (None, gone));
        let stale = result.members[2].stale.unwrap();
        assert_eq!((stale.drive, stale.reason), (2, StaleReason::LeftBehind(gone)));
    }
}

#[test]
fn a_member_older_than_a_crash_explains_is_stale() {
    let (old, new) = (label(3, 5), label(3, 7));
    assert_eq!(waits_for(vec![on(&new, 0), on(&new, 1), on(&old, 2)]), [2]);
    assert_eq!(
        states(vec![on(&new, 0), on(&new, 1), on(&old, 2)], START),
        [InSync, InSync, Missing]
    );
}

#[test]
fn f25_an_update_cut_short_costs_no_member() {
    let old = label(3, 5);
    for new in [after(&old, &[]), activated(&old, uuid(0xe2), &[])] {
        for reached in 0..3 {
            let found =
                (0..3).map(|slot| on(if slot < reached { &new } else { &old }, slot)).collect();
            assert_eq!(states(found, WAIT), [InSync; 3], "reached {reached}");
        }
    }
}

/// The history of the bug: if a tail ring contains a label, every head ring contained it before. A drive that has only
/// the previous label is therefore an old copy of a member. The assembly used such a drive as the member, as if the
/// update had been cut short.
#[test]
fn f16_a_member_without_a_label_that_every_member_had_is_stale() {
    let old = label(3, 5);
    let confirmed = |array: &Superblock, slot| Found { confirmed: true, ..on(array, slot) };
    for new in [after(&old, &[]), activated(&old, uuid(0xe2), &[])] {
        let found = || vec![on(&new, 0), confirmed(&new, 1), on(&old, 2)];
        assert_eq!(waits_for(found()), [2]);
        let array = assembled(found(), START);
        assert!(array.confirmed);
        assert_eq!(array.members[2].state, Missing);
        let lags = StaleReason::Lags { own: old.generation, newest: new.generation };
        assert_eq!(array.members[2].stale.map(|stale| stale.reason), Some(lags));
        // The tail ring with the old label proves only that every member had the old label.
        let found = vec![on(&new, 0), on(&new, 1), confirmed(&old, 2)];
        assert_eq!(states(found, WAIT), [InSync; 3]);
    }
    // A rebuilding member that lacks a label has no valid data.
    let new = after(&old, &[(2, Rebuilding)]);
    let newer = after(&new, &[]);
    let found = vec![on(&newer, 0), confirmed(&newer, 1), on(&new, 2)];
    let member = assembled(found, WAIT).members.remove(2);
    assert_eq!((member.state, member.lacks), (Rebuilding, Lacks::Everything));
}

/// The history of the bug: a start of a cleanly shut down array was cut short during the write of labels. The next
/// start treated this as a crash of a serving array, and was refused if members were missing and regions needed a
/// resync.
#[test]
fn f25_a_start_cut_short_is_no_crash() {
    let old = Superblock { clean: true, ..after(&label(3, 5), &[(2, Faulty)]) };
    let new = Superblock { clean: false, ..activated(&old, uuid(0xe2), &[]) };
    let is_clean = |found: Vec<Found>| assembled(found, WAIT).unserved;
    let short = |new: &Superblock, slot: u8, before: &Superblock| {
        let before = Some(Box::new(on(before, slot).label));
        Found { before, ..on(new, slot) }
    };
    assert!(is_clean(vec![short(&new, 0, &old), on(&old, 1)]), "one has it in its head ring");
    assert!(is_clean(vec![short(&new, 0, &old), short(&new, 1, &old)]), "both");
    let confirmed = Found { confirmed: true, ..on(&new, 1) };
    assert!(is_clean(vec![short(&new, 0, &old), confirmed.clone()]), "one in its tail ring too");
    // Nothing proves that the array did not act on the label.
    assert!(!is_clean(vec![on(&new, 0), on(&new, 1)]));
    assert!(!is_clean(vec![Found { confirmed: true, ..on(&new, 0) }, confirmed]));
    // The array had not been cleanly shut down, or this label is not a start, or not the first start after the
    // shutdown.
    let crashed = Superblock { clean: false, ..old.clone() };
    assert!(!is_clean(vec![short(&new, 0, &crashed), on(&new, 1)]));
    let going_on = Superblock { clean: false, ..after(&old, &[]) };
    assert!(!is_clean(vec![short(&going_on, 0, &old), on(&going_on, 1)]));
    let later = Superblock { generation: new.generation + 1, ..new.clone() };
    assert!(!is_clean(vec![short(&later, 0, &old), on(&later, 1)]));
    let elsewhere = Superblock { parent_epoch: uuid(0xe9), ..new.clone() };
    assert!(!is_clean(vec![short(&elsewhere, 0, &old), on(&elsewhere, 1)]));
    // One more member was missing at the start than at the shutdown.
    let all = Superblock { clean: true, ..label(3, 6) };
    assert!(!is_clean(vec![short(&new, 0, &all), on(&new, 1)]));
}

/// Several consecutive starts were cut short. Each of their labels records that the array had been cleanly shut down,
/// independently of the previous label.
#[test]
fn f25_starts_cut_short_in_a_row_are_no_crash() {
    let old = Superblock { clean: false, ..with_history() };
    let cut_short = |new: &Superblock, before: Option<&Superblock>| {
        let before = before.map(|before| Box::new(on(before, 0).label));
        let array = assembled(vec![Found { before, ..on(new, 0) }, on(new, 1), on(new, 2)], START);
        assert!(!array.superblock.clean, "the label stays as it was recorded");
        array.unserved
    };
    let mut first = Superblock { clean: false, ..started(&old, 0xe2, &[]) };
    assert!(!cut_short(&first, Some(&old)), "the array had crashed before");
    first.compat |= COMPAT_CLEAN_START;
    let second = started(&first, 0xe3, &[]);
    for (new, before) in [(&first, &old), (&second, &first), (&second, &old)] {
        assert!(cut_short(new, Some(before)), "{}", new.generation);
        assert!(!cut_short(new, None), "{}: every member has it", new.generation);
    }
    // The array served, and the last label of this activation is not a start.
    assert!(!cut_short(&after(&second, &[]), Some(&second)));
    // An older label of the drive, or a label of another array or member, proves nothing about the later starts.
    let long_ago = Superblock { generation: old.generation - 1, ..old.clone() };
    assert!(!cut_short(&second, Some(&long_ago)));
    let served = Superblock { clean: false, ..started(&after(&first, &[]), 0xe3, &[]) };
    assert!(!cut_short(&served, Some(&old)), "labels were written in between");
    assert!(!cut_short(&second, Some(&Superblock { epoch: uuid(0xe9), ..old.clone() })));
    assert!(!cut_short(&second, Some(&Superblock { array: uuid(0xe9), ..old.clone() })));
    let before = Some(Box::new(on(&old, 1).label));
    let array = assembled(vec![Found { before, ..on(&second, 0) }, on(&second, 1)], START);
    assert!(!array.unserved, "the tail ring of another member");
}

#[test]
fn f16_a_partly_rebuilt_member_is_trusted_as_far_as_it_got() {
    let mut new = after(&label(3, 5), &[(2, Rebuilding)]);
    new.members[2].recovered_stripes = 40;
    let member = |found| assembled(found, WAIT).members.remove(2);
    let got = member(vec![on(&new, 0), on(&new, 1), on(&new, 2)]);
    assert_eq!((got.drive, got.state, got.recovered_stripes), (Some(2), Rebuilding, 40));
    // Only other members have the label of the promotion.
    let promoted = after(&new, &[(2, InSync)]);
    let got = member(vec![on(&promoted, 0), on(&promoted, 1), on(&new, 2)]);
    assert_eq!((got.state, got.recovered_stripes), (Rebuilding, 40));
    // The drive is an old copy: its valid data cannot be distinguished from the data that it lacks.
    let later = after(&after(&new, &[]), &[]);
    let got = member(vec![on(&later, 0), on(&later, 1), on(&new, 2)]);
    assert_eq!((got.state, got.recovered_stripes), (Rebuilding, 0));
}

#[test]
fn f17_a_stale_half_waits_and_the_newer_half_wins() {
    let old = label(4, 5);
    let new = after(&after(&old, &[(2, Missing), (3, Missing)]), &[]);
    let stale = || vec![on(&old, 2), on(&old, 3)];
    assert_eq!(waits_for(stale()), [0, 1]);
    let all = [stale(), vec![on(&new, 0), on(&new, 1)]].concat();
    assert_eq!(states(all, WAIT), [InSync, InSync, Missing, Missing]);
}

#[test]
fn f18_halves_that_ran_alone_are_refused() {
    let old = label(4, 5);
    let a = activated(&old, uuid(0xea), &[(2, Missing), (3, Missing)]);
    let b = activated(&old, uuid(0xeb), &[(0, Missing), (1, Missing)]);
    for later in 0..4 {
        let a = (0..later).fold(a.clone(), |array, _| after(&array, &[]));
        for found in [vec![on(&a, 0), on(&a, 1), on(&b, 2), on(&b, 3)], vec![on(&b, 3), on(&a, 0)]]
        {
            let Refusal::Fork(difference) = refusal(found) else { panic!("not a fork") };
            assert_ne!(difference.newer_chain.1, difference.older_chain.1);
        }
    }
    // Both halves are activated again. The parents then also differ.
    let (a, b) = (activated(&a, uuid(0xec), &[]), activated(&b, uuid(0xed), &[]));
    assert!(matches!(refusal(vec![on(&a, 0), on(&b, 2)]), Refusal::Fork(_)));
}

#[test]
fn an_activation_without_a_write_is_no_fork() {
    let old = label(3, 5);
    let cut_short = activated(&old, uuid(0xea), &[]);
    let went_on = after(&activated(&old, uuid(0xeb), &[(0, Missing)]), &[]);
    let found = vec![on(&cut_short, 0), on(&went_on, 1), on(&went_on, 2)];
    assert_eq!(states(found, WAIT), [Missing, InSync, InSync]);
}

/// A label update reached only one drive, which the same crash made absent. The start without this drive was cut short
/// at its first label, and the drive returned. Both labels have the same generation, and the array never acted on the
/// label of that drive.
#[test]
fn an_update_that_only_a_lost_drive_got_is_no_fork() {
    let old = label(4, 5);
    for lost in 0..4 {
        let cut_short = after(&old, &[]);
        // The first label of the start, or the label before it, which records the drive as missing if the start replays
        // the log without the drive.
        let reactivated = activated(&old, uuid(0xeb), &[(lost, Missing)]);
        let same = after(&old, &[(lost, Missing)]);
        let starts = [reactivated, same];
        let cuts = (0..4).flat_map(|slot| starts.iter().map(move |went_on| (slot, went_on)));
        for (reached, went_on) in cuts.filter(|(slot, _)| *slot != lost) {
            let newest = |slot: usize| match slot {
                slot if slot == lost => &cut_short,
                slot if slot <= reached => went_on,
                _ => &old,
            };
            let found = (0..4).map(|slot| on(newest(slot), slot as u8)).collect();
            if (0..=reached).all(|slot| slot == lost) {
                continue;
            }
            let mut expected = [InSync; 4];
            expected[lost] = Missing;
            assert_eq!(states(found, WAIT), expected, "lost {lost}, reached {reached}");
        }
    }
}

/// Member 0 of a mirror was out during writes to the other member, and only the other member received the label that
/// re-adds member 0. Then drive 0 was started alone, twice. Member 0 is live in the label of the other member, but
/// drive 0 never had that label. The bug: the array continued with drive 0, and writes that had been acknowledged
/// without drive 0 were ignored.
#[test]
fn f18_a_label_that_takes_a_member_back_does_not_vouch_for_it() {
    let old = Superblock { compat: COMPAT_HISTORY, ..label(2, 5) };
    let out = without(&old, &[0]);
    let back = after(&out, &[(0, Rebuilding)]);
    let mut alone = on(&without(&old, &[1]), 0).label;
    alone.generation = old.generation;
    for starts in 1..5 {
        alone.activate(uuid(0xf0 + starts));
        for other in [&out, &back] {
            let reason = refusal(vec![on(&alone, 0), on(other, 1)]);
            assert!(matches!(reason, Refusal::Fork(_)), "{starts} starts: {reason:?}");
        }
    }
}

/// The same case from the view of the array on drive 0: the last label of drive 0 before its first start alone only
/// records that the other member is missing.
#[test]
fn f18_who_took_a_member_back_did_not_leave_something_unfinished() {
    let mut old = Superblock { compat: COMPAT_HISTORY, ..label(2, 5) };
    old.history = vec![Activation { epoch: old.epoch, first_generation: 1 }];
    let back = after(&without(&old, &[0]), &[(0, Rebuilding)]);
    let mut alone = on(&without(&old, &[1]), 0).label;
    alone.activate(uuid(0xf1));
    let found = on(&back, 1).label;
    assert_eq!((found.generation, alone.generation), (7, 7));
    assert!(matches!(returning(&alone, &found), Returning::Fork { .. }));
}

/// Only drive 1 received the label that promotes member 0 and the label of the next start, which therefore records
/// member 0 as rebuilding. Drive 0 then starts alone: the array never acted on either label. The model found this case
/// (docs/model).
#[test]
fn a_start_that_was_cut_short_after_a_promotion_is_no_fork() {
    let old = Superblock { compat: COMPAT_HISTORY, ..label(2, 5) };
    let back = after(&without(&old, &[0]), &[(0, Rebuilding)]);
    let promoted = after(&back, &[(0, InSync)]);
    let mut started = promoted.clone();
    started.activate(uuid(0xea));
    started.members[0].state = Rebuilding;
    // Drive 0 received the label of its promotion before.
    let mut alone = without(&promoted, &[1]);
    alone.generation = promoted.generation;
    alone.activate(uuid(0xeb));
    assert_eq!(alone.generation, started.generation);
    assert_eq!(states(vec![on(&alone, 0), on(&started, 1)], WAIT), [InSync, Missing]);
}

/// Member 0 failed during the write of the label of its promotion, and may or may not have this label. It went out, the
/// array was written without it, and only drive 1 received the label that re-adds it.
#[test]
fn f18_a_member_that_missed_its_promotion_is_not_vouched_for() {
    let old = Superblock { compat: COMPAT_HISTORY, ..label(2, 5) };
    let back = after(&without(&old, &[0]), &[(0, Rebuilding)]);
    let promoted = after(&back, &[(0, InSync)]);
    let mut out = after(&promoted, &[(0, Faulty)]);
    out.members[0].held_generation = back.generation;
    let again = after(&out, &[(0, Rebuilding)]);
    let mut alone = without(&promoted, &[1]);
    alone.generation = promoted.generation;
    (0xf0..0xf3).for_each(|epoch| alone.activate(uuid(epoch)));
    assert!(alone.generation > again.generation);
    assert!(matches!(refusal(vec![on(&alone, 0), on(&again, 1)]), Refusal::Fork(_)));
}

/// The history of the bug: only drive 0 received the label that records member 1 as faulty, and drive 0 was absent at
/// the next start. Members 1 and 2 continued and acknowledged writes. Drives 0 and 1 alone cannot decide which label is
/// valid, and the assembly followed the lower slot. The model found this case.
#[test]
fn f18_of_two_labels_with_one_number_none_is_passed_over_undecided() {
    for members in [3, 4] {
        let old = label(members, 5);
        let cut_short = after(&old, &[(1, Faulty)]);
        let went_on = activated(&old, uuid(0xeb), &[(0, Missing)]);
        for found in
            [vec![on(&cut_short, 0), on(&went_on, 1)], vec![on(&went_on, 1), on(&cut_short, 0)]]
        {
            assert!(matches!(refusal(found), Refusal::Undecided(_)));
        }
        // Member 2 identifies the label that the array acted on.
        let found = vec![on(&cut_short, 0), on(&went_on, 1), on(&went_on, 2)];
        assert_eq!(states(found, START)[..3], [Missing, InSync, InSync]);
        let found = vec![on(&cut_short, 0), on(&went_on, 1), on(&old, 2)];
        assert!(matches!(assemble(found, START).pop(), Some(Verdict::Assembled(_))));
    }
}

#[test]
fn a_member_that_left_before_others_were_rebuilt_is_no_fork() {
    let first = after(&label(3, 5), &[(0, Faulty)]);
    let back = after(&after(&first, &[(2, Missing), (0, Rebuilding)]), &[(0, InSync)]);
    let last = after(&back, &[(1, Faulty)]);
    assert_eq!(states(vec![on(&last, 0), on(&first, 2)], WAIT), [InSync, Faulty, Missing]);
}

#[test]
fn f21_copies_of_a_member_are_refused() {
    let array = label(3, 5);
    let copy = Found { drive: 9, ..on(&array, 1) };
    let reason = refusal(vec![on(&array, 0), on(&array, 1), on(&array, 2), copy]);
    assert_eq!(reason, Refusal::Duplicate { member: uuid(0x11), drives: vec![1, 9] });
}

#[test]
fn f22_a_drive_that_shrank_takes_no_part() {
    let array = label(3, 5);
    let small = Found { device_bytes: (64 << 20) - 4096, ..on(&array, 1) };
    let found = vec![on(&array, 0), small, on(&array, 2)];
    let reason = IgnoreReason::Shrunk { recorded: 64 << 20, actual: (64 << 20) - 4096 };
    assert_eq!(assemble(found.clone(), START)[0], Verdict::Ignored { drive: 1, reason });
    assert_eq!(waits_for(found), [1]);
}

#[test]
fn f24_a_drive_without_labels_is_waited_for() {
    let array = label(3, 5);
    assert_eq!(waits_for(vec![on(&array, 0), on(&array, 2)]), [1]);
    let result = states(vec![on(&array, 0), on(&array, 2)], START);
    assert_eq!(result, [InSync, Missing, InSync]);
}

/// A start without this member would record it as missing, and its drive would have to be re-added.
#[test]
fn a_member_being_rebuilt_is_waited_for() {
    let array = after(&label(3, 5), &[(1, Rebuilding)]);
    assert_eq!(waits_for(vec![on(&array, 0), on(&array, 2)]), [1]);
    let result = states(vec![on(&array, 0), on(&array, 2)], START);
    assert_eq!(result, [InSync, Missing, InSync]);
}

#[test]
fn drives_that_take_no_part_say_why() {
    let check = |found: Vec<Found>, want: IgnoreReason| {
        assert_eq!(assemble(found, START)[0], Verdict::Ignored { drive: 1, reason: want });
    };
    let array = label(3, 5);
    let mut wrong = on(&array, 1);
    wrong.label.slot = MemberIndex(2);
    check(vec![on(&array, 0), wrong], IgnoreReason::SlotMismatch);
    let mut new = after(&array, &[(1, Rebuilding)]);
    new.members[1].uuid = uuid(0x77);
    check(vec![on(&new, 0), on(&new, 2), on(&array, 1)], IgnoreReason::Replaced);
    let mut gone = after(&array, &[]);
    gone.destroyed = true;
    let verdicts = assemble(vec![on(&gone, 1), on(&array, 0)], START);
    let destroyed = |drive| Verdict::Ignored { drive, reason: IgnoreReason::Destroyed };
    assert_eq!(verdicts, [destroyed(1), destroyed(0)]);
}

/// Returns the next label of `array`, which records the members of `slots` as missing and contains the history of
/// activations.
fn without(array: &Superblock, slots: &[usize]) -> Superblock {
    let changes: Vec<_> = slots.iter().map(|slot| (*slot, Missing)).collect();
    let mut next = after(array, &changes);
    for slot in slots {
        next.members[*slot].held_generation = array.generation;
    }
    next
}

#[test]
fn f15_a_returning_drive_is_distinguished_from_its_doubles() {
    let mut old = label(3, 5);
    old.compat = COMPAT_HISTORY | COMPAT_MEMBER_BITMAPS;
    old.history = vec![Activation { epoch: old.epoch, first_generation: 4 }];
    let mut new = without(&old, &[2]);
    for epoch in [0xe2, 0xe3] {
        new.activate(uuid(epoch));
    }
    let own = |array: &Superblock| on(array, 2).label;
    let check = |what: &str, found: Superblock, want: Returning| {
        assert_eq!(returning(&new, &found), want, "{what}");
    };
    check("as it left", own(&old), Returning::Stale);
    check("the member of another slot", on(&new, 1).label, Returning::Current);
    let earlier = |generation| Superblock { generation, ..own(&old) };
    check("an older picture", earlier(4), Returning::TooOld { own: 4, held: 5 });
    check("from before the history", earlier(3), Returning::TooOld { own: 3, held: 5 });
    let fork = |generation, epoch| Returning::Fork {
        own: (generation, epoch),
        newest: (new.generation, new.epoch),
    };
    let went_on = Superblock { generation: 7, ..own(&without(&old, &[0, 1])) };
    check("it went on in the same activation", went_on, fork(7, old.epoch));
    check("it alone had the last label of an activation", earlier(7), Returning::Stale);
    check("it had two that nobody else had", earlier(8), fork(8, old.epoch));
    let mut alone = without(&own(&old), &[0, 1]);
    alone.activate(uuid(0xf1));
    check("it went on in one of its own", alone, fork(7, uuid(0xf1)));
    check("a replaced one", Superblock { member: uuid(9), ..own(&old) }, Returning::Foreign);
    check("another array's", Superblock { array: uuid(9), ..own(&old) }, Returning::Foreign);
    check("a destroyed one", Superblock { destroyed: true, ..own(&old) }, Returning::Foreign);
}

/// Every member in sync is newer than the returning drive, so that none of these members proves anything about the
/// drive. The history in the labels decides.
#[test]
fn f18_a_fork_is_noticed_when_all_members_were_replaced_since() {
    let mut old = label(2, 5);
    old.compat = COMPAT_HISTORY;
    old.history = vec![Activation { epoch: old.epoch, first_generation: 1 }];
    let mut new = old.clone();
    new.activate(uuid(0xe2));
    new.members.iter_mut().for_each(|row| row.in_sync_generation = 30);
    let new = after(&without(&Superblock { generation: 40, ..new }, &[1]), &[]);
    let mut alone = without(&old, &[0]);
    alone.activate(uuid(0xf1));
    assert!(matches!(refusal(vec![on(&new, 0), on(&alone, 1)]), Refusal::Fork(_)));
    assert_eq!(states(vec![on(&new, 0), on(&old, 1)], WAIT), [InSync, Missing]);
}

/// Returns the label of the next start of `old`, without the members in `away`.
fn started(old: &Superblock, epoch: u8, away: &[usize]) -> Superblock {
    let mut label = without(old, away);
    label.generation = old.generation;
    label.activate(uuid(epoch));
    label
}

/// Returns the label of the array of the returning drives: three members, at generation 5 of the first activation.
fn with_history() -> Superblock {
    let mut old = label(3, 5);
    old.compat = COMPAT_HISTORY | COMPAT_MEMBER_BITMAPS;
    old.history = vec![Activation { epoch: old.epoch, first_generation: 1 }];
    old
}

/// The history of the bug: only drive 0 received the first label of an activation, and the array started without drive
/// 0. The drive then counted as a drive that had continued without the array. The array acted on no start with another
/// drive.
#[test]
fn f25_a_drive_that_alone_got_the_label_of_a_start_is_taken_back() {
    let old = with_history();
    let check = |what: &str, new: &Superblock, cut_short: &Superblock| {
        assert_eq!(returning(new, &on(cut_short, 0).label), Returning::Stale, "{what}");
    };
    let new = started(&old, 0xeb, &[0]);
    check("all were here", &new, &started(&old, 0xea, &[]));
    check("member 1 was not here", &new, &started(&old, 0xea, &[1]));
    let found_out = started(&without(&old, &[0]), 0xeb, &[]);
    check("drive 1 alone had a label that the other start did not find", &found_out, &{
        started(&old, 0xea, &[1])
    });
}

/// A label that only one drive has counts as never acted on only if the history contains the previous label. The
/// content of the drive is then that of the previous label.
#[test]
fn f18_a_drive_is_taken_back_only_from_a_label_of_the_history() {
    let old = with_history();
    let new = started(&after(&after(&old, &[]), &[]), 0xeb, &[0]);
    let fork = |found: &Superblock| {
        let found = on(found, 0).label;
        assert!(matches!(returning(&new, &found), Returning::Fork { .. }), "{found:?}");
    };
    fork(&after(&started(&old, 0xea, &[]), &[]));
    fork(&started(&started(&old, 0xe9, &[]), 0xea, &[]));
    let later = started(&after(&old, &[]), 0xeb, &[0]);
    let cut_short = on(&started(&old, 0xea, &[]), 0).label;
    assert_eq!(returning(&later, &cut_short), Returning::TooOld { own: 5, held: 6 });
}

/// The history of the bug: two members failed, and a write was acknowledged by drive 0 alone. Then drive 1 was started
/// alone. Before that start replayed the log, it recorded drive 0 as missing in a label of the last epoch. The labels
/// of both drives had the same generation and epoch, so that drive 0 was re-added without its write. The model found
/// this case (docs/model).
#[test]
fn f18_a_label_of_the_same_number_and_epoch_is_no_proof() {
    let served = started(&with_history(), 0xe2, &[2]);
    let own = without(&served, &[1]);
    let recorded = without(&served, &[0]);
    assert_eq!((own.generation, own.epoch), (recorded.generation, recorded.epoch));
    let new = started(&recorded, 0xe3, &[]);
    let found = on(&own, 0).label;
    assert!(matches!(returning(&new, &found), Returning::Fork { .. }));
    assert!(matches!(refusal(vec![on(&new, 1), on(&own, 0)]), Refusal::Fork(_)));
}

/// The same two labels from the view of a host that recorded the members in sync at its last run of the array. A start
/// from drive 1 alone always lacks the writes that drive 0 acknowledged, for any number of label updates of that start.
#[test]
fn f18_a_label_of_the_same_number_and_epoch_continues_only_its_own_members() {
    let served = started(&with_history(), 0xe2, &[2]);
    let own = without(&served, &[1]);
    let recorded = without(&served, &[0]);
    let holders = [own.members[0].uuid];
    let continues = |label: &Superblock| label.continues(own.generation, own.epoch, &holders);
    assert!(continues(&own) && continues(&started(&own, 0xe3, &[])));
    assert!(!continues(&recorded) && !continues(&started(&recorded, 0xe3, &[])));
    // A member that became in sync later proves nothing about that time.
    let back = after(&after(&own, &[(1, Rebuilding)]), &[(1, InSync)]);
    assert!(continues(&back));
    assert!(!served.continues(own.generation, own.epoch, &holders), "older");
}

#[test]
fn the_history_forgets_the_oldest_activation() {
    let mut array = label(2, 5);
    for nth in 0..20 {
        array.activate(uuid(nth));
    }
    assert_eq!((array.history.len(), array.generation), (crate::HISTORY_MAX, 25));
    assert_eq!(array.history[0], Activation { epoch: uuid(4), first_generation: 10 });
    assert_eq!((array.epoch, array.parent_epoch), (uuid(19), uuid(18)));
}

/// A crash cut short the label update that re-added a member. The member is unchanged, so that a rebuild copies no
/// additional data.
#[test]
fn f25_taking_a_member_back_may_be_cut_short() {
    let mut old = label(3, 5);
    old.compat = COMPAT_HISTORY | COMPAT_MEMBER_BITMAPS;
    old.history = vec![Activation { epoch: old.epoch, first_generation: 1 }];
    let out = without(&old, &[2]);
    let back = after(&out, &[(2, Rebuilding)]);
    let member =
        |own: Found| assembled(vec![on(&back, 0), on(&back, 1), own], WAIT).members.remove(2);
    assert_eq!(member(on(&old, 2)).lacks, Lacks::Recorded);
    let older = Superblock { generation: 4, ..old.clone() };
    assert_eq!(member(on(&older, 2)).lacks, Lacks::Everything);
    let mut forgetful = back.clone();
    forgetful.compat = 0;
    let found = vec![on(&forgetful, 0), on(&forgetful, 1), on(&old, 2)];
    assert_eq!(assembled(found, WAIT).members[2].lacks, Lacks::Everything);
}
