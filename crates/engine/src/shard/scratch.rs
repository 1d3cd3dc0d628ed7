//! A shard's memory for old data, parity and reconstruction: fixed at start, taken all at once per plan. Only buffers
//! that an unresponsive drive keeps are replaced.

use std::cell::RefCell;
use std::future::poll_fn;
use std::task::Poll;

use arrayvec::ArrayVec;
use strake_block::{Buf, BufMut, BufPool, Pages, Sg};
use strake_reactor::Scheduler;
use strake_units::StripSet;

use super::execute::STRIPS_MAX;
use super::wait::WaitQueue;

use crate::limits::{PARITY_CACHE_LARGE_MAX, PARITY_CACHE_MAX, SMALL_BYTES, SMALL_TOTAL};

/// Buffers one plan may use: every strip read, every strip computed, and a spare.
pub(crate) const LOAN_MAX: usize = 132;

pub(crate) struct Scratch {
    small: BufPool,
    large: BufPool,
    waiting: WaitQueue,
    /// Tickets make waiting first come, first served, so that a wide stripe is not starved by narrow ones.
    next_ticket: u64,
    serving: u64,
    /// What the first task in line waits for: buffers, and bytes of each.
    short: Option<(usize, usize)>,
    /// Buffers that were replaced since drives last kept none.
    replaced: usize,
    /// The free list of what loans consist of: as many as there are tasks.
    free: Option<Box<Lists>>,
}

impl Scratch {
    /// About `scratch_bytes` of memory for bands of `band_bytes` in stripes of `width` strips; and more for what small
    /// writes leave behind, `kept` buffers of each, so that no task waits for those.
    pub(crate) fn new(
        scheduler: &Scheduler,
        tasks: usize,
        scratch_bytes: usize,
        band_bytes: usize,
        width: usize,
        kept: usize,
    ) -> Self {
        // The largest plan reads every other strip and computes the rest: never more than two bands' worth.
        let plan_max = 2 * width + 2;
        let small = SMALL_TOTAL.min(scratch_bytes / 4);
        let large = if band_bytes <= SMALL_BYTES {
            1
        } else {
            ((scratch_bytes - small) / band_bytes).clamp(2 * plan_max, tasks * plan_max)
        };
        Self {
            small: BufPool::new(
                (small / SMALL_BYTES).max(2 * plan_max) + kept * PARITY_CACHE_MAX,
                SMALL_BYTES,
            ),
            large: BufPool::new(large + kept * PARITY_CACHE_LARGE_MAX, band_bytes),
            waiting: WaitQueue::new(scheduler),
            next_ticket: 0,
            serving: 0,
            short: None,
            replaced: 0,
            free: (0..tasks)
                .fold(None, |next, _| Some(Box::new(Lists { next, ..Lists::default() }))),
        }
    }

    /// The pool for buffers of `bytes` bytes.
    fn pool(&mut self, bytes: usize) -> &mut BufPool {
        if bytes <= SMALL_BYTES { &mut self.small } else { &mut self.large }
    }

    /// Bytes of memory in both pools.
    pub(crate) fn bytes(&self) -> usize {
        self.small.chunks() * self.small.chunk_bytes()
            + self.large.chunks() * self.large.chunk_bytes()
    }

    /// Bytes of it that are in huge pages.
    pub(crate) fn huge_bytes(&self) -> usize {
        let huge = |pool: &&BufPool| pool.arena().pages() != Pages::Ordinary;
        let pools = [&self.small, &self.large];
        pools.iter().filter(|pool| huge(pool)).map(|p| p.chunks() * p.chunk_bytes()).sum()
    }

    /// Buffers that are not here.
    pub(crate) fn lent(&self) -> usize {
        let lent = |pool: &BufPool| pool.chunks().saturating_sub(pool.available());
        lent(&self.small) + lent(&self.large)
    }

    /// Lets everybody who waits see that the array is lost.
    pub(crate) fn wake_all(&mut self) {
        self.waiting.wake_all();
    }

    fn put(&mut self, buf: BufMut) {
        if self.small.owns(&buf) { self.small.put(buf) } else { self.large.put(buf) }
    }

    /// Unresponsive drives keep the buffers of `kept` I/Os that were abandoned. When a task waits for memory, as many
    /// of these buffers are replaced as it lacks: they may never come back. If they do, the pool drops the surplus.
    pub(crate) fn replace_kept(&mut self, kept: usize) {
        if kept == 0 {
            self.replaced = 0;
        }
        let Some((count, bytes)) = self.short else { return };
        let may = kept.saturating_sub(self.replaced);
        let pool = self.pool(bytes);
        let missing = count.saturating_sub(pool.available()).min(may);
        if missing == 0 {
            return;
        }
        (0..missing).for_each(|_| pool.replace_lost());
        self.replaced += missing;
        self.waiting.wake_all();
    }
}

/// The buffers of one plan, all of one length; and users' own, for strips that they want as a whole. A loan is returned
/// with [`end`].
pub(crate) struct Loan {
    lists: Box<Lists>,
    /// The strips that there was or is a user's buffer for.
    strips: StripSet,
}

/// What a loan consists of: too large to be moved often. [`end`] puts it on the free list, for another loan.
#[derive(Default)]
struct Lists {
    bufs: ArrayVec<BufMut, LOAN_MAX>,
    /// What users have lent for strips, as long as it is not taken.
    lent: ArrayVec<(u8, BufMut), STRIPS_MAX>,
    /// The next one on the free list.
    next: Option<Box<Lists>>,
}

