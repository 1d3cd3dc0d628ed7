//! Hostile clients, and clients that disappear. They must not affect the server: `Bystander` checks, before and after,
//! that another client is served.

mod common;

use common::Host;
use common::client::{Client, request, string};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use strake_block::{
    BlockDevice, DeviceError, DeviceInfo, Extent, ExtentSource, IoErrorKind, IoQueue,
};
use strake_dev_mem::{Effect, FaultPlan, Faulty, Ops, RamDevice, Rule};
use strake_export_nbd::wire::{self, Code, command, option, option_reply};
use strake_export_nbd::{Export, ExportErrorKind, Listen, Removal, Server, ServerConfig, limits};
use strake_reactor::{CoreConfig, CoreThread};
use strake_units::{BlockSize, CoreIndex, Lba, LbaRange, Nanos};

/// Maximum number of checks for the work of another thread before the test fails; each check yields the CPU.
const LOOKS_MAX: u32 = 50_000_000;

fn until(what: &str, mut happened: impl FnMut() -> bool) {
    for _ in 0..LOOKS_MAX {
        if happened() {
            return;
        }
        std::thread::yield_now();
    }
    panic!("never happened: {what}");
}

/// A client that conforms to the protocol.
struct Bystander(Client);

impl Bystander {
    fn of(host: &Host) -> Self {
        Self(Client::simple(&host.socket(), "ram"))
    }

    fn is_served(&mut self) {
        let block = 1 << 20;
        assert_eq!(self.0.write(0, block, &[0x5a; 8192]), 0);
        assert_eq!(self.0.read_simple(block, 8192), Ok(vec![0x5a; 8192]));
    }
}

/// A host with an export `ram` of 64 MiB on a drive whose faults the plan defines.
fn host(config: ServerConfig) -> (Host, RamDevice, FaultPlan) {
    let host = Host::with(config);
    let ram = RamDevice::new(16 << 10, BlockSize::B4096);
    let plan = FaultPlan::new(1);
    host.export("ram", Arc::new(Faulty::new(ram.clone(), plan.clone())));
    (host, ram, plan)
}

/// CVE-2024-7409: a client that kept its socket open while QEMU's server stopped crashed the server. Here clients in
/// every stage keep their sockets open. The stop returns, and all of them see the end of the connection.
#[test]
fn cve_2024_7409_sockets_kept_open_during_stop() {
    let (host, _ram, _plan) = host(ServerConfig::default());
    let socket = host.socket();
    let silent = Client::dial(&socket);
    let greeted = Client::hello(&socket);
    let mut half = Client::hello(&socket);
    half.put(&wire::OPTION_MAGIC.to_be_bytes());
    let idle = Client::simple(&socket, "ram");
    let mut midway = Client::simple(&socket, "ram");
    midway.put(&request(command::WRITE, 0, 1, 0, 1 << 20).bytes());
    midway.put(&[1; 1000]);
    let mut deaf = Client::simple(&socket, "ram");
    for cookie in 0..8 {
        deaf.put(&request(command::READ, 0, cookie, 0, 4 << 20).bytes());
    }
    host.stop();
    for mut client in [silent, greeted, half, idle, midway, deaf] {
        let mut rest = Vec::new();
        let ended = client.stream.read_to_end(&mut rest);
        assert!(ended.is_ok() || ended.is_err_and(|e| e.kind() == ErrorKind::ConnectionReset));
    }
}

/// CVE-2019-14850: nbdkit opened its back end for every client that connected. Here a device is opened only
/// for a client that has finished negotiating.
#[test]
fn cve_2019_14850_back_end_opened_before_negotiation() {
    struct Counted(RamDevice, Arc<std::sync::atomic::AtomicU32>);
    impl BlockDevice for Counted {
        fn info(&self) -> DeviceInfo {
            self.0.info()
        }
        fn open_queue(&self, core: CoreIndex, depth: u32) -> Result<Box<dyn IoQueue>, DeviceError> {
            self.1.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            self.0.open_queue(core, depth)
        }
    }
    let host = Host::start();
    let opened = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let device = Counted(RamDevice::new(64, BlockSize::B512), Arc::clone(&opened));
    host.export("counted", Arc::new(device));
    let mut client = Client::hello(&host.socket());
    client.option(option::LIST, &[]);
    client.option(option::INFO, &[string("counted"), vec![0, 0]].concat());
    client.option(option::STRUCTURED_REPLY, &[]);
    assert_eq!(opened.load(std::sync::atomic::Ordering::SeqCst), 0);
    assert_eq!(client.go("counted"), Ok(()));
    assert_eq!(opened.load(std::sync::atomic::Ordering::SeqCst), 1);
    drop(client);
    host.stop();
}

