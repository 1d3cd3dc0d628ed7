//! What a start costs, and whether the operator has accepted that.
//!
//! All of it is named at once: a list that names a part of it would have the operator accept the rest unseen.

use strake_ondisk::{Bits, Superblock};
use strake_raid::{Geometry, Regions};

use super::replay::Carried;
use super::{AssemblePolicy, refusals};
use crate::error::ArrayError;

/// What happened to an array that has lost blocks, and which ones: the middle of a sentence about it.
const DAMAGED: &str =
    "stopped without warning while members were missing; neighbouring blocks in the same stripe";
const IN_DOUBT: &str = "lost a member during the resync after a crash; blocks of that member";
const BOTH: &str = "lost a member during the resync after a crash, and stopped without warning \
                    while members were missing; blocks of members that are missing";

/// Regions in which blocks of absent members may be damaged.
pub(super) struct Losses {
    /// A member went out before parity was known to be right.
    pub(super) in_doubt: Bits,
    /// The machine stopped while members were missing.
    pub(super) damaged: Bits,
}

impl Losses {
    /// None but those `in_doubt`, as yet.
    pub(super) fn new(in_doubt: &Bits, regions: u32) -> Self {
        Self { in_doubt: in_doubt.clone(), damaged: Bits::new(regions) }
    }

    /// Whether there are any.
    pub(super) fn any(&self) -> bool {
        self.in_doubt.count_ones() + self.damaged.count_ones() > 0
    }

    /// Succeeds if nothing is lost, or the operator accepts it.
    ///
    /// What is accepted is what a start finds when it comes here first. One that has to start again, without drives
    /// that were silent since, may not lose more than that. Whatever a drive does before, it also did to the start that
    /// was refused, so it holds up no array that is to start without it.
    ///
    /// # Errors
    /// Names all regions.
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
