//! A drive over several paths to Strake's own target: each path leads through a portal to the one port of the target.

use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use strake_block::{
    BlockDevice, BufMut, CompletionBatch, Durability, Io, IoError, IoQueue, Op, Sg, SgMut, Token,
};
use strake_dev_fabrics::{Address, FabricsDevice, HostName, LinkState, Options, PathState};
use strake_dev_mem::RamDevice;
use strake_export_nvmet::{Export, Target, TargetConfig};
use strake_reactor::{CoreConfig, CoreThread, monotonic};
use strake_units::{BlockSize, CoreIndex, Lba, Nanos};

const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:host";
const SUBSYSTEM: &str = "nqn.2014-08.org.nvmexpress:uuid:ram";
const BLOCK: usize = 4096;
/// Longest wait before a test fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// A target of a RAM drive.
struct Machine {
    // Dropped in this order: the target leaves the core before that stops.
    target: Target,
    _core: CoreThread,
}

impl Machine {
    fn start(uuid: u8) -> Self {
        let core = CoreThread::start(CoreConfig::new(CoreIndex(0))).expect("a core starts");
        let listen = "127.0.0.1:0".parse().expect("an address");
        let target = Target::start(listen, vec![core.handle()], TargetConfig::default());
        let target = target.expect("the target starts");
        let export = Export {
            nqn: SUBSYSTEM.to_owned(),
            namespace: 1,
            uuid: [uuid; 16],
            device: Some(Arc::new(RamDevice::new(64, BlockSize::B4096))),
            read_only: false,
            hosts: vec![HOST.to_owned()],
            secure: false,
            limits: None,
            ledger: None,
        };
        target.add_export(&export).expect("a fresh name can be exported");
        Self { target, _core: core }
    }
}

/// A TCP proxy to a target that can be closed.
struct Portal {
    address: SocketAddr,
    open: Arc<AtomicBool>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
    listener: Option<JoinHandle<()>>,
}

impl Portal {
    fn to(machine: &Machine) -> Self {
        Self::at("127.0.0.1:0".parse().expect("an address"), machine)
    }

