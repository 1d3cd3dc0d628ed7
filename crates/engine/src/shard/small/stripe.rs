//! Writes of a whole stripe without a task. Such a write reads nothing: its parities are computed from the new data at
//! submission. Then its entry in the table of small writes has only the phase that writes.
//!
//! ```text
//!  a user's write --> parities computed --> all strips written --> answered
//!                                                   |
//!                                                   v a write failed
//!                                                task: out of use, answered
//! ```

use arrayvec::ArrayVec;
use strake_block::{BufMut, Durability, Sg, Token};
use strake_parity::Code;
use strake_raid::{PARTS_MAX, WholeStripe, whole_stripe};
use strake_units::{Lba, LbaRange, RegionIndex};

use super::table::{Phase, Small};
use super::{Caller, DirectWrite, Members};
use crate::limits::IO_BYTES_MAX;
use crate::shard::bands::{ColumnSet, Holder};
use crate::shard::execute::STRIPS_MAX;
use crate::shard::{Shard, scratch};

/// Starts a user's write of a whole stripe. Returns the data if they are not a whole stripe, or cannot be written
/// immediately. A separate function, so that small writes are not slower.
#[inline(never)]
pub(crate) fn write_stripe(
    shard: &Shard,
    (port, token): (u16, Token),
    at: Lba,
    data: Sg,
    durability: Durability,
) -> Result<(), Sg> {
    let Some((stripe, range, region)) = target(shard, at, data.len()) else { return Err(data) };
    let band = stripe.band();
    let bytes = data.len() / usize::from(stripe.data_strips());
    let mut requests = shard.requests.borrow_mut();
    let mut smalls = shard.smalls.borrow_mut();
    // A request that has not yet reached the bands is not overtaken.
    let may = has_whole_strips(&data, bytes)
        && requests.room_for_direct() > 0
        && smalls.has_room_for_stripe()
        && !requests.has_unaccepted(port)
        && shard.has_room_for(band)
        && shard.owner(band) == shard.core
        && members_accept(shard, &stripe);
    if !may {
        return Err(data);
    }
    let mut bands = shard.bands.borrow_mut();
    let Some(entry) = bands.hold(band, Holder::Whole) else { return Err(data) };
    let bufs = smalls.next_bufs();
    if !begin(shard, &stripe, region, &mut bufs[1..], bytes) {
        bands.let_go(entry, || ColumnSet::ALL);
        return Err(data);
    }
    let code = shard.code.as_ref().expect("only stripes with parities are whole");
    encode(code, &data, bytes, &mut bufs[1..]);
    let (since, came) = (shard.now.get(), requests.came());
    requests.wrote_directly(port, range, data.len());
    let caller = Caller::User(DirectWrite { port, token, since, came });
    let small = smalls.begin_stripe(stripe, caller, range, (data, durability));
    (small.entry, small.region) = (entry, region);
    let mut members = shard.members.borrow_mut();
    small.membership_epoch = members.membership_epoch();
    send(shard, &mut members, small, &stripe);
    Ok(())
}

/// Returns the stripe, the range and the region of a write of `bytes` bytes at `at`, if it is a write of a whole stripe
/// that needs no task.
fn target(shard: &Shard, at: Lba, bytes: usize) -> Option<(WholeStripe, LbaRange, RegionIndex)> {
    // Longer requests are refused.
    let range = shard.geometry.range(at, bytes).filter(|_| bytes <= IO_BYTES_MAX as usize)?;
    let stripe = whole_stripe(&shard.geometry, range, &shard.sets.get())?;
    let region = shard.regions.region_of(stripe.band().stripe);
    let place = stripe.place();
    let usable = shard.region_table.borrow().trusted(region)
        && !shard.is_bad_band(place.stripe, place.offset);
    usable.then_some((stripe, range, region))
}

/// True if every member accepts a part now. A part that would wait for a member would delay the I/O of other users.
fn members_accept(shard: &Shard, stripe: &WholeStripe) -> bool {
    let members = shard.members.borrow();
    (0..stripe.parts()).all(|part| members.takes(stripe.member(part)))
}

/// True if each strip of `bytes` bytes is in one piece of memory.
fn has_whole_strips(data: &Sg, bytes: usize) -> bool {
    data.parts().iter().all(|part| part.len().is_multiple_of(bytes))
}

/// Takes buffers for the parities, enters the region, and drops the cached content of the band. Returns false, and
/// takes nothing, if the memory or the region is not available now.
fn begin(
    shard: &Shard,
    stripe: &WholeStripe,
    region: RegionIndex,
    bufs: &mut [Option<BufMut>],
    bytes: usize,
) -> bool {
    let parities = usize::from(stripe.parts() - stripe.data_strips());
    let bufs = &mut bufs[..parities];
    if !scratch::fill_now(&shard.scratch, bufs, bytes) {
        return false;
    }
    if !shard.region_table.borrow_mut().enter_now(region) {
        scratch::give_back(&shard.scratch, bufs.iter_mut().filter_map(Option::take));
        return false;
    }
    shard.forget_cached(stripe.band());
    true
}

/// Computes the parities of `data`, which has strips of `bytes` bytes.
fn encode(code: &Code, data: &Sg, bytes: usize, bufs: &mut [Option<BufMut>]) {
    let strips = data.parts().iter().flat_map(|part| part.as_slice().chunks_exact(bytes));
    let strips: ArrayVec<&[u8], STRIPS_MAX> = strips.collect();
    let parities = bufs.iter_mut().flatten().map(BufMut::as_mut_slice);
    let mut parities: ArrayVec<&mut [u8], PARTS_MAX> = parities.collect();
    strake_parity::encode(code, &strips, &mut parities).expect("all strips are equally long");
}

/// Writes all strips.
fn send(shard: &Shard, members: &mut Members, small: &mut Small, stripe: &WholeStripe) {
    let (now, at) = (shard.now.get(), stripe.member_lba());
    small.begin_phase(Phase::Write, now);
    let data_strips = stripe.data_strips();
    let bytes = small.data.len() / usize::from(data_strips);
    for part in 0..stripe.parts() {
        let data = match part.checked_sub(data_strips) {
            None => small.data.slice(usize::from(part) * bytes, bytes),
            Some(parity) => {
                let buf = small.bufs[1 + usize::from(parity)].take().expect("it was computed");
                Sg::from(buf.freeze())
            }
        };
        let io = small.part_on(part, stripe.member(part), at);
        let sent = members.write_part(now, io, data, small.durability);
        small.out.sent(part, sent);
    }
}

/// Releases the parities of a completed write.
#[inline(never)]
pub(super) fn release(shard: &Shard, small: &mut Small) {
    scratch::give_back(&shard.scratch, small.take_all_bufs());
}
