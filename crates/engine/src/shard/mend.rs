//! The findings of an operation about a stripe, and the rewrite of unreadable blocks.

use strake_block::{BufMut, Durability, IoError, IoErrorKind, Op, Sg, SgMut};
use strake_ondisk::BadEvent;
use strake_raid::{
    Band, Place, Purpose, Query, Role, Segment, StripeHealth, Transfer, Window, hull,
};
use strake_units::{LbaRange, PositionSet};

use super::bad::all_of;
use super::execute::{Failed, ReadBufs};
use super::members::{Group, settled};
use super::{Shard, scratch};

/// Positions that this operation cannot read, in addition to the members that are absent according to their views.
#[derive(Clone, Copy, Default)]
pub(super) struct Excluded {
    pub(super) unreadable: PositionSet,
    /// Positions that are readable but slow. They are avoided if the other positions suffice.
    pub(super) avoided: PositionSet,
    pub(super) absent: PositionSet,
    /// Positions that were rewritten once. If they are unreadable afterwards, they are not rewritten again.
    mended: PositionSet,
}

impl Excluded {
    /// Returns the state before the first attempt.
    pub(super) fn over(shard: &Shard, band: Band, window: Window) -> Self {
        Self { unreadable: shard.hidden_positions(band, window), ..Self::default() }
    }

    /// Adds the failures of reads. Unreadable blocks may still be written; a failed member may not.
    pub(super) fn learn(&mut self, failed: Failed) {
        self.unreadable |= failed.medium;
        self.absent |= failed.member;
        self.avoided |= failed.slow;
    }

    pub(super) fn apply(self, mut health: StripeHealth) -> StripeHealth {
        health.unreadable |= self.unreadable | self.avoided;
        health.absent |= self.absent;
        health.unreadable -= health.absent;
        health
    }
}

pub(super) const LOST: IoError = IoError::new(IoErrorKind::Lost);

/// The result of one plan.
pub(super) enum Ended {
    /// The plan was executed, or failed with an error.
    Done(Result<(), IoError>),
    /// Nothing was written, because the remaining strips do not suffice.
    Stuck(Stuck),
}

/// The reason why a plan was not executed.
#[derive(Clone, Copy)]
pub(super) struct Stuck {
    /// Positions that could not be read in some column. Other columns may be readable.
    pub(super) blocks: PositionSet,
    /// The state of the stripe for the plan.
    pub(super) health: StripeHealth,
}

impl Stuck {
    /// True if plans for fewer columns may succeed.
    pub(super) const fn by_blocks(self) -> bool {
        !self.blocks.is_empty()
    }
}

/// Writes the content of the copy at `source` over the copies that could not be read, and over copies that may differ:
/// copies with listed blocks, which were never compared, or all copies if `source` itself has listed blocks. Copies
/// that were not written must not be read from then on, because their members may return without a rebuild of these
/// blocks.
///
/// The list changes once, after the last write. Otherwise, a crash could leave differing copies that are not on the
/// list.
///
/// # Errors
/// If the list cannot be changed, or the array has failed. The content of `source` must not be returned then.
pub(super) async fn copy_back(
    shard: &Shard,
    group: Group,
    (band, segment): (Band, &Segment),
    (source, excluded): (u8, Excluded),
    data: &SgMut,
) -> Result<(), IoError> {
    let copies = shard.copies_of(segment.strip);
    let window = hull(std::slice::from_ref(segment));
    let listed = copies & shard.bad_positions(band, window);
    let suspect = if listed.contains(source) { copies } else { listed };
    let durability = if listed.is_empty() { Durability::Normal } else { Durability::Fua };
    let mut alike = PositionSet::of(source);
    let others = excluded.unreadable & copies | suspect;
    for position in others.without(source) - shard.health(band).absent {
        let lost = || shard.shared.is_lost();
        let loan = scratch::borrow(&shard.scratch, 1, data.len(), lost).await;
        let Some(mut loan) = loan else { return Err(LOST) };
        let mut buf = loan.take(data.len());
        scratch::end(&shard.scratch, loan);
        let mut rest = buf.as_mut_slice();
        for part in data.parts() {
            let (head, tail) = rest.split_at_mut(part.len());
            head.copy_from_slice(part.as_slice());
            rest = tail;
        }
        let place = all_of(position, window);
        if write_back(shard, group, (band, &place), buf, durability).await {
            alike.insert(position);
        }
    }
    note_copies(shard, (band, window), source, listed & alike, suspect - alike).await
}

