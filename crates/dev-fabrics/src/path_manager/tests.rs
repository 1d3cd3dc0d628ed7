//! The path manager step by step, with Strake's own target.

use super::joins::Joined;
use super::{PathManager, Request, Seat};
use crate::address::{Address, HostName};
use crate::device::Options;
use crate::error::Reason;
use crate::inbox::{Asker, Inbox};
use crate::limits::STAY_TIME_MIN;
use crate::link::{Offer, Phase, Port};
use crate::path::{GiveUp, Path};
use crate::path_selection::PathId;
use crate::session::Session;
use crate::shared::{LinkState, Shared, Standing, enlist, now};
use rustix::event::{EventfdFlags, eventfd};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};
use strake_dev_mem::RamDevice;
use strake_export_nvmet::{Export, Keys, Removal, Target, TargetConfig};
use strake_nvme_wire::log::Access;
use strake_reactor::{CoreConfig, CoreThread};
use strake_units::{BlockSize, CoreIndex, Nanos};

mod taken;

const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:host";
const SUBSYSTEM: &str = "nqn.2014-08.org.nvmexpress:uuid:ram";
/// Longest wait before a test fails.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn target(config: TargetConfig) -> (Target, CoreThread) {
    target_at("127.0.0.1:0".parse().expect("an address"), config)
}

fn target_at(listen: SocketAddr, config: TargetConfig) -> (Target, CoreThread) {
    let core = CoreThread::start(CoreConfig::new(CoreIndex(0))).expect("a core starts");
    let target = Target::start(listen, vec![core.handle()], config).expect("the target starts");
    target.add_export(&export(1)).expect("a fresh name can be exported");
    (target, core)
}

fn export(namespace: u32) -> Export {
    Export {
        nqn: SUBSYSTEM.to_owned(),
        namespace,
        uuid: [namespace as u8; 16],
        device: Some(Arc::new(RamDevice::new(64, BlockSize::B4096))),
        read_only: false,
        ledger: None,
        hosts: vec![HOST.to_owned()],
        secure: false,
        limits: None,
    }
}

/// A path manager and the threads of paths to one namespace, none of which runs: tests execute their steps.
struct Rig {
    path_manager: PathManager,
    shared: Arc<Shared>,
    paths: Vec<Path>,
    /// Unused; it keeps the inbox open.
    _asker: Asker<Request>,
}

impl Rig {
    /// Creates a rig with a path to each of these targets; the first path is connected.
    fn to(targets: &[&Target]) -> Self {
        let host = host();
        let options = Options::default();
        let addresses: Vec<_> = targets.iter().map(|target| address(target)).collect();
        let session = Session::begin(&addresses[0], &host, options.digests);
        let mut session = Some(session.expect("the target takes us"));
        let facts = session.as_ref().expect("there is one").facts.clone();
        let shared = Shared::new(&addresses[0], &host, facts, options).expect("descriptors");
        let shared = Arc::new(shared);
        let (asker, inbox) = Inbox::open().expect("descriptors");
        let mut path_manager = PathManager::new(Arc::clone(&shared), inbox);
        let path = |address: &Address| {
            let id = enlist(&shared, address);
            let (thread, inbox) = Inbox::open().expect("descriptors");
            path_manager.take(Request::Add(id, thread));
            Path::new(&shared, (id, address), session.take(), inbox)
        };
        let paths = addresses.iter().map(path).collect();
        path_manager.settle();
        Self { path_manager, shared, paths, _asker: asker }
    }

    /// Opens a queue.
    fn open(&mut self, port: Port) {
        self.path_manager.take(Request::Open(port));
        self.path_manager.settle();
    }

    /// Adds a connected path whose thread the path manager does not know yet.
    fn connected(&mut self, target: &Target) -> (PathId, (Asker<GiveUp>, Inbox<GiveUp>)) {
        let (address, host) = (address(target), self.shared.host());
        let session = Session::begin(&address, &host, self.shared.options.digests);
        let id = enlist(&self.shared, &address);
        let (_, inbox) = Inbox::open().expect("descriptors");
        let session = Some(session.expect("the target takes us"));
        self.paths.push(Path::new(&self.shared, (id, &address), session, inbox));
        (id, Inbox::open().expect("descriptors"))
    }

    /// Executes all due steps.
    fn step(&mut self) {
        for path in &mut self.paths {
            path.step();
        }
        self.path_manager.settle();
    }

