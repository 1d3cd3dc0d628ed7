//! Peers of a target that mean harm, beside whom others are measured.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use strake_nvme_tcp::Digests;
use strake_nvme_tcp::pdu::{self, CAPSULE_CMD_BYTES, CAPSULE_RESP_BYTES, IC_BYTES, IcReq};
use strake_nvme_wire::fabrics::{
    ANY_CONTROLLER, Configuration, Connect, ConnectData, FlowControl, Property, Width, property,
};
use strake_nvme_wire::nvm::{Blocks, opcode};
use strake_nvme_wire::{Cqe, Sgl, Sqe, nqn};

use super::HOST;
use crate::rig::pass;

/// Longest wait for the target.
const PATIENCE: Duration = Duration::from_secs(10);
/// Commands of a peer that leaves them half done.
const COMMANDS: u16 = 100;
/// Bytes of each.
const COMMAND_BYTES: u32 = 1 << 20;
/// Connections that only begin: most of what the target takes of one address.
const BEGINNERS: usize = 12;
/// Where it is, not where the host beside it is: an address that breaks the protocol is listened to less.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// How long another server rests after a connection: about as long as our target does of an address that floods, so
/// that both turn away as many.
const REST_ELSEWHERE: Duration = Duration::from_millis(18);

/// What a neighbour does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Neighbour {
    /// It asks for 100 MiB and reads none of it.
    NeverReads,
    /// It announces writes of 100 MiB and sends no byte of them.
    NeverSends,
    /// It begins connections and does not go on.
    OnlyBegins,
    /// It connects, breaks the protocol and connects again, without a rest.
    Floods,
    /// It does the same to another server of this machine, which looks at nothing: what its connections cost by
    /// themselves where all share two cores.
    FloodsElsewhere,
}

impl Neighbour {
    pub(super) const ALL: [Self; 5] =
        [Self::NeverReads, Self::NeverSends, Self::OnlyBegins, Self::Floods, Self::FloodsElsewhere];

    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::NeverReads => "one that never reads",
            Self::NeverSends => "one that never sends",
            Self::OnlyBegins => "one that only begins",
            Self::Floods => "one that breaks the protocol again and again",
            Self::FloodsElsewhere => "one that does so at another server",
        }
    }

    /// Begins to do it, to the subsystem at an address.
    pub(super) fn arrive(self, target: SocketAddr, subsystem: &str) -> Result<Present, String> {
        let mut present = Present { _open: Vec::new(), flood: None, elsewhere: None };
        match self {
            Self::NeverReads => present._open = leave_undone(target, subsystem, opcode::READ)?,
            Self::NeverSends => present._open = leave_undone(target, subsystem, opcode::WRITE)?,
            Self::OnlyBegins => {
                let asked = IcReq { alignment: 0, digests: Digests::default(), r2ts_max: 0 };
                for _ in 0..BEGINNERS {
                    let mut peer = Peer::dial(target)?;
                    peer.put(&asked.bytes()[..IC_BYTES / 2])?;
                    present._open.push(peer);
                }
            }
            Self::Floods => present.flood = Some(Flood::begin(target)),
            Self::FloodsElsewhere => {
                let (server, address) = Elsewhere::open().map_err(|e| e.to_string())?;
                present.flood = Some(Flood::begin(address));
                present.elsewhere = Some(server);
            }
        }
        Ok(present)
    }
}

/// A neighbour until it is dropped.
pub(super) struct Present {
    _open: Vec<Peer>,
    flood: Option<Flood>,
    elsewhere: Option<Elsewhere>,
}

impl Drop for Present {
    fn drop(&mut self) {
        // The server first: later connections are refused, so that the flood does not wait.
        drop(self.elsewhere.take());
        if let Some(flood) = self.flood.take() {
            flood.end();
        }
    }
}

struct Flood {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Flood {
    fn begin(target: SocketAddr) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !stopped.load(Relaxed) {
                // A target that refuses is one that defends itself.
                let _ = Peer::dial(target).and_then(|mut peer| {
                    peer.put(&[0xa5; IC_BYTES])?;
                    peer.stream.read_to_end(&mut Vec::new()).map_err(|e| e.to_string())
                });
            }
        });
        Self { stop, thread }
    }

    fn end(self) {
        self.stop.store(true, Relaxed);
        // It has no panic to report.
        let _ = self.thread.join();
    }
}

