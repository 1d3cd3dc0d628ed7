use super::DeviceQueue;
use crate::gate::{LimitGate, LimitedBy, SharedLimit};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use strake_block::{
    BufMut, Completion, CompletionBatch, Durability, Io, IoQueue, Op, Readiness, SgMut, Token,
};
use strake_qos::{Aspect, Board, Cells, Counts, Home, Limit, Measure};
use strake_reactor::{CoreConfig, CoreThread, Sleep};
use strake_units::{BlockSize, CoreIndex, Lba, LbaRange, Nanos};

/// A device that completes what it gets in the next poll, and records the tokens.
#[derive(Default)]
struct Recorder {
    tokens: Rc<RefCell<Vec<u64>>>,
    ready: VecDeque<Io>,
}

impl IoQueue for Recorder {
    fn submit(&mut self, io: Io) -> Result<(), Io> {
        self.tokens.borrow_mut().push(io.token.0);
        self.ready.push_back(io);
        Ok(())
    }

    fn ring_doorbell(&mut self, _: Nanos) {}

    fn poll(&mut self, _: Nanos, batch: &mut CompletionBatch) {
        while batch.room() > 0
            && let Some(Io { token, op }) = self.ready.pop_front()
        {
            batch.push(Completion { token, op, result: Ok(()) });
        }
    }

    fn readiness(&self) -> Readiness {
        Readiness::Idle
    }
}

/// A queue with a limit whose home the test drives.
struct Limited {
    queue: DeviceQueue,
    tokens: Rc<RefCell<Vec<u64>>>,
    gate: Arc<LimitGate>,
    limit: Arc<SharedLimit>,
    home: Home,
    now: Nanos,
    // Its handle is in the limit.
    _core: CoreThread,
}

impl Limited {
    /// A queue with 10 I/Os per second, of which one may come at once.
    fn new(aspect: Aspect) -> Self {
        let core = CoreThread::start(CoreConfig::new(CoreIndex(0))).expect("a core starts");
        let (cells, board) = (Arc::new(Cells::new(1)), Arc::new(Board::new(1)));
        let limit = Arc::new(SharedLimit {
            number: 0,
            aspect,
            cells,
            board,
            home: core.handle(),
            on_drop: Box::new(|| ()),
        });
        let gate = Arc::new(LimitGate::default());
        gate.set(vec![Arc::clone(&limit)]);
        let recorder = Recorder::default();
        let tokens = Rc::clone(&recorder.tokens);
        let limits = LimitedBy {
            gate: Arc::clone(&gate),
            core: CoreIndex(0),
            block: BlockSize::B4096,
            fast_zeroes: false,
            now: Nanos(0),
        };
        let queue = DeviceQueue::new(Box::new(recorder), 64).limited_by(limits);
        let home = Home::new(Limit::new(10, 100).expect("a valid limit"), 1, Nanos(0));
        let mut limited = Self { queue, tokens, gate, limit, home, now: Nanos(0), _core: core };
        limited.pass(Nanos::MILLI);
        limited
    }

    /// Time passes, with the ticks of the home and a turn of the connection.
    fn pass(&mut self, time: Nanos) {
        let end = self.now.plus(time);
        while self.now < end {
            self.now = self.now.plus(Nanos::MILLI).min(end);
            self.home.tick(self.now, &self.limit.cells);
            self.queue.submit_backlog();
            self.queue.ring(self.now);
            if let Some(mut batch) = self.queue.poll(self.now) {
                batch.clear();
                self.queue.give_back(batch);
            }
        }
    }

    fn submit(&mut self, token: u64, op: Op) {
        self.queue.submit(Io { token: Token(token), op });
    }

    fn tokens(&self) -> Vec<u64> {
        self.tokens.borrow().clone()
    }

    fn used(&self) -> u64 {
        self.limit.throttled().used
    }
}

const IOPS: Aspect = Aspect::new(Measure::Ios, Counts::Total);
const TENTH: Nanos = Nanos(101 * Nanos::MILLI.0);

fn read() -> Op {
    Op::Read { at: Lba(0), data: SgMut::from(BufMut::alone(4096)) }
}

#[test]
fn requests_wait_in_order_and_flushes_are_not_counted() {
    let mut limited = Limited::new(IOPS);
    for (token, op) in [(1, read()), (2, read()), (3, Op::Flush), (4, read()), (5, Op::Flush)] {
        limited.submit(token, op);
    }
    assert_eq!(limited.tokens(), [1], "the flush does not overtake the request before it");
    assert!(limited.queue.is_full() && !limited.queue.is_quiet());
    limited.pass(TENTH);
    assert_eq!(limited.tokens(), [1, 2, 3]);
    limited.pass(TENTH);
    assert_eq!(limited.tokens(), [1, 2, 3, 4, 5]);
    assert!(limited.queue.is_quiet());
    assert_eq!((limited.used(), limited.limit.throttled().requests), (3, 2));
}

