//! Small writes: one piece of data in one strip of a stripe that lacks nothing. They are what a random write is, so
//! they take no task: a place in a table counts what is outstanding, and goes on when nothing is.
//!
//! ```text
//!  Work::Write at the head of its band --> old data and parities read --> updated --> all written --> answered
//!                 (copies have nothing to read)        |                                 |
//!                                                      v a read failed,                  v a write failed
//!                                                      something changed                 task: out of use, answered
//!                                        back to the head of its band, for a task
//! ```
//!
//! Nothing is decided here that is not decided by the planner for every write: which strips are read and written
//! follows from `Strategy::ReadModifyWrite` and `Strategy::Direct` where nothing is hidden, and a test compares them.

use std::cell::RefMut;

use arrayvec::ArrayVec;
use strake_block::{BufMut, Durability, IoError, Op, Sg, SgMut};
use strake_parity::ParityMut;
use strake_raid::{Place, Role, Scheme};
use strake_units::{LbaRange, MemberIndex, RegionIndex};

use super::members::{Failed, SmallIo};
use super::{Job, Shard, scratch};
use crate::limits::SMALL_WRITES_MAX;
use crate::message::Origin;
use crate::slab::Slab;

/// Strips that a small write reads and writes: its own and the parities, or its copies.
pub(crate) const PARTS_MAX: usize = 5;

/// A write at the head of a band's queue.
pub(crate) struct Head {
    pub(crate) range: LbaRange,
    pub(crate) data: Sg,
    pub(crate) durability: Durability,
    pub(crate) origin: Origin,
}

/// One of them.
struct Small {
    entry: u32,
    head: Head,
    place: Place,
    region: RegionIndex,
    /// [`Members::clock`](super::members::Members::clock) when it was begun.
    since: u64,
    outstanding: u8,
    writing: bool,
    /// Where its parts are: its own strip, then the parities; or the copies.
    members: ArrayVec<MemberIndex, PARTS_MAX>,
    /// What was read of them, and is written in place of it; the host's data in the place of its own strip.
    bufs: [Option<BufMut>; PARTS_MAX],
    /// Some of its parts have failed.
    failed: bool,
}

/// All of them.
pub(crate) struct Smalls {
    table: Slab<Small>,
    /// Those of which nothing is outstanding any more.
    due: Vec<u32>,
    /// Parts that failed, of all of them.
    failed: Vec<(SmallIo, Failed)>,
}

impl Smalls {
    pub(crate) fn new() -> Self {
        let due = Vec::with_capacity(SMALL_WRITES_MAX);
        Self { table: Slab::new(SMALL_WRITES_MAX), due, failed: Vec::new() }
    }

    /// An I/O came back.
    pub(crate) fn back(&mut self, io: SmallIo, op: Option<Op>, failed: Option<Failed>) {
        let small = self.table.get_mut(io.write).expect("a small write outlives its I/Os");
        small.outstanding -= 1;
        if small.outstanding == 0 {
            self.due.push(io.write);
        }
        if let Some(failed) = failed {
            small.failed = true;
            self.failed.push((io, failed));
        }
        match op {
            Some(Op::Read { data, .. }) => small.bufs[usize::from(io.part)] = data.into_single(),
            Some(Op::Write { data, .. }) if io.part > 0 => {
                small.bufs[usize::from(io.part)] = sole(data);
            }
            Some(Op::Write { .. } | Op::Flush | Op::Deallocate { .. } | Op::WriteZeroes { .. })
            | None => {}
        }
    }
}

/// The buffer of a list that nobody else has a part of.
fn sole(data: Sg) -> Option<BufMut> {
    data.into_parts().next().and_then(|buf| buf.reclaim().ok())
}

