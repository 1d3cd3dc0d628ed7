//! Open remote drives.

use std::sync::Arc;

use strake_block::BlockDevice;
use strake_dev_fabrics::{Address, FabricsDevice, LinkState, PathStatus};
use strake_engine::Drive;
use strake_wording::say;

use crate::drives::address::lost_note;
use crate::drives::{DriveKind, Drives, Key, OpenDrive, PathKey};
use crate::error::ControlError;
use crate::remedy::connect;

impl Drives {
    /// Returns the name of the open drive with the path `address`, or the address without such a drive.
    pub(super) fn name_of(&self, address: Address) -> String {
        let mut remotes = self.open.iter().filter_map(|d| d.remote.as_ref());
        let leads = remotes.find(|device| device.paths().iter().any(|p| p.address == address));
        leads.map_or(address, |device| device.address().clone()).to_string()
    }

    /// Returns a connected remote drive. Fails while its connection is lost, because callers read the drive.
    pub(super) fn open_remote(&self, path: String) -> Result<Drive, ControlError> {
        let Some(device) = self.remote(&path) else {
            let what = format!("{path} is not connected; connect it: ");
            return Err(ControlError::state(say(what).run(connect(&path))));
        };
        match device.state() {
            LinkState::Up => {
                let device: Arc<dyn BlockDevice> = Arc::<FabricsDevice>::clone(device);
                Ok(Drive { device, path })
            }
            LinkState::Down(reason, _) => {
                Err(ControlError::state(format!("{path}: {}", lost_note(reason))))
            }
        }
    }

    /// Returns the connected drive at this canonical address.
    #[must_use]
    pub fn remote(&self, path: &str) -> Option<&Arc<FabricsDevice>> {
        self.open.iter().find(|d| d.drive.path == path)?.remote.as_ref()
    }

    /// Returns the state of the paths to each remote drive.
    pub(crate) fn remote_paths(&self) -> Vec<(String, Vec<PathStatus>)> {
        let remotes = self.open.iter().filter_map(|d| Some((&d.drive.path, d.remote.as_ref()?)));
        remotes.map(|(path, device)| (path.clone(), device.paths())).collect()
    }

    /// Returns a key that distinguishes the connection to the remote drive at `path` from later connections; `None`
    /// without a connection.
    pub(crate) fn remote_key(&self, path: &str) -> Option<PathKey> {
        let open = self.open.iter().find(|d| d.drive.path == path)?;
        let device = open.remote.as_ref().filter(|device| device.state() == LinkState::Up)?;
        match open.key {
            Key::Remote(number) => Some((u64::MAX, u64::from(number), device.renewals())),
            Key::Memory(_) | Key::Block(_) | Key::File(..) | Key::Pci(_) => None,
        }
    }

    /// Adds a connected drive.
    pub(crate) fn add_remote(&mut self, path: String, device: Arc<FabricsDevice>) {
        self.memory_made += 1;
        self.open.push(OpenDrive {
            key: Key::Remote(self.memory_made),
            medium: None,
            drive: Drive { device: Arc::<FabricsDevice>::clone(&device), path },
            kind: DriveKind::Remote,
            remote: Some(device),
            local: None,
            pci: None,
            health: None,
            admin: None,
            notices: Vec::new(),
        });
    }

    /// Returns the identities of connected and recorded remote drives, which stay open even if unused.
    pub(crate) fn remote_identities(&self, is_recorded: impl Fn(&str) -> bool) -> Vec<String> {
        let all = self.open.iter().filter(|open| open.kind == DriveKind::Remote);
        let kept = all.filter(|open| is_recorded(&open.drive.path));
        kept.map(|open| open.drive.device.identity()).collect()
    }

    /// Returns the identities of remote drives that may have requests in progress.
    pub(crate) fn owing_remotes(&self) -> Vec<String> {
        let remotes = self.open.iter().filter_map(|open| open.remote.as_ref());
        remotes.filter(|device| device.owes()).map(|device| device.identity()).collect()
    }

    /// Returns every connected remote drive.
    pub(crate) fn remotes(&self) -> Vec<Arc<FabricsDevice>> {
        self.open.iter().filter_map(|open| open.remote.clone()).collect()
    }

    /// Refuses a drive that is open under another address or path.
    pub(crate) fn refuse_duplicate(
        &self,
        path: &str,
        device: &FabricsDevice,
    ) -> Result<(), ControlError> {
        let identity = device.identity();
        let duplicate = self.open.iter().find(|d| d.drive.device.identity() == identity);
        match duplicate {
            None => Ok(()),
            Some(duplicate) => Err(ControlError::refused(format!(
                "{path} is the drive that is already open as {}; all paths to a drive lead to one subsystem and \
                 namespace",
                duplicate.drive.path
            ))),
        }
    }
}
