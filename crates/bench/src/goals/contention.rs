//! Cores that want the same rows: everywhere, on the rows of one core, and all on one stripe. A row belongs to one
//! core, so no core waits for a lock; what is left to show is that the owner keeps up, and that others are not slowed
//! down.

use strake_dev_mem::Profile;

use super::g6::{TWICE, on_two_cpus};
use crate::ask::{Ask, Question};
use crate::report::{Target, number};
use crate::scenario::{Aim, Case, Made, Options};

/// Requests that each core has out where the drives set the pace.
const DEPTH: u32 = 32;
/// A share of this counts as no loss: two measurements of the same differ by as much.
const NO_LOSS: f64 = 95.0;

pub(super) fn asks(options: &Options) -> Vec<Ask> {
    let one = super::g2::case();
    let two = |aim| Case { cores: 2, aim, ..one.clone() };
    let lone = Case { aim: Aim::OneStripe, depth: 1, ..one.clone() };
    let at_least = |goal| Target { anchor: None, goal: Some(goal), moonshot: None };
    let modelled = |aim| Case { made: Made::Model(options.profile), depth: DEPTH, ..two(aim) };
    let (bound, bound_note) = bound(&options.profile);
    [
        Ask::new(two(Aim::Everywhere), Question::Scaling(one.clone()), TWICE)
            .called(" beside 1 core everywhere"),
        Ask::new(two(Aim::OneCore), Question::Scaling(one.clone()), at_least(1.0))
            .called(" beside 1 core everywhere")
            .note(
                "the owner does what one core does, and the other core's requests come by mailbox",
            ),
        Ask::new(two(Aim::OneStripe), Question::Scaling(lone), at_least(1.0))
            .called(" beside 1 writer")
            .note("one writer alone has one round trip of the row after the other"),
        Ask::new(modelled(Aim::OneStripe), Question::Iops, at_least(bound)).note(bound_note),
        Ask::new(
            modelled(Aim::OthersOnOneStripe),
            Question::FirstCoreOf(modelled(Aim::FirstAlone)),
            at_least(NO_LOSS),
        )
        .called(": the first beside it alone")
        .note("no loss on other rows, as exactly as that can be measured; no driver or DMA cost"),
    ]
    .map(on_two_cpus)
    .to_vec()
}

/// Writes per second of one row whose writes wait for each other: each reads, and then writes.
fn bound(profile: &Profile) -> (f64, String) {
    let ns = (profile.read_latency.0 + profile.write_latency.0).max(1);
    let bound = 1e9 / ns as f64;
    let text = number(bound, "1/s");
    (
        bound,
        format!(
            "goal: one read and then one write of a drive at a time, {text}; no driver or DMA cost"
        ),
    )
}
