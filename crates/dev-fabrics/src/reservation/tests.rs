use super::{Claimed, ReservationMode, Reserved, Step, key_of, reserved_of, step};
use crate::error::{Breach, Reason};
use strake_fuzz::{Chance, runs};
use strake_nvme_wire::reservation::{
    Acquire, Action, KeyCheck, Persistence, REPORT_BYTES, ReportHead, ReportedRegistrant,
    ReservationType,
};

const WE: [u8; 16] = [3; 16];
const THEY: [u8; 16] = [9; 16];
const OURS: Claimed = Claimed { is_new: false };

fn registrant(host: [u8; 16], holds: bool) -> ReportedRegistrant {
    ReportedRegistrant { host, key: key_of(host), holds }
}

fn reserved(registrants: &[ReportedRegistrant]) -> Reserved {
    let is_held = registrants.iter().any(|registrant| registrant.holds);
    let kind = is_held.then_some(ReservationType::WriteExclusive);
    Reserved { generation: 3, kind, registrants: registrants.to_vec() }
}

fn acquired(register: Option<Action>, how: Acquire, key: u64) -> Result<Step, Reason> {
    Ok(Step::Acquire { register, how, key })
}

#[test]
fn a_drive_is_reserved_unless_another_host_has_it() {
    let register = Some(Action::Register(Persistence::On));
    let (free, ours) = (reserved(&[]), reserved(&[registrant(WE, true)]));
    let theirs = reserved(&[registrant(WE, false), registrant(THEY, true)]);
    let unheld = reserved(&[registrant(WE, false), registrant(THEY, false)]);
    for reservation in [ReservationMode::Claim, ReservationMode::TakeOver] {
        let of = |reserved| step(reserved, WE, true, (reservation, None));
        assert_eq!(of(&ours), Ok(Step::Keep), "{reservation:?}");
        assert_eq!(of(&free), acquired(register, Acquire::Free, 0), "{reservation:?}");
        assert_eq!(of(&unheld), acquired(None, Acquire::Free, 0), "{reservation:?}");
        let held = match reservation {
            ReservationMode::TakeOver => acquired(None, Acquire::PreemptAndAbort, key_of(THEY)),
            ReservationMode::Claim | ReservationMode::Off => Err(Reason::Held(THEY)),
        };
        assert_eq!(of(&theirs), held, "{reservation:?}");
    }
}

#[test]
fn what_was_ours_is_ours_or_lost_unless_no_host_can_have_been_there() {
    let of = |reserved: &Reserved| step(reserved, WE, true, (ReservationMode::Claim, Some(OURS)));
    assert_eq!(of(&reserved(&[registrant(WE, true)])), Ok(Step::Keep));
    for registrants in [
        &[][..],
        &[registrant(WE, false)],
        &[registrant(THEY, true)],
        &[registrant(WE, false), registrant(THEY, false)],
    ] {
        assert_eq!(of(&reserved(registrants)), Err(Reason::TakenOver), "{registrants:?}");
    }
    let forgotten = Reserved { generation: 0, ..reserved(&[]) };
    let register = Some(Action::Register(Persistence::On));
    assert_eq!(of(&forgotten), acquired(register, Acquire::Free, 0));
    // A target that always reports generation 0.
    let theirs = Reserved { generation: 0, ..reserved(&[registrant(THEY, true)]) };
    assert_eq!(of(&theirs), Err(Reason::TakenOver));
}

/// The connection was lost after this host had registered with a target that had lost its reservations, or another path
/// is making the reservation.
#[test]
fn what_is_half_reserved_by_us_was_of_no_other_host() {
    let of = |reserved: &Reserved| step(reserved, WE, true, (ReservationMode::Claim, Some(OURS)));
    let half = Reserved { generation: 1, ..reserved(&[registrant(WE, false)]) };
    assert_eq!(of(&half), acquired(None, Acquire::Free, 0));
    for (generation, registrants) in [
        (1, &[][..]),
        (1, &[registrant(THEY, false)]),
        (1, &[ReportedRegistrant { key: 5, ..registrant(WE, false) }]),
        (1, &[registrant(WE, true), registrant(THEY, false)]),
        (2, &[registrant(WE, false)]),
    ] {
        let touched = Reserved { generation, kind: None, registrants: registrants.to_vec() };
        assert_eq!(of(&touched), Err(Reason::TakenOver), "{generation} {registrants:?}");
    }
}

