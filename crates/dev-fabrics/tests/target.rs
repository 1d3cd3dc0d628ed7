//! The drive against Strake's own target, over loopback.

mod tls;

use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use strake_block::{
    BlockDevice, BufMut, Completion, CompletionBatch, DeviceRemedy, Durability, Io, IoError,
    IoErrorKind, IoQueue, Op, Sg, SgMut, Token,
};
use strake_dev_fabrics::{Address, FabricsDevice, HostName, LinkState, Options, Reason};
use strake_dev_mem::RamDevice;
use strake_export_nvmet::{Export, Keys, Removal, Secret, Target, TargetConfig};
use strake_reactor::{CoreConfig, CoreThread, Poller, Sleep, Turn};
use strake_units::{BlockSize, CoreIndex, Lba, LbaRange, Nanos};

const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:host";
const SUBSYSTEM: &str = "nqn.2014-08.org.nvmexpress:uuid:ram";
const BLOCK: usize = 4096;
const BLOCKS: u64 = 4096;
/// Longest wait before a test fails.
const PATIENCE: Duration = Duration::from_secs(120);

/// A target of a RAM drive. Its port is the kernel's choice, or the one given.
struct Machine {
    // Dropped in this order: the target leaves the core before that stops.
    target: Target,
    _core: CoreThread,
}

impl Machine {
    fn start(ram: &RamDevice, port: u16, uuid: u8) -> Self {
        let core = CoreThread::start(CoreConfig::new(CoreIndex(0))).expect("a core starts");
        let address = format!("127.0.0.1:{port}").parse().expect("an address");
        // All connections of a test come from one address, and many fail on purpose.
        let config = TargetConfig { failed_handshake_time: Nanos(0), ..TargetConfig::default() };
        let target =
            Target::start(address, vec![core.handle()], config).expect("the target starts");
        let machine = Self { target, _core: core };
        machine.export(ram, 1, uuid);
        machine
    }

    fn export(&self, ram: &RamDevice, namespace: u32, uuid: u8) {
        let export = Export {
            nqn: SUBSYSTEM.to_owned(),
            namespace,
            uuid: [uuid; 16],
            device: Some(Arc::new(ram.clone())),
            read_only: false,
            ledger: None,
            hosts: vec![HOST.to_owned()],
            secure: false,
            limits: None,
        };
        self.target.add_export(&export).expect("a fresh number can be exported");
    }

    fn address(&self) -> Address {
        format!("nvme-tcp://{}/{SUBSYSTEM}", self.target.address()).parse().expect("an address")
    }
}

fn ram() -> RamDevice {
    RamDevice::new(BLOCKS, BlockSize::B4096)
}

fn host(nqn: &str) -> HostName {
    HostName { nqn: nqn.to_owned(), id: [3; 16], keys: None, tls: None }
}

fn connect(machine: &Machine) -> Arc<FabricsDevice> {
    let device = FabricsDevice::connect(&machine.address(), &host(HOST), Options::default());
    Arc::new(device.expect("the target takes us"))
}

/// Uses a queue like a shard, on a core that sleeps without work.
struct Client {
    queue: Box<dyn IoQueue>,
    ops: mpsc::Receiver<Io>,
    refused: Option<Io>,
    batch: CompletionBatch,
    done: mpsc::Sender<Completion>,
}

impl Poller for Client {
    fn turn(&mut self, now: Nanos) -> Turn {
        while let Some(io) = self.refused.take().or_else(|| self.ops.try_recv().ok()) {
            if let Err(io) = self.queue.submit(io) {
                self.refused = Some(io);
                break;
            }
        }
        self.queue.ring_doorbell(now);
        self.queue.poll(now, &mut self.batch);
        let turn = Turn::from_count(self.batch.len());
        for completion in self.batch.drain() {
            self.done.send(completion).expect("the test waits for it");
        }
        turn
    }

    fn sleep(&self, sleep: &mut Sleep) {
        sleep.readiness(self.queue.readiness());
    }
}

/// The test's end of a client.
struct Queue {
    core: CoreThread,
    ops: mpsc::Sender<Io>,
    done: mpsc::Receiver<Completion>,
}

