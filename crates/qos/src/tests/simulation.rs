//! Cores and a home in simulated time, with demand that moves between the cores.

use std::rc::Rc;
use std::sync::Arc;

use strake_fuzz::{Chance, runs};
use strake_units::Nanos;

use crate::limits::{IDLE_TICKS, TICK};
use crate::{
    Aspect, Board, Cells, Counts, Direction, Home, Lease, Limit, Limiter, Measure, Next, QueueId,
    Request, Usage,
};

const STEP: Nanos = Nanos(100_000);
/// The simulated speed of a core without a limit.
const PER_STEP_MAX: usize = 400;

/// A queue of a core.
struct Queue {
    limiter: Limiter,
    /// The cost of its requests.
    usage: Usage,
    /// Requests per step that it has at most; 0 for a queue that pauses.
    demand: usize,
    /// True while a request waits, which the queue offers until it is admitted.
    waits: bool,
    served: u64,
}

/// A limit with its cores.
pub(super) struct World {
    now: Nanos,
    cells: Arc<Cells>,
    board: Arc<Board>,
    home: Home,
    next: Next,
    calls: u64,
    ticks: u64,
    queues: Vec<Queue>,
    /// What was spent, with the time.
    log: Vec<(Nanos, u64)>,
}

pub(super) const IOPS: Aspect = Aspect::new(Measure::Ios, Counts::Total);

pub(super) fn one_io() -> Usage {
    Request { direction: Direction::Write, before: 0, bytes: 4096 }.cost()
}

impl World {
    fn new(aspect: Aspect, limit: Limit, cores: usize, queues: usize, usage: Usage) -> Self {
        let (cells, board) = (Arc::new(Cells::new(cores)), Arc::new(Board::new(cores)));
        let mut world = Self {
            now: Nanos(0),
            home: Home::new(limit, cores, Nanos(0)),
            next: Next::Call,
            calls: 0,
            ticks: 0,
            queues: Vec::new(),
            log: Vec::new(),
            cells,
            board,
        };
        for core in 0..cores {
            let (cells, board) = (Arc::clone(&world.cells), Arc::clone(&world.board));
            let lease = Rc::new(Lease::new(cells, board, core, Box::new(|| ())));
            for at in 0..queues {
                let mut limiter = Limiter::new(QueueId(at as u64));
                limiter.replace(vec![(aspect, Rc::clone(&lease))]);
                world.queues.push(Queue { limiter, usage, demand: 0, waits: false, served: 0 });
            }
        }
        world.tick();
        world
    }

    fn tick(&mut self) {
        let before = self.next;
        self.next = self.home.tick(self.now, &self.cells);
        self.ticks += u64::from(before != self.next || before == Next::Call);
    }

    fn step(&mut self) {
        self.now = self.now.plus(STEP);
        for queue in &mut self.queues {
            for _ in 0..queue.demand.max(usize::from(queue.waits)) {
                queue.waits = !queue.limiter.admit(queue.usage, self.now);
                if queue.waits {
                    break;
                }
                queue.served += 1;
                self.log.push((self.now, queue.usage.of(Measure::Ios)));
            }
        }
        let calls = self.board.calls();
        let is_called = std::mem::replace(&mut self.calls, calls) != calls;
        match self.next {
            Next::At(due) if self.now >= due => self.tick(),
            Next::Call if is_called => self.tick(),
            Next::At(_) | Next::Call => {}
        }
    }

    fn run(&mut self, time: Nanos) {
        let end = self.now.plus(time);
        while self.now < end {
            self.step();
        }
    }

    fn change(&mut self, limit: Limit) {
        self.home.change(limit, self.now);
        self.tick();
    }

    /// What was spent in each second.
    fn seconds(&self) -> Vec<u64> {
        let mut sums = vec![0; (self.now.0 / Nanos::SECOND.0) as usize + 1];
        for (at, cost) in &self.log {
            sums[((at.0 - 1) / Nanos::SECOND.0) as usize] += cost;
        }
        sums.truncate((self.now.0 / Nanos::SECOND.0) as usize);
        sums
    }

    /// The greatest excess over the rate of any window: spent less the budget of the window's time.
    fn excess(&self, rate: u64) -> f64 {
        let (mut spent, mut lowest, mut worst) = (0_f64, f64::MAX, 0_f64);
        for (at, cost) in &self.log {
            let budget = at.0 as f64 / 1e9 * rate as f64;
            lowest = lowest.min(spent - budget);
            spent += *cost as f64;
            worst = worst.max(spent - budget - lowest);
        }
        worst
    }
}

