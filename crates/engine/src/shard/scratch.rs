//! The memory of a shard for old data, parity and reconstruction. Its size is fixed at the start, and a plan takes all
//! its buffers at once. Only buffers that an unresponsive drive keeps are replaced.

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

/// Maximum number of buffers of a plan: every strip read, every strip computed, and a spare.
pub(crate) const LOAN_MAX: usize = 132;

/// The buffers of a shard. Its core does not allocate them: the kernel needs 10 ms and more to zero the pages, and
/// meanwhile the core would serve no other array.
pub(crate) struct Buffers {
    small: BufPool,
    large: BufPool,
}

impl Buffers {
    /// Allocates about `scratch_bytes` of memory for `tasks` tasks on bands of `band_bytes` in stripes of `width`
    /// strips. In addition, allocates `kept` buffers of each size for the parity cache, so that no task waits for these
    /// buffers.
    pub(crate) fn new(
        tasks: usize,
        scratch_bytes: usize,
        band_bytes: usize,
        width: usize,
        kept: usize,
    ) -> Self {
        // The largest plan reads or computes every strip, so it never needs more buffers than two bands.
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
        }
    }
}

pub(crate) struct Scratch {
    small: BufPool,
    large: BufPool,
    waiting: WaitQueue,
    /// Tickets keep the order of arrival, so that narrow stripes cannot starve a wide stripe.
    next_ticket: u64,
    serving: u64,
    /// The number and the size of the buffers for which the first waiting task waits.
    short: Option<(usize, usize)>,
    /// Number of buffers that were replaced since drives last kept none.
    replaced: usize,
    /// The free list of parts of loans, one for each task.
    free: Option<Box<Lists>>,
}

impl Scratch {
    /// Lends `buffers` to at most `tasks` tasks.
    pub(crate) fn new(scheduler: &Scheduler, tasks: usize, buffers: Buffers) -> Self {
        let Buffers { small, large } = buffers;
        Self {
            small,
            large,
            waiting: WaitQueue::new(scheduler),
            next_ticket: 0,
            serving: 0,
            short: None,
            replaced: 0,
            free: (0..tasks)
                .fold(None, |next, _| Some(Box::new(Lists { next, ..Lists::default() }))),
        }
    }

    /// Returns the pool for buffers of `bytes` bytes.
    fn pool(&mut self, bytes: usize) -> &mut BufPool {
        if bytes <= SMALL_BYTES { &mut self.small } else { &mut self.large }
    }

    /// Returns the bytes of memory in both pools.
    pub(crate) fn bytes(&self) -> usize {
        self.small.chunks() * self.small.chunk_bytes()
            + self.large.chunks() * self.large.chunk_bytes()
    }

    /// Returns the bytes of memory in huge pages.
    pub(crate) fn huge_bytes(&self) -> usize {
        let huge = |pool: &&BufPool| pool.arena().pages() != Pages::Ordinary;
        let pools = [&self.small, &self.large];
        pools.iter().filter(|pool| huge(pool)).map(|p| p.chunks() * p.chunk_bytes()).sum()
    }

    /// Returns the number of lent buffers.
    pub(crate) fn lent(&self) -> usize {
        let lent = |pool: &BufPool| pool.chunks().saturating_sub(pool.available());
        lent(&self.small) + lent(&self.large)
    }

    /// Wakes all waiting tasks, so that they notice that the array has failed.
    pub(crate) fn wake_all(&mut self) {
        self.waiting.wake_all();
    }

    #[inline]
    fn put(&mut self, buf: BufMut) {
        // Nearly every buffer is a small one that no drive keeps.
        if let Err(buf) = self.small.put_own(buf) {
            self.put_other(buf);
        }
    }

    fn put_other(&mut self, buf: BufMut) {
        if self.small.owns(&buf) { self.small.put(buf) } else { self.large.put(buf) }
    }

    /// Replaces buffers of `kept` abandoned I/Os that unresponsive drives keep. If a task waits for memory, as many
    /// buffers are replaced as the task lacks. If the drives return the buffers later, the pool drops the surplus.
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

/// The buffers of one plan, all of one length, and lent user buffers for strips that a user reads as a whole. [`end`]
/// returns a loan.
pub(crate) struct Loan {
    lists: Box<Lists>,
    /// The strips for which a user lent a buffer.
    strips: StripSet,
}

/// The parts of a loan, which are too large to be moved often. [`end`] puts them on the free list, for another loan.
#[derive(Default)]
struct Lists {
    bufs: ArrayVec<BufMut, LOAN_MAX>,
    /// Lent user buffers that are not yet taken.
    lent: ArrayVec<(u8, BufMut), STRIPS_MAX>,
    /// The next entry of the free list.
    next: Option<Box<Lists>>,
}

impl Loan {
    fn empty(scratch: &RefCell<Scratch>) -> Self {
        let mut scratch = scratch.borrow_mut();
        let mut lists = scratch.free.take().unwrap_or_default();
        scratch.free = lists.next.take();
        Self { lists, strips: StripSet::EMPTY }
    }