#[test]
fn a_waiting_request_wakes_its_core_in_time() {
    let mut limited = Limited::new(IOPS);
    let mut sleep = Sleep::new();
    limited.queue.sleep(&mut sleep);
    assert_eq!(sleep.deadline(), None);
    limited.submit(1, read());
    limited.submit(2, read());
    limited.queue.sleep(&mut sleep);
    assert_eq!(sleep.deadline(), Some(limited.now.plus(Nanos::MILLI)));
}

#[test]
fn a_connection_that_ends_answers_its_requests_at_once() {
    let mut limited = Limited::new(IOPS);
    (1..=5).for_each(|token| limited.submit(token, read()));
    limited.queue.lift();
    limited.pass(Nanos::MILLI);
    limited.submit(6, read());
    assert_eq!(limited.tokens(), [1, 2, 3, 4, 5, 6]);
    assert_eq!(limited.used(), 6, "what passes is charged");
}

#[test]
fn only_held_requests_are_released() {
    let mut limited = Limited::new(IOPS);
    (1..=3).for_each(|token| limited.submit(token, read()));
    limited.queue.release();
    limited.pass(Nanos::MILLI);
    assert_eq!(limited.tokens(), [1, 2, 3]);
    limited.submit(4, read());
    assert_eq!(limited.tokens(), [1, 2, 3], "later requests wait");
    limited.pass(Nanos(4 * TENTH.0));
    assert_eq!(limited.tokens(), [1, 2, 3, 4]);
}

#[test]
fn a_cleared_limit_holds_nothing() {
    let mut limited = Limited::new(IOPS);
    (1..=3).for_each(|token| limited.submit(token, read()));
    assert!(limited.gate.set(Vec::new()));
    limited.queue.submit_backlog();
    assert_eq!(limited.tokens(), [1, 2, 3]);
    assert!(limited.queue.limited.is_none(), "the queue has no further work for limits");
    assert!(limited.gate.set(vec![Arc::clone(&limited.limit)]));
    limited.submit(4, read());
    assert_eq!(limited.tokens(), [1, 2, 3], "a limit that returns holds");
}

#[test]
fn the_parts_of_a_request_are_one_request() {
    let mut limited = Limited::new(IOPS);
    let part = |at: u64| {
        let data = SgMut::from(BufMut::alone(4096));
        Io { token: Token(at), op: Op::Read { at: Lba(at), data } }
    };
    (0..8).for_each(|at| limited.queue.submit_part(part(at), at * 4096));
    assert_eq!((limited.tokens().len(), limited.used()), (8, 1));
}

#[test]
fn changes_without_data_cost_what_the_device_writes() {
    let bytes = Aspect::new(Measure::Bytes, Counts::Writes);
    let range = LbaRange::new(Lba(0), 4);
    let zeroes = || Op::WriteZeroes { range, durability: Durability::Normal };
    let mut limited = Limited::new(bytes);
    limited.submit(1, Op::Deallocate { range });
    limited.submit(2, read());
    assert_eq!((limited.tokens(), limited.used()), (vec![1, 2], 0));
    limited.submit(3, zeroes());
    limited.pass(Nanos(2 * Nanos::MILLI.0));
    assert_eq!((limited.tokens(), limited.used()), (vec![1, 2, 3], 4 * 4096));
    limited.submit(4, zeroes());
    limited.pass(TENTH);
    assert_eq!(limited.tokens(), [1, 2, 3], "the zeroes before are paid first");
}

#[test]
fn requests_of_a_lost_connection_do_not_reach_the_device() {
    let mut limited = Limited::new(IOPS);
    (1..=4).for_each(|token| limited.submit(token, read()));
    assert_eq!(limited.queue.held().map(|io| io.token.0), Some(2));
    let taken: Vec<u64> =
        std::iter::from_fn(|| limited.queue.take_held()).map(|io| io.token.0).collect();
    assert_eq!(taken, [2, 3, 4]);
    assert!(!limited.queue.is_full());
    limited.pass(Nanos(4 * TENTH.0));
    assert_eq!(limited.tokens(), [1]);
    assert_eq!(limited.used(), 1, "what is not submitted is not charged");
    assert!(limited.queue.is_quiet());
    // A later request does not wait behind those that were taken.
    limited.submit(5, read());
    assert_eq!(limited.tokens(), [1, 5]);
}

#[test]
fn released_requests_are_submitted_at_once() {
    let mut limited = Limited::new(IOPS);
    (1..=3).for_each(|token| limited.submit(token, read()));
    limited.queue.release();
    assert_eq!(limited.tokens(), [1, 2, 3]);
}