    /// Loses the association of a path.
    fn lose(&mut self, path: usize, reason: Reason) {
        self.paths[path].lose(reason);
        self.path_manager.settle();
    }

    /// The number of connected paths.
    fn ups(&self) -> usize {
        let paths = self.shared.paths();
        paths.iter().filter(|entry| matches!(entry.standing, Standing::Up(_))).count()
    }

    /// Whether each path carries I/O.
    fn used(&self) -> Vec<bool> {
        self.shared.paths().iter().map(|entry| entry.used).collect()
    }

    /// Sets the access state that the target of a path reports.
    fn reach(&mut self, path: usize, how: Access) {
        match &mut self.shared.paths()[path].standing {
            Standing::Up(live) => live.facts.access = Some(how),
            Standing::Down { .. } => panic!("the path is up"),
        }
        self.path_manager.settle();
    }

    /// Executes steps until a condition holds.
    fn until(&mut self, what: &str, is: impl Fn(&Self) -> bool) {
        let ends = Instant::now() + PATIENCE;
        while !is(self) {
            assert!(Instant::now() < ends, "{what}");
            self.step();
        }
    }
}

pub(crate) fn host() -> HostName {
    HostName { nqn: HOST.to_owned(), id: [3; 16], keys: None, tls: None }
}

pub(crate) fn address(target: &Target) -> Address {
    format!("nvme-tcp://{}/{SUBSYSTEM}", target.address()).parse().expect("an address")
}

fn port(id: u64) -> (Port, Arc<Offer>) {
    let offer = Arc::new(Offer::default());
    let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("a descriptor");
    (Port { id, offer: Arc::clone(&offer), wake: Arc::new(wake) }, offer)
}

/// A queue may have used an association whose other queues could not be connected: its commands have settled only when
/// that association has ended, not when the previous one had.
#[test]
fn an_association_that_was_half_made_is_one_that_ended() {
    let (target, _core) = target(TargetConfig { connections_max: 2, ..TargetConfig::default() });
    let mut rig = Rig::to(&[&target]);
    let (first, links) = port(1);
    let (second, _no_links) = port(2);
    rig.open(first);
    let link = links.take().expect("the first queue is connected");
    rig.open(second);
    rig.step();
    assert!(matches!(rig.shared.state(), LinkState::Down(_, 0)), "there is room for two");
    assert!(matches!(link.life.phase(), Phase::Ended(_)));
    drop(link);
    let before = now();
    rig.until("the target takes us again", |rig| rig.path_manager.association > 1);
    let life = Arc::clone(&rig.path_manager.uses[0].life);
    assert_eq!(life.number, 2, "the queue could have had it");
    rig.until("it is given up", |_| matches!(life.phase(), Phase::Ended(_)));
    let settle_time = rig.shared.facts().settle_time;
    let Phase::Ended(over_at) = life.phase() else { panic!("it has ended") };
    assert!(over_at >= before.plus(settle_time), "it is waited for");
    assert!(rig.shared.down_at.load(Ordering::Relaxed) >= before.0, "it was up");
    assert_eq!(rig.shared.association.load(Ordering::Relaxed), 0);
    assert!(matches!(rig.shared.state(), LinkState::Down(_, 1..)), "a try that failed");
}

/// The other queues continue, and the queue is connected when the target has room.
#[test]
fn a_queue_that_is_refused_costs_no_other() {
    let config = TargetConfig { connections_per_export_max: 2, ..TargetConfig::default() };
    let (target, _core) = target(config);
    let mut rig = Rig::to(&[&target]);
    let ((first, links), (second, later)) = (port(1), port(2));
    rig.open(first);
    rig.open(second);
    let link = links.take().expect("the first queue is connected");
    assert!(later.take().is_none(), "the second is not");
    assert_eq!(rig.shared.state(), LinkState::Up);
    rig.path_manager.take(Request::Close(1));
    drop(link);
    rig.until("the second has its turn", |_| later.take().is_some());
    assert_eq!((rig.shared.state(), rig.path_manager.association), (LinkState::Up, 1));
}