impl Shard {
    /// Begins the write at the head of the band of `entry`, if it is a small one and can begin at once.
    pub(crate) fn begin_small(&self, entry: u32) -> bool {
        let mut smalls = self.smalls.borrow_mut();
        if smalls.table.room() == 0 || !self.no_bad_blocks() || !self.small_writes {
            return false;
        }
        let mut bands = self.bands.borrow_mut();
        let Some((range, band)) = bands.sole_write(entry) else { return false };
        let place = self.geometry.place(range.start);
        let band_blocks = self.geometry.band_blocks();
        let within = band_blocks - (place.offset & (band_blocks - 1));
        if range.blocks > within.into() || !self.members.borrow().all_plain() {
            return false;
        }
        let region = self.regions.region_of(band.stripe);
        let Some(mut bufs) = self.small_bufs(range.blocks) else { return false };
        if !self.region_table.borrow_mut().enter_now(region) {
            scratch::give_back(&self.scratch, bufs);
            return false;
        }
        let since = self.members.borrow().clock();
        let head = bands.take_write(entry);
        let small = Small {
            entry,
            head,
            place,
            region,
            since,
            outstanding: 0,
            writing: false,
            members: self.small_members(place),
            bufs: [const { None }; PARTS_MAX],
            failed: false,
        };
        let write = smalls.table.insert(small);
        drop(bands);
        let small = smalls.table.get_mut(write).expect("inserted just now");
        if bufs.is_empty() {
            self.write_small(write, small);
        } else {
            self.read_small(write, small, &mut bufs);
        }
        true
    }

    /// Buffers for the strips that are read; `None` when there are not enough now.
    fn small_bufs(&self, blocks: u64) -> Option<ArrayVec<BufMut, PARTS_MAX>> {
        match self.geometry.scheme() {
            Scheme::Copies(_) => Some(ArrayVec::new()),
            Scheme::Parity(parities) => {
                let bytes = (blocks as usize) << self.geometry.block_size().shift();
                scratch::take_now(&self.scratch, 1 + usize::from(parities), bytes)
            }
        }
    }

    fn small_members(&self, place: Place) -> ArrayVec<MemberIndex, PARTS_MAX> {
        let member =
            |role| self.geometry.member(place.stripe, self.geometry.position(place.stripe, role));
        match self.geometry.scheme() {
            Scheme::Copies(copies) => {
                (0..copies).map(|copy| member(Role::Data { strip: place.strip, copy })).collect()
            }
            Scheme::Parity(parities) => {
                let own = member(Role::Data { strip: place.strip, copy: 0 });
                let others = (0..parities).map(|index| member(Role::Parity { index }));
                std::iter::once(own).chain(others).collect()
            }
        }
    }

    fn read_small(&self, write: u32, small: &mut Small, bufs: &mut ArrayVec<BufMut, PARTS_MAX>) {
        let at = self.geometry.member_lba(small.place.stripe, small.place.offset);
        let mut members = self.members.borrow_mut();
        for (part, member) in small.members.iter().enumerate() {
            let data = SgMut::from(bufs.pop().expect("one for each part"));
            let io = SmallIo { write, part: part as u8 };
            members.issue_small(self.now.get(), io, *member, Op::Read { at, data });
            small.outstanding += 1;
        }
    }

    fn write_small(&self, write: u32, small: &mut Small) {
        small.writing = true;
        let at = self.geometry.member_lba(small.place.stripe, small.place.offset);
        let durability = small.head.durability;
        let mut members = self.members.borrow_mut();
        for (part, member) in small.members.iter().enumerate() {
            let data = match small.bufs[part].take() {
                Some(parity) if part > 0 => Sg::from(parity.freeze()),
                old => {
                    scratch::give_back(&self.scratch, old);
                    small.head.data.clone()
                }
            };
            let io = SmallIo { write, part: part as u8 };
            members.issue_small(self.now.get(), io, *member, Op::Write { at, data, durability });
            small.outstanding += 1;
        }
    }

    /// Goes on with small writes of which nothing is outstanding. Returns how many.
    pub(crate) fn go_on_with_small(&self) -> usize {
        let mut count = 0;
        while let Some(write) = { self.smalls.borrow_mut().due.pop() } {
            count += 1;
            let mut smalls = self.smalls.borrow_mut();
            let small = smalls.table.get_mut(write).expect("it is due");
            if small.writing {
                if !small.failed {
                    drop(smalls);
                    self.end_small(write, Ok(()));
                } else {
                    self.jobs.borrow_mut().push_back(Job::Conclude { write });
                }
                continue;
            }
            let unchanged = self.members.borrow().clock() == small.since
                && self.members.borrow().all_plain()
                && self.no_bad_blocks();
            if !small.failed && unchanged {
                self.update_small(small);
                self.write_small(write, small);
            } else {
                self.hand_over(smalls, write);
            }
        }
        count
    }

