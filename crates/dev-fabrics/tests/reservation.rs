//! Several hosts that use one drive of Strake's own target.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use strake_block::{
    BlockDevice, BufMut, CompletionBatch, DeviceError, DeviceRemedy, Durability, Io, IoError,
    IoQueue, Op, Sg, SgMut, Token,
};
use strake_dev_fabrics::{
    Address, FabricsDevice, HostName, LinkState, Options, PathState, PathStatus, Reason,
    ReservationMode,
};
use strake_dev_mem::RamDevice;
use strake_export_nvmet::{Export, Ledger, Reservations, Target, TargetConfig};
use strake_reactor::{CoreConfig, CoreThread, monotonic};
use strake_units::{BlockSize, CoreIndex, Lba};

const SUBSYSTEM: &str = "nqn.2014-08.org.nvmexpress:uuid:ram";
const BLOCK: usize = 4096;
/// Longest wait before a test fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// A reservation record that survives a target.
#[derive(Default)]
struct Book(Mutex<Option<Reservations>>);

impl Ledger for Book {
    fn read(&self) -> Result<Option<Reservations>, String> {
        Ok(self.0.lock().expect("no panic").clone())
    }

    fn write(&self, reservations: Option<&Reservations>) -> Result<(), String> {
        *self.0.lock().expect("no panic") = reservations.cloned();
        Ok(())
    }
}

/// A target of a RAM drive, which hosts 1 and 2 may use.
struct Machine {
    // Dropped in this order: the target leaves the core before that stops.
    target: Target,
    _core: CoreThread,
}

impl Machine {
    fn start(book: Option<&Arc<Book>>) -> Self {
        Self::at("127.0.0.1:0".parse().expect("an address"), book)
    }

    fn at(listen: SocketAddr, book: Option<&Arc<Book>>) -> Self {
        let core = CoreThread::start(CoreConfig::new(CoreIndex(0))).expect("a core starts");
        let target = Target::start(listen, vec![core.handle()], TargetConfig::default());
        let target = target.expect("the target starts");
        let export = Export {
            nqn: SUBSYSTEM.to_owned(),
            namespace: 1,
            uuid: [7; 16],
            device: Some(Arc::new(RamDevice::new(64, BlockSize::B4096))),
            read_only: false,
            hosts: vec![host(1).nqn, host(2).nqn],
            secure: false,
            limits: None,
            ledger: book.map(|book| Arc::clone(book) as Arc<dyn Ledger>),
        };
        target.add_export(&export).expect("a fresh name can be exported");
        Self { target, _core: core }
    }

    fn address(&self) -> Address {
        let place = self.target.address();
        format!("nvme-tcp://{place}/{SUBSYSTEM}").parse().expect("an address")
    }

    fn connect(
        &self,
        number: u8,
        reservation: ReservationMode,
    ) -> Result<FabricsDevice, DeviceError> {
        let options = Options { reservation, ..Options::default() };
        FabricsDevice::connect(&self.address(), &host(number), options)
    }

    /// Stops the target, and starts it again with the recorded reservations.
    fn again(self, book: Option<&Arc<Book>>) -> Self {
        let place = self.target.address();
        drop(self);
        Self::at(place, book)
    }
}

fn host(number: u8) -> HostName {
    let nqn = format!("nqn.2014-08.org.nvmexpress:uuid:{number}");
    HostName { nqn, id: [number; 16], keys: None, tls: None }
}

fn open(device: &FabricsDevice) -> Box<dyn IoQueue> {
    device.open_queue(CoreIndex(0), 8).expect("a queue")
}

fn run(queue: &mut dyn IoQueue, op: Op) -> Result<(), IoError> {
    assert!(queue.submit(Io { token: Token(1), op }).is_ok(), "there is room");
    let (ends, mut batch) = (Instant::now() + PATIENCE, CompletionBatch::new(1));
    loop {
        queue.ring_doorbell(monotonic());
        queue.poll(monotonic(), &mut batch);
        if let Some(done) = batch.drain().next() {
            return done.result;
        }
        assert!(Instant::now() < ends, "it does not end");
        thread::yield_now();
    }
}

fn read(queue: &mut dyn IoQueue) -> Result<(), IoError> {
    run(queue, Op::Read { at: Lba(0), data: SgMut::from(BufMut::alone(BLOCK)) })
}

fn write(queue: &mut dyn IoQueue) -> Result<(), IoError> {
    let data = Sg::from(BufMut::alone(BLOCK).freeze());
    run(queue, Op::Write { at: Lba(0), data, durability: Durability::Normal })
}

fn until(what: &str, is: impl Fn() -> bool) {
    let ends = Instant::now() + PATIENCE;
    while !is() {
        assert!(Instant::now() < ends, "{what}");
        thread::yield_now();
    }
}

fn is_taken(device: &FabricsDevice) -> bool {
    matches!(device.state(), LinkState::Down(Reason::TakenOver, _))
}

#[test]
fn f19_a_drive_of_one_host_is_refused_to_another() {
    let machine = Machine::start(None);
    let first = machine.connect(1, ReservationMode::Claim).expect("nobody has it");
    assert_eq!((first.is_reserved(), first.was_reserved_now()), (Some(true), true));
    let refused = machine.connect(2, ReservationMode::Claim).expect_err("it is the first one's");
    assert_eq!(refused.remedy, Some(DeviceRemedy::TakeOver));
    let reported = refused.to_string();
    assert!(reported.contains("01010101-0101-0101-0101-010101010101"), "{reported}");
    let again = machine.connect(1, ReservationMode::Claim).expect("it is its own");
    assert_eq!((again.is_reserved(), again.was_reserved_now()), (Some(true), false));
    assert_eq!(write(&mut *open(&first)), Ok(()));
    // A host that uses no reservation mode also cannot write.
    let careless = machine.connect(2, ReservationMode::Off).expect("everybody may look");
    assert_eq!(careless.is_reserved(), None);
    let mut queue = open(&careless);
    assert_eq!(read(&mut *queue), Ok(()));
    assert!(write(&mut *queue).is_err(), "it is the first one's");
}