fn limit(rate: u64) -> Limit {
    Limit::new(rate, 0).expect("a valid limit")
}

/// Moves the demand of all queues but the first, whose demand is always above the limit.
fn move_demand(world: &mut World, chance: &mut Chance) {
    let greedy = chance.pick(&(0..world.queues.len()).collect::<Vec<_>>());
    for (at, queue) in world.queues.iter_mut().enumerate() {
        queue.demand = chance.pick(&[0, 0, 1, 3, 50, PER_STEP_MAX]);
        if at == greedy {
            queue.demand = PER_STEP_MAX;
        }
    }
}

fn check_window(world: &World, rate: u64, limit: Limit) {
    let two_ticks = 2.0 * rate as f64 * TICK.0 as f64 / 1e9;
    let most = limit.depth() as f64 + two_ticks + 1.0;
    let excess = world.excess(rate);
    assert!(excess <= most, "{excess} above the rate of {rate}, at most {most}");
}

#[test]
fn moving_demand_gets_the_limit_in_each_second_random() {
    runs(12, |seed| {
        let mut chance = Chance::new(seed);
        let rate = chance.pick(&[997, 10_001, 123_456, 500_000]);
        let (cores, queues) = (chance.pick(&[1, 2, 3, 4, 8, 16]), chance.pick(&[1, 2, 5]));
        let mut world = World::new(IOPS, limit(rate), cores, queues, one_io());
        for _ in 0..4 * 20 {
            move_demand(&mut world, &mut chance);
            world.run(Nanos(50 * Nanos::MILLI.0));
        }
        let seconds = world.seconds();
        for sum in &seconds[1..] {
            let error = (*sum as f64 - rate as f64).abs() / rate as f64;
            assert!(error <= 0.02, "seed {seed}: {cores} cores, {rate}: {seconds:?}");
        }
        check_window(&world, rate, limit(rate));
    });
}

#[test]
fn low_limits_are_right_on_sixteen_cores() {
    for rate in [1, 7, 16, 100] {
        let mut world = World::new(IOPS, limit(rate), 16, 1, one_io());
        world.queues.iter_mut().for_each(|queue| queue.demand = PER_STEP_MAX);
        world.run(Nanos(20 * Nanos::SECOND.0));
        let spent: u64 = world.seconds().iter().sum();
        let depth = limit(rate).depth();
        assert!((20 * rate - 1..=20 * rate + depth).contains(&spent), "{rate}: {spent}");
        check_window(&world, rate, limit(rate));
        let served = world.queues.iter().map(|queue| queue.served);
        let (least, most) = (served.clone().min().unwrap_or(0), served.max().unwrap_or(0));
        assert!(most - least <= 1 + most / 20, "{rate}: {least} to {most}");
    }
}

#[test]
fn no_queue_waits_for_ever_beside_greedy_ones() {
    let mut world = World::new(IOPS, limit(2000), 4, 3, one_io());
    world.queues.iter_mut().for_each(|queue| queue.demand = PER_STEP_MAX);
    world.queues[7].demand = 1;
    world.run(Nanos(3 * Nanos::SECOND.0));
    let served: Vec<u64> = world.queues.iter().map(|queue| queue.served).collect();
    let (least, most) = (*served.iter().min().unwrap_or(&0), *served.iter().max().unwrap_or(&0));
    assert!(least * 10 >= most * 8, "{served:?}");
}

#[test]
fn demand_below_the_limit_does_not_wait() {
    for cores in [1, 4, 16] {
        let mut world = World::new(IOPS, limit(100_000), cores, 1, one_io());
        let each = world.queues.len() as u64;
        // 2 requests of each core per millisecond are at most a third of the limit.
        for _ in 0..2000 {
            for queue in &mut world.queues {
                queue.demand = 2;
            }
            world.step();
            for queue in &mut world.queues {
                queue.demand = 0;
            }
            world.run(Nanos(9 * STEP.0));
        }
        let waits = world.cells.throttled();
        assert_eq!(world.log.len() as u64, 2000 * 2 * each, "{waits:?}");
        assert!(waits.requests <= each, "{cores}: {waits:?}");
    }
}