/// A server that turns everybody away, one after the other, with a rest between them.
struct Elsewhere {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    address: SocketAddr,
}

impl Elsewhere {
    fn open() -> std::io::Result<(Self, SocketAddr)> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !stopped.load(Relaxed) {
                drop(listener.accept());
                pass(REST_ELSEWHERE);
            }
        });
        Ok((Self { stop, thread: Some(thread), address }, address))
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        // This last connection wakes it.
        drop(TcpStream::connect(self.address));
        // It has no panic to report.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Connects a host, and leaves its commands half done.
fn leave_undone(target: SocketAddr, subsystem: &str, opcode: u8) -> Result<Vec<Peer>, String> {
    let mut admin = Peer::dial(target)?;
    let controller = admin.join(subsystem, 0, ANY_CONTROLLER)?;
    let value = Configuration::ENABLED.0.into();
    let enable = Property { offset: property::CC, width: Width::Four, value };
    admin.run(&enable.set(), &[])?;
    let mut io = Peer::dial(target)?;
    io.join(subsystem, 1, controller)?;
    let count = COMMAND_BYTES >> 12;
    let blocks = Blocks { start: 0, count, force_unit_access: false, directive: false };
    for cid in 0..COMMANDS {
        let command = blocks.command(opcode, 1, Sgl::Transport { length: COMMAND_BYTES });
        io.put(&capsule(&command.named(cid), &[]))?;
    }
    Ok(vec![admin, io])
}

fn capsule(sqe: &Sqe, data: &[u8]) -> Vec<u8> {
    let lead = CAPSULE_CMD_BYTES;
    let header = pdu::capsule_cmd(sqe, Digests::default(), lead, data.len() as u32);
    [&header[..], data].concat()
}

/// A connection whose owner writes what it likes.
struct Peer {
    stream: TcpStream,
}

impl Peer {
    fn dial(target: SocketAddr) -> Result<Self, String> {
        let dial = || {
            let flags = SocketFlags::CLOEXEC;
            let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
            // It bounds connecting too (socket(7), SO_SNDTIMEO).
            set_socket_timeout(&socket, Timeout::Send, Some(PATIENCE))?;
            bind(&socket, &SocketAddr::from((ADDRESS, 0)))?;
            connect(&socket, &target)?;
            Ok(TcpStream::from(socket))
        };
        let stream = dial().map_err(|e: rustix::io::Errno| e.to_string())?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(|e| e.to_string())?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(|e| e.to_string())?;
        Ok(Self { stream })
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.stream.write_all(bytes).map_err(|e| e.to_string())
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes).map_err(|e| e.to_string())?;
        Ok(bytes)
    }

    fn run(&mut self, sqe: &Sqe, data: &[u8]) -> Result<Cqe, String> {
        self.put(&capsule(sqe, data))?;
        let cqe = pdu::completion_of(&self.take::<CAPSULE_RESP_BYTES>()?);
        if cqe.status.is_success() { Ok(cqe) } else { Err(cqe.status.to_string()) }
    }

    /// Makes it a queue of a controller, and says of which.
    fn join(&mut self, subsystem: &str, queue: u16, controller: u16) -> Result<u16, String> {
        self.put(&IcReq { alignment: 0, digests: Digests::default(), r2ts_max: 0 }.bytes())?;
        self.take::<IC_BYTES>()?;
        let name = |text: &str| nqn::field(text).map_err(|_| "no name of a host".to_owned());
        let data = ConnectData {
            host_id: [2; 16],
            controller,
            subsystem: name(subsystem)?,
            host: name(HOST)?,
        };
        let size = if queue == 0 { 31 } else { 127 };
        let flow_control = FlowControl::Off;
        let connect = Connect { format: 0, queue, size, flow_control, keep_alive_ms: 0 };
        Ok(self.run(&connect.command(), &data.bytes())?.result as u16)
    }
}