#[test]
fn a_drive_that_is_given_up_is_anybodys() {
    let machine = Machine::start(None);
    let first = machine.connect(1, ReservationMode::Claim).expect("nobody has it");
    drop(first);
    for times in 1..=2 {
        let released = FabricsDevice::release(&machine.address(), &host(1));
        assert!(released.is_ok(), "{released:?} {times}");
    }
    let second = machine.connect(2, ReservationMode::Claim).expect("nobody has it any more");
    assert_eq!(write(&mut *open(&second)), Ok(()));
}

#[test]
fn f19_a_host_that_a_drive_was_taken_from_stops_using_it() {
    let machine = Machine::start(None);
    let first = machine.connect(1, ReservationMode::Claim).expect("nobody has it");
    let mut queue = open(&first);
    assert_eq!(write(&mut *queue), Ok(()));
    let second = machine.connect(2, ReservationMode::TakeOver).expect("it takes the drive over");
    // The host is notified, even if it does not write.
    until("it hears of it", || is_taken(&first));
    assert_eq!(first.is_reserved(), Some(false));
    let mut further = machine.address();
    further.machine = "localhost".to_owned();
    let refused = first.add_path(&further).expect_err("no path leads to it any more");
    assert!(refused.to_string().contains("another host"), "{refused}");
    assert_eq!(write(&mut *open(&second)), Ok(()));
    assert!(write(&mut *queue).is_err(), "it is another's");
    assert!(read(&mut *queue).is_err(), "nothing is known of what is on it");
    // A released reservation does not make the drive usable again, because its content may have changed.
    drop(second);
    FabricsDevice::release(&machine.address(), &host(2)).expect("the target answers");
    let tries = |device: &FabricsDevice| match device.state() {
        LinkState::Down(Reason::TakenOver, tries) => tries,
        state => panic!("it is {state:?}"),
    };
    let before = tries(&first);
    until("it has tried again", || tries(&first) > before);
    let fresh = machine.connect(1, ReservationMode::Claim).expect("from the beginning");
    assert_eq!(write(&mut *open(&fresh)), Ok(()));
}

#[test]
fn a_target_that_forgets_is_asked_again() {
    let machine = Machine::start(None);
    let device = machine.connect(1, ReservationMode::Claim).expect("nobody has it");
    let mut queue = open(&device);
    let machine = machine.again(None);
    assert_eq!(read(&mut *queue), Ok(()));
    let refused = machine.connect(2, ReservationMode::Claim).expect_err("it is the first one's");
    assert!(refused.to_string().contains("another host"), "{refused}");
}

#[test]
fn f19_what_a_target_remembers_is_ours_or_not() {
    let book = Arc::new(Book::default());
    let machine = Machine::start(Some(&book));
    let device = machine.connect(1, ReservationMode::Claim).expect("nobody has it");
    let mut queue = open(&device);
    let machine = machine.again(Some(&book));
    assert_eq!(read(&mut *queue), Ok(()));
    assert_eq!(device.is_reserved(), Some(true));
    // While the target is unreachable, another host takes the reservation, and releases it.
    let place = machine.target.address();
    drop(machine);
    let machine = Machine::start(Some(&book));
    drop(machine.connect(2, ReservationMode::TakeOver).expect("it takes the drive over"));
    FabricsDevice::release(&machine.address(), &host(2)).expect("the target answers");
    drop(machine);
    let _machine = Machine::at(place, Some(&book));
    assert!(read(&mut *queue).is_err(), "nothing is known of what is on it");
    until("it is told", || is_taken(&device));
}

#[test]
fn every_path_is_of_the_same_host() {
    let machine = Machine::start(None);
    let device = machine.connect(1, ReservationMode::TakeOver).expect("nobody has it");
    let mut other = machine.address();
    other.machine = "localhost".to_owned();
    device.add_path(&other).expect("it leads to the same");
    assert_eq!(device.paths().len(), 2);
    assert_eq!(write(&mut *open(&device)), Ok(()));
}

/// All paths detect the lost reservation at once, and each tries to restore it.
#[test]
fn paths_that_come_back_together_reserve_it_once() {
    let mut machine = Machine::at("0.0.0.0:0".parse().expect("an address"), None);
    let port = machine.target.address().port();
    let at = |last| format!("nvme-tcp://127.0.0.{last}:{port}/{SUBSYSTEM}").parse();
    let addresses: Vec<Address> = (1..=8).map(|last| at(last).expect("an address")).collect();
    let options = Options { reservation: ReservationMode::Claim, ..Options::default() };
    let device = FabricsDevice::connect_any(&addresses, &host(1), options).expect("nobody has it");
    assert!(device.was_reserved_now());
    for times in 1..=5 {
        let is_up = |path: &PathStatus| matches!(path.state, PathState::Up(_));
        until("every path is up", || {
            assert!(!is_taken(&device), "nobody else was there: {times}");
            device.paths().iter().all(|path| is_up(path) && path.reconnects + 1 >= times)
        });
        assert_eq!((device.is_reserved(), device.was_reserved_now()), (Some(true), true));
        machine = machine.again(None);
    }
}
