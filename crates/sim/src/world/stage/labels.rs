//! Worlds with label events only: members fail and are re-added, the host crashes in the middle, and the array is
//! started with some of its drives.

use strake_ondisk::{Copy, RecordedState, Superblock};
use strake_raid::{Level, MemberState};
use strake_units::{MemberSet, Uuid};

use super::{Cast, DEGRADED, Order, Stage};
use crate::drive::{Crash, SimDrive};
use crate::model::{Config, Event, Seen, Set, Spent, set_of};
use crate::rng::Rng;
use crate::trace::{LabelEvent, Trace};
use crate::world::Settings;

/// Largest number of events in one world.
const STEPS_MAX: u64 = 8;
/// Largest number of turns between two events: a label update takes a few dozen.
const TURNS_MAX: u64 = 90;

/// The world of `seed`: the parameters of the model for its array, and the observed label events.
///
/// Returns an error if the world fails.
pub fn observe(seed: u64) -> Result<(Config, Vec<Event>), String> {
    let (level, members, redundancy) = match seed % 3 {
        0 => (Level::Raid1, 2, 1),
        1 => (Level::Raid5, 3, 1),
        _ => (Level::Raid6, 4, 2),
    };
    let copies = level == Level::Raid1;
    let most = Spent::default();
    let config = Config { members, redundancy, copies, most, broken: Default::default() };
    let mut cast = Cast::new(level, members);
    cast.cores = Some(1);
    let trace = Trace::new(false, false);
    let mut rng = Rng::new(seed ^ 0x6c61_6265_6c73);
    let mut stage = Stage::new(seed, &cast, Settings::default(), &trace)?;
    trace.keep_labels();
    let mut orders = Vec::new();
    for _ in 0..rng.between(2, STEPS_MAX) {
        let slot = rng.below(members as u64) as usize;
        match rng.below(4) {
            0 => orders.extend(fail(&mut stage, slot)),
            1 | 2 => orders.extend(take_back(&mut stage)),
            _ => stage.world.refresh(),
        }
        turns(&mut stage, &mut orders, rng.below(TURNS_MAX))?;
        if rng.one_in(3) && !again(&mut stage, &mut orders, &trace, &mut rng)? {
            break;
        }
    }
    Ok((config, events(&trace.labels())))
}

/// Runs the world for some turns.
fn turns(stage: &mut Stage, orders: &mut Vec<Order>, turns: u64) -> Result<(), String> {
    for _ in 0..turns {
        orders.retain_mut(|order| order.poll().is_none());
        stage.turns(1)?;
    }
    Ok(())
}

/// Fails a member if the array tolerates this.
fn fail(stage: &mut Stage, slot: usize) -> Option<Order> {
    let out = stage.out().into_iter().chain([slot]).collect::<MemberSet>();
    if !stage.geometry().tolerates(out) { None } else { stage.begin_fail(slot).ok() }
}

/// Re-adds a member that is out.
fn take_back(stage: &mut Stage) -> Option<Order> {
    let out = |state: &MemberState| matches!(state, MemberState::Faulty | MemberState::Missing);
    let slot = stage.states().iter().position(out)?;
    let drive = stage.drive(slot);
    stage.begin_readd(slot, &drive).ok()
}

/// Crashes the host, and starts the array with some drives, or with all. Returns false if it cannot be started.
fn again(
    stage: &mut Stage,
    orders: &mut Vec<Order>,
    trace: &Trace,
    rng: &mut Rng,
) -> Result<bool, String> {
    orders.clear();
    stage.crash(rng.pick(&[Crash::Kill, Crash::Power]));
    trace.label(LabelEvent::Crash);
    let all = stage.drives();
    let some: Vec<SimDrive> = all.iter().filter(|_| rng.one_in(2)).cloned().collect();
    for here in [some, all.clone()] {
        let at = |drive: &SimDrive| all.iter().position(|of| of.name() == drive.name());
        let slots = here.iter().filter_map(at).collect::<Vec<usize>>();
        if slots.is_empty() {
            continue;
        }
        trace.label(LabelEvent::Start(slots));
        if stage.start(&here, DEGRADED).is_ok() {
            return Ok(true);
        }
        // The start wrote nothing, or its writes were interrupted as by a crash.
        trace.label(LabelEvent::Crash);
    }
    Ok(false)
}

/// The observed events, in the form of the model. A start that was rejected before it wrote anything is not an event.
fn events(labels: &[LabelEvent]) -> Vec<Event> {
    let mut epochs: Vec<Uuid> = Vec::new();
    let mut events = Vec::new();
    for label in labels {
        match label {
            LabelEvent::Written(copy, label) => {
                let seen = seen(label, &mut epochs);
                let member = label.slot.at();
                events.push(match copy {
                    Copy::Head => Event::Head(member, seen),
                    Copy::Tail => Event::Tail(member, seen),
                });
            }
            LabelEvent::Start(slots) => events.push(Event::Start(set_of(slots.iter().copied()))),
            LabelEvent::Crash if matches!(events.last(), Some(Event::Start(_))) => {
                events.pop();
            }
            LabelEvent::Crash => events.push(Event::Crash),
        }
    }
    events
}

fn seen(label: &Superblock, epochs: &mut Vec<Uuid>) -> Seen {
    // The epoch of a new array is 1, and it has no predecessor.
    if epochs.is_empty() {
        epochs.extend(label.history.first().map(|first| first.epoch));
    }
    let mut number = |epoch: Uuid| match epochs.iter().position(|known| *known == epoch) {
        Some(at) => at as u16 + 1,
        None if epoch == Uuid([0; 16]) => 0,
        None => {
            epochs.push(epoch);
            epochs.len() as u16
        }
    };
    let parent = number(label.parent_epoch);
    let those = |state: RecordedState| -> Set {
        let rows = label.members.iter().enumerate();
        set_of(rows.filter(|(_, row)| row.state == state).map(|(m, _)| m))
    };
    let mut of = Seen {
        generation: label.generation as u16,
        epoch: number(label.epoch),
        parent,
        in_sync: those(RecordedState::InSync),
        rebuilding: those(RecordedState::Rebuilding),
        since: Default::default(),
        held: Default::default(),
    };
    for (m, row) in label.members.iter().enumerate() {
        (of.since[m], of.held[m]) = (row.in_sync_generation as u16, row.held_generation as u16);
    }
    of
}
