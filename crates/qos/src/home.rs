//! The home of a limit: it owns the budget, and leases it to the cores.
//!
//! ```text
//! tick:  time -> level     level = budget that no core holds
//!        take back what is two ticks old and unspent
//!        the oldest waiting request, whole; then the next one; stop at the first that the level does not cover
//!        the rest: equal parts to waiting cores, at most double the recent use to the others
//! idle:  the level in equal parts to all cores; no more ticks until a core calls
//! ```
//! The sum of the level and of all unspent leases is at most the depth of the limit, plus the budget of two ticks that
//! is distributed in the same turn. A core that spent more than its lease reduces the level, also below zero.

use strake_units::Nanos;

use crate::cells::{Cells, CoreView};
use crate::limits::{IDLE_TICKS, LAPSE_TICKS, TICK};
use crate::value::Limit;

/// Whether the home needs another tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// At this time.
    At(Nanos),
    /// When a core calls.
    Call,
}

/// The grants to one core, and what it used.
#[derive(Clone, Copy, Debug, Default)]
struct Grants {
    /// The published amount.
    granted: u64,
    /// The amount after each of the last ticks, the newest first.
    before: [u64; LAPSE_TICKS as usize],
    /// What the core had used, and what it used in the last two ticks.
    used: u64,
    recent: [u64; 2],
    view: CoreView,
}

impl Grants {
    const fn unspent(&self) -> u64 {
        self.granted.saturating_sub(self.view.used)
    }

    /// The amount that the oldest request of the core lacks.
    const fn short(&self) -> u64 {
        self.view.need.saturating_sub(self.unspent())
    }

    /// The amount up to which the core gets more: unlimited if it waits, otherwise for double its recent use.
    fn wants(&self) -> u64 {
        if self.view.need > 0 {
            return u64::MAX;
        }
        let recent = self.recent[0].max(self.recent[1]);
        recent.saturating_mul(2).saturating_sub(self.unspent())
    }
}

/// The home of a limit.
#[derive(Debug)]
pub struct Home {
    limit: Limit,
    /// Budget that no core holds. Negative after a request above the depth, and after overspending.
    level: i128,
    /// The fraction of a unit of budget, in units of 10^-9.
    fraction: u64,
    /// The time up to which the budget was computed.
    time: Nanos,
    cores: Box<[Grants]>,
    idle_ticks: u32,
    next: Next,
    /// Cores in the order in which they are served; kept to avoid an allocation.
    order: Vec<usize>,
}

impl Home {
    /// Creates the home with the whole depth as its level.
    #[must_use]
    pub fn new(limit: Limit, cores: usize, now: Nanos) -> Self {
        Self {
            limit,
            level: i128::from(limit.depth()),
            fraction: 0,
            time: now,
            cores: vec![Grants::default(); cores].into(),
            // The first tick leases the level to all cores.
            idle_ticks: IDLE_TICKS,
            next: Next::Call,
            order: Vec::with_capacity(cores),
        }
    }

    /// Changes the limit. The next tick takes back all leases. Budget above the new depth is lost, and none is added.
    pub fn change(&mut self, limit: Limit, now: Nanos) {
        self.accrue(now);
        self.limit = limit;
        for core in &mut self.cores {
            core.before = [u64::MAX; LAPSE_TICKS as usize];
        }
    }

    /// Distributes the budget. Called at each [`Next::At`], and after calls of cores.
    pub fn tick(&mut self, now: Nanos, cells: &Cells) -> Next {
        if let Next::At(due) = self.next
            && now < due
        {
            return self.next;
        }
        self.accrue(now);
        let is_used = self.settle(cells);
        let one_tick = self.amount_of(TICK);
        self.clip(one_tick * i128::from(LAPSE_TICKS));
        if self.serve_waiting() {
            self.share();
        }
        self.clip(0);
        self.idle_ticks = if is_used { 0 } else { self.idle_ticks.saturating_add(1) };
        self.next = if self.idle_ticks >= IDLE_TICKS {
            self.park();
            Next::Call
        } else {
            Next::At(now.plus(TICK))
        };
        self.publish(cells);
        cells.set_awake(self.next != Next::Call);
        self.next
    }