/// Secrets are changed first at the target, and then here: a queue that was opened in between ended the association.
#[test]
fn a_queue_that_is_not_believed_costs_no_other() {
    let (target, _core) = target(TargetConfig::default());
    let mut rig = Rig::to(&[&target]);
    let ((first, links), (second, later)) = (port(1), port(2));
    rig.open(first);
    let link = links.take().expect("the first queue is connected");
    let secret = "DHHC-1:00:BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwfLJNij:";
    let host = secret.parse().expect("a secret");
    target.set_keys(HOST, Some(Keys { host, controller: None }));
    rig.open(second);
    assert_eq!(rig.path_manager.places[1].seat, Seat::Refused);
    assert_eq!((is_up(&rig), link.life.phase()), (true, Phase::Lasting));
    target.set_keys(HOST, None);
    rig.until("the second is believed", |_| later.take().is_some());
    assert_eq!(rig.path_manager.association, 1);
}

fn is_up(rig: &Rig) -> bool {
    rig.shared.state() == LinkState::Up
}

#[test]
fn an_association_that_breaks_costs_nothing_that_the_target_has() {
    let (target, _core) = target(TargetConfig::default());
    let mut rig = Rig::to(&[&target]);
    rig.shared.cache.changed(1);
    rig.lose(0, Reason::Silent);
    assert_eq!(rig.shared.state(), LinkState::Down(Reason::Silent, 0));
    rig.until("the target takes us again", is_up);
    assert!(!rig.shared.cache.has_lost(1));
}

#[test]
fn a_target_that_restarts_may_have_lost_its_cache() {
    // No other test can take the port meanwhile.
    let alone = "127.83.11.7:0".parse().expect("an address");
    let (before, _core) = target_at(alone, TargetConfig::default());
    let mut rig = Rig::to(&[&before]);
    rig.shared.cache.changed(1);
    let address = before.address();
    drop(before);
    rig.lose(0, Reason::Closed);
    assert!(!rig.shared.cache.has_lost(1), "nobody knows yet");
    let (_after, _core) = target_at(address, TargetConfig::default());
    rig.until("the target takes us again", is_up);
    assert!(rig.shared.cache.has_lost(1));
}

/// The association outlives the device: an array is unloaded and loaded again.
#[test]
fn a_device_that_is_served_again_ends_the_association() {
    let (target, _core) = target(TargetConfig::default());
    // Hosts stay connected as long as there is another namespace.
    target.add_export(&export(2)).expect("a fresh number can be exported");
    let mut rig = Rig::to(&[&target]);
    rig.shared.cache.changed(1);
    target.remove_export(SUBSYSTEM, 1, Removal::Force).expect("it is there");
    target.add_export(&export(1)).expect("it comes back");
    rig.until("it is noticed", |rig| !is_up(rig));
    assert_eq!(rig.shared.state(), LinkState::Down(Reason::AnotherInstance, 0));
    rig.until("the target takes us again", is_up);
    assert!(rig.shared.cache.has_lost(1));
}

/// The second path is used at once, and its target serves the same instance, so nothing is lost.
#[test]
fn another_path_takes_over_when_one_is_lost() {
    let (target, _core) = target(TargetConfig::default());
    let mut rig = Rig::to(&[&target, &target]);
    let (port, links) = port(1);
    rig.open(port);
    let first = links.take().expect("the queue is connected");
    rig.until("both are up", |rig| rig.ups() == 2);
    assert_eq!(rig.used(), [true, false], "one as good as the other is no reason to change");
    rig.shared.cache.changed(1);
    rig.lose(0, Reason::Silent);
    let second = links.take().expect("the queue is connected again");
    assert_eq!((second.life.number, rig.used()), (2, vec![false, true]));
    assert_eq!((rig.shared.state(), second.life.phase()), (LinkState::Up, Phase::Lasting));
    let Phase::Ended(over_at) = first.life.phase() else { panic!("it has ended") };
    assert!(over_at > now().plus(Nanos::SECOND), "and its target has to miss us first");
    assert!(!rig.shared.cache.has_lost(1));
    rig.until("the first is back", |rig| rig.ups() == 2);
    assert_eq!(rig.used(), [false, true], "which is no reason to change either");
}

