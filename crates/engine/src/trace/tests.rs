use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use proptest::prelude::*;
use strake_block::IoErrorKind;
use strake_units::{Lba, MemberIndex, Nanos};

use super::ring::{Head, Record, WORDS};
use super::{
    About, Arrival, ROUNDING, SAMPLED_OF, STAGES, Stage, Stages, Trace, TraceOp, TraceReason,
    TraceRing, Tracer, Trail,
};

const MICRO: u64 = 1_000;
const SECOND: u64 = 1_000_000_000;

fn about(accepted: u64) -> About {
    let op = TraceOp::Read;
    About { op, at: Lba(7), bytes: 4096, accepted: Nanos(accepted), error: None }
}

fn of(ring: &TraceRing, reason: TraceReason) -> Vec<Trace> {
    ring.read(3).into_iter().filter(|trace| trace.reason == reason).collect()
}

#[test]
fn stages_are_numbered_in_their_order() {
    for (at, stage) in Stage::ALL.into_iter().enumerate() {
        assert_eq!(stage as usize, at, "{}", stage.name());
    }
}

#[test]
fn a_trail_adds_the_times_of_repeated_stages() {
    let mut trail = Trail::begin(Stage::Read, Nanos(1_600));
    trail.enter(Stage::Write, Nanos(3_200), Some(MemberIndex(4)));
    trail.enter(Stage::Read, Nanos(6_400), None);
    let ended = trail.ended(Nanos(8_000), Some(MemberIndex(5)));
    let stages = ended.of(&Arrival::at(Nanos(1_600)));
    assert_eq!(stages.of(Stage::Read).took, Nanos(3_200));
    assert_eq!(stages.of(Stage::Read).member, Some(MemberIndex(5)));
    assert_eq!(stages.of(Stage::Write).took, Nanos(3_200));
    assert_eq!(stages.of(Stage::Write).member, None);
}

#[test]
fn times_beyond_the_range_count_as_the_maximum() {
    let stages = Stages::NONE.with(Stage::Read, Nanos(u64::MAX), None);
    let more = stages.with(Stage::Read, Nanos(SECOND), None);
    assert_eq!(more.of(Stage::Read).took, Nanos(u64::from(u32::MAX) << 4));
}

/// A failed attempt takes its stages with it. The time before the attempt remains.
#[test]
fn the_stages_of_a_failed_attempt_become_one() {
    let mut trail = Trail::begin(Stage::Intent, Nanos(0));
    trail.begin_attempt(Nanos(160));
    trail.enter(Stage::Read, Nanos(320), None);
    trail.enter(Stage::Write, Nanos(480), Some(MemberIndex(1)));
    trail.retry(Nanos(1_600), Some(MemberIndex(2)));
    trail.enter(Stage::Read, Nanos(1_760), None);
    let mut arrival = Arrival::after_attempt(Nanos(0), Nanos(3_200), Some(MemberIndex(3)));
    arrival.retried.add(Nanos(16), None);
    let stages = trail.ended(Nanos(1_920), Some(MemberIndex(4))).of(&arrival);
    let took = |stage| (stages.of(stage).took.0, stages.of(stage).member);
    assert_eq!(took(Stage::Intent), (160, None));
    assert_eq!(took(Stage::Queued), (160, None));
    assert_eq!(took(Stage::Read), (160, Some(MemberIndex(4))));
    assert_eq!(took(Stage::Write), (0, None));
    assert_eq!(took(Stage::Retried), (1_440 + 3_200 + 16, Some(MemberIndex(3))));
}

/// No member ends a stage without I/Os.
#[test]
fn waiting_has_no_member() {
    let mut trail = Trail::begin(Stage::Intent, Nanos(0));
    trail.enter(Stage::Band, Nanos(160), Some(MemberIndex(1)));
    let stages = trail.ended(Nanos(320), Some(MemberIndex(1))).of(&Arrival::at(Nanos(0)));
    assert!(Stage::ALL.into_iter().all(|stage| stages.of(stage).member.is_none()));
}

