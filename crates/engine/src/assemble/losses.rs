//! Losses of a start, and their acceptance by the operator.
//!
//! All losses are reported together. Otherwise, the operator would accept losses that are not on the list.

use strake_ondisk::{Bits, Superblock};
use strake_raid::{Geometry, Regions};

use super::replay::Carried;
use super::{AssemblePolicy, refusals};
use crate::error::ArrayError;

/// The middle of a sentence about an array with lost blocks: the cause, and the blocks.
const DAMAGED: &str =
    "stopped without warning while members were missing; neighbouring blocks in the same stripe";
const IN_DOUBT: &str = "lost a member during the resync after a crash; blocks of that member";
const BOTH: &str = "lost a member during the resync after a crash, and stopped without warning \
                    while members were missing; blocks of members that are missing";

/// Regions in which blocks of absent members may be damaged.
pub(super) struct Losses {
    /// Regions in which a member went out before the resync.
    pub(super) in_doubt: Bits,
    /// Regions with writes at a crash while members were missing.
    pub(super) damaged: Bits,
}

impl Losses {
    /// Creates losses that contain only the regions `in_doubt`.
    pub(super) fn new(in_doubt: &Bits, regions: u32) -> Self {
        Self { in_doubt: in_doubt.clone(), damaged: Bits::new(regions) }
    }

    /// True if there are losses.
    pub(super) fn any(&self) -> bool {
        self.in_doubt.count_ones() + self.damaged.count_ones() > 0
    }

    /// Succeeds if nothing is lost, or the operator accepts it.
    ///
    /// The operator accepts the losses that the first check of a start finds. If the start repeats without drives that
    /// were unresponsive, it may not lose more. Such drives also failed during the refused start, so they cannot
    /// prevent a start without them.
    ///
    /// # Errors
    /// If the losses are not accepted. The error names all regions.
    pub(super) fn are_accepted(
        &self,
        superblock: &Superblock,
        within: (&Geometry, &Regions),
        policy: AssemblePolicy,
        carried: &mut Carried,
    ) -> Result<(), ArrayError> {
        let mut all = self.in_doubt.clone();
        all.join(&self.damaged);
        if policy.accept_loss {
            let accepted = carried.accepted.entry(superblock.array).or_insert_with(|| all.clone());
            if all.iter_ones().all(|region| accepted.get(region)) {
                return Ok(());
            }
        }
        let why = match (self.in_doubt.count_ones(), self.damaged.count_ones()) {
            (0, 0) => return Ok(()),
            (0, _) => DAMAGED,
            (_, 0) => IN_DOUBT,
            _ => BOTH,
        };
        Err(refusals::losses(superblock, within, &all, why))
    }
}