    fn at(address: SocketAddr, machine: &Machine) -> Self {
        let listener = TcpListener::bind(address).expect("the port is free");
        let address = listener.local_addr().expect("it has an address");
        let (open, streams) = (Arc::new(AtomicBool::new(true)), Arc::new(Mutex::new(Vec::new())));
        let (is_open, kept, behind) =
            (Arc::clone(&open), Arc::clone(&streams), machine.target.address());
        let listener = thread::spawn(move || {
            while let Ok((host, _)) = listener.accept()
                && is_open.load(Ordering::SeqCst)
            {
                let target = TcpStream::connect(behind).expect("the target listens");
                for (from, to) in [(&host, &target), (&target, &host)] {
                    let clone = |stream: &TcpStream| stream.try_clone().expect("a descriptor");
                    let (mut from, mut to) = (clone(from), clone(to));
                    thread::spawn(move || {
                        // Either end may close at any time.
                        let _ = std::io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
                kept.lock().expect("nobody panics").extend([host, target]);
            }
        });
        Self { address, open, streams, listener: Some(listener) }
    }

    fn address(&self) -> Address {
        format!("nvme-tcp://{}/{SUBSYSTEM}", self.address).parse().expect("an address")
    }

    fn close(&mut self) {
        if self.open.swap(false, Ordering::SeqCst) {
            // The connect ends a wait in `accept`.
            drop(TcpStream::connect(self.address));
            let _ = self.listener.take().map(JoinHandle::join);
            for stream in self.streams.lock().expect("nobody panics").drain(..) {
                // The connection may already be closed.
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
    }
}

impl Drop for Portal {
    fn drop(&mut self) {
        self.close();
    }
}

fn host() -> HostName {
    HostName { nqn: HOST.to_owned(), id: [3; 16], keys: None, tls: None }
}

fn connect(addresses: &[&Portal]) -> FabricsDevice {
    let addresses: Vec<_> = addresses.iter().map(|portal| portal.address()).collect();
    let device = FabricsDevice::connect_any(&addresses, &host(), Options::default());
    device.expect("a path leads to the target")
}

fn open(device: &FabricsDevice) -> Box<dyn IoQueue> {
    device.open_queue(CoreIndex(0), 8).expect("a queue")
}

fn run(queue: &mut dyn IoQueue, op: Op) -> Result<(), IoError> {
    run_at(monotonic, queue, op)
}

/// As [`run`], with a clock for the queue.
fn run_at(clock: impl Fn() -> Nanos, queue: &mut dyn IoQueue, op: Op) -> Result<(), IoError> {
    assert!(queue.submit(Io { token: Token(1), op }).is_ok(), "there is room");
    let (ends, mut batch) = (Instant::now() + PATIENCE, CompletionBatch::new(1));
    loop {
        queue.ring_doorbell(clock());
        queue.poll(clock(), &mut batch);
        if let Some(done) = batch.drain().next() {
            return done.result;
        }
        assert!(Instant::now() < ends, "it does not end");
        thread::yield_now();
    }
}

fn a_read() -> Op {
    Op::Read { at: Lba(0), data: SgMut::from(BufMut::alone(BLOCK)) }
}

fn read(queue: &mut dyn IoQueue) {
    assert_eq!(run(queue, a_read()), Ok(()));
}

fn a_write() -> Op {
    let data = Sg::from(BufMut::alone(BLOCK).freeze());
    Op::Write { at: Lba(0), data, durability: Durability::Normal }
}

fn write(queue: &mut dyn IoQueue) {
    assert_eq!(run(queue, a_write()), Ok(()));
}

/// The paths of `device`: whether each is up, and whether it carries I/O.
fn paths(device: &FabricsDevice) -> Vec<(bool, bool)> {
    let reported = device.paths();
    reported.iter().map(|path| (matches!(path.state, PathState::Up(_)), path.used)).collect()
}

fn until(what: &str, is: impl Fn() -> bool) {
    let ends = Instant::now() + PATIENCE;
    while !is() {
        assert!(Instant::now() < ends, "{what}");
        thread::yield_now();
    }
}

#[test]
fn a_path_that_is_lost_costs_nothing_while_there_is_another() {
    let machine = Machine::start(7);
    let (mut first, second) = (Portal::to(&machine), Portal::to(&machine));
    let device = connect(&[&first]);
    device.add_path(&second.address()).expect("it leads to the same");
    let mut queue = open(&device);
    write(&mut *queue);
    assert_eq!(paths(&device), [(true, true), (true, false)]);
    // An unanswered change waits until the target must have detected the disconnect, at least 8 seconds. This clock
    // does not reach that time, so no change can have waited.
    let end = monotonic().plus(Nanos::SECOND);
    let clock = || monotonic().min(end);
    first.close();
    for op in [a_read(), a_write(), Op::Flush] {
        let what = format!("{op:?}");
        assert_eq!(run_at(clock, &mut *queue, op), Ok(()), "{what}");
    }
    assert_eq!(paths(&device), [(false, false), (true, true)]);
    until("it is told", || device.state() == LinkState::Up);
    assert_eq!(device.reconnects(), 1);
}

#[test]
fn a_drive_is_found_over_any_of_its_paths() {
    let machine = Machine::start(7);
    let mut first = Portal::at("127.83.12.1:0".parse().expect("an address"), &machine);
    let second = Portal::to(&machine);
    first.close();
    let device = connect(&[&first, &second]);
    assert_eq!(*device.address(), first.address(), "that is its name");
    let mut queue = open(&device);
    read(&mut *queue);
    assert_eq!(paths(&device)[1], (true, true));
    let _first = Portal::at(first.address, &machine);
    until("the first path comes up", || paths(&device) == [(true, false), (true, true)]);
}

#[test]
fn a_path_leads_to_the_same_namespace_of_the_same_instance() {
    let (machine, copy, other) = (Machine::start(7), Machine::start(7), Machine::start(8));
    let (portal, to_copy, to_other) = (Portal::to(&machine), Portal::to(&copy), Portal::to(&other));
    let device = connect(&[&portal]);
    for (path, why) in [(to_copy, "is it a copy"), (to_other, "another namespace")] {
        let refused = device.add_path(&path.address()).expect_err("it leads elsewhere");
        assert!(refused.to_string().contains(why), "{refused}");
    }
    assert_eq!(paths(&device), [(true, true)]);
}

#[test]
fn a_path_that_is_down_can_be_taken_away_while_all_are() {
    let machine = Machine::start(7);
    let (mut first, mut second) = (Portal::to(&machine), Portal::to(&machine));
    let device = connect(&[&first, &second]);
    until("both are up", || paths(&device) == [(true, true), (true, false)]);
    first.close();
    second.close();
    until("both are down", || paths(&device) == [(false, false); 2]);
    assert!(device.remove_path(&second.address()));
    assert!(!device.remove_path(&first.address()), "it is the last");
}

#[test]
fn a_path_can_be_taken_away_but_the_last() {
    let machine = Machine::start(7);
    let (first, second) = (Portal::to(&machine), Portal::to(&machine));
    let device = connect(&[&first, &second]);
    until("both are up", || paths(&device) == [(true, true), (true, false)]);
    let mut queue = open(&device);
    write(&mut *queue);
    assert!(device.remove_path(&first.address()));
    assert_eq!(paths(&device).len(), 1);
    until("the other is used", || paths(&device) == [(true, true)]);
    write(&mut *queue);
    assert!(!device.remove_path(&second.address()), "it is the last");
    assert!(!device.remove_path(&first.address()), "it is gone");
    assert_eq!(device.reconnects(), 0, "nothing was lost");
}