impl Loan {
    fn empty(scratch: &RefCell<Scratch>) -> Self {
        let mut scratch = scratch.borrow_mut();
        let mut lists = scratch.free.take().unwrap_or_default();
        scratch.free = lists.next.take();
        Self { lists, strips: StripSet::EMPTY }
    }

    /// Takes one buffer, cut to `bytes`.
    pub(crate) fn take(&mut self, bytes: usize) -> BufMut {
        let mut buf = self.lists.bufs.pop().expect("a plan used more scratch than it borrowed");
        buf.truncate(bytes);
        buf
    }

    /// Takes the buffer for `bytes` of a strip: its user's, if one was lent.
    pub(crate) fn take_for(&mut self, strip: u8, bytes: usize) -> BufMut {
        match self.take_lent(strip) {
            Some(buf) => {
                debug_assert_eq!(buf.len(), bytes, "what is lent fits");
                buf
            }
            None => self.take(bytes),
        }
    }

    /// A user's buffer, to be used for exactly what it is to hold in the end.
    pub(crate) fn lend(&mut self, strip: u8, buf: BufMut) {
        self.strips.insert(strip);
        self.lists.lent.push((strip, buf));
    }

    /// True when a user's buffer is used, or was to be used, for `strip`.
    pub(crate) fn was_lent(&self, strip: u8) -> bool {
        self.strips.contains(strip)
    }

    /// Takes what was lent for `strip`, unless it is in use.
    pub(crate) fn take_lent(&mut self, strip: u8) -> Option<BufMut> {
        let lent = &mut self.lists.lent;
        let at = lent.iter().position(|(of, _)| *of == strip)?;
        Some(lent.swap_remove(at).1)
    }
}

/// Waits until `count` buffers of `bytes` bytes are free, then takes them all: a task never holds some while
/// waiting for more, so tasks cannot block each other. `None` as soon as the array is `lost`. Buffers that an
/// unresponsive device keeps are replaced ([`Scratch::replace_kept`]).
pub(crate) async fn borrow(
    scratch: &RefCell<Scratch>,
    count: usize,
    bytes: usize,
    lost: impl Fn() -> bool,
) -> Option<Loan> {
    let mut loan = Loan::empty(scratch);
    if count == 0 {
        return Some(loan);
    }
    let ticket = {
        let mut scratch = scratch.borrow_mut();
        scratch.next_ticket += 1;
        scratch.next_ticket - 1
    };
    poll_fn(|_| {
        let mut scratch = scratch.borrow_mut();
        if lost() {
            return Poll::Ready(None);
        }
        if scratch.serving != ticket || scratch.pool(bytes).available() < count {
            if scratch.serving == ticket {
                scratch.short = Some((count, bytes));
            }
            scratch.waiting.register();
            return Poll::Pending;
        }
        scratch.serving += 1;
        scratch.short = None;
        for _ in 0..count {
            let buf = scratch.pool(bytes).get(bytes).expect("counted just now");
            loan.lists.bufs.push(buf);
        }
        scratch.waiting.wake_all();
        Poll::Ready(Some(()))
    })
    .await
    .map(|()| loan)
}

impl Scratch {
    /// True when there are `count` buffers of `bytes` bytes and no task waits for any.
    #[inline]
    pub(crate) fn has_now(&mut self, count: usize, bytes: usize) -> bool {
        self.serving == self.next_ticket && self.pool(bytes).available() >= count
    }

    /// Takes one of those.
    #[inline]
    pub(crate) fn take(&mut self, bytes: usize) -> BufMut {
        self.pool(bytes).get(bytes).expect("counted just now")
    }
}

/// Takes `count` buffers of `bytes` bytes, if there are that many and no task waits for any.
pub(crate) fn take_now<const N: usize>(
    scratch: &RefCell<Scratch>,
    count: usize,
    bytes: usize,
) -> Option<ArrayVec<BufMut, N>> {
    let mut scratch = scratch.borrow_mut();
    scratch.has_now(count, bytes).then(|| (0..count).map(|_| scratch.take(bytes)).collect())
}

/// Gives buffers back and lets the next waiter try.
pub(crate) fn give_back(scratch: &RefCell<Scratch>, bufs: impl IntoIterator<Item = BufMut>) {
    let mut scratch = scratch.borrow_mut();
    for buf in bufs {
        scratch.put(buf);
    }
    scratch.waiting.wake_all();
}

/// Gives back what is left of a loan. What users lent is with them again.
pub(crate) fn end(scratch: &RefCell<Scratch>, Loan { mut lists, .. }: Loan) {
    assert!(lists.lent.is_empty(), "a user's buffer is not scratch memory");
    give_back(scratch, lists.bufs.drain(..));
    let mut scratch = scratch.borrow_mut();
    lists.next = scratch.free.take();
    scratch.free = Some(lists);
}

/// Gives back frozen buffers that returned from a write. Parts that others still share are theirs.
pub(crate) fn give_back_list(scratch: &RefCell<Scratch>, list: Sg) {
    let mut scratch = scratch.borrow_mut();
    for part in list.into_parts() {
        if let Ok(whole) = Buf::reclaim(part) {
            scratch.put(whole);
        }
    }
    scratch.waiting.wake_all();
}