/// A queue that was being connected to a silent target delayed the change to another path by 10 seconds.
#[test]
fn a_target_that_does_not_answer_holds_up_no_other_path() {
    let (target, _core) = target(TargetConfig::default());
    let mut rig = Rig::to(&[&target, &target]);
    rig.until("both are up", |rig| rig.ups() == 2);
    // This target accepts connections and sends nothing.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let Some(active) = &mut rig.path_manager.active else { panic!("it is up") };
    active.gate.place = silent.local_addr().expect("it has an address");
    let (port, links) = port(1);
    rig.path_manager.take(Request::Open(port));
    rig.path_manager.look();
    assert!(matches!(rig.path_manager.places[0].seat, Seat::Joining(..)), "it waits for nothing");
    rig.paths[0].lose(Reason::Silent);
    let ends = Instant::now() + PATIENCE;
    let link = loop {
        rig.path_manager.look();
        if let Some(link) = links.take() {
            break link;
        }
        assert!(Instant::now() < ends, "the queue is connected over the other");
        thread::yield_now();
    };
    assert_eq!((link.life.number, rig.used()), (2, vec![false, true]));
    assert_eq!(rig.shared.state(), LinkState::Up);
    assert_eq!(rig.path_manager.joins.under_way, 1, "nobody waited for the first");
    // The drop ends the thread of the connect.
    drop(silent);
    assert!(rig.path_manager.joins.wait().is_some_and(|joined| joined.link.is_err()));
}

/// A queue detects the loss before the path does.
#[test]
fn another_path_takes_over_before_the_target_has_heard_of_it() {
    let (target, _core) = target(TargetConfig::default());
    let mut rig = Rig::to(&[&target, &target]);
    let (port, links) = port(1);
    rig.open(port);
    let first = links.take().expect("the queue is connected");
    rig.until("both are up", |rig| rig.ups() == 2);
    rig.path_manager.take(Request::Lost(1, Reason::Closed));
    rig.path_manager.settle();
    assert_eq!(first.life.phase(), Phase::Ending, "for as long as it lasts nobody knows its end");
    assert_eq!(links.take().expect("the queue is connected again").life.number, 2);
    rig.step();
    assert!(matches!(first.life.phase(), Phase::Ended(_)));
    assert_eq!(rig.shared.state(), LinkState::Up);
}

/// The path manager learns of an association before it learns of its thread.
#[test]
fn a_path_is_given_up_that_was_used_before_its_thread_was_known() {
    let (target, _core) = target(TargetConfig::default());
    let mut rig = Rig::to(&[&target]);
    let (id, (thread, inbox)) = rig.connected(&target);
    rig.lose(0, Reason::Silent);
    rig.path_manager.take(Request::Lost(2, Reason::Closed));
    assert!(!is_up(&rig), "the second was used, and is of no use");
    rig.path_manager.take(Request::Add(id, thread));
    let order = inbox.next().expect("it is told");
    assert_eq!(order.reason, Reason::Closed);
}

/// A target that permanently changes its preferred path, and an idle queue.
#[test]
fn no_more_than_one_connection_waits_for_a_queue() {
    let (target, _core) = target(TargetConfig::default());
    let mut rig = Rig::to(&[&target, &target]);
    let (port, links) = port(1);
    rig.open(port);
    rig.until("both are up", |rig| rig.ups() == 2);
    let life = Arc::downgrade(&rig.path_manager.uses[0].life);
    rig.reach(0, Access::Inaccessible);
    assert_eq!((rig.path_manager.association, life.strong_count()), (2, 0), "it is closed");
    rig.lose(0, Reason::Closed);
    rig.lose(1, Reason::Closed);
    assert!(links.take().is_none(), "and so is what waits when there is no association");
}

/// True if the second path was rejected because it leads to another instance.
fn second_is_refused(rig: &Rig) -> bool {
    let paths = rig.shared.paths();
    matches!(paths[1].standing, Standing::Down { reason: Some(Reason::OtherInstance), .. })
}

/// One path finds a restarted target before the other path is lost.
#[test]
fn another_instance_is_used_when_the_one_before_is_gone() {
    let ((one, _core), (other, _other_core)) =
        (target(TargetConfig::default()), target(TargetConfig::default()));
    let mut rig = Rig::to(&[&one, &other]);
    rig.until("it is refused", second_is_refused);
    assert_eq!(rig.used(), [true, false]);
    assert_eq!(rig.shared.paths()[1].reconnects, 0, "it never was one");
    drop(one);
    rig.lose(0, Reason::Closed);
    rig.shared.cache.changed(1);
    rig.until("there is no other", |rig| rig.used() == [false, true]);
    assert!(rig.shared.cache.has_lost(1), "what was not flushed is not in its cache");
}