/// Every registrant may write in this case.
#[test]
fn what_is_held_so_that_others_may_write_is_not_ours_yet() {
    let kind = Some(ReservationType::WriteExclusiveRegistrants);
    let shared = Reserved { kind, ..reserved(&[registrant(WE, true), registrant(THEY, false)]) };
    let of = |reservation, before| step(&shared, WE, true, (reservation, before));
    assert_eq!(of(ReservationMode::Claim, None), Err(Reason::Held(THEY)));
    let own = acquired(None, Acquire::PreemptAndAbort, key_of(WE));
    assert_eq!(of(ReservationMode::TakeOver, None), own);
    assert_eq!(of(ReservationMode::Claim, Some(OURS)), Err(Reason::TakenOver));
    let alone = Reserved { kind, ..reserved(&[registrant(WE, true)]) };
    assert_eq!(step(&alone, WE, true, (ReservationMode::Claim, None)), own);
    // The key must be the holder's, in any order of the report.
    let theirs = Reserved {
        kind,
        ..reserved(&[
            ReportedRegistrant { host: [7; 16], ..registrant(THEY, false) },
            registrant(THEY, true),
        ])
    };
    let taken = step(&theirs, WE, true, (ReservationMode::TakeOver, None));
    let register = Some(Action::Register(Persistence::On));
    assert_eq!(taken, acquired(register, Acquire::PreemptAndAbort, key_of(THEY)));
}

#[test]
fn what_several_hold_is_taken_from_all_of_them() {
    let mut all = reserved(&[registrant(WE, true), registrant(THEY, true)]);
    all.kind = Some(ReservationType::WriteExclusiveAll);
    let held = step(&all, WE, true, (ReservationMode::Claim, None));
    assert_eq!(held, Err(Reason::Held(THEY)), "they may write as well");
    let taken = step(&all, WE, true, (ReservationMode::TakeOver, None));
    assert_eq!(taken, acquired(None, Acquire::PreemptAndAbort, 0));
}

#[test]
fn a_reservation_key_of_another_program_is_replaced() {
    let strange = ReportedRegistrant { key: 5, ..registrant(WE, true) };
    let replace = Some(Action::Replace(KeyCheck::Off, Persistence::Unchanged));
    let step = step(&reserved(&[strange]), WE, false, (ReservationMode::Claim, None));
    assert_eq!(step, acquired(replace, Acquire::Free, 0));
}

#[test]
fn every_host_has_a_key() {
    assert_eq!(key_of([0; 16]), 1, "0 is no key");
    assert_ne!(key_of(WE), key_of(THEY));
}

/// For any report, a namespace that others may write to does not count as reserved, and a lost reservation is never
/// taken again from its new holder.
#[test]
fn random_reports_are_refused_or_understood() {
    runs(2000, |seed| {
        let mut chance = Chance::new(seed);
        let (room, registrants) = (chance.below(4), chance.below(5) as u16);
        let kind = ReservationType::parse(chance.below(8) as u8);
        let generation = chance.below(3) as u32;
        let head = ReportHead { generation, kind, registrants, persists: chance.one_in(2) };
        let mut bytes = head.bytes().to_vec();
        for _ in 0..room {
            let host = if chance.one_in(2) { WE } else { THEY };
            let key = if chance.one_in(4) { chance.bits() } else { key_of(host) };
            let reported = ReportedRegistrant { host, key, holds: chance.one_in(2) };
            bytes.extend_from_slice(&reported.bytes());
        }
        if chance.one_in(4) {
            bytes.truncate(chance.below(bytes.len() + 1));
        }
        let has_all = bytes.len() >= REPORT_BYTES * (1 + room.min(registrants.into()));
        let (reserved, whole) = match reserved_of(&bytes, room) {
            Ok(understood) => understood,
            Err(why) => {
                assert!(!has_all, "all that there is room for is there");
                return assert_eq!(why, Breach::Short.into());
            }
        };
        assert!(has_all && whole == usize::from(registrants));
        assert_eq!(reserved.registrants.len(), whole.min(room));
        let others = reserved.registrants.iter().any(|it| it.host == THEY && it.holds);
        let sole = kind.is_some_and(|kind| !kind.favours_registrants());
        for (reservation, before) in [
            (ReservationMode::Claim, None),
            (ReservationMode::Claim, Some(OURS)),
            (ReservationMode::TakeOver, None),
        ] {
            match step(&reserved, WE, true, (reservation, before)) {
                Ok(Step::Keep) => assert!(sole && !others && reserved.of(WE).is_some()),
                Ok(Step::Acquire { .. }) => {
                    assert!(
                        !others || reservation == ReservationMode::TakeOver,
                        "it is another host's"
                    );
                    assert!(before.is_none() || generation < 2, "others were there");
                }
                Err(why) => assert!(matches!(why, Reason::Held(THEY) | Reason::TakenOver)),
            }
        }
    });
}
