//! What crashes leave in doubt, and which of it is given up when the operator accepts a loss.
//!
//! A write that is in progress when the machine stops may leave parity that disagrees with the data of its stripe.
//! Until the stripe is resynchronized, the blocks of absent members are reconstructed from such parity. One more crash,
//! or a clean shutdown, does not change that: a member that is absent only since then has its blocks in the same
//! stripes.

use std::collections::BTreeSet;

use strake_engine::AssemblePolicy;
use strake_raid::{Geometry, MemberState, Place, Regions, Role};
use strake_units::StripeIndex;

use super::World;

/// What a refusal says before it lists regions.
const LIST: &str = "(byte offset+length: ";

/// Stripes whose parity may disagree with the data, and the regions that refusals have named since the last start.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    stripes: BTreeSet<u64>,
    /// Where the regions begin that were named, in bytes of the array.
    named: BTreeSet<u64>,
    /// All regions count as named: a list was too long and was cut off, or a script read none.
    all_named: bool,
}

impl Doubts {
    /// A crash leaves `stripes` in doubt, beside those of earlier crashes.
    pub(super) fn add(&mut self, stripes: impl IntoIterator<Item = u64>) {
        self.stripes.extend(stripes);
    }

    /// A resync has ended.
    pub(super) fn settle(&mut self) {
        self.stripes.clear();
    }

    /// A start was refused, and the operator reads why.
    pub(super) fn read(&mut self, refusal: &str) {
        let Some((_, list)) = refusal.split_once(LIST) else { return };
        let list = list.split_once(')').map_or(list, |(list, _)| list);
        for range in list.split(", ") {
            let offset: Option<u64> =
                range.split_once('+').and_then(|(offset, _)| offset.parse().ok());
            self.all_named |= offset.is_none();
            self.named.extend(offset);
        }
    }

    /// The array has started: blocks that may be anything, where the operator has accepted a loss. That is what lies on
    /// members that are not in sync, in stripes in doubt, in regions that were named.
    pub(super) fn given_up(&mut self, geometry: &Geometry, states: &[MemberState]) -> Vec<u64> {
        let mut blocks = Vec::new();
        for stripe in self.stripes.iter().map(|stripe| StripeIndex(*stripe)) {
            if !self.is_named(geometry, stripe) {
                continue;
            }
            for strip in 0..geometry.data_strips() {
                let position = geometry.position(stripe, Role::Data { strip, copy: 0 });
                if states[geometry.member(stripe, position).at()] != MemberState::InSync {
                    let first = geometry.lba(Place { stripe, strip, offset: 0 }).0;
                    blocks.extend(first..first + u64::from(geometry.strip_blocks()));
                }
            }
        }
        blocks
    }

    /// The operator accepts a loss and has read no refusal: whatever it is.
    pub(super) fn accept_unread(&mut self) {
        self.all_named |= self.named.is_empty();
    }

    /// The next start has to name again what it costs.
    pub(super) fn forget_named(&mut self) {
        self.named.clear();
        self.all_named = false;
    }

    fn is_named(&self, geometry: &Geometry, stripe: StripeIndex) -> bool {
        let regions = Regions::new(geometry);
        let first = regions.stripes(regions.region_of(stripe)).start;
        let bytes = geometry.stripe_data_blocks() << geometry.block_size().shift();
        self.all_named || self.named.contains(&(first * bytes))
    }
}

impl World {
    /// Before the array stops, or is stopped: no stripe is in doubt once the resync has ended.
    pub(super) fn settle_doubts(&mut self) {
        self.refresh();
        if !self.recovering {
            self.doubts.settle();
        }
    }

    /// The array has started as `policy` allows.
    pub(super) fn settle_loss(&mut self, policy: AssemblePolicy) {
        if policy.accept_loss {
            let states = self.states();
            for lba in self.doubts.given_up(&self.geometry, &states) {
                self.oracle.give_up(lba);
            }
        }
        self.doubts.forget_named();
    }
}

#[cfg(test)]
mod tests;
