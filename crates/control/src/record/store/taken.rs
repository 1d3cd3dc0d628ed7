//! Records of drives that are taken from the kernel.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use strake_dev_nvme::Identity;
use strake_dev_nvme::host::SCHEME;

use super::Config;

/// The intended state of a recorded drive, recorded before the first step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Aim {
    /// The drive will be bound to vfio-pci for the first time. After a failure, the steps are undone and the record is
    /// removed.
    Take,
    /// The drive is taken, and is bound to vfio-pci again at every start.
    #[default]
    Taken,
    /// The drive is taken, and is being bound to vfio-pci again.
    Again,
    /// The drive will be returned to the kernel, and its record removed.
    Release,
}

/// A drive that is taken from the kernel, or is being taken or released.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TakenRecord {
    /// Serial number of the controller, which identifies the record.
    pub(crate) serial: String,
    /// Model, if known.
    #[serde(default)]
    pub(crate) model: String,
    /// Worldwide name of the first namespace, if known.
    #[serde(default)]
    pub(crate) wwid: String,
    /// Last known PCI address.
    pub(crate) address: String,
    /// The intended state.
    pub(crate) aim: Aim,
    /// The boot of the host in which the intent was recorded.
    #[serde(default)]
    pub(crate) boot: String,
}

impl TakenRecord {
    /// Creates the record of the drive `identity` at `address`, with an intent of the boot `boot`.
    pub(crate) fn new(identity: Identity, address: String, aim: Aim, boot: String) -> Self {
        let Identity { serial, model, wwid } = identity;
        Self { serial, model, wwid, address, aim, boot }
    }

    /// Returns the identity of the drive.
    pub(crate) fn identity(&self) -> Identity {
        let (serial, model) = (self.serial.clone(), self.model.clone());
        Identity { serial, model, wwid: self.wwid.clone() }
    }

    /// True if the drive is taken, regardless of its present driver.
    pub(crate) fn is_taken(&self) -> bool {
        matches!(self.aim, Aim::Taken | Aim::Again)
    }
}

impl Config {
    /// Returns the record of the controller with this serial number.
    pub(crate) fn taken_of(&self, serial: &str) -> Option<&TakenRecord> {
        self.taken.iter().find(|record| record.serial == serial)
    }

    /// Returns the record of the controller that was last recorded at this address.
    pub(crate) fn taken_at(&self, address: &str) -> Option<&TakenRecord> {
        self.taken.iter().rev().find(|record| record.address == address)
    }

    /// Returns the paths of taken drives.
    pub(crate) fn taken_paths(&self) -> Vec<String> {
        let taken = self.taken.iter().filter(|record| record.is_taken());
        taken.map(|record| format!("{SCHEME}{}", record.address)).collect()
    }

    /// Records a controller, and replaces its earlier record.
    pub(crate) fn put_taken(&mut self, record: TakenRecord) {
        self.taken.retain(|known| known.serial != record.serial);
        self.taken.push(record);
    }

    /// Removes the record of the controller with this serial number.
    pub(crate) fn drop_taken(&mut self, serial: &str) {
        self.taken.retain(|known| known.serial != serial);
    }

    /// True if an array or a spare is recorded with the drive at `path`.
    pub(crate) fn names_path(&self, path: &str) -> bool {
        let of_arrays = self.arrays.iter().any(|array| {
            array.drives.iter().any(|drive| drive == path)
                || array.copies.iter().any(|copy| copy.path == path)
                || array.silent.iter().any(|silent| silent.path == path)
        });
        of_arrays || self.spares.iter().any(|spare| spare.path == path)
    }

    /// Records controllers that have moved to other addresses at the same time: `moved` contains their new records. A
    /// controller that was not found, and whose last address is one of the new addresses, is recorded at an address
    /// that became free. Otherwise two controllers with one address would have one path in the record of an array.
    pub(crate) fn move_taken(&mut self, mut moved: Vec<TakenRecord>) {
        let before = self.taken.clone();
        let is_at = |records: &[TakenRecord], address: &str| {
            records.iter().any(|record| record.address == address)
        };
        let (gone, stay): (Vec<_>, Vec<_>) = before
            .iter()
            .cloned()
            .partition(|known| moved.iter().any(|new| new.serial == known.serial));
        let left = gone.into_iter().map(|record| record.address);
        let mut left: Vec<String> = left.filter(|address| !is_at(&stay, address)).collect();
        left.retain(|address| !is_at(&moved, address));
        let mut displaced = stay;
        displaced.retain(|known| is_at(&moved, &known.address));
        for (known, address) in displaced.into_iter().zip(left) {
            moved.push(TakenRecord { address, ..known });
        }
        let mut paths = BTreeMap::new();
        for new in moved {
            let old = before.iter().find(|known| known.serial == new.serial);
            // If two controllers are recorded at a path, the path belongs to the one that stays there.
            let is_alone = |old: &&TakenRecord| {
                let mut others = before.iter().filter(|other| other.serial != new.serial);
                !others.any(|other| other.address == old.address)
            };
            if let Some(old) = old.filter(is_alone) {
                let (old, new) = (&old.address, &new.address);
                paths.insert(format!("{SCHEME}{old}"), format!("{SCHEME}{new}"));
            }
            self.put_taken(new);
        }
        self.move_paths(&paths);
    }

    /// Updates paths. `moved` contains the new path of each old path.
    fn move_paths(&mut self, moved: &BTreeMap<String, String>) {
        let follow = |path: &mut String| {
            if let Some(new) = moved.get(path) {
                path.clone_from(new);
            }
        };
        for array in &mut self.arrays {
            array.drives.iter_mut().for_each(follow);
            array.copies.iter_mut().for_each(|copy| follow(&mut copy.path));
            array.silent.iter_mut().for_each(|silent| follow(&mut silent.path));
        }
        self.spares.iter_mut().for_each(|spare| follow(&mut spare.path));
    }
}
