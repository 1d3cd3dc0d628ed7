//! Tests every state with every event.

use std::mem::discriminant;
use std::sync::Arc;

use strake_block::IoErrorKind;
use strake_ondisk::{AreaLayout, Bits, Consistency, MemberRecord, RecordedState};
use strake_units::{BlockSize, CoreIndex, MemberIndex, RegionIndex, Uuid};

use super::{Action, Before, Event, Reconfiguration, Replacement, Stage};
use crate::array::IoLimits;
use crate::histogram::CoreTimes;
use crate::message::{IncomingDrive, Pairing, View};
use crate::shard::members::{Capacity, Members};

const OWN: MemberIndex = MemberIndex(2);
const BYTES: u64 = 1 << 30;

/// A row per state, a column per event in the order of [`events`]: the next state and the action of the step, or a dot
/// for an illegal pair.
const TABLE: [(char, &str); 11] = [
    ('I', "J-  . I- F-  .  .  .  .  .  .  . I- I- I- R- I- I-"),
    ('J', " . I- Ib  .  .  .  .  .  .  .  .  .  .  .  .  .  ."),
    ('F', " .  .  .  . Fc P-  .  .  .  . A- Oi F- F-  .  .  ."),
    ('P', " .  .  .  .  .  . N-  .  .  . A- Oi P- P-  .  .  ."),
    ('N', " .  .  .  .  .  .  . S-  .  . Ar  . N- N-  .  .  ."),
    ('S', " .  .  .  .  .  .  .  .  . H-  .  . S- S-  .  .  ."),
    ('O', " .  .  .  .  .  .  .  . T-  . A-  . O- O-  .  .  ."),
    ('T', " .  .  .  .  .  .  .  .  . H-  .  . T- T-  .  .  ."),
    ('A', " .  .  .  .  .  .  .  .  .  .  . A- A- Ia  .  .  ."),
    ('H', " .  .  . F-  .  .  .  .  .  .  . H- H- H-  .  .  ."),
    ('R', " .  .  .  .  .  .  .  .  .  .  .  .  .  . R- I- Im"),
];

fn drive() -> IncomingDrive {
    IncomingDrive { member: OWN, uuid: Uuid([7; 16]), bytes: BYTES, path: "/dev/new".to_owned() }
}

fn before() -> Before {
    let (state, in_sync_generation) = (RecordedState::InSync, 5);
    let (recovered_stripes, held_generation) = (0, 0);
    let uuid = Uuid([1; 16]);
    let record = MemberRecord {
        uuid,
        state,
        in_sync_generation,
        recovered_stripes,
        held_generation,
        bytes: BYTES,
    };
    (record, AreaLayout::of(BYTES))
}

/// Returns regions 0 and 1 of 8.
fn lacks() -> Bits {
    let mut lacks = Bits::new(8);
    lacks.set(0);
    lacks.set(1);
    lacks
}

fn replacement() -> Replacement {
    let layout = AreaLayout::of(BYTES).expect("it is large");
    Replacement { drive: drive(), layout, lacks: lacks() }
}

fn states() -> [Reconfiguration; 11] {
    let at = |stage| Reconfiguration::Replacing(replacement(), stage);
    [
        Reconfiguration::Idle,
        Reconfiguration::Joining(drive()),
        at(Stage::Filling),
        at(Stage::Prepared),
        at(Stage::Named(before())),
        at(Stage::Swapped),
        at(Stage::Orphaned),
        at(Stage::TakenOver),
        Reconfiguration::Abandoned { slot: OWN, cause: Some(IoErrorKind::Timeout) },
        Reconfiguration::Handed { slot: OWN },
        Reconfiguration::Raising { mode: Consistency::Strict },
    ]
}

fn letter(state: &Reconfiguration) -> char {
    let stage = |state: &Reconfiguration| match state {
        Reconfiguration::Replacing(_, stage) => Some(discriminant(stage)),
        _ => None,
    };
    let same = |other: &Reconfiguration| {
        (discriminant(other), stage(other)) == (discriminant(state), stage(state))
    };
    TABLE[states().iter().position(same).expect("every state is listed")].0
}

fn events() -> Vec<Event> {
    let mode = |mode| Event::Mode { mode, recorded: Consistency::Safe };
    vec![
        Event::Join(drive()),
        Event::NotRecorded,
        Event::Written,
        Event::Begin(replacement()),
        Event::Copied(RegionIndex(1)),
        Event::Prepare,
        Event::Name(before()),
        Event::Recorded,
        Event::TakeOver,
        Event::Taken,
        Event::GiveUp(None),
        Event::MemberOut(OWN),
        Event::MemberOut(MemberIndex(3)),
        Event::Applied,
        mode(Consistency::Strict),
        mode(Consistency::Resync),
        Event::Logged,
    ]
}