#[test]
fn a_handshake_has_a_deadline() {
    let config = ServerConfig { handshake_time_max: Nanos(50_000_000), ..ServerConfig::default() };
    let (host, _ram, _plan) = host(config);
    let mut silent = Client::dial(&host.socket());
    assert_eq!(silent.take(wire::GREETING_BYTES), wire::greeting());
    assert!(silent.is_closed());
    // Bytes from the client do not extend the time limit.
    let mut slow = Client::dial(&host.socket());
    slow.take(wire::GREETING_BYTES);
    until("the server gives the slow client up", || slow.stream.write_all(&[0]).is_err());
    Bystander::of(&host).is_served();
    host.stop();
}

#[test]
fn garbage_ends_the_connection_and_nothing_else() {
    let (host, _ram, _plan) = host(ServerConfig::default());
    let mut bystander = Bystander::of(&host);
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    for round in 0..64 {
        let mut garbage = vec![0; 512];
        for byte in &mut garbage {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            *byte = seed as u8;
        }
        let mut client = match round % 3 {
            0 => Client::dial(&host.socket()),
            1 => Client::hello(&host.socket()),
            _ => Client::structured(&host.socket(), "ram"),
        };
        // The server may close the connection during this write.
        let _ = client.stream.write_all(&garbage);
        let mut rest = Vec::new();
        let ended = client.stream.read_to_end(&mut rest);
        assert!(
            ended.is_ok() || ended.is_err_and(|e| e.kind() == ErrorKind::ConnectionReset),
            "round {round}"
        );
    }
    bystander.is_served();
    drop(bystander);
    host.stop();
}

#[test]
fn a_client_that_never_reads_holds_up_only_itself() {
    let (host, _ram, _plan) = host(ServerConfig::default());
    let mut bystander = Bystander::of(&host);
    let mut deaf = Client::simple(&host.socket(), "ram");
    deaf.stream.set_nonblocking(true).expect("a socket can be nonblocking");
    let mut asked = 0_u64;
    let mut refusals = 0;
    // This is much more than the socket and the server can hold; the server must stop accepting requests first.
    while asked < 1_000_000 && refusals < 1000 {
        let bytes = request(command::READ, 0, asked, 0, 64 << 10).bytes();
        match deaf.stream.write(&bytes) {
            Ok(count) if count == bytes.len() => asked += 1,
            Ok(count) => panic!("the kernel took {count} bytes of a request"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                refusals += 1;
                std::thread::yield_now();
            }
        }
    }
    assert_eq!(refusals, 1000, "the server took a million requests nobody waits for");
    bystander.is_served();
    // When the client reads later, it receives all its replies.
    deaf.stream.set_nonblocking(false).expect("a socket can be blocking");
    for _ in 0..asked {
        assert_eq!(deaf.message().error(), 0);
        deaf.take(64 << 10);
    }
    bystander.is_served();
    drop((deaf, bystander));
    host.stop();
}

#[test]
fn a_write_whose_payload_never_arrives_changes_nothing() {
    let (host, ram, _plan) = host(ServerConfig::default());
    for sent in [0, 1, 4096, (1 << 20) - 1] {
        let mut client = Client::simple(&host.socket(), "ram");
        client.put(&request(command::WRITE, 0, 1, 0, 1 << 20).bytes());
        client.put(&vec![0xee; sent]);
        drop(client);
        until("the server lets the client go", || host.server().exports()[0].connections == 0);
        assert_eq!(ram.allocated_bytes(), 0, "{sent} bytes were sent");
    }
    // Of a write longer than one I/O, only whole pieces that arrived may be written.
    let mut client = Client::simple(&host.socket(), "ram");
    client.put(&request(command::WRITE, 0, 1, 0, 4 << 20).bytes());
    client.put(&vec![0xee; (1 << 20) + 4096]);
    drop(client);
    until("the server lets the client go", || host.server().exports()[0].connections == 0);
    let mut there = vec![0; 4 << 20];
    ram.read_at(0, &mut there).expect("it is on the drive");
    assert!(there[1 << 20..].iter().all(|&b| b == 0), "a piece that never arrived was written");
    host.stop();
}