    /// Brings the change of the data into what was read of the parities.
    fn update_small(&self, small: &mut Small) {
        let code = self.code.as_ref().expect("only parity schemes read before they write");
        let [Some(old), parities @ ..] = &mut small.bufs else { unreachable!("all was read") };
        let mut offset = 0;
        for new in small.head.data.parts() {
            let part = offset..offset + new.len();
            let mut targets: ArrayVec<ParityMut<'_>, PARTS_MAX> = parities
                .iter_mut()
                .flatten()
                .enumerate()
                .map(|(index, buf)| ParityMut {
                    index: index as u8,
                    bytes: &mut buf.as_mut_slice()[part.clone()],
                })
                .collect();
            let strip = usize::from(small.place.strip);
            let old = &old.as_slice()[part.clone()];
            strake_parity::update(code, strip, old, new.as_slice(), &mut targets)
                .expect("all buffers are equally long");
            offset = part.end;
        }
    }

    /// Puts a write that needs more thought back to the head of its band. Nothing of it is written.
    fn hand_over(&self, mut smalls: RefMut<'_, Smalls>, write: u32) {
        let small = smalls.table.remove(write);
        // Whoever does it again finds out for itself.
        smalls.failed.retain(|(io, _)| io.write != write);
        drop(smalls);
        self.region_table.borrow_mut().leave(small.region);
        scratch::give_back(&self.scratch, small.bufs.into_iter().flatten());
        self.bands.borrow_mut().put_back(small.entry, small.head);
    }

    /// Answers a small write that is done, and goes on with its band.
    fn end_small(&self, write: u32, result: Result<(), IoError>) {
        let mut smalls = self.smalls.borrow_mut();
        let small = smalls.table.get_mut(write).expect("it is done");
        let (origin, entry) = (small.head.origin, small.entry);
        self.region_table.borrow_mut().leave(small.region);
        scratch::give_back(&self.scratch, small.bufs.iter_mut().filter_map(Option::take));
        smalls.table.release(write);
        drop(smalls);
        self.bands.borrow_mut().let_go(entry);
        self.finish(origin, result, None);
    }

    /// True when no small write is under way.
    pub(crate) fn no_small_writes(&self) -> bool {
        self.smalls.borrow().table.live() == 0
    }
}

/// Sees to it that whoever failed a part of a small write is out of use everywhere before it is answered.
pub(crate) async fn conclude(shard: &Shard, write: u32) {
    let (stripe, since, members, failed) = {
        let mut smalls = shard.smalls.borrow_mut();
        let of_this = |(io, failed): (SmallIo, Failed)| (io.part, failed);
        let failed = smalls.failed.extract_if(.., |(io, _)| io.write == write).map(of_this);
        let failed: ArrayVec<(u8, Failed), PARTS_MAX> = failed.collect();
        let small = smalls.table.get_mut(write).expect("it waits for this");
        (small.place.stripe, small.since, small.members.clone(), failed)
    };
    let mut missed = 0;
    for (part, failed) in failed {
        // A write that fails costs the member whatever the reason: its block is stale from now on.
        let member = members[usize::from(part)];
        let position = shard.geometry.position_of_member(stripe, member);
        missed |= 1 << position.expect("written in this stripe");
        let failure = shard.members.borrow().failure(failed);
        shard.blame(member, failure);
    }
    let out = shard.await_out_of_use(stripe, missed, since).await;
    shard.end_small(write, out);
}

/// Whether arrays of this shape have small writes: one strip's change is best brought into the parities, and there are
/// not too many of them.
pub(crate) fn has_small_writes(geometry: &strake_raid::Geometry) -> bool {
    let parts = match geometry.scheme() {
        Scheme::Copies(copies) => usize::from(copies),
        Scheme::Parity(parities) => 1 + usize::from(parities),
    };
    let modifies = match geometry.scheme() {
        Scheme::Copies(_) => true,
        // The planner's rule: as many reads or fewer than to encode anew from the other strips.
        Scheme::Parity(parities) => 1 + parities < geometry.data_strips(),
    };
    parts <= PARTS_MAX && modifies
}

#[cfg(test)]
mod tests;