impl Queue {
    fn open(device: &Arc<FabricsDevice>, depth: u32) -> Self {
        let core = CoreThread::start(CoreConfig::new(CoreIndex(1))).expect("a core starts");
        let ((ops, to_do), (finished, done)) = (mpsc::channel(), mpsc::channel());
        let device = Arc::clone(device);
        let opened = core.handle().call(move |core| {
            let queue = device.open_queue(CoreIndex(1), depth).expect("a queue");
            let batch = CompletionBatch::new(16);
            core.add(Box::new(Client { queue, ops: to_do, refused: None, batch, done: finished }));
        });
        assert!(opened.is_ok());
        Self { core, ops, done }
    }

    /// Executes all operations, and returns them in their order with their results.
    fn run(&self, ops: Vec<Op>) -> Vec<(Op, Result<(), IoError>)> {
        let count = ops.len();
        for (at, op) in ops.into_iter().enumerate() {
            self.ops.send(Io { token: Token(at as u64), op }).expect("the core runs");
        }
        self.core.handle().wake();
        let mut done = BTreeMap::new();
        while done.len() < count {
            let ended = self.done.recv_timeout(PATIENCE).expect("the queue wakes its core");
            done.insert(ended.token.0, (ended.op, ended.result));
        }
        done.into_values().collect()
    }
}

fn write(at: u64, data: &[u8]) -> Op {
    let mut buf = BufMut::alone(data.len());
    buf.as_mut_slice().copy_from_slice(data);
    Op::Write { at: Lba(at), data: Sg::from(buf.freeze()), durability: Durability::Fua }
}

fn read(at: u64, blocks: usize) -> Op {
    Op::Read { at: Lba(at), data: SgMut::from(BufMut::alone(blocks * BLOCK)) }
}

fn bytes_of(op: Op) -> Vec<u8> {
    let Op::Read { data, .. } = op else { panic!("a read comes home") };
    data.parts().iter().flat_map(|part| part.as_slice().to_vec()).collect()
}

fn pattern(seed: u8, blocks: usize) -> Vec<u8> {
    (0..blocks * BLOCK).map(|at| (at / 7) as u8 ^ (at / BLOCK) as u8 ^ seed).collect()
}

#[test]
fn a_namespace_tells_what_it_is() {
    let machine = Machine::start(&ram(), 0, 7);
    let info = connect(&machine).info();
    assert_eq!(info.identity, "wwid:uuid.07070707-0707-0707-0707-070707070707");
    assert_eq!((info.blocks, info.block_size), (BLOCKS, BlockSize::B4096));
    assert!(!info.read_only && info.fast_zeroes);
}

#[test]
fn what_is_written_is_on_the_medium_and_read_back() {
    let ram = ram();
    let machine = Machine::start(&ram, 0, 7);
    let device = connect(&machine);
    let queue = Queue::open(&device, 32);
    let sizes = [1, 2, 3, 8, 32, 256];
    let place = |at: usize| 300 * at as u64;
    let writes = sizes.iter().enumerate();
    let writes = writes.map(|(at, &blocks)| write(place(at), &pattern(at as u8, blocks)));
    for (op, result) in queue.run(writes.collect()) {
        assert_eq!(result, Ok(()), "{op:?}");
    }
    for (at, &blocks) in sizes.iter().enumerate() {
        let mut medium = vec![0; blocks * BLOCK];
        ram.read_at(place(at) * BLOCK as u64, &mut medium).expect("on the drive");
        assert_eq!(medium, pattern(at as u8, blocks), "{blocks} blocks");
    }
    let reads = sizes.iter().enumerate().map(|(at, &blocks)| read(place(at), blocks)).collect();
    for (at, (op, result)) in queue.run(reads).into_iter().enumerate() {
        assert_eq!(result, Ok(()));
        assert_eq!(bytes_of(op), pattern(at as u8, sizes[at]));
    }
    let range = LbaRange::new(Lba(1500), 256);
    let zeroes = Op::WriteZeroes { range, durability: Durability::Normal };
    let deallocate = Op::Deallocate { range: LbaRange::new(Lba(0), 1) };
    for (op, result) in queue.run(vec![zeroes, Op::Flush, deallocate]) {
        assert_eq!(result, Ok(()), "{op:?}");
    }
    let zeroed = queue.run(vec![read(1500, 256)]).remove(0);
    assert!(bytes_of(zeroed.0).iter().all(|&byte| byte == 0));
}