    /// Takes one buffer, truncated to `bytes`.
    pub(crate) fn take(&mut self, bytes: usize) -> BufMut {
        let mut buf = self.lists.bufs.pop().expect("a plan used more scratch than it borrowed");
        buf.truncate(bytes);
        buf
    }

    /// Takes a buffer for `bytes` bytes of a strip: the user's buffer, if one was lent.
    pub(crate) fn take_for(&mut self, strip: u8, bytes: usize) -> BufMut {
        match self.take_lent(strip) {
            Some(buf) => {
                debug_assert_eq!(buf.len(), bytes, "what is lent fits");
                buf
            }
            None => self.take(bytes),
        }
    }

    /// Lends a user's buffer for a strip. The final content of the buffer must be exactly this strip.
    pub(crate) fn lend(&mut self, strip: u8, buf: BufMut) {
        self.strips.insert(strip);
        self.lists.lent.push((strip, buf));
    }

    /// True if a user lent a buffer for `strip`.
    pub(crate) fn was_lent(&self, strip: u8) -> bool {
        self.strips.contains(strip)
    }

    /// Takes the lent buffer of `strip` back, unless it is in use.
    pub(crate) fn take_lent(&mut self, strip: u8) -> Option<BufMut> {
        let lent = &mut self.lists.lent;
        let at = lent.iter().position(|(of, _)| *of == strip)?;
        Some(lent.swap_remove(at).1)
    }
}

/// Waits until `count` buffers of `bytes` bytes are free, and then takes all of them. A task never holds some buffers
/// while it waits for more, so tasks cannot deadlock. Returns `None` as soon as the array is `lost`. Buffers that an
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
    /// True if `count` buffers of `bytes` bytes are free and no task waits for buffers.
    #[inline]
    pub(crate) fn has_now(&mut self, count: usize, bytes: usize) -> bool {
        self.serving == self.next_ticket && self.pool(bytes).available() >= count
    }

    /// Takes one of these buffers.
    #[inline]
    pub(crate) fn take(&mut self, bytes: usize) -> BufMut {
        self.pool(bytes).get(bytes).expect("counted just now")
    }
}

/// Takes `count` buffers of `bytes` bytes, if they are free and no task waits for buffers.
pub(crate) fn take_now<const N: usize>(
    scratch: &RefCell<Scratch>,
    count: usize,
    bytes: usize,
) -> Option<ArrayVec<BufMut, N>> {
    let mut scratch = scratch.borrow_mut();
    scratch.has_now(count, bytes).then(|| (0..count).map(|_| scratch.take(bytes)).collect())
}

/// Takes a buffer of `bytes` bytes for every slot, if they are free and no task waits for buffers. Returns false and
/// takes nothing otherwise.
#[inline]
pub(crate) fn fill_now(
    scratch: &RefCell<Scratch>,
    slots: &mut [Option<BufMut>],
    bytes: usize,
) -> bool {
    let mut scratch = scratch.borrow_mut();
    let has = scratch.has_now(slots.len(), bytes);
    if has {
        let pool = scratch.pool(bytes);
        slots.iter_mut().for_each(|slot| *slot = pool.get(bytes));
    }
    has
}

/// Releases buffers and wakes the next waiting task.
pub(crate) fn give_back(scratch: &RefCell<Scratch>, bufs: impl IntoIterator<Item = BufMut>) {
    let mut scratch = scratch.borrow_mut();
    for buf in bufs {
        scratch.put(buf);
    }
    scratch.waiting.wake_all();
}

/// Releases the remaining buffers of a loan. All lent user buffers must have been returned.
pub(crate) fn end(scratch: &RefCell<Scratch>, Loan { mut lists, .. }: Loan) {
    assert!(lists.lent.is_empty(), "a user's buffer is not scratch memory");
    give_back(scratch, lists.bufs.drain(..));
    let mut scratch = scratch.borrow_mut();
    lists.next = scratch.free.take();
    scratch.free = Some(lists);
}

/// Releases frozen buffers of a completed write. Parts that other owners still share are not released.
pub(crate) fn give_back_list(scratch: &RefCell<Scratch>, list: Sg) {
    give_back_frozen(scratch, list.into_parts());
}

/// Releases frozen buffers like [`give_back_list`].
pub(crate) fn give_back_frozen(scratch: &RefCell<Scratch>, bufs: impl IntoIterator<Item = Buf>) {
    let mut scratch = scratch.borrow_mut();
    for part in bufs {
        if let Ok(whole) = Buf::reclaim(part) {
            scratch.put(whole);
        }
    }
    scratch.waiting.wake_all();
}