    /// The budget of a time, rounded down.
    fn amount_of(&self, time: Nanos) -> i128 {
        i128::from(self.limit.rate()) * i128::from(time.0) / i128::from(Nanos::SECOND.0)
    }

    /// Adds the budget of the time since the last call. Nothing is rounded away.
    fn accrue(&mut self, now: Nanos) {
        let elapsed = now.since(self.time);
        let sum = u128::from(self.limit.rate()) * u128::from(elapsed.0) + u128::from(self.fraction);
        let second = u128::from(Nanos::SECOND.0);
        self.fraction = (sum % second) as u64;
        self.level += (sum / second) as i128;
        self.time = now.max(self.time);
    }

    /// Reads the cells, and takes back grants that are old and unspent. Returns whether a core spent or waits.
    fn settle(&mut self, cells: &Cells) -> bool {
        let mut is_used = false;
        for (number, core) in self.cores.iter_mut().enumerate() {
            core.view = cells.view(number);
            let spent = core.view.used - core.used;
            core.used = core.view.used;
            core.recent = [spent, core.recent[0]];
            is_used |= spent > 0 || core.view.need > 0;
            if core.used > core.granted {
                // The core spent a lease that was taken back at the same time, or spent by force. Such a debt is at
                // most the depth: otherwise, requests that were forced would stop all others for a long time.
                let least = self.level.min(-i128::from(self.limit.depth()));
                self.level = (self.level - i128::from(core.used - core.granted)).max(least);
                core.granted = core.used;
            }
            let [newest, oldest] = core.before;
            let lapsed = oldest.min(core.granted).saturating_sub(core.used);
            core.granted -= lapsed;
            self.level += i128::from(lapsed);
            core.before = [core.granted, newest.min(core.granted)];
        }
        is_used
    }

    /// Limits the level to the depth without the unspent leases, plus `more`.
    fn clip(&mut self, more: i128) {
        let held: u128 = self.cores.iter().map(|core| u128::from(core.unspent())).sum();
        let most = i128::from(self.limit.depth()) + more - held as i128;
        // A level below zero is a debt, which leases do not increase.
        if self.level > most {
            self.level = most.max(self.level.min(0));
        }
    }

    /// Grants the waiting requests, the oldest first. Returns false if the level does not cover one of them. Then it is
    /// kept for this request, which thus does not wait forever for smaller ones.
    fn serve_waiting(&mut self) -> bool {
        let Self { cores, order, .. } = self;
        order.clear();
        order.extend((0..cores.len()).filter(|core| cores[*core].short() > 0));
        order.sort_unstable_by_key(|core| (cores[*core].view.since, *core));
        for at in 0..self.order.len() {
            let core = &mut self.cores[self.order[at]];
            let within = core.view.need.min(self.limit.depth());
            if self.level + i128::from(core.unspent()) < i128::from(within) {
                return false;
            }
            let short = core.short();
            core.granted += short;
            self.level -= i128::from(short);
        }
        true
    }

    /// Divides the level so that no core gets more while another one that wants more has less.
    fn share(&mut self) {
        let Ok(mut left) = u64::try_from(self.level) else { return };
        let before = left;
        let Self { cores, order, .. } = self;
        order.clear();
        order.extend((0..cores.len()).filter(|core| cores[*core].wants() > 0));
        // The smallest wants come first: what they leave is for the others. The last is the oldest waiting core, which
        // gets what a division leaves.
        let key = |core: &usize| (cores[*core].wants(), u64::MAX - cores[*core].view.since);
        order.sort_unstable_by_key(key);
        for at in 0..order.len() {
            let part = cores[order[at]].wants().min(left / (order.len() - at) as u64);
            cores[order[at]].granted += part;
            left -= part;
        }
        self.level -= i128::from(before - left);
    }

    /// Leases the level to all cores in equal parts, so that the first requests after a pause do not wait.
    fn park(&mut self) {
        let Ok(level) = u64::try_from(self.level) else { return };
        let part = level / self.cores.len().max(1) as u64;
        for core in &mut self.cores {
            core.granted += part;
            self.level -= i128::from(part);
        }
    }

    fn publish(&mut self, cells: &Cells) {
        for (number, core) in self.cores.iter_mut().enumerate() {
            core.before[0] = core.granted;
            cells.grant(number, core.granted);
        }
    }
}
