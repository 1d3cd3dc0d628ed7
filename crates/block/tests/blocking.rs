//! Tests of synchronous I/O on a scripted queue.

use std::collections::VecDeque;

use strake_block::blocking::Blocking;
use strake_block::{
    BufMut, Completion, CompletionBatch, Durability, Io, IoError, IoErrorKind, IoQueue, Op,
    Readiness, Sg,
};
use strake_units::{Lba, LbaRange, Nanos};

/// A queue that is full for some submissions, and answers each request after some polls. The queue accepts only stable
/// writes.
struct Scripted {
    full: u32,
    polls: u32,
    answers: VecDeque<Result<(), IoErrorKind>>,
    taken: Option<(Io, u32)>,
}

impl IoQueue for Scripted {
    fn submit(&mut self, io: Io) -> Result<(), Io> {
        if self.full > 0 {
            self.full -= 1;
            return Err(io);
        }
        assert!(self.taken.is_none(), "one request at a time");
        self.taken = Some((io, self.polls));
        Ok(())
    }

    fn ring_doorbell(&mut self, _now: Nanos) {}

    fn poll(&mut self, _now: Nanos, batch: &mut CompletionBatch) {
        match self.taken.take() {
            Some((io, 0)) => {
                let cached = matches!(io.op, Op::Write { durability: Durability::Normal, .. });
                let scripted = self.answers.pop_front().expect("as many answers as requests");
                let answer = if cached { Err(IoErrorKind::Unsupported) } else { scripted };
                let result = answer.map_err(IoError::new);
                batch.push(Completion { token: io.token, op: io.op, result });
            }
            Some((io, left)) => self.taken = Some((io, left - 1)),
            None => {}
        }
    }

    fn readiness(&self) -> Readiness {
        Readiness::Poll
    }
}

/// Runs `work` on such a queue, with a clock that advances by `step` at each check.
fn with<T>(
    (full, polls): (u32, u32),
    answer: Result<(), IoErrorKind>,
    step: Nanos,
    work: impl FnOnce(&mut Blocking<'_>) -> T,
) -> T {
    let queue = Box::new(Scripted { full, polls, answers: [answer].into(), taken: None });
    let mut now = Nanos(0);
    let mut wait = || {
        now = now.plus(step);
        Some(now)
    };
    work(&mut Blocking::new(queue, &mut wait))
}

fn kinds(result: Result<(), IoError>) -> Result<(), IoErrorKind> {
    result.map_err(|error| error.kind)
}

fn data() -> Sg {
    Sg::from(BufMut::alone(4096).freeze())
}

#[test]
fn what_the_device_could_not_do_is_said_of_every_operation() {
    type Run = fn(&mut Blocking<'_>, LbaRange) -> Result<(), IoError>;
    let runs: [Run; 5] = [
        |io, _| io.write_stable(Lba(0), data()),
        |io, _| io.flush(),
        |io, range| io.write_zeroes(range),
        |io, range| io.run(Op::Deallocate { range }).map(drop),
        |io, _| io.read(Lba(0), BufMut::alone(4096)).map(drop),
    ];
    for run in runs {
        for answer in [Ok(()), Err(IoErrorKind::Device), Err(IoErrorKind::Medium)] {
            let range = LbaRange::new(Lba(0), 8);
            let is = with((0, 2), answer, Nanos(1), |io| kinds(run(io, range)));
            assert_eq!(is, answer);
        }
    }
}

#[test]
fn a_stable_write_is_asked_for_as_one() {
    let stable = with((0, 0), Ok(()), Nanos(1), |io| kinds(io.write_stable(Lba(0), data())));
    assert_eq!(stable, Ok(()));
    let plain = Op::Write { at: Lba(0), data: data(), durability: Durability::Normal };
    let refused = with((0, 0), Ok(()), Nanos(1), |io| kinds(io.run(plain).map(drop)));
    assert_eq!(refused, Err(IoErrorKind::Unsupported), "it would be in a cache only");
}

#[test]
fn a_full_queue_is_waited_for() {
    assert_eq!(with((3, 0), Ok(()), Nanos(1), |io| kinds(io.flush())), Ok(()));
}

/// Only a device without an answer for long enough is abandoned.
#[test]
fn a_silent_device_is_given_up_and_a_slow_one_is_not() {
    let second = Nanos::SECOND;
    let late = with((0, 9), Ok(()), second, |io| kinds(io.flush()));
    assert_eq!(late, Ok(()), "nine seconds");
    let silent = with((0, 20), Ok(()), second, |io| kinds(io.flush()));
    assert_eq!(silent, Err(IoErrorKind::Timeout), "twenty seconds");
    let full = with((20, 0), Ok(()), second, |io| kinds(io.flush()));
    assert_eq!(full, Err(IoErrorKind::Timeout), "full for twenty seconds");
    let range = LbaRange::new(Lba(0), 1 << 30);
    let long = with((0, 20), Ok(()), second, |io| kinds(io.write_zeroes(range)));
    assert_eq!(long, Ok(()), "what may take as long as a device is large");
    let waited = with((0, 5), Ok(()), second, |io| {
        io.flush().expect("it answers");
        io.waited()
    });
    assert!((second.times(4)..=second.times(6)).contains(&waited), "{waited:?}");
}