#[test]
fn a_payload_too_large_to_receive_ends_the_connection() {
    let (host, ram, _plan) = host(ServerConfig::default());
    let mut client = Client::structured(&host.socket(), "ram");
    client.put(&request(command::WRITE, 0, 1, 0, (32 << 20) + 4096).bytes());
    assert!(client.is_closed());
    assert_eq!(ram.allocated_bytes(), 0);
    Bystander::of(&host).is_served();
    host.stop();
}

#[test]
fn clients_are_counted() {
    let config = ServerConfig { connections_max: 20, ..ServerConfig::default() };
    let (host, _ram, _plan) = host(config);
    let socket = host.socket();
    let count = limits::CONNECTIONS_PER_EXPORT_MAX;
    let seated: Vec<_> = (0..count).map(|_| Client::simple(&socket, "ram")).collect();
    let mut refused = Client::hello(&socket);
    assert_eq!(refused.go("ram"), Err(option_reply::ERR_POLICY));
    let others: Vec<_> = (count + 1..20).map(|_| Client::hello(&socket)).collect();
    assert!(Client::dial(&socket).is_closed(), "one too many for the server");
    drop(seated);
    until("the seats are free again", || host.server().exports()[0].connections == 0);
    assert_eq!(refused.go("ram"), Ok(()));
    drop((refused, others));
    host.stop();
}

#[test]
fn removing_an_export_waits_for_its_io() {
    let config =
        ServerConfig { drain_time_max: Duration::from_millis(50), ..ServerConfig::default() };
    let (host, ram, plan) = host(config);
    let mut client = Client::simple(&host.socket(), "ram");
    let rule = plan.add(Rule::new(Ops::WRITE, Effect::Hang));
    client.put(&request(command::WRITE, 0, 1, 0, 4096).bytes());
    client.put(&[9; 4096]);
    until("the write is at the device", || plan.struck(rule) == Some(1));
    let kind = |result: Result<(), strake_export_nbd::ExportError>| result.map_err(|e| e.kind);
    let removed = host.server().remove_export("ram", Removal::Force);
    assert_eq!(kind(removed), Err(ExportErrorKind::DrainTimeout));
    // The export is withdrawn, and its name is not free while the device owns its buffers.
    assert_eq!(Client::hello(&host.socket()).go("ram"), Err(option_reply::ERR_UNKNOWN));
    plan.remove(rule);
    plan.release();
    assert_eq!(client.message().error(), 0, "what was begun was finished");
    until("removing succeeds", || host.server().remove_export("ram", Removal::Force).is_ok());
    assert!(client.is_closed());
    let mut there = [0; 4096];
    ram.read_at(0, &mut there).expect("it is on the drive");
    assert_eq!(there, [9; 4096]);
    assert!(host.server().exports().is_empty());
    host.stop();
}

#[test]
fn a_drive_pulled_under_a_client_is_an_error_not_an_end() {
    let (host, _ram, plan) = host(ServerConfig::default());
    let mut client = Client::structured(&host.socket(), "ram");
    assert_eq!(client.write(0, 0, &[1; 4096]), 0);
    plan.vanish();
    assert_eq!(client.write(0, 0, &[2; 4096]), Code::Io as u32);
    assert_eq!(client.read_chunks(0, 0, 4096), Err(Code::Io as u32));
    // A new client is refused, because the device does not open. No other client is affected.
    let mut late = Client::hello(&host.socket());
    late.put_option(option::GO, &[string("ram"), vec![0, 0]].concat());
    assert!(late.is_closed());
    drop(client);
    host.stop();
}

