//! Tests with real receivers on the loopback interface, and with a clock that the tests set.

mod clock;
mod hooks;
mod http;
mod mails;
mod pace;
mod programs;
mod smtp;
mod specs;
mod texts;
mod tls;
mod webhooks;

use std::sync::Arc;
use std::time::{Duration, Instant};

use strake_api::v1::{Event, Hook};

use crate::alerts::{Alerts, Settings};
use crate::limits::Limits;
use crate::program::Programs;
use crate::spec::HookSpec;
use crate::way::Inside;
use clock::Hand;
use http::{Say, Server};

/// The time limit of a test.
const PATIENCE: Duration = Duration::from_secs(60);

/// Limits that all differ, so that [`Hand::pass`] can identify each sleep.
fn limits() -> Limits {
    Limits {
        burst: 3,
        interval: Duration::from_secs(1000),
        connect: Duration::from_secs(10),
        total: Duration::from_secs(30),
        backoff: vec![Duration::from_secs(2), Duration::from_secs(60)],
    }
}

/// Hooks on a host named `node1` whose clock is stopped.
struct Bench {
    alerts: Alerts,
    hand: Arc<Hand>,
}

impl Bench {
    fn new() -> Self {
        Self::trusting(Vec::new())
    }

    fn trusting(roots: Vec<Vec<u8>>) -> Self {
        Self::with(roots, Inside::Nothing)
    }

    fn with(roots: Vec<Vec<u8>>, inside: Inside) -> Self {
        Self::of(Settings { roots, ..Settings::new("node1") }, inside)
    }

    fn of_programs(programs: Programs) -> Self {
        Self::of(Settings { programs, ..Settings::new("node1") }, Inside::Nothing)
    }

    fn of(settings: Settings, inside: Inside) -> Self {
        let hand = Arc::new(Hand::default());
        let settings = Settings { clock: hand.clone(), limits: limits(), ..settings };
        Self { alerts: Alerts::start(settings, inside).unwrap(), hand }
    }

    fn webhook(&self, target: &str) {
        self.alerts.add(webhook(target)).unwrap();
    }

    fn hook(&self) -> Hook {
        self.alerts.list().remove(0)
    }

    /// Waits until `is` is true for the hook, and returns the hook.
    fn hook_when(&self, is: impl Fn(&Hook) -> bool) -> Hook {
        let start = Instant::now();
        loop {
            let hook = self.hook();
            if is(&hook) {
                return hook;
            }
            assert!(start.elapsed() < PATIENCE, "the hook stays {hook:?}");
            std::thread::yield_now();
        }
    }
}

/// Returns a server with these answers, and a bench with a webhook to it.
fn hooked(answers: Vec<Say>) -> (Server, Bench) {
    let (server, bench) = (Server::new(answers), Bench::new());
    bench.webhook(&server.url("/"));
    (server, bench)
}

fn webhook(target: &str) -> HookSpec {
    let severity = "info".to_string();
    HookSpec {
        name: "ops".into(),
        kind: "webhook".into(),
        target: target.into(),
        severity,
        ..HookSpec::default()
    }
}

fn event(number: u64, severity: &str) -> Event {
    Event {
        number,
        time_us: 1_790_000_000_000_000,
        severity: severity.into(),
        kind: "member_failed".into(),
        object: "array/tank".into(),
        member: Some(2),
        what: format!("member 2 failed ({number})"),
        cause: "the drive answered a write with an error".into(),
        next_action: "strake array replace tank 2 --drive PATH".into(),
        actor: "straked".into(),
        ..Event::default()
    }
}