/// Two targets served namespaces of one name at the same time, so one of them is a copy: the copy was used without a
/// report as soon as the path to the other target was down.
#[test]
fn a_copy_is_no_path_when_there_is_no_other_either() {
    let ((one, _core), (other, _other_core)) =
        (target(TargetConfig::default()), target(TargetConfig::default()));
    let mut rig = Rig::to(&[&one, &other]);
    rig.until("it is refused", second_is_refused);
    // The first target answers a Keep Alive after the other was found.
    rig.step();
    drop(one);
    rig.lose(0, Reason::Closed);
    let tries = |rig: &Rig| match rig.shared.paths()[1].standing {
        Standing::Down { tries, .. } => tries,
        Standing::Up(_) => panic!("it is a copy"),
    };
    let before = tries(&rig);
    rig.until("it is tried again", |rig| tries(rig) > before);
    assert!(second_is_refused(&rig));
    assert_eq!(rig.used(), [false, false]);
}

/// A change of the path that loses a cache is not a loss of an association, but arrays must re-add their members after
/// it.
#[test]
fn users_start_again_after_a_move_that_cost_a_cache() {
    let (target, _core) = target(TargetConfig::default());
    let mut rig = Rig::to(&[&target, &target]);
    rig.until("both are up", |rig| rig.ups() == 2);
    rig.shared.facts().instance = None;
    for entry in rig.shared.paths().iter_mut() {
        let Standing::Up(live) = &mut entry.standing else { panic!("it is up") };
        live.facts.instance = None;
    }
    rig.shared.cache.changed(1);
    assert_eq!(rig.shared.cache.lost(), 0);
    rig.reach(0, Access::Inaccessible);
    assert_eq!((rig.used(), rig.shared.cache.lost()), (vec![false, true], 2));
    assert_eq!(rig.shared.reconnects.load(Ordering::Relaxed), 0);
}

/// A path came up before the users saw properties that it does not have.
#[test]
fn a_path_that_breaks_a_promise_is_not_used() {
    let (target, _core) = target(TargetConfig::default());
    let mut rig = Rig::to(&[&target, &target]);
    rig.until("both are up", |rig| rig.ups() == 2);
    rig.shared.promise().blocks += 1;
    rig.lose(0, Reason::Closed);
    assert_eq!(rig.used(), [false, false]);
    assert_eq!(rig.shared.state(), LinkState::Down(Reason::Closed, 0));
    rig.step();
    let standing = &rig.shared.paths()[1].standing;
    assert!(matches!(standing, Standing::Down { reason: Some(Reason::Replaced), .. }));
}

/// A namespace that becomes inaccessible over one path is used over another path without a loss.
#[test]
fn a_path_is_left_when_the_namespace_is_not_reached_over_it() {
    let (target, _core) = target(TargetConfig::default());
    let mut rig = Rig::to(&[&target, &target]);
    let (port, links) = port(1);
    rig.open(port);
    let first = links.take().expect("the queue is connected");
    rig.until("both are up", |rig| rig.ups() == 2);
    for (reached, used) in
        [(Access::Inaccessible, [false, true]), (Access::Optimized, [false, true])]
    {
        rig.reach(0, reached);
        assert_eq!(rig.used(), used, "{reached:?}");
    }
    let second = links.take().expect("the queue is connected over the other");
    assert_eq!(first.life.phase(), Phase::Lasting, "what it was asked is answered");
    rig.reach(1, Access::NonOptimized);
    assert_eq!(rig.used(), [false, true], "it has only just come to be used");
    rig.path_manager.turned -= STAY_TIME_MIN;
    rig.path_manager.settle();
    assert_eq!(rig.used(), [true, false], "the better one");
    rig.lose(1, Reason::Closed);
    assert!(matches!(second.life.phase(), Phase::Ended(_)));
    assert_eq!((rig.shared.state(), first.life.phase()), (LinkState::Up, Phase::Lasting));
    assert_eq!(rig.shared.reconnects.load(Ordering::Relaxed), 0);
}