proptest! {
    /// The stages of a record never exceed the time of its request, and differ from it by the resolution only.
    #[test]
    fn the_stages_fill_the_time_of_the_request(
        part in proptest::array::uniform8(0..4 * SECOND),
        took in 0..60 * SECOND,
    ) {
        let mut stages = Stages::NONE;
        for (stage, time) in Stage::ALL.into_iter().zip(part) {
            if stage != Stage::Queued {
                stages.add(stage, Nanos(time));
            }
        }
        stages.fill(Nanos(took));
        prop_assert!(stages.sum().0 <= took, "{} > {took}", stages.sum().0);
        prop_assert!(took < stages.sum().0 + ROUNDING.0 + 16);
    }

    /// A record returns what was stored.
    #[test]
    fn a_record_keeps_every_field(
        number in 1..u64::MAX,
        (at, bytes, accepted, took) in any::<(u64, u64, u64, u64)>(),
        ticks in any::<[u32; STAGES]>(),
        members in proptest::array::uniform8(0u8..64),
        op in 0..TraceOp::ALL.len(),
    ) {
        let ring = TraceRing::default();
        let head = Head {
            number,
            reason: TraceReason::Slowest,
            op: TraceOp::ALL[op],
            at: Lba(at),
            bytes,
            accepted: Nanos(accepted),
            took: Nanos(took),
            error: Some(IoErrorKind::Timeout),
        };
        let stages = Stages { ticks, members };
        ring.store(&head, &stages);
        let [trace] = &ring.read(9)[..] else { panic!("one record") };
        prop_assert_eq!((trace.core, trace.number, trace.reason), (9, number, head.reason));
        prop_assert_eq!((trace.op, trace.at, trace.bytes), (head.op, head.at, bytes));
        prop_assert_eq!((trace.accepted, trace.took), (head.accepted, head.took));
        prop_assert_eq!(trace.error, head.error);
        let times: Vec<_> = Stage::ALL.into_iter().map(|stage| stages.of(stage)).collect();
        prop_assert_eq!(&trace.stages, &times);
    }
}

#[test]
fn one_of_4096_requests_is_a_sample() {
    let ring = Arc::new(TraceRing::default());
    let mut tracer = Tracer::new(Arc::clone(&ring));
    tracer.begin_turn(Nanos(SECOND));
    // Each request takes no time, so none of them is the slowest.
    for n in 0..10 * u64::from(SAMPLED_OF) {
        if tracer.picks(Nanos(SECOND), 1) {
            tracer.record(Nanos(SECOND), &About { at: Lba(n), ..about(SECOND) }, Stages::NONE);
        }
    }
    let samples: Vec<_> = of(&ring, TraceReason::Sampled).iter().map(|t| t.at.0).collect();
    let expected: Vec<_> = (0..10).map(|n| n * u64::from(SAMPLED_OF)).collect();
    assert_eq!(samples, expected);
    assert_eq!(of(&ring, TraceReason::Slowest), []);
}

#[test]
fn the_slowest_request_of_each_second_is_recorded_once() {
    let ring = Arc::new(TraceRing::default());
    let mut tracer = Tracer::new(Arc::clone(&ring));
    // (end, time taken), in microseconds.
    let requests = [(10, 5), (20, 9), (30, 7), (1_000_011, 3), (1_000_020, 4), (3_000_000, 2)];
    for (end, took) in requests {
        let (end, since) = (Nanos(end * MICRO), Nanos((end - took) * MICRO));
        tracer.begin_turn(end);
        if tracer.picks(since, 1) {
            tracer.record(end, &about(since.0), Stages::NONE);
        }
    }
    let slowest = of(&ring, TraceReason::Slowest);
    let seen: Vec<_> = slowest.iter().map(|trace| (trace.number, trace.took.0 / MICRO)).collect();
    assert_eq!(seen, [(1, 9), (2, 4), (3, 2)]);
    // Time in no stage was spent in a queue.
    let [queued] = &slowest[0].stages[..] else { panic!("one stage") };
    assert_eq!((queued.stage, queued.took.0 / MICRO), (Stage::Queued, 8));
}

#[test]
fn the_rings_keep_the_newest_records() {
    let ring = TraceRing::default();
    let head = |number, reason| Head {
        number,
        reason,
        op: TraceOp::Flush,
        at: Lba(0),
        bytes: 0,
        accepted: Nanos(0),
        took: Nanos(0),
        error: None,
    };
    for number in 1..=1_000 {
        ring.store(&head(number, TraceReason::Sampled), &Stages::NONE);
        ring.store(&head(number, TraceReason::Slowest), &Stages::NONE);
    }
    let numbers = |reason| of(&ring, reason).iter().map(|trace| trace.number).collect::<Vec<_>>();
    assert_eq!(numbers(TraceReason::Sampled), (873..=1_000).collect::<Vec<_>>());
    assert_eq!(numbers(TraceReason::Slowest), (937..=1_000).collect::<Vec<_>>());
}

/// A reader never sees a mixture of two records.
#[test]
fn a_reader_sees_whole_records_only() {
    const RECORDS: u64 = if cfg!(miri) { 500 } else { 2_000_000 };
    let record = Record::empty();
    let over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            (1..=RECORDS).for_each(|number| record.store(&[number; WORDS]));
            over.store(true, Relaxed);
        });
        let mut newest = 0;
        while !over.load(Relaxed) {
            let Some(words) = record.load() else { continue };
            assert_eq!(words, [words[0]; WORDS]);
            assert!(words[0] >= newest, "an older record returns");
            newest = words[0];
        }
    });
    assert_eq!(record.load(), Some([RECORDS; WORDS]));
}
