//! A target behind a proxy that may change its PDUs: tests use it as a hostile target that is otherwise correct.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use strake_block::DeviceError;
use strake_dev_fabrics::discovery::{Offers, discover};
use strake_dev_fabrics::{Address, Digests, FabricsDevice, HostName, Options};
use strake_dev_mem::RamDevice;
use strake_export_nvmet::{Export, Keys, Removal, Target, TargetConfig};
use strake_reactor::{CoreConfig, CoreThread};
use strake_units::{BlockSize, CoreIndex};

const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:host";
const SUBSYSTEM: &str = "nqn.2014-08.org.nvmexpress:uuid:ram";

/// A rule for the PDUs of a connection: it receives the number and the bytes of each. The returned bytes are sent
/// instead.
pub type Rule = Box<dyn FnMut(usize, Vec<u8>) -> Passed + Send>;

/// The outcome of a PDU.
pub enum Passed {
    /// These bytes are sent instead.
    On(Vec<u8>),
    /// These bytes are sent instead, and then the connection is closed.
    Last(Vec<u8>),
}

/// A target and its proxy.
pub struct Hostile {
    proxy: std::net::SocketAddr,
    rule: Arc<Mutex<Option<Rule>>>,
    stopping: Arc<AtomicBool>,
    keys: Option<Keys>,
    listener: Option<JoinHandle<()>>,
    // Dropped in this order: the target leaves the core before that stops.
    target: Target,
    _core: CoreThread,
}

impl Hostile {
    pub fn new() -> Self {
        let core = CoreThread::start(CoreConfig::new(CoreIndex(0))).expect("a core starts");
        let listen = "127.0.0.1:0".parse().expect("an address");
        let target = Target::start(listen, vec![core.handle()], TargetConfig::default());
        let target = target.expect("the target starts");
        for namespace in [1, 2] {
            export(&target, namespace, namespace as u8);
        }
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let proxy = listener.local_addr().expect("it has an address");
        let rule = Arc::new(Mutex::new(None));
        let stopping = Arc::new(AtomicBool::new(false));
        let (rules, stopped, behind) = (Arc::clone(&rule), Arc::clone(&stopping), target.address());
        let listener = std::thread::spawn(move || {
            while let Ok((host, _)) = listener.accept()
                && !stopped.load(Ordering::Relaxed)
            {
                let target = TcpStream::connect(behind).expect("the target listens");
                let rule = rules.lock().unwrap_or_else(PoisonError::into_inner).take();
                between(host, target, rule);
            }
        });
        Self { proxy, rule, stopping, keys: None, listener: Some(listener), target, _core: core }
    }

    /// Requires mutual authentication of the host and the target.
    #[allow(dead_code, reason = "not every test program does")]
    pub fn set_keys(&mut self, keys: Keys) {
        self.target.set_keys(HOST, Some(keys.clone()));
        self.keys = Some(keys);
    }

    /// Replaces the namespace that hosts connect to by another one.
    #[allow(dead_code, reason = "not every test program does")]
    pub fn swap(&self) {
        self.target.remove_export(SUBSYSTEM, 1, Removal::Force).expect("it is there");
        export(&self.target, 1, 9);
    }

    /// Connects a host with `digests`, to whose first connection `rule` applies.
    #[allow(dead_code, reason = "not every test program does")]
    pub fn connect(&self, digests: Digests, rule: Rule) -> Result<FabricsDevice, DeviceError> {
        self.follow(rule);
        let address: Address =
            format!("nvme-tcp://{}/{SUBSYSTEM}", self.proxy).parse().expect("an address");
        FabricsDevice::connect(&address, &self.host(), Options { digests, ..Options::default() })
    }

    /// Queries the discovery service, with the same use of `rule`.
    #[allow(dead_code, reason = "not every test program does")]
    pub fn discover(&self, digests: Digests, rule: Rule) -> Result<Offers, DeviceError> {
        self.follow(rule);
        let service = format!("nvme-tcp://{}", self.proxy).parse().expect("a discovery service");
        discover(&service, &self.host(), digests)
    }

    fn follow(&self, rule: Rule) {
        *self.rule.lock().unwrap_or_else(PoisonError::into_inner) = Some(rule);
    }

    fn host(&self) -> HostName {
        HostName { nqn: HOST.to_owned(), id: [3; 16], keys: self.keys.clone(), tls: None }
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        // The connect ends a wait in `accept`.
        let _ = TcpStream::connect(self.proxy);
        let _ = self.listener.take().map(JoinHandle::join);
    }
}

fn export(target: &Target, namespace: u32, uuid: u8) {
    let export = Export {
        nqn: SUBSYSTEM.to_owned(),
        namespace,
        uuid: [uuid; 16],
        device: Some(Arc::new(RamDevice::new(4096, BlockSize::B4096))),
        read_only: false,
        ledger: None,
        hosts: vec![HOST.to_owned()],
        secure: false,
        limits: None,
    };
    target.add_export(&export).expect("a fresh number can be exported");
}

/// Forwards bytes in both directions until one side closes.
fn between(host: TcpStream, target: TcpStream, rule: Option<Rule>) {
    for stream in [&host, &target] {
        stream.set_nodelay(true).expect("delays can be switched off");
    }
    let clone = |stream: &TcpStream| stream.try_clone().expect("a descriptor is free");
    let (mut from_host, mut to_target) = (clone(&host), clone(&target));
    std::thread::spawn(move || {
        // Either end may close at any time.
        let _ = std::io::copy(&mut from_host, &mut to_target);
        let _ = to_target.shutdown(Shutdown::Both);
    });
    std::thread::spawn(move || {
        let (mut from_target, mut to_host) = (target, host);
        let mut rule = rule.unwrap_or_else(|| Box::new(|_, pdu| Passed::On(pdu)));
        for number in 0.. {
            let Some(pdu) = next(&mut from_target) else { break };
            let (bytes, more) = match rule(number, pdu) {
                Passed::On(bytes) => (bytes, true),
                Passed::Last(bytes) => (bytes, false),
            };
            if to_host.write_all(&bytes).is_err() || !more {
                break;
            }
        }
        let _ = to_host.shutdown(Shutdown::Write);
        let _ = from_target.shutdown(Shutdown::Both);
    });
}

/// The next PDU of the correct target.
fn next(target: &mut TcpStream) -> Option<Vec<u8>> {
    let mut pdu = vec![0; 8];
    target.read_exact(&mut pdu).ok()?;
    let total = u32::from_le_bytes([pdu[4], pdu[5], pdu[6], pdu[7]]);
    pdu.resize(total as usize, 0);
    target.read_exact(&mut pdu[8..]).ok()?;
    Some(pdu)
}