/// The better path was selected and kept although one queue had no connection over it.
#[test]
fn a_path_that_connects_not_all_queues_is_left_for_one_that_does() {
    let (target, _core) = target(TargetConfig::default());
    let mut rig = Rig::to(&[&target, &target]);
    let ((first, links), (second, others)) = (port(1), port(2));
    rig.open(first);
    rig.open(second);
    rig.until("both are up", |rig| rig.ups() == 2);
    if let Standing::Up(live) = &mut rig.shared.paths()[1].standing {
        live.gate.queues = 1;
    }
    rig.path_manager.turned -= STAY_TIME_MIN;
    rig.reach(0, Access::NonOptimized);
    assert_eq!(rig.used(), [false, true], "the target may not have noticed that a queue is closed");
    rig.path_manager.due = Instant::now();
    rig.path_manager.settle();
    assert_eq!(
        (rig.path_manager.association, rig.used()),
        (3, vec![true, false]),
        "there and back"
    );
    for links in [links, others] {
        assert_eq!(links.take().expect("the queue is connected").life.number, 3);
    }
}

#[test]
fn a_path_that_is_removed_is_left_when_no_queue_waits_for_it() {
    let (target, _core) = target(TargetConfig::default());
    let mut rig = Rig::to(&[&target, &target]);
    let (port, links) = port(1);
    rig.open(port);
    let first = links.take().expect("the queue is connected");
    rig.until("both are up", |rig| rig.ups() == 2);
    rig.shared.paths()[0].leaving = true;
    rig.path_manager.settle();
    assert_eq!((rig.used(), rig.path_manager.threads.len()), (vec![false, true], 2));
    drop(first);
    rig.path_manager.settle();
    assert_eq!(rig.path_manager.threads.len(), 1);
    assert_eq!(links.take().expect("the queue is connected").life.number, 2);
}

/// A target grows a namespace that stays connected: users saw the old size until the association was lost for another
/// reason.
#[test]
fn a_namespace_that_grows_is_larger_at_the_next_identify() {
    let (target, _core) = target(TargetConfig::default());
    let mut rig = Rig::to(&[&target]);
    let before = rig.shared.facts().blocks;
    if let Standing::Up(live) = &mut rig.shared.paths()[0].standing {
        live.facts.blocks += 1;
    }
    rig.path_manager.settle();
    assert_eq!(rig.shared.facts().blocks, before + 1);
    assert_eq!(rig.shared.promise().blocks, before + 1, "that is what a path has to keep");
    let (port, links) = port(1);
    rig.open(port);
    let link = links.take().expect("the queue is connected");
    assert_eq!((link.life.number, link.facts.blocks), (1, before + 1), "nothing was lost for it");
}

/// The thread of the path is about to stop: a device that started to use the path lost it at once, perhaps with
/// unflushed writes.
#[test]
fn a_path_that_is_removed_is_not_taken_up_again() {
    let (target, _core) = target(TargetConfig::default());
    let mut rig = Rig::to(&[&target, &target]);
    rig.until("both are up", |rig| rig.ups() == 2);
    rig.shared.paths()[1].leaving = true;
    rig.lose(0, Reason::Closed);
    assert_eq!((rig.ups(), rig.used()), (1, vec![false, false]));
    rig.until("the first is back", is_up);
    assert_eq!((rig.path_manager.association, rig.used()), (2, vec![true, false]));
}

/// A target was slow, and another association was selected meanwhile.
#[test]
fn a_queue_that_is_connected_late_keeps_nothing_at_the_target() {
    let (target, _core) = target(TargetConfig::default());
    let mut rig = Rig::to(&[&target]);
    let connected = |rig: &Rig| {
        let Some(active) = &rig.path_manager.active else { panic!("it is up") };
        let life = Arc::clone(&rig.path_manager.uses[0].life);
        active.gate.queue(9, &host(), (&life, &active.facts)).expect("the target takes us")
    };
    let late = connected(&rig);
    let life = Arc::downgrade(&late.life);
    rig.lose(0, Reason::Closed);
    rig.until("the target takes us again", is_up);
    let (port, links) = port(1);
    rig.open(port);
    let seat = rig.path_manager.places[0].seat;
    let Seat::Taken(number) = seat else { panic!("the queue is connected") };
    rig.path_manager.take_joined(Joined { association: 1, queue: 1, number, link: Ok(late) });
    assert_eq!(life.strong_count(), 0, "it is closed");
    assert_eq!(rig.path_manager.places[0].seat, seat);
    assert_eq!(links.take().expect("it has the right one").life.number, 2);
    let closed = connected(&rig);
    let life = Arc::strong_count(&closed.life);
    rig.path_manager.take_joined(Joined { association: 2, queue: 7, number: 9, link: Ok(closed) });
    assert_eq!(
        Arc::strong_count(&rig.path_manager.uses[0].life),
        life - 1,
        "nobody has that queue"
    );
}