#[test]
fn a_host_that_is_not_allowed_is_notified_so() {
    let machine = Machine::start(&ram(), 0, 7);
    let stranger = host("nqn.2014-08.org.nvmexpress:uuid:stranger");
    let error = FabricsDevice::connect(&machine.address(), &stranger, Options::default())
        .expect_err("it is not on the list");
    assert_eq!(error.kind, IoErrorKind::Gone);
    let text = error.to_string();
    assert!(text.contains("does not allow this host") && text.contains("stranger"), "{text}");
}

#[test]
fn a_target_that_asks_for_proof_is_left_with_the_reason() {
    let machine = Machine::start(&ram(), 0, 7);
    let keys = Keys { host: Secret::from([7; 32]), controller: None };
    machine.target.set_keys(HOST, Some(keys));
    let error = FabricsDevice::connect(&machine.address(), &host(HOST), Options::default())
        .expect_err("it cannot prove who it is");
    assert_eq!(error.remedy, Some(DeviceRemedy::Secret), "{error}");
}

/// A host with its secret uses a drive over queues that authenticate as well. A host with another secret is rejected,
/// and so is a target that fails mutual authentication.
#[test]
fn a_host_and_a_target_prove_who_they_are() {
    let machine = Machine::start(&ram(), 0, 7);
    let keys = |own: u8, theirs: Option<u8>| Keys {
        host: Secret::from([own; 32]),
        controller: theirs.map(|key| Secret::from([key; 32])),
    };
    let connect = |keys: Keys| {
        let host = HostName { keys: Some(keys), ..host(HOST) };
        FabricsDevice::connect(&machine.address(), &host, Options::default())
    };
    let unproven = connect(keys(7, Some(9))).expect_err("nobody asks for proof");
    assert!(unproven.to_string().contains("did not prove"), "{unproven}");
    machine.target.set_keys(HOST, Some(keys(7, Some(9))));
    let wrong = connect(keys(8, None)).expect_err("another secret");
    assert!(wrong.to_string().contains("is it the same secret"), "{wrong}");
    let wrong = connect(keys(7, Some(8))).expect_err("the target has another secret");
    assert!(wrong.to_string().contains("did not prove"), "{wrong}");
    for theirs in [None, Some(9)] {
        let device = Arc::new(connect(keys(7, theirs)).expect("both know the secrets"));
        let queue = Queue::open(&device, 32);
        let written = queue.run(vec![write(0, &pattern(1, 4))]);
        assert!(matches!(written[..], [(_, Ok(()))]), "{written:?}");
    }
}

/// A queue that is opened after a change of the secret is connected with the new one, over the existing association.
#[test]
fn a_queue_proves_itself_with_the_secret_of_now() {
    let machine = Machine::start(&ram(), 0, 7);
    let keys = |own: u8| Some(Keys { host: Secret::from([own; 32]), controller: None });
    machine.target.set_keys(HOST, keys(7));
    let host = HostName { keys: keys(7), ..host(HOST) };
    let device = FabricsDevice::connect(&machine.address(), &host, Options::default());
    let device = Arc::new(device.expect("both know the secret"));
    machine.target.set_keys(HOST, keys(8));
    device.set_keys(keys(8));
    let queue = Queue::open(&device, 4);
    assert_eq!(queue.run(vec![read(0, 1)])[0].1, Ok(()));
    assert_eq!(device.reconnects(), 0);
}

#[test]
fn no_listener_at_the_address_is_reported() {
    let machine = Machine::start(&ram(), 0, 7);
    let address = machine.address();
    drop(machine);
    let error = FabricsDevice::connect(&address, &host(HOST), Options::default())
        .expect_err("nobody listens");
    assert!(error.to_string().contains("refused"), "{error}");
}

