//! A server with RAM drives, for tests of whole connections.

// Each test binary uses a different part of this module.
#![allow(dead_code)]

pub mod client;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use strake_block::BlockDevice;
use strake_dev_mem::RamDevice;
use strake_export_nbd::{Export, Listen, Server, ServerConfig};
use strake_reactor::{CoreConfig, CoreThread};
use strake_units::{BlockSize, CoreIndex};

/// A directory that is removed at the end of the test.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("strake-nbd-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary directory can be made");
        Self(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server on two cores and a unix socket.
pub struct Host {
    // The fields are dropped in this order: the server leaves the cores before they stop.
    server: Option<Server>,
    cores: Vec<CoreThread>,
    pub folder: Folder,
}

impl Host {
    pub fn start() -> Self {
        Self::with(ServerConfig::default())
    }

    pub fn with(config: ServerConfig) -> Self {
        let cores: Vec<_> = (0..2)
            .map(|index| {
                CoreThread::start(CoreConfig::new(CoreIndex(index))).expect("a core starts")
            })
            .collect();
        let handles = cores.iter().map(CoreThread::handle).collect();
        let folder = Folder::new();
        let listen = Listen::unix(folder.path("nbd"));
        let server = Server::start(listen, handles, config).expect("the server starts");
        Self { server: Some(server), cores, folder }
    }

    pub fn server(&self) -> &Server {
        self.server.as_ref().expect("the server runs until it is stopped")
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path("nbd")
    }

    pub fn export(&self, name: &str, device: Arc<dyn BlockDevice>) {
        self.server()
            .add_export(Export {
                name: name.to_owned(),
                description: format!("test export {name}"),
                device,
                extents: None,
                rights: Arc::default(),
                limits: None,
                read_only: false,
            })
            .expect("a fresh name can be exported");
    }

    /// A host with one RAM drive of `mib` MiB under the name `ram`.
    pub fn with_ram(mib: u64, block: BlockSize) -> (Self, RamDevice) {
        let host = Self::start();
        let ram = RamDevice::new((mib << 20) >> block.shift(), block);
        host.export("ram", Arc::new(ram.clone()));
        (host, ram)
    }

    pub fn stop(mut self) {
        let server = self.server.take().expect("stopped once");
        server.stop().expect("a RAM drive completes everything");
    }
}
