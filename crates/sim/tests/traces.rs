//! The model follows the label events of simulated arrays, and rejects invalid ones.

use std::time::{SystemTime, UNIX_EPOCH};

use strake_sim::model::{Config, Event, follow};
use strake_sim::stage::observe;

/// Worlds from fixed seeds, and from random seeds.
const WORLDS: u64 = 100;
/// Worlds whose traces are modified.
const CHANGED: u64 = 40;

fn trace(seed: u64) -> (Config, Vec<Event>) {
    observe(seed).unwrap_or_else(|what| panic!("world {seed}: {what}"))
}

fn accepted(seeds: std::ops::Range<u64>) {
    let mut seen = 0;
    for seed in seeds {
        let (config, events) = trace(seed);
        seen += events.len();
        if let Err(refused) = follow(&config, &events) {
            panic!("seed {seed}: {refused:?}: {:#?}", &events[..=refused.at]);
        }
    }
    assert!(seen > WORLDS as usize * 5, "{seen} events: hardly anything happens");
}

#[test]
fn fixed_worlds_do_to_labels_what_the_model_does() {
    accepted(1..1 + WORLDS);
}

#[test]
fn random_worlds_do_to_labels_what_the_model_does() {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let seed = since.as_nanos() as u64 & 0xffff_ffff;
    println!("seed {seed}");
    accepted(seed..seed + WORLDS);
}

/// Checks that every trace that `change` modifies is rejected, and that there are such traces.
fn refused(change: impl Fn(&mut Vec<Event>) -> bool) {
    let mut changed = 0;
    for seed in 1..1 + CHANGED {
        let (config, mut events) = trace(seed);
        if change(&mut events) {
            changed += 1;
            assert!(follow(&config, &events).is_err(), "seed {seed}: {events:#?}");
        }
    }
    assert!(changed > CHANGED / 8, "{changed} of {CHANGED} traces were changed");
}

/// The first label that reached a tail ring: the positions of its last head event and its first tail event.
fn confirmed(events: &[Event]) -> Option<(usize, usize)> {
    let is_tail = |event: &Event| matches!(event, Event::Tail(..));
    let tail = events.iter().position(is_tail)?;
    let head = events[..tail].iter().rposition(|event| matches!(event, Event::Head(..)))?;
    Some((head, tail))
}

/// The first label with members that are out.
fn degraded(events: &mut [Event]) -> Option<&mut strake_sim::model::Seen> {
    events.iter_mut().find_map(|event| match event {
        Event::Head(_, seen) if seen.held.iter().any(|held| *held > 0) => Some(seen),
        Event::Head(..) | Event::Tail(..) | Event::Start(_) | Event::Crash => None,
    })
}

#[test]
fn a_label_that_a_member_never_got_is_refused() {
    refused(|events| {
        let Some((head, _)) = confirmed(events) else { return false };
        events.remove(head);
        true
    });
}

#[test]
fn a_tail_before_the_last_head_is_refused() {
    refused(|events| {
        let Some((head, tail)) = confirmed(events) else { return false };
        events.swap(head, tail);
        true
    });
}

#[test]
fn a_generation_that_is_left_out_is_refused() {
    refused(|events| {
        let mut changed = false;
        for event in events {
            if let Event::Head(_, seen) | Event::Tail(_, seen) = event {
                seen.generation += 1;
                changed = true;
            }
        }
        changed
    });
}

#[test]
fn a_member_that_is_out_and_called_in_sync_is_refused() {
    refused(|events| {
        let Some(seen) = degraded(events) else { return false };
        let out = seen.held.iter().position(|held| *held > 0).expect("one is out");
        let trusted = seen.in_sync & 1 << out == 0 && seen.rebuilding & 1 << out == 0;
        seen.in_sync |= 1 << out;
        trusted
    });
}

#[test]
fn a_start_that_writes_to_a_drive_that_is_not_here_is_refused() {
    refused(|events| {
        let start = events.windows(2).position(|pair| {
            matches!(pair, [Event::Start(here), Event::Head(m, _)]
                if here.count_ones() > 1 && here & 1 << m != 0)
        });
        let Some(start) = start else { return false };
        if let [Event::Start(here), Event::Head(m, _)] = &mut events[start..start + 2] {
            *here &= !(1 << *m);
        }
        true
    });
}

#[test]
fn an_activation_that_does_not_name_the_one_before_is_refused() {
    refused(|events| {
        let mut changed = false;
        for event in events {
            if let Event::Head(_, seen) | Event::Tail(_, seen) = event
                && seen.epoch > 1
            {
                seen.parent = seen.epoch;
                changed = true;
            }
        }
        changed
    });
}
