use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use strake_units::Nanos;

use super::simulation::{IOPS, one_io};
use crate::{
    Aspect, Board, Cells, Counts, Direction, Home, Lease, Limit, Limiter, Measure, QueueId,
    Request, Usage,
};

/// One limit with one core.
struct One {
    cells: Arc<Cells>,
    home: Home,
    lease: Rc<Lease>,
    calls: Rc<Cell<u32>>,
    now: Nanos,
}

impl One {
    fn new(rate: u64) -> Self {
        let (cells, board) = (Arc::new(Cells::new(1)), Arc::new(Board::new(1)));
        let calls = Rc::new(Cell::new(0));
        let counted = Rc::clone(&calls);
        let call = Box::new(move || counted.set(counted.get() + 1));
        let lease = Rc::new(Lease::new(Arc::clone(&cells), board, 0, call));
        let limit = Limit::new(rate, 1000).expect("a valid limit");
        let mut one =
            Self { home: Home::new(limit, 1, Nanos(0)), cells, lease, calls, now: Nanos(0) };
        one.home.tick(one.now, &one.cells);
        one
    }

    /// Time passes, with the ticks of the home.
    fn pass(&mut self, time: Nanos) {
        let end = self.now.plus(time);
        while self.now < end {
            self.now = self.now.plus(Nanos::MILLI).min(end);
            self.home.tick(self.now, &self.cells);
        }
    }

    fn limiter(&self, number: u64, aspect: Aspect) -> Limiter {
        let mut limiter = Limiter::new(QueueId(number));
        limiter.replace(vec![(aspect, Rc::clone(&self.lease))]);
        limiter
    }

    fn used(&self) -> u64 {
        self.cells.throttled().used
    }
}

fn read() -> Usage {
    Request { direction: Direction::Read, before: 0, bytes: 4096 }.cost()
}

#[test]
fn a_limit_counts_only_its_requests() {
    let one = One::new(1000);
    let mut writes = one.limiter(1, Aspect::new(Measure::Ios, Counts::Writes));
    assert!(writes.admit(read(), one.now));
    assert_eq!(one.used(), 0);
    assert!(writes.admit(one_io(), one.now));
    assert_eq!(one.used(), 1);
}

#[test]
fn a_queue_that_ends_while_it_waits_blocks_no_other() {
    let mut one = One::new(1);
    let (mut first, mut second) = (one.limiter(1, IOPS), one.limiter(2, IOPS));
    assert!(first.admit(one_io(), one.now));
    assert!(!first.admit(one_io(), one.now));
    assert!(!second.admit(one_io(), one.now));
    drop(first);
    one.pass(Nanos(2 * Nanos::SECOND.0));
    assert!(second.admit(one_io(), one.now));
}

#[test]
fn queues_of_a_core_pass_in_the_order_in_which_they_began_to_wait() {
    let mut one = One::new(1);
    let (mut first, mut second) = (one.limiter(1, IOPS), one.limiter(2, IOPS));
    assert!(first.admit(one_io(), one.now));
    assert!(!second.admit(one_io(), one.now));
    assert!(!first.admit(one_io(), one.now));
    one.pass(Nanos(Nanos::SECOND.0));
    assert!(!first.admit(one_io(), one.now), "the second queue waits longer");
    assert!(second.admit(one_io(), one.now));
    one.pass(Nanos(Nanos::SECOND.0));
    assert!(first.admit(one_io(), one.now));
}

#[test]
fn forced_requests_pass_and_are_charged() {
    let mut one = One::new(1);
    let mut limiter = one.limiter(1, IOPS);
    assert!(limiter.admit(one_io(), one.now));
    assert!(!limiter.admit(one_io(), one.now));
    (0..5).for_each(|_| limiter.force(one_io()));
    assert_eq!(one.used(), 6);
    one.pass(Nanos(Nanos::SECOND.0));
    assert!(!limiter.admit(one_io(), one.now), "the debt is not paid yet");
    one.pass(Nanos(Nanos::SECOND.0));
    assert!(limiter.admit(one_io(), one.now), "a debt is at most the depth");
}

#[test]
fn a_request_pays_each_nested_limit_once() {
    let (outer, mut inner) = (One::new(1000), One::new(1));
    let mut limiter = Limiter::new(QueueId(1));
    limiter.replace(vec![(IOPS, Rc::clone(&outer.lease)), (IOPS, Rc::clone(&inner.lease))]);
    assert!(limiter.admit(one_io(), inner.now));
    for _ in 0..10 {
        assert!(!limiter.admit(one_io(), inner.now));
    }
    assert_eq!((outer.used(), inner.used()), (2, 1));
    inner.pass(Nanos(Nanos::SECOND.0));
    assert!(limiter.admit(one_io(), inner.now));
    assert_eq!((outer.used(), inner.used()), (2, 2));
    assert_eq!(inner.cells.throttled().requests, 1);
}

#[test]
fn a_sleeping_home_is_called() {
    let mut one = One::new(1000);
    // Eight ticks without use end the ticks.
    for _ in 0..8 {
        one.pass(Nanos::MILLI);
    }
    let calls = one.calls.get();
    let mut limiter = one.limiter(1, IOPS);
    assert!(limiter.admit(one_io(), one.now));
    assert_eq!(one.calls.get(), calls + 1);
    one.pass(Nanos::MILLI);
    assert!(limiter.admit(one_io(), one.now));
    assert_eq!(one.calls.get(), calls + 1, "an awake home needs no call");
}
