//! Regions that crashes leave in doubt, and the data that is lost when the operator accepts a loss.
//!
//! A write that is in flight at a crash may leave parity that disagrees with the data of its stripe. Until the stripe
//! is resynchronized, the blocks of absent members are reconstructed from such parity. One more crash, or a clean
//! shutdown, does not change this: it also holds for a member that is absent only since then.

use std::collections::BTreeSet;

use strake_engine::AssemblePolicy;
use strake_raid::{Geometry, MemberState, Place, Regions, Role};
use strake_units::StripeIndex;

use super::World;

/// The text before the list of regions in a rejected start.
const LIST: &str = "(byte offset+length: ";

/// Stripes whose parity may disagree with the data, and the regions that rejected starts have named since the last
/// start.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    stripes: BTreeSet<u64>,
    /// The starts of the named regions, in bytes of the array.
    named: BTreeSet<u64>,
    /// Whether all regions count as named: a list was truncated, or a script read no list.
    all_named: bool,
}

impl Doubts {
    /// Adds stripes that a crash leaves in doubt.
    pub(super) fn add(&mut self, stripes: impl IntoIterator<Item = u64>) {
        self.stripes.extend(stripes);
    }

    /// Removes all stripes, because a resync has finished.
    pub(super) fn settle(&mut self) {
        self.stripes.clear();
    }

    /// Reads the named regions of a rejected start.
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

    /// Called at a start of the array: returns the blocks that may have any content, if the operator has accepted a
    /// loss. These are the blocks on members that are not in sync, in stripes in doubt, in named regions.
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

    /// Records that the operator accepts a loss without reading a rejection: all regions count as named.
    pub(super) fn accept_unread(&mut self) {
        self.all_named |= self.named.is_empty();
    }

    /// Removes the named regions: the next start must name its losses again.
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
    /// Called before the array stops: no stripe is in doubt after the resync has finished.
    pub(super) fn settle_doubts(&mut self) {
        self.refresh();
        if !self.recovering {
            self.doubts.settle();
        }
    }

    /// Applies the loss that `policy` permitted, after a start of the array.
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