/// F32 with a restarted target: the target stops during I/O and returns at its address. No request fails.
#[test]
fn f32_a_target_that_restarts_costs_no_request() {
    let ram = ram();
    let machine = Machine::start(&ram, 0, 7);
    let device = connect(&machine);
    let port = device.address().port;
    let queue = Queue::open(&device, 32);
    let first = queue.run(vec![write(0, &pattern(1, 4))]);
    assert_eq!(first[0].1, Ok(()));
    drop(machine);
    let again = std::thread::spawn({
        let ram = ram.clone();
        move || Machine::start(&ram, port, 7)
    });
    let ops = vec![read(0, 4), write(50, &pattern(2, 64)), read(0, 1)];
    for (op, result) in queue.run(ops) {
        assert_eq!(result, Ok(()), "{op:?}");
    }
    let mut medium = vec![0; 64 * BLOCK];
    ram.read_at(50 * BLOCK as u64, &mut medium).expect("on the drive");
    assert_eq!(medium, pattern(2, 64));
    assert_made_again_once(&device);
    drop(again.join());
}

/// Another namespace under the same name must not be written to.
#[test]
fn another_namespace_at_the_address_is_not_taken() {
    let machine = Machine::start(&ram(), 0, 7);
    let options = Options { loss_time: Nanos::default(), ..Options::default() };
    let device = FabricsDevice::connect(&machine.address(), &host(HOST), options);
    let device = Arc::new(device.expect("the target takes us"));
    let port = device.address().port;
    let queue = Queue::open(&device, 4);
    queue.run(vec![read(0, 1)]);
    drop(machine);
    let other = ram();
    let _machine = Machine::start(&other, port, 8);
    let ended = queue.run(vec![write(0, &[1; BLOCK])]);
    assert_eq!(ended[0].1, Err(IoError::new(IoErrorKind::Gone)));
    let mut medium = vec![0; BLOCK];
    other.read_at(0, &mut medium).expect("on the drive");
    assert_eq!(medium, [0; BLOCK]);
    assert!(matches!(device.state(), LinkState::Down(..)));
}

fn until(what: &str, is: impl Fn() -> bool) {
    let ends = Instant::now() + PATIENCE;
    while !is() {
        assert!(Instant::now() < ends, "{what}");
        std::thread::yield_now();
    }
}

/// A queue works as soon as it is connected; the device's state is published when the result is known for all queues.
fn assert_made_again_once(device: &FabricsDevice) {
    until("it is told", || device.state() == LinkState::Up);
    assert_eq!(device.reconnects(), 1);
}

/// Another namespace gets the ID while the association is up: the target reports this, and no further write is sent.
#[test]
fn a_namespace_that_is_swapped_under_its_number_is_noticed() {
    let machine = Machine::start(&ram(), 0, 7);
    // A subsystem remains as long as it has a namespace.
    machine.export(&ram(), 2, 9);
    let options = Options { loss_time: Nanos::default(), ..Options::default() };
    let device = FabricsDevice::connect(&machine.address(), &host(HOST), options);
    let device = Arc::new(device.expect("the target takes us"));
    let queue = Queue::open(&device, 4);
    queue.run(vec![read(0, 1)]);
    machine.target.remove_export(SUBSYSTEM, 1, Removal::Force).expect("it is there");
    let other = ram();
    machine.export(&other, 1, 8);
    until("it is noticed", || matches!(device.state(), LinkState::Down(Reason::Replaced, _)));
    let ended = queue.run(vec![write(0, &[1; BLOCK])]);
    assert_eq!(ended[0].1, Err(IoError::new(IoErrorKind::Gone)));
    let mut medium = vec![0; BLOCK];
    other.read_at(0, &mut medium).expect("on the drive");
    assert_eq!(medium, [0; BLOCK]);
}

#[test]
fn queues_are_given_back_when_they_are_closed() {
    let machine = Machine::start(&ram(), 0, 7);
    let device = connect(&machine);
    for round in 0..40 {
        let queue = Queue::open(&device, 4);
        let ended = queue.run(vec![read(round, 1)]);
        assert_eq!(ended[0].1, Ok(()));
    }
    let open: Vec<_> = (0..16).map(|_| device.open_queue(CoreIndex(0), 4)).collect();
    assert!(open.iter().all(Result::is_ok));
    assert!(device.open_queue(CoreIndex(0), 4).is_err(), "no more than the target grants");
}
