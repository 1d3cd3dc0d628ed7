//! Every state with every event.

use std::mem::discriminant;

use strake_block::IoErrorKind;
use strake_ondisk::{AreaLayout, Bits, Consistency, MemberRecord, RecordedState};
use strake_units::{MemberIndex, RegionIndex, Uuid};

use super::{Action, Before, Event, Reconfiguration, Replacement, Stage};
use crate::message::IncomingDrive;

const OWN: MemberIndex = MemberIndex(2);
const BYTES: u64 = 1 << 30;

/// A row per state, a column per event in the order of [`events`]: the next state and what the step requires, or a dot
/// where the pair is illegal.
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

/// Regions 0 and 1 of 8.
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

/// The letter of an action that has the data of the states above.
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
