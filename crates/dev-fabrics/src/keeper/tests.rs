//! The thread's work step by step, against Strake's own target.

use super::{Keeper, LinkState, Request, Shared, now};
use crate::address::{Address, HostName};
use crate::device::Options;
use crate::error::Reason;
use crate::inbox::Inbox;
use crate::link::{Link, Port};
use crate::session::Session;
use rustix::event::{EventfdFlags, eventfd};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use strake_dev_mem::RamDevice;
use strake_export_nvmet::{Export, Removal, Target, TargetConfig};
use strake_reactor::{CoreConfig, CoreThread};
use strake_units::{BlockSize, CoreIndex};

const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:host";
const SUBSYSTEM: &str = "nqn.2014-08.org.nvmexpress:uuid:ram";
/// Longest wait before a test fails.
const PATIENCE: Duration = Duration::from_secs(60);

fn target(config: TargetConfig) -> (Target, CoreThread) {
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
    }
}

fn keeper(target: &Target) -> Keeper {
    let address: Address =
        format!("nvme-tcp://{}/{SUBSYSTEM}", target.address()).parse().expect("an address");
    let host = HostName { nqn: HOST.to_owned(), id: [3; 16], keys: None };
    let options = Options::default();
    let session = Session::begin(&address, &host, options.digests).expect("the target takes us");
    let facts = (session.facts.clone(), session.queues);
    let (_, inbox) = Inbox::open().expect("descriptors");
    Keeper::new(Arc::new(Shared::new(&address, &host, facts, options)), session, inbox)
}

fn port(id: u64) -> (Port, mpsc::Receiver<Link>) {
    let (links, connected) = mpsc::channel();
    let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("a descriptor");
    (Port { id, links, wake: Arc::new(wake) }, connected)
}

/// A queue may have used an association of which the rest could not be connected: what it sent is over only when that
/// association is, not when the one before was.
#[test]
fn an_association_that_was_half_made_is_one_that_ended() {
    let (target, _core) = target(TargetConfig { connections_max: 2, ..TargetConfig::default() });
    let mut keeper = keeper(&target);
    let (first, links) = port(1);
    let (second, _no_links) = port(2);
    keeper.take(Request::Open(first));
    let link = links.try_recv().expect("the first queue is connected");
    keeper.take(Request::Open(second));
    assert!(matches!(keeper.shared.state(), LinkState::Down(_, 0)), "there is room for two");
    drop(link);
    let ends = Instant::now() + PATIENCE;
    let (before, link) = loop {
        assert!(Instant::now() < ends, "the target does not take us again");
        let before = now();
        keeper.retry();
        if let Ok(link) = links.try_recv() {
            break (before, link);
        }
    };
    assert_eq!(link.association, 2, "the queue had it");
    let settle_time = keeper.shared.facts().settle_time;
    assert!(keeper.settled_at >= before.plus(settle_time), "it is waited for");
    assert!(keeper.shared.down_at.load(Ordering::Relaxed) >= before.0, "it was up");
    assert_eq!(keeper.shared.association.load(Ordering::Relaxed), 0);
    assert!(matches!(keeper.shared.state(), LinkState::Down(_, 1..)), "a try that failed");
}

/// The others go on, and the queue is connected when there is room.
#[test]
fn a_queue_that_is_refused_costs_no_other() {
    let config = TargetConfig { connections_per_export_max: 2, ..TargetConfig::default() };
    let (target, _core) = target(config);
    let mut keeper = keeper(&target);
    let ((first, links), (second, later)) = (port(1), port(2));
    keeper.take(Request::Open(first));
    keeper.take(Request::Open(second));
    let link = links.try_recv().expect("the first queue is connected");
    assert!(later.try_recv().is_err(), "the second is not");
    assert_eq!(keeper.shared.state(), LinkState::Up);
    keeper.take(Request::Close(1));
    drop(link);
    let ends = Instant::now() + PATIENCE;
    while later.try_recv().is_err() {
        assert!(Instant::now() < ends, "the second has its turn");
        keeper.act();
    }
    assert_eq!((keeper.shared.state(), keeper.association), (LinkState::Up, 1));
}

/// Has `keeper` make its association anew.
fn remake(keeper: &mut Keeper) {
    let ends = Instant::now() + PATIENCE;
    while keeper.shared.state() != LinkState::Up {
        assert!(Instant::now() < ends, "the target does not take us again");
        keeper.retry();
    }
}

#[test]
fn an_association_that_breaks_costs_nothing_that_the_target_has() {
    let (target, _core) = target(TargetConfig::default());
    let mut keeper = keeper(&target);
    keeper.shared.cache.changed(1);
    keeper.lose(Reason::Silent);
    remake(&mut keeper);
    assert!(!keeper.shared.cache.has_lost(1));
}

#[test]
fn a_target_that_starts_anew_may_have_lost_its_cache() {
    // Nobody else takes the port meanwhile.
    let alone = "127.83.11.7:0".parse().expect("an address");
    let (before, _core) = target_at(alone, TargetConfig::default());
    let mut keeper = keeper(&before);
    keeper.shared.cache.changed(1);
    let address = before.address();
    drop(before);
    keeper.lose(Reason::Closed);
    assert!(!keeper.shared.cache.has_lost(1), "nobody knows yet");
    let (_after, _core) = target_at(address, TargetConfig::default());
    remake(&mut keeper);
    assert!(keeper.shared.cache.has_lost(1));
}

/// The association outlives the device: an array is unloaded and loaded again.
#[test]
fn a_device_that_is_served_anew_ends_the_association() {
    let (target, _core) = target(TargetConfig::default());
    // As long as there is another, hosts stay.
    target.add_export(&export(2)).expect("a fresh number can be exported");
    let mut keeper = keeper(&target);
    keeper.shared.cache.changed(1);
    target.remove_export(SUBSYSTEM, 1, Removal::Force).expect("it is there");
    target.add_export(&export(1)).expect("it comes back");
    let ends = Instant::now() + PATIENCE;
    while keeper.session.is_some() {
        assert!(Instant::now() < ends, "nobody noticed");
        keeper.act();
    }
    assert_eq!(keeper.shared.state(), LinkState::Down(Reason::AnotherInstance, 0));
    remake(&mut keeper);
    assert!(keeper.shared.cache.has_lost(1));
}
