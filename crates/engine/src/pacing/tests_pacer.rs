//! Tests the pacer with simulated drives. The latency of a request grows with the window, with random variation.

use strake_units::Nanos;

use super::MAINTENANCE_WINDOW;
use super::latency::Class;
use super::pacer::{CYCLE, Came, Pacer, REST, REST_MARGIN, floor, target};

/// SplitMix64. Each run of a test draws the same numbers.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let value = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (value ^ (value >> 29)) % bound
    }
}

/// Simulated drives and clients.
struct World {
    pacer: Pacer,
    chance: Chance,
    now: Nanos,
    /// Latency of a request without maintenance, in nanoseconds.
    base: u64,
    /// Increase of the latency of the slowest requests per maintenance band, as a fraction of `base`.
    felt: f64,
    /// Requests in a cycle.
    requests: u64,
}

impl World {
    fn new(felt: f64) -> Self {
        let pacer = Pacer::new(MAINTENANCE_WINDOW);
        let now = Nanos(CYCLE.0 * 1000);
        Self { pacer, chance: Chance(7), now, base: 80_000, felt, requests: 5000 }
    }

    /// Runs one cycle of requests. Maintenance delays a tenth of the requests.
    fn cycle(&mut self, active: bool) {
        for at in 0..self.requests {
            let now = self.now.plus(Nanos(CYCLE.0 * at / self.requests));
            let came = Came::at(now, active, 0);
            let noise = self.base * (85 + self.chance.below(30)) / 100;
            let beside = matches!(came, Came::Beside) && self.chance.below(10) == 0;
            let felt = self.base as f64 * self.felt * self.pacer.window();
            let late =
                if beside { (felt * self.chance.below(100) as f64 / 100.0) as u64 } else { 0 };
            self.pacer.answered(came, Class::SmallRead, Nanos(noise + late), 1);
        }
        self.now = self.now.plus(CYCLE);
        self.pacer.adapt(self.now, || None);
    }

    /// The expected ratio of the p99 latencies with and without maintenance. Maintenance delays one request in ten, so
    /// the p99 contains nine tenths of the maximum delay. Without maintenance, random variation makes the p99 1.15
    /// times the base.
    fn ratio(&self) -> f64 {
        ((1.0 + 0.9 * self.felt * self.pacer.window()) / 1.15).max(1.0)
    }

    /// Returns the mean window and the mean ratio over `cycles`.
    fn watch(&mut self, cycles: u32) -> (f64, f64) {
        let (mut window, mut felt) = (0.0, 0.0);
        for _ in 0..cycles {
            window += self.pacer.window();
            felt += self.ratio();
            self.cycle(true);
        }
        (window / f64::from(cycles), felt / f64::from(cycles))
    }
}

#[test]
fn targets_and_floors_grow_with_the_priority() {
    for priority in 1..=100u8 {
        assert!(target(priority) > target(priority - 1), "target of {priority}");
        assert!(floor(priority) >= floor(priority - 1), "floor of {priority}");
    }
    assert_eq!((target(0), target(100)), (1.0, f64::INFINITY));
    assert!(target(50) < 2.0 && floor(0) > 0.0 && floor(50) == 1.0);
}

#[test]
fn the_window_settles_where_clients_feel_what_they_may() {
    for felt in [0.05, 0.1, 0.2, 0.4] {
        let mut world = World::new(felt);
        (0..10).for_each(|_| world.cycle(false));
        world.watch(20);
        let (window, latency) = world.watch(50);
        let free = window > 0.95 * MAINTENANCE_WINDOW as f64;
        let bound = window < 1.05;
        assert!(
            free || bound || (1.3..1.95).contains(&latency),
            "{felt}: {window} bands, {latency}"
        );
        assert!(latency < 2.0, "{felt}: {window} bands, {latency}");
        assert!(world.watch(10).0 / window > 0.7, "{felt}: the window holds");
    }
}

#[test]
fn a_baseline_is_learned_while_maintenance_goes_on() {
    // The pacer has no measurements when maintenance starts, and then the clients become slower for another reason.
    let mut world = World::new(0.1);
    world.watch(30);
    let (before, _) = world.watch(20);
    world.base *= 5;
    world.watch(40);
    let (after, _) = world.watch(20);
    assert!((0.5..2.0).contains(&(after / before)), "{before} bands, then {after}");
}

#[test]
fn a_change_of_priority_is_felt_within_a_second() {
    let mut world = World::new(0.1);
    world.watch(40);
    let cycles = (Nanos::SECOND.0 / CYCLE.0) as u32;
    for (priority, low, high) in [(0, 0.0, 0.1), (99, 12.0, 16.0), (25, 2.0, 7.0), (75, 8.0, 16.0)]
    {
        world.pacer.set_priority(priority);
        world.watch(cycles - 1);
        let window = world.pacer.window();
        assert!((low..=high).contains(&window), "{window} bands at priority {priority}");
    }
}

#[test]
fn no_priority_starves_maintenance() {
    for priority in [0, 10, 25, 50, 75] {
        let mut world = World::new(50.0);
        world.pacer.set_priority(priority);
        let (window, _) = world.watch(50);
        assert!(window >= floor(priority), "{window} bands at priority {priority}");
    }
}

#[test]
fn few_requests_are_enough_after_a_while() {
    // With 20 requests per cycle, the window changes after enough requests, and in the right direction.
    let mut world = World::new(0.5);
    world.requests = 20;
    (0..100).for_each(|_| world.cycle(false));
    world.pacer.set_priority(99);
    world.pacer.set_priority(50);
    world.watch(300);
    assert!(world.watch(100).1 < 2.2, "{} bands", world.pacer.window());
}

#[test]
fn requests_tell_what_they_saw() {
    let check = |nanos, active, out, want| assert_eq!(Came::at(Nanos(nanos), active, out), want);
    check(REST.0 * 2, false, 0, Came::Alone);
    check(REST.0 * 2, true, 0, Came::Beside);
    check(REST.0 * 2, true, 1, Came::Beside);
    check(CYCLE.0 + REST_MARGIN.0 - 1, true, 0, Came::Between);
    check(CYCLE.0 + REST_MARGIN.0, true, 0, Came::Alone);
    check(CYCLE.0 + REST_MARGIN.0, true, 1, Came::Between);
    check(CYCLE.0 + REST.0 - 1, true, 0, Came::Between);
}
