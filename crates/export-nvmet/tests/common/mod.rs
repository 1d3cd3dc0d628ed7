//! A target with a RAM drive, and a small host that can also violate the protocol. Every wait has a limit, so a target
//! that hangs fails the test.

// Each test binary uses a part of this module.
#![allow(dead_code)]

pub mod faults;

use faults::Released;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use std::collections::BTreeMap;
use std::io::{Error, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;
use strake_block::BlockDevice;
use strake_dev_mem::{FaultPlan, Faulty, RamDevice};
use strake_export_nvmet::{Export, Target, TargetConfig, TlsKey};
use strake_nvme_auth::Names;
use strake_nvme_tcp::pdu::{Digests, IcReq};
use strake_nvme_wire::{Cqe, Sgl, Status};
use strake_reactor::{CoreConfig, CoreHandle, CoreThread};
use strake_tls::channel::Failure;
use strake_tls::{Channel, Client, TlsError};
use strake_units::{BlockSize, CoreIndex, Nanos};

/// Longest wait for the target before the test fails.
const PATIENCE: Duration = Duration::from_secs(30);

/// The number of checks for an event of another thread before a test fails; each check yields the CPU.
const LOOKS_MAX: u32 = 50_000_000;

/// Waits for an event.
pub fn until(what: &str, mut happened: impl FnMut() -> bool) {
    for _ in 0..LOOKS_MAX {
        if happened() {
            return;
        }
        std::thread::yield_now();
    }
    panic!("never happened: {what}");
}

/// The NQNs of the host that may connect, and of the subsystem.
pub const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:host";
pub const SUBSYSTEM: &str = "nqn.2014-08.org.nvmexpress:uuid:ram";

pub const BLOCK: usize = 4096;
/// Blocks of the RAM drive.
pub const BLOCKS: u64 = 4096;

/// The type and the code of a status as one number.
pub const fn code(status: Status) -> u16 {
    (status.code_type() as u16) << 8 | status.code() as u16
}

/// A target on two cores and a port of the kernel's choice.
pub struct Machine {
    // Dropped in this order: a target waits for its drives, and leaves the cores before they stop.
    plan: Released,
    pub target: Target,
    cores: Vec<CoreThread>,
}

impl Machine {
    pub fn start() -> Self {
        Self::with(Arc::new(RamDevice::new(BLOCKS, BlockSize::B4096)))
    }

    pub fn with(device: Arc<dyn BlockDevice>) -> Self {
        Self::set_up(device, Self::patient())
    }

    /// Hosts of tests share one address, and many of them fail on purpose.
    pub fn patient() -> TargetConfig {
        TargetConfig { failed_handshake_time: Nanos(0), ..TargetConfig::default() }
    }

    /// A machine whose drive follows a fault plan.
    pub fn planned(drive: RamDevice) -> (Self, FaultPlan) {
        Self::planned_with(drive, Self::patient())
    }

    /// As [`planned`](Self::planned), with a configuration.
    pub fn planned_with(drive: RamDevice, config: TargetConfig) -> (Self, FaultPlan) {
        let plan = FaultPlan::new(1);
        let mut machine = Self::set_up(Arc::new(Faulty::new(drive, plan.clone())), config);
        machine.plan = Released(plan.clone());
        (machine, plan)
    }

    /// Another drive that follows the fault plan of this machine.
    pub fn planned_drive(&self, drive: RamDevice) -> Arc<dyn BlockDevice> {
        Arc::new(Faulty::new(drive, self.plan.0.clone()))
    }

    pub fn set_up(device: Arc<dyn BlockDevice>, config: TargetConfig) -> Self {
        let cores: Vec<_> = (0..2)
            .map(|index| {
                CoreThread::start(CoreConfig::new(CoreIndex(index))).expect("a core starts")
            })
            .collect();
        let handles = cores.iter().map(CoreThread::handle).collect();
        let address = "127.0.0.1:0".parse().expect("an address");
        let target = Target::start(address, handles, config).expect("the target starts");
        target.add_export(&export(device)).expect("a fresh name can be exported");
        Self { plan: Released(FaultPlan::new(1)), target, cores }
    }

    pub fn dial(&self) -> Host {
        Host::dial(self)
    }

    /// The data cores.
    pub fn handles(&self) -> Vec<CoreHandle> {
        self.cores.iter().map(CoreThread::handle).collect()
    }

    /// True if a data core sleeps.
    pub fn is_asleep(&self, core: CoreIndex) -> bool {
        let found = self.cores.iter().map(CoreThread::handle).find(|known| known.index() == core);
        found.expect("a core of this machine").stats().sleeping
    }

    /// An enabled controller with one I/O queue.
    pub fn controller(&self) -> (Host, Host) {
        let mut admin = Host::asked(self);
        let id = admin.connect(0, 0xffff, 0).expect("a controller") as u16;
        admin.enable();
        let io = self.queue(1, id);
        (admin, io)
    }

    pub fn queue(&self, number: u16, controller: u16) -> Host {
        let mut io = Host::asked(self);
        io.connect(number, controller, 0).expect("an I/O queue");
        io
    }
}

pub fn export(device: Arc<dyn BlockDevice>) -> Export {
    Export {
        nqn: SUBSYSTEM.to_owned(),
        namespace: 1,
        uuid: [7; 16],
        device: Some(device),
        read_only: false,
        ledger: None,
        hosts: vec![HOST.to_owned()],
        secure: false,
        limits: None,
    }
}

/// A PDU of the target.
#[derive(Debug)]
pub struct Pdu {
    pub kind: u8,
    pub header: Vec<u8>,
    pub data: Vec<u8>,
}

pub struct Host {
    pub stream: TcpStream,
    /// The TLS channel, after the handshake.
    channel: Option<Box<Channel>>,
    /// Most data of one TLS record.
    pub record_bytes: usize,
    /// The status of the last command.
    pub said: Status,
    /// The value of every byte of its host identifier.
    pub id: u8,
    cid: u16,
}

impl Host {
    /// Connects and sends nothing.
    pub fn dial(machine: &Machine) -> Self {
        Self::over(TcpStream::connect(machine.target.address()).expect("the target listens"))
    }

    /// As [`dial`](Self::dial), from another local address.
    pub fn dial_from(machine: &Machine, address: Ipv4Addr) -> Self {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None);
        let socket = socket.expect("a socket");
        bind(&socket, &SocketAddr::from((address, 0))).expect("all of 127.0.0.0/8 is here");
        connect(&socket, &machine.target.address()).expect("the target listens");
        Self::over(TcpStream::from(socket))
    }

    fn over(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        stream.set_write_timeout(Some(PATIENCE)).expect("a timeout can be set");
        stream.set_nodelay(true).expect("delays can be switched off");
        let (said, record_bytes) = (Status::SUCCESS, usize::MAX);
        Self { stream, channel: None, record_bytes, said, id: 1, cid: 0 }
    }

    /// Connects and requests a connection without digests.
    pub fn asked(machine: &Machine) -> Self {
        let mut host = Self::dial(machine);
        host.ask();
        host
    }

    /// As [`asked`](Self::asked), for a host with an identifier of its own.
    pub fn asked_by(machine: &Machine, host: &str) -> Self {
        let id = host.bytes().fold(0, u8::wrapping_add);
        Self { id, ..Self::asked(machine) }
    }

    /// Requests a connection without digests.
    pub fn ask(&mut self) {
        let asked = IcReq { alignment: 0, digests: Digests::default(), r2ts_max: 0 };
        self.put(&asked.bytes());
        assert_eq!(self.pdu().map(|pdu| pdu.kind), Some(1), "ICResp");
    }

    pub fn put(&mut self, bytes: &[u8]) {
        let Some(channel) = &mut self.channel else {
            return self.stream.write_all(bytes).expect("the target takes bytes");
        };
        let mut records = Vec::new();
        for mut record in bytes.chunks(self.record_bytes) {
            while !record.is_empty() {
                let result = channel.send(&[IoSlice::new(record)], |bytes| {
                    records.extend(bytes);
                    Ok::<_, ErrorKind>(bytes.len())
                });
                record = &record[result.expect("the channel is open")..];
            }
        }
        self.stream.write_all(&records).expect("the target takes bytes");
    }

    fn fill(&mut self, place: &mut [u8]) -> std::io::Result<()> {
        let Some(channel) = &mut self.channel else { return self.stream.read_exact(place) };
        let mut done = 0;
        while done < place.len() {
            let mut into = [IoSliceMut::new(&mut place[done..])];
            let receive = |room: &mut [u8]| self.stream.read(room).map_err(|error| error.kind());
            channel.begin_turn();
            match channel.receive(&mut into, receive) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => done += count,
                Err(Failure::Paused) => {}
                Err(Failure::Socket(kind)) => return Err(kind.into()),
                Err(Failure::Tls(TlsError::Truncated)) => {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                Err(Failure::Tls(error)) => return Err(Error::other(error)),
            }
        }
        Ok(())
    }

    /// Completes a TLS handshake with keys for these names.
    pub fn secure(
        &mut self,
        key: &TlsKey,
        (host, subsystem): (&str, &str),
    ) -> Result<(), TlsError> {
        let names = Names { host: host.into(), subsystem: subsystem.into() };
        let mut out = Vec::new();
        let mut client = Client::begin(&key.offers(&names)[0], &mut out)?;
        let mut room = [0; 4096];
        loop {
            self.stream.write_all(&out).expect("the target takes bytes");
            out.clear();
            let count = self.stream.read(&mut room).expect("the target answers");
            if count == 0 {
                return Err(TlsError::Truncated);
            }
            if let Some(secured) = client.step(&room[..count], &mut out)? {
                self.stream.write_all(&out).expect("the target takes bytes");
                self.channel = Some(secured.channel);
                return Ok(());
            }
        }
    }

    /// The TLS channel.
    pub fn channel(&mut self) -> &mut Channel {
        self.channel.as_mut().expect("it is secure")
    }

    /// The next PDU; `None` if the target has closed the connection.
    pub fn pdu(&mut self) -> Option<Pdu> {
        let mut common = [0; 8];
        match self.fill(&mut common) {
            Ok(()) => {}
            Err(e) if matches!(e.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => {
                return None;
            }
            Err(error) => panic!("the target says nothing: {error}"),
        }
        let (hlen, total) = (usize::from(common[2]), u32_of(&common[4..]) as usize);
        let mut rest = vec![0; total - 8];
        self.fill(&mut rest).expect("a PDU is sent whole");
        let data = rest.split_off(hlen - 8);
        Some(Pdu { kind: common[0], header: rest, data })
    }

    /// Sends a command without digests and returns its number.
    pub fn send(&mut self, opcode: u8, sgl: Sgl, words: &[(usize, u32)], data: &[u8]) -> u16 {
        self.cid += 1;
        let capsule = capsule(opcode, self.cid, sgl, words, data);
        self.put(&capsule);
        self.cid
    }

    /// The outcome of a command without data from the host: its data, result and status word.
    pub fn finish(&mut self) -> (Vec<u8>, u64, u16) {
        let mut data = Vec::new();
        loop {
            let pdu = self.pdu().expect("the connection stays");
            match pdu.kind {
                7 => data.extend_from_slice(&pdu.data),
                5 => {
                    let bytes: [u8; 16] = pdu.header[..].try_into().expect("a completion");
                    let cqe = Cqe::parse(&bytes);
                    self.said = cqe.status;
                    return (data, cqe.result, cqe.status.word() >> 1 & 0x7ff);
                }
                other => panic!("PDU {other} is not expected"),
            }
        }
    }

    /// Connects a queue; returns the status word on a failure.
    pub fn connect(&mut self, queue: u16, controller: u16, keep_alive_ms: u32) -> Result<u64, u16> {
        self.connect_as((HOST, SUBSYSTEM), queue, controller, keep_alive_ms)
    }

    /// As [`connect`](Self::connect), with other names of the host and the subsystem.
    pub fn connect_as(
        &mut self,
        names: (&str, &str),
        queue: u16,
        controller: u16,
        keep_alive_ms: u32,
    ) -> Result<u64, u16> {
        self.send_connect(names, queue, controller, keep_alive_ms);
        match self.finish() {
            (_, result, 0) => Ok(result),
            (_, _, status) => Err(status),
        }
    }

    /// Sends a Connect command.
    pub fn send_connect(
        &mut self,
        names: (&str, &str),
        queue: u16,
        controller: u16,
        keep_alive_ms: u32,
    ) {
        let mut data = connect_data(names, controller);
        data[..16].fill(self.id);
        let size = if queue == 0 { 31 } else { 127 };
        let words = [(1, 1), (10, u32::from(queue) << 16), (11, size), (12, keep_alive_ms)];
        self.send(0x7f, Sgl::InCapsule { offset: 0, length: 1024 }, &words, &data);
    }

    pub fn enable(&mut self) {
        self.send(0x7f, Sgl::Transport { length: 0 }, &[(11, 0x14), (12, 0x46_0001)], &[]);
        assert_eq!(self.finish().2, 0, "the controller is enabled");
    }

    pub fn write(&mut self, block: u32, data: &[u8]) -> u16 {
        let count = (data.len() / BLOCK) as u32 - 1;
        let length = data.len() as u32;
        let words = [(1, 1), (10, block), (12, count)];
        self.send(1, Sgl::InCapsule { offset: 0, length }, &words, data);
        self.finish().2
    }

    pub fn read(&mut self, block: u32, blocks: u32) -> (Vec<u8>, u16) {
        let length = blocks * BLOCK as u32;
        self.send(2, Sgl::Transport { length }, &[(1, 1), (10, block), (12, blocks - 1)], &[]);
        let (data, _, status) = self.finish();
        (data, status)
    }

    /// Sends a write without its data; returns the CID and the tag of the R2T.
    pub fn announce(&mut self, block: u32, blocks: u32) -> (u16, u16) {
        let length = blocks * BLOCK as u32;
        let words = [(1, 1), (10, block), (12, blocks - 1)];
        let cid = self.send(1, Sgl::Transport { length }, &words, &[]);
        let pdu = self.pdu().expect("the connection stays");
        assert_eq!(pdu.kind, 9, "R2T");
        assert_eq!(u32_of(&pdu.header[8..]), length, "everything is asked for at once");
        (cid, u16::from_le_bytes([pdu.header[2], pdu.header[3]]))
    }

    /// Sends one half of a fused pair, 1 or 2, with its data in the capsule.
    pub fn send_half(&mut self, half: u8, opcode: u8, words: &[(usize, u32)], data: &[u8]) -> u16 {
        self.cid += 1;
        let sgl = Sgl::InCapsule { offset: 0, length: data.len() as u32 };
        let mut capsule = capsule(opcode, self.cid, sgl, words, data);
        capsule[9] |= half;
        self.put(&capsule);
        self.cid
    }

    /// Sends a fused Compare and Write of a block of namespace 1.
    pub fn send_pair(&mut self, block: u32, old: &[u8], new: &[u8]) -> (u16, u16) {
        let words = [(1, 1), (10, block)];
        (self.send_half(1, 5, &words, old), self.send_half(2, 1, &words, new))
    }

    /// The status words of this number of commands without data, by CID.
    pub fn endings(&mut self, count: usize) -> BTreeMap<u16, u16> {
        let mut found = BTreeMap::new();
        while found.len() < count {
            let pdu = self.pdu().expect("the connection stays");
            assert_eq!(pdu.kind, 5, "a completion");
            let bytes: [u8; 16] = pdu.header[..].try_into().expect("a completion");
            let cqe = Cqe::parse(&bytes);
            found.insert(cqe.cid, cqe.status.word() >> 1 & 0x7ff);
        }
        found
    }

    /// Sends a Compare and Write, and returns both status words.
    pub fn compare_and_write(&mut self, block: u32, old: &[u8], new: &[u8]) -> (u16, u16) {
        let (first, second) = self.send_pair(block, old, new);
        let ended = self.endings(2);
        (ended[&first], ended[&second])
    }

    /// Fails unless the target terminates the connection with this status and field.
    pub fn is_ended_because(&mut self, status: u16, field: u32) {
        let pdu = self.pdu().expect("the target says why");
        assert_eq!(pdu.kind, 3, "C2HTermReq");
        let said = (u16::from_le_bytes([pdu.header[0], pdu.header[1]]), u32_of(&pdu.header[2..]));
        assert_eq!(said, (status, field));
        assert!(self.pdu().is_none(), "nothing follows");
    }
}

pub fn u32_of(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// The data of a Connect command.
pub fn connect_data((host, subsystem): (&str, &str), controller: u16) -> Vec<u8> {
    let mut data = vec![0; 1024];
    data[..16].fill(1);
    data[16..18].copy_from_slice(&controller.to_le_bytes());
    data[256..256 + subsystem.len()].copy_from_slice(subsystem.as_bytes());
    data[512..512 + host.len()].copy_from_slice(host.as_bytes());
    data
}

/// A command capsule; `words` are dwords of the command by number.
pub fn capsule(opcode: u8, cid: u16, sgl: Sgl, words: &[(usize, u32)], data: &[u8]) -> Vec<u8> {
    let mut out = vec![4, 0, 72, if data.is_empty() { 0 } else { 72 }];
    out.extend_from_slice(&(72 + data.len() as u32).to_le_bytes());
    let mut sqe = [0; 64];
    sqe[0] = opcode;
    sqe[1] = 0x40;
    sqe[2..4].copy_from_slice(&cid.to_le_bytes());
    sqe[24..40].copy_from_slice(&sgl.bytes());
    for (number, word) in words {
        sqe[number * 4..number * 4 + 4].copy_from_slice(&word.to_le_bytes());
    }
    out.extend_from_slice(&sqe);
    out.extend_from_slice(data);
    out
}

/// The header of an H2CData PDU and its data.
pub fn h2c(cid: u16, tag: u16, offset: u32, length: u32, flags: u8, data: &[u8]) -> Vec<u8> {
    let mut out = vec![6, flags, 24, 24];
    out.extend_from_slice(&(24 + data.len() as u32).to_le_bytes());
    out.extend_from_slice(&cid.to_le_bytes());
    out.extend_from_slice(&tag.to_le_bytes());
    out.extend_from_slice(&offset.to_le_bytes());
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(data);
    out
}