#[test]
fn an_idle_limit_has_no_ticks() {
    let mut world = World::new(IOPS, limit(1000), 8, 1, one_io());
    world.run(Nanos(20 * TICK.0));
    let ticks = world.ticks;
    world.run(Nanos(Nanos::SECOND.0));
    assert_eq!(world.ticks, ticks);
    assert_eq!(world.next, Next::Call);
    // After a pause, each core has its part of the depth without a wait.
    world.queues.iter_mut().for_each(|queue| queue.demand = 12);
    world.step();
    assert_eq!(world.log.len(), 8 * 12);
    assert_eq!(world.cells.throttled().requests, 0);
    world.queues.iter_mut().for_each(|queue| queue.demand = 0);
    world.run(Nanos(u64::from(IDLE_TICKS + 2) * TICK.0));
    assert_eq!(world.next, Next::Call);
}

/// SPDK 3768: the second change of a limit had no effect.
#[test]
fn a_thousand_changes_under_load_each_have_effect_random() {
    runs(2, |seed| {
        let mut chance = Chance::new(seed);
        let mut world = World::new(IOPS, limit(50_000), 4, 2, one_io());
        world.queues.iter_mut().for_each(|queue| queue.demand = PER_STEP_MAX);
        world.run(Nanos(Nanos::SECOND.0));
        let mut budget = 0.0;
        let began = world.log.len();
        for _ in 0..1000 {
            let rate = chance.pick(&[3_000, 10_001, 50_000, 200_000]);
            world.change(limit(rate));
            let before = world.log.len();
            world.run(Nanos(20 * TICK.0));
            let (spent, due) = ((world.log.len() - before) as f64, rate as f64 * 0.02);
            budget += due;
            // Two ticks of either rate may pass into the next period.
            assert!((spent - due).abs() <= due * 0.1 + 500.0, "seed {seed}: {spent} of {due}");
        }
        let spent = (world.log.len() - began) as f64;
        assert!((spent - budget).abs() <= budget * 0.02, "seed {seed}: {spent} of {budget}");
    });
}

#[test]
fn a_lower_limit_takes_back_what_idle_cores_hold() {
    let mut world = World::new(IOPS, limit(100_000), 4, 1, one_io());
    world.run(Nanos(20 * TICK.0));
    world.change(limit(10));
    world.queues.iter_mut().for_each(|queue| queue.demand = PER_STEP_MAX);
    world.run(Nanos(Nanos::SECOND.0));
    assert!(world.log.len() <= 11, "{}", world.log.len());
}

#[test]
fn a_request_above_the_burst_passes_and_is_paid_by_the_next_ones() {
    const MIB: u64 = 1 << 20;
    let bytes = Aspect::new(Measure::Bytes, Counts::Total);
    let usage = Request { direction: Direction::Write, before: 0, bytes: 4 * MIB }.cost();
    let mut world = World::new(bytes, limit(MIB), 2, 2, usage);
    world.queues.iter_mut().for_each(|queue| queue.demand = 1);
    world.run(Nanos(32 * Nanos::SECOND.0));
    // 32 s of 1 MiB/s are 8 requests; the first one passed with the initial burst.
    let served: Vec<u64> = world.queues.iter().map(|queue| queue.served).collect();
    assert!((8..=9).contains(&served.iter().sum::<u64>()), "{served:?}");
    assert!(served.iter().all(|served| *served >= 2), "{served:?}");
}

/// A large request on one core beside small ones on others: small requests must not overtake it for ever.
#[test]
fn a_large_request_is_not_overtaken_for_ever() {
    const KIB: u64 = 1024;
    let bytes = Aspect::new(Measure::Bytes, Counts::Total);
    let usage = Request { direction: Direction::Write, before: 0, bytes: 4 * KIB }.cost();
    let mut world = World::new(bytes, limit(1024 * KIB), 4, 1, usage);
    world.queues.iter_mut().for_each(|queue| queue.demand = PER_STEP_MAX);
    world.queues[2].usage =
        Request { direction: Direction::Write, before: 0, bytes: 96 * KIB }.cost();
    world.run(Nanos(10 * Nanos::SECOND.0));
    let served: Vec<u64> = world.queues.iter().map(|queue| queue.served).collect();
    assert!(served[2] >= 20, "{served:?}");
    assert!(served[0] >= 100, "{served:?}");
}

#[test]
fn one_core_gets_the_burst_that_the_others_do_not_use() {
    let mut world = World::new(IOPS, limit(160), 16, 1, one_io());
    world.run(Nanos(20 * TICK.0));
    world.queues[3].demand = PER_STEP_MAX;
    world.run(Nanos(10 * TICK.0));
    assert!((16..=18).contains(&world.queues[3].served), "{}", world.queues[3].served);
}