/// Takes the copies in `restored` off the list. Hides the copies in `differing` at blocks where they or `source` are
/// listed.
async fn note_copies(
    shard: &Shard,
    (band, window): (Band, Window),
    source: u8,
    restored: PositionSet,
    differing: PositionSet,
) -> Result<(), IoError> {
    let place = |position| all_of(position, window);
    // These notes come first, because they free entries on a full list.
    let restored = restored.iter().map(|at| shard.bad_note(band, &place(at), BadEvent::Restored));
    let mut notes: Vec<_> = restored.collect();
    let alike = notes.len();
    for at in differing {
        for listed in [at, source] {
            notes.extend(shard.hide_where_listed(band, &place(listed), at));
        }
    }
    let differs = notes.len() > alike;
    match Box::pin(shard.note_bad(notes)).await {
        Err(error) if differs && error.kind == IoErrorKind::NoSpace => {
            Err(IoError::new(IoErrorKind::Medium))
        }
        Err(error) if differs => Err(error),
        // Equal copies may stay listed.
        Err(_) | Ok(()) => Ok(()),
    }
}

/// Rewrites the blocks that could not be read with their reconstructed content (the drive remaps these blocks). Returns
/// the positions whose member failed.
pub(super) async fn repair(
    shard: &Shard,
    group: Group,
    band: Band,
    plan: &strake_raid::Plan,
    excluded: Excluded,
    recovered: ReadBufs,
) -> PositionSet {
    let mut failed = PositionSet::EMPTY;
    for (strip, buf) in plan.recover.iter().zip(recovered) {
        let position = shard.position_of_strip(band.stripe, *strip);
        if !excluded.unreadable.contains(position) {
            scratch::give_back(&shard.scratch, [buf]);
            continue;
        }
        let place = all_of(position, plan.window);
        let bad = shard.is_bad(band, &place);
        // Where parity is not trusted, the old bytes of the block differ from its reconstructed content. Parity that
        // depends on this content may be stable before the next flush of the drive, so the content must be stable.
        let is_new = !shard.health(band).parity_trusted;
        let durability = if bad || is_new { Durability::Fua } else { Durability::Normal };
        if !write_back(shard, group, (band, &place), buf, durability).await {
            failed.insert(position);
        } else if bad {
            // If the block stays listed, it is reconstructed once more, which is harmless.
            let _ = Box::pin(shard.note_restored(band, &place)).await;
        }
    }
    failed
}

/// Rewrites unreadable blocks with valid data. Returns false if the member fails.
async fn write_back(
    shard: &Shard,
    group: Group,
    (band, place): (Band, &Transfer),
    buf: BufMut,
    durability: Durability,
) -> bool {
    let at = shard.geometry.member_lba(band.stripe, place.offset);
    let op = Op::Write { at, data: Sg::from(buf.freeze()), durability };
    let slot = shard.issue(group, band.stripe, place.position, op);
    settled(&shard.members, group).await;
    let (op, result) = shard.members.borrow_mut().take(slot);
    let replacement = shard.members.borrow_mut().paired.take_failed();
    if let Some(Op::Write { data, .. }) = op {
        scratch::give_back_list(&shard.scratch, data);
    }
    // If the array has failed meanwhile, the caller notices.
    let _ = Box::pin(shard.expel_replacement(replacement)).await;
    let member = shard.geometry.member(band.stripe, place.position);
    match result {
        Ok(()) => shard.shared.errors.count_repair(member),
        Err(error) => shard.blame(member, error),
    }
    result.is_ok()
}

/// Reconstructs data strips with unreadable blocks over `window` and rewrites them, as far as redundancy allows.
/// Rewritten strips are readable again. Results that a write or a resync computes from a reconstructed strip are valid
/// only if the drive has the same content. If parity is not trusted, the old bytes may be readable later with other
/// content, also after a power failure that discards the rewrite.
pub(super) async fn mend(
    shard: &Shard,
    group: Group,
    band: Band,
    window: Window,
    excluded: &mut Excluded,
) {
    let geometry = &shard.geometry;
    // The rewrite of one strip may find that another strip is unreadable too.
    while let Some(position) = (excluded.unreadable - excluded.mended).first() {
        excluded.mended.insert(position);
        let Role::Data { strip, .. } = geometry.role(band.stripe, position) else { continue };
        let start = geometry.lba(Place { stripe: band.stripe, strip, offset: window.offset });
        let segments = geometry.segments(band, LbaRange::new(start, u64::from(window.blocks)));
        loop {
            let health = excluded.apply(shard.health(band));
            let query =
                Query { band, health, segments: &segments, purpose: Purpose::Read, copy_hint: 0 };
            let Ok(plan) = strake_raid::plan(geometry, &query) else { break };
            if plan.recover.is_empty() {
                break;
            }
            let Some(mut loan) = shard.borrow(&plan).await else { break };
            if excluded.apply(shard.health(band)) != health {
                scratch::end(&shard.scratch, loan);
                continue;
            }
            let outcome = shard.read_all(group, band, &plan, &mut loan).await;
            if let Ok(reads) = outcome {
                let recovered = shard.recover(&plan, &reads, &mut loan);
                scratch::give_back(&shard.scratch, reads);
                excluded.absent |= repair(shard, group, band, &plan, *excluded, recovered).await;
                excluded.unreadable.remove(position);
                scratch::end(&shard.scratch, loan);
                break;
            }
            scratch::end(&shard.scratch, loan);
            excluded.learn(outcome.err().unwrap_or_default());
        }
    }
}