#[test]
fn an_extent_source_that_lies_is_not_believed() {
    struct Liar;
    impl ExtentSource for Liar {
        fn extent(&self, at: Lba, blocks_max: u64) -> Extent {
            let range = match at.0 % 3 {
                0 => LbaRange::new(at, blocks_max + 1),
                1 => LbaRange::new(at, 0),
                _ => LbaRange::new(Lba(at.0 + 1), 1),
            };
            Extent { range, written: false }
        }
    }
    let host = Host::start();
    let export = Export {
        name: "liar".into(),
        description: String::new(),
        device: Arc::new(RamDevice::new(1024, BlockSize::B512)),
        extents: Some(Arc::new(Liar)),
        rights: Arc::default(),
        limits: None,
        read_only: false,
    };
    host.server().add_export(export).expect("a fresh name");
    let mut client = Client::structured(&host.socket(), "liar");
    for offset in [0, 512, 1024] {
        client.put(&request(command::BLOCK_STATUS, 0, 5, offset, 4096).bytes());
        let common::client::Message::Chunk { payload, .. } = client.message() else {
            panic!("a status is a chunk")
        };
        assert_eq!(payload[4..], wire::status_descriptor(4096, 0), "all written, at {offset}");
    }
    drop(client);
    host.stop();
}

/// Starts a server on one core, or returns the kind of the error.
fn start(listen: Listen) -> Result<(Server, CoreThread), ExportErrorKind> {
    let core = CoreThread::start(CoreConfig::new(CoreIndex(0))).expect("a core starts");
    let server = Server::start(listen, vec![core.handle()], ServerConfig::default());
    Ok((server.map_err(|error| error.kind)?, core))
}

#[test]
fn only_local_addresses_are_listened_on() {
    let refused = |listen| start(listen).err();
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:10809"] {
        let address: SocketAddr = address.parse().expect("an address");
        assert_eq!(refused(Listen::Tcp(address)), Some(ExportErrorKind::BadAddress), "{address}");
    }
    let folder = common::Folder::new();
    let path = folder.path("nbd");
    for mode in [0o666, 0o606, 0o770, 0o1600] {
        let listen = Listen::Unix { path: path.clone(), mode };
        assert_eq!(refused(listen), Some(ExportErrorKind::BadAddress), "{mode:o}");
    }
    assert!(!path.exists());
}

#[test]
fn a_loopback_port_serves_too() {
    let address = "127.0.0.1:0".parse().expect("an address");
    let (server, _core) = start(Listen::Tcp(address)).expect("a port is free");
    let address = server.address().expect("it listens on TCP");
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout can be set");
    let mut greeting = [0; wire::GREETING_BYTES];
    stream.read_exact(&mut greeting).expect("it greets");
    assert_eq!(greeting, wire::greeting());
    server.stop().expect("nothing is in flight");
    assert_eq!(stream.read(&mut greeting).expect("it closes"), 0);
}

#[test]
fn a_socket_path_is_private_replaced_when_stale_and_removed() {
    let folder = common::Folder::new();
    let path = folder.path("nbd");
    let mode = |path: &Path| std::fs::metadata(path).expect("it is there").permissions().mode();
    let (server, core) = start(Listen::unix(&path)).expect("the path is free");
    assert_eq!(mode(&path) & 0o7777, 0o600);
    assert_eq!(start(Listen::unix(&path)).err(), Some(ExportErrorKind::Listen), "it is in use");
    server.stop().expect("nothing is in flight");
    drop(core);
    assert!(!path.exists());
    // The stale socket of a killed server is replaced; a file is not.
    drop(UnixListener::bind(&path).expect("the path is free"));
    let kind = std::fs::symlink_metadata(&path).expect("it is left behind").file_type();
    assert!(kind.is_socket());
    let listen = Listen::Unix { path: path.clone(), mode: 0o660 };
    let (server, _core) = start(listen).expect("a stale socket is replaced");
    assert_eq!(mode(&path) & 0o7777, 0o660);
    drop(server);
    std::fs::write(&path, b"precious").expect("the folder is writable");
    assert_eq!(start(Listen::unix(&path)).err(), Some(ExportErrorKind::Listen));
    assert_eq!(std::fs::read(&path).expect("it is untouched"), b"precious");
}

#[test]
fn the_first_failure_of_a_write_is_the_one_reported() {
    let (host, _ram, plan) = host(ServerConfig::default());
    plan.add(Rule::new(Ops::WRITE, Effect::Fail(IoErrorKind::NoSpace)));
    let mut client = Client::simple(&host.socket(), "ram");
    assert_eq!(client.write(0, 0, &vec![1; 16 << 20]), Code::NoSpace as u32);
    plan.clear();
    assert_eq!(client.write(0, 0, &[1; 4096]), 0, "the stream is in step");
    drop(client);
    host.stop();
}