/// Returns the letter of an action with the data of the states above.
fn required(action: &Action) -> char {
    let known = [
        (Action::None, '-'),
        (Action::CountLeft(1), 'c'),
        (Action::Inherit(OWN, lacks()), 'i'),
        (Action::Restore(OWN, before()), 'r'),
        (Action::ReportAbandoned(OWN, Some(IoErrorKind::Timeout)), 'a'),
        (Action::BeginRebuild(drive()), 'b'),
        (Action::SetMode(Consistency::Strict), 'm'),
    ];
    known.iter().find(|(known, _)| known == action).expect("its data is that of the state").1
}

#[test]
fn every_state_meets_every_event() {
    for (at, (from, row)) in TABLE.into_iter().enumerate() {
        let expected: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(expected.len(), events().len(), "{from}");
        for (event, expected) in events().into_iter().zip(expected) {
            let [state, kept] = [(); 2].map(|()| states().into_iter().nth(at).expect("a row each"));
            let both = (format!("{kept:?}"), format!("{event:?}"));
            let found = match state.next(event) {
                Ok((next, action)) => format!("{}{}", letter(&next), required(&action)),
                Err(illegal) => {
                    assert!(illegal.0.contains(&both.0) && illegal.0.contains(&both.1), "{both:?}");
                    ".".to_owned()
                }
            };
            assert_eq!(found, expected, "{both:?}");
        }
    }
}

/// Returns the members of a shard that received these pairings in this order.
fn members_after(pairings: &[Pairing]) -> Members {
    let capacity = Capacity { inflight: 4, tasks: 1, requests: 1, limits: IoLimits::default() };
    let times = Arc::new(CoreTimes::new(5));
    let mut members = Members::new(CoreIndex(0), BlockSize::B512, 4, capacity, times);
    members.set_views(&[View::InSync; 4]);
    for pairing in pairings {
        let mut views = [View::InSync; 4];
        if matches!(pairing, Pairing::Orphaned(_) | Pairing::TakenOver(_)) {
            views[OWN.at()] = View::Absent;
        }
        members.set_views(&views);
        members.pair(*pairing);
    }
    members
}

/// True if the label task publishes the pairing of the new state immediately after an event.
const fn is_published_at_once(event: &Event) -> bool {
    use Event::{Applied, Begin, Recorded, TakeOver, Taken};
    matches!(event, Begin(_) | Recorded | TakeOver | Taken | Applied)
}

/// Returns the pairings that may be published directly after the pairing of state `from`.
fn next_pairings(from: usize) -> Vec<Pairing> {
    let (mut reached, mut found) = (vec![from], Vec::new());
    let mut looked_at = 0;
    while let Some(at) = reached.get(looked_at).copied() {
        looked_at += 1;
        for event in events() {
            let at_once = is_published_at_once(&event);
            let state = states().into_iter().nth(at).expect("it is listed");
            let Ok((next, _)) = state.next(event) else { continue };
            found.push(next.pairing());
            let place = TABLE.iter().position(|row| row.0 == letter(&next)).expect("a row each");
            if !at_once && !reached.contains(&place) {
                reached.push(place);
            }
        }
    }
    found
}

/// A shard that had not received `Orphaned` refused to continue from `Copying` to `TakenOver`, and the process ended.
#[test]
fn a_shard_accepts_every_pairing_that_may_be_published_next() {
    let [copying, orphaned] = [Pairing::Copying(OWN), Pairing::Orphaned(OWN)];
    let [swapped, taken_over] = [Pairing::Swapped(OWN), Pairing::TakenOver(OWN)];
    let mut steps = Vec::new();
    for (from, state) in states().iter().enumerate() {
        let path = match state.pairing() {
            Pairing::None => vec![],
            Pairing::Copying(_) => vec![copying],
            Pairing::Orphaned(_) => vec![copying, orphaned],
            Pairing::Swapped(_) => vec![copying, swapped],
            Pairing::TakenOver(_) => vec![copying, orphaned, taken_over],
        };
        for next in next_pairings(from) {
            members_after(&[&path[..], &[next]].concat());
            if next != state.pairing() && !steps.contains(&(state.pairing(), next)) {
                steps.push((state.pairing(), next));
            }
        }
    }
    assert!(steps.contains(&(copying, taken_over)), "{steps:?}");
    assert_eq!(steps.len(), 9, "{steps:?}");
    let uses = |pairings: &[Pairing]| {
        let members = members_after(pairings);
        [OWN, members.paired.place()].map(|device| members.view(device))
    };
    assert_eq!(uses(&[copying, taken_over]), uses(&[copying, orphaned, taken_over]));
}
