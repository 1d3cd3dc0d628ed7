//! Tests of clients with many requests together with clients with few requests: every client is served, also if a
//! resource is exhausted.

use std::collections::BTreeMap;

use strake_block::{Io, Op, Token};
use strake_dev_mem::Profile;
use strake_raid::{Level, MemberState};
use strake_units::Nanos;

use crate::stage::{Set, Stage};

/// The requests of a client.
#[derive(Clone, Copy, Debug)]
enum Wish {
    Reads(u64),
    Writes(u64),
    Mixed,
    Flushes,
}

/// A point in time, or the difference between two points.
#[derive(Clone, Copy, Debug, Default)]
struct Moment {
    round: u64,
    answers: u64,
}

/// A client that always has as many outstanding requests as its depth allows.
struct Client {
    wish: Wish,
    depth: u64,
    outstanding: u64,
    answered: u64,
    /// The outstanding requests by number, each with the time of its submission and the total of completions of all
    /// clients at that time.
    asked: BTreeMap<u64, Moment>,
    /// The maximum wait of any request.
    waited: Moment,
    random: u64,
}

impl Client {
    fn new(number: usize, wish: Wish, depth: u64) -> Self {
        let random = (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Self {
            wish,
            depth,
            outstanding: 0,
            answered: 0,
            asked: BTreeMap::new(),
            waited: Moment::default(),
            random,
        }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    fn op(&mut self, stage: &Stage) -> Op {
        let blocks = stage.model.len() as u64 >> 9;
        let chance = self.random(16);
        let (read, length) = match self.wish {
            Wish::Reads(length) => (true, length),
            Wish::Writes(length) => (false, length),
            Wish::Mixed if chance == 0 => return Op::Flush,
            Wish::Mixed => (chance < 8, [8, 8, 40, 300][self.random(4) as usize]),
            Wish::Flushes => return Op::Flush,
        };
        let at = self.random(blocks - length);
        if read { stage.read_op(at, length) } else { stage.write_op(at, length, at) }
    }
}

/// Clients, one per queue of a stage.
struct Crowd {
    stage: Stage,
    clients: Vec<Client>,
    now: Moment,
    next: u64,
}

impl Crowd {
    fn new(mut stage: Stage, clients: &[(Wish, u64)]) -> Self {
        stage.answers.clear();
        let client =
            |(number, (wish, depth)): (usize, &(Wish, u64))| Client::new(number, *wish, *depth);
        let clients = clients.iter().enumerate().map(client).collect();
        Self { stage, clients, now: Moment::default(), next: 1 << 40 }
    }

    /// Every client submits as much as is allowed, every shard runs a turn, and completions are collected.
    fn round(&mut self, ask: bool) {
        for (number, client) in self.clients.iter_mut().enumerate() {
            while ask && client.outstanding < client.depth {
                let io =
                    Io { token: Token(self.next << 8 | number as u64), op: client.op(&self.stage) };
                if self.stage.queues[number].submit(io).is_err() {
                    break;
                }
                client.asked.insert(self.next, self.now);
                self.next += 1;
                client.outstanding += 1;
            }
            self.stage.queues[number].ring_doorbell(self.stage.now);
        }
        self.stage.round();
        self.now.round += 1;
        for (token, done) in std::mem::take(&mut self.stage.answers) {
            assert_eq!(done.result, Ok(()), "nothing fails because something ran dry");
            let client = &mut self.clients[token as usize & 0xff];
            client.outstanding -= 1;
            client.answered += 1;
            let since = client.asked.remove(&(token >> 8)).expect("it was asked for");
            self.now.answers += 1;
            client.waited.round = client.waited.round.max(self.now.round - since.round);
            client.waited.answers = client.waited.answers.max(self.now.answers - since.answers);
        }
    }

    fn rounds(&mut self, count: u64) {
        (0..count).for_each(|_| self.round(true));
    }

    /// The clients submit no further requests, and each receives its outstanding completions.
    fn finish(mut self) -> Stage {
        for _ in 0..1_000_000 {
            if self.clients.iter().all(|client| client.outstanding == 0) {
                return self.stage;
            }
            self.round(false);
        }
        let owed: Vec<u64> = self.clients.iter().map(|client| client.outstanding).collect();
        panic!("owed for ever: {owed:?}, {:?}", self.stage.status());
    }
}

/// Returns an array with clients on these cores.
fn set(cores: u16, clients: &[u16]) -> Set {
    let mut set = Set::new(Level::Raid6, 6);
    set.cores = cores;
    set.queues = clients.to_vec();
    set.depth = 1024;
    set.cached = true;
    set.profile = Some(Profile { queue_depth: 64, ..Profile::SN861.slower(4) });
    set
}

fn staged(set: Set) -> Stage {
    let mut stage = set.build().expect("sound");
    stage.step = Nanos(10_000);
    stage.fill(4000, 200, 3);
    stage
}

#[test]
fn every_depth_from_1_to_1024_is_served() {
    for depth in [1, 2, 64, 1024] {
        for wish in [Wish::Reads(8), Wish::Writes(8), Wish::Mixed, Wish::Flushes] {
            let mut set = set(2, &[0, 1]);
            set.depth = depth;
            let mut crowd = Crowd::new(staged(set), &[(wish, 2000), (wish, 2000)]);
            crowd.round(true);
            for client in &crowd.clients {
                let taken = client.outstanding + client.answered;
                assert!(taken >= u64::from(depth), "{wish:?}: {taken} at a depth of {depth}");
                assert!(client.outstanding <= u64::from(depth));
            }
            crowd.rounds(200);
            let mut stage = crowd.finish();
            stage.stop().expect("pools are whole");
        }
    }
}

/// The history of the bug: three clients of depth 1024 submit one and a half times as much as a shard accepts. Two
/// clients received all of the service permanently, because the shard polled them first, and the first polled client
/// used all available space.
#[test]
fn clients_that_want_more_than_there_is_share_it() {
    for wish in [Wish::Reads(8), Wish::Writes(8), Wish::Mixed] {
        let greedy = (wish, 1024);
        let mut crowd =
            Crowd::new(staged(set(1, &[0, 0, 0, 0])), &[greedy, greedy, greedy, (wish, 1)]);
        crowd.rounds(1500);
        let answered: Vec<u64> = crowd.clients.iter().map(|client| client.answered).collect();
        let (least, most) = (answered[..3].iter().min(), answered[..3].iter().max());
        let fair = least.zip(most).is_some_and(|(least, most)| least * 3 > most * 2);
        assert!(fair, "{wish:?}: {answered:?}");
        crowd.finish();
    }
}

/// The test has little memory for stripes, drives that accept few I/Os, and four clients that submit twice as much as a
/// shard accepts. All resources are exhausted, and every request completes.
#[test]
fn pools_that_run_dry_delay_and_fail_nothing() {
    for (cores, degraded) in [(1, false), (1, true), (3, true)] {
        let mut set = set(cores, &[0, cores / 2, cores - 1, 0]);
        set.options.scratch_bytes = 0;
        set.strip = 64 << 10;
        set.profile = Some(Profile { queue_depth: 2, ..Profile::SN861.slower(4) });
        let mut stage = staged(set);
        if degraded {
            stage.fail(2).expect("allowed");
        }
        let greedy = (Wish::Mixed, 1024);
        let mut crowd = Crowd::new(stage, &[greedy; 4]);
        crowd.rounds(300);
        assert!(crowd.clients.iter().map(|client| client.outstanding).sum::<u64>() > 3000);
        crowd.finish().stop().expect("pools are whole");
    }
}

/// A thousand requests are always outstanding during a rebuild: the rebuild finishes, and the clients receive a large
/// part of their throughput without a rebuild.
#[test]
fn a_rebuild_and_busy_clients_both_get_on() {
    for wish in [Wish::Reads(8), Wish::Mixed] {
        let mut set = set(1, &[0, 0]);
        set.disk_bytes = 22 << 20;
        let mut crowd = Crowd::new(staged(set), &[(wish, 1024), (wish, 1)]);
        let served = |crowd: &mut Crowd| {
            let before = crowd.clients[0].answered;
            crowd.rounds(1000);
            crowd.clients[0].answered - before
        };
        crowd.stage.fail(2).expect("allowed");
        let without = served(&mut crowd);
        crowd.stage.replace(2).expect("replaceable");
        let beside = served(&mut crowd);
        assert!(beside * 2 > without, "{wish:?}: {beside} beside a rebuild, {without} without");
        let mut rounds = 0;
        while crowd.stage.state(2) != MemberState::InSync {
            rounds += 1000;
            assert!(rounds <= 100_000, "no end of it: {:?}", crowd.stage.status());
            crowd.rounds(1000);
        }
        crowd.finish();
    }
}

/// Checks a client of depth 1 on core 0 together with a client of depth 1024 on core `beside.0`. Between the submission
/// and the completion of a request of the first client, the other client receives at most three times as many
/// completions as it has outstanding requests.
fn check_beside(cores: u16, beside: (u16, Wish), wish: Wish) {
    let stage = staged(set(cores, &[beside.0, 0]));
    let mut crowd = Crowd::new(stage, &[(beside.1, 1024), (wish, 1)]);
    crowd.rounds(1500);
    let Client { answered, waited, .. } = crowd.clients[1];
    let what = format!("{wish:?} beside {beside:?} on {cores} core(s): {answered}, {waited:?}");
    assert!(answered >= 3 && waited.answers <= 3 * 1024 && waited.round <= 1000, "{what}");
    let greedy = crowd.clients[0].answered;
    assert!(greedy > 1024, "{what}: {greedy} answers to the other");
    crowd.finish();
}

#[test]
fn one_request_is_not_starved_by_a_thousand() {
    for beside in [Wish::Reads(8), Wish::Writes(8), Wish::Writes(64), Wish::Flushes] {
        for wish in [Wish::Reads(8), Wish::Writes(8), Wish::Flushes] {
            check_beside(1, (0, beside), wish);
        }
        check_beside(2, (0, beside), Wish::Writes(8));
        check_beside(2, (1, beside), Wish::Writes(8));
    }
}
