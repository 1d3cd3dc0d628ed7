//! Drives that are taken from the kernel, as they are recorded.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use strake_dev_nvme::Identity;
use strake_dev_nvme::host::SCHEME;

use super::Config;

/// Where a recorded drive is on its way to. It is recorded before the first step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Aim {
    /// To be bound to vfio-pci. It was not yet: what fails is undone, and the drive is forgotten.
    Take,
    /// Taken, and bound to vfio-pci again at every start.
    #[default]
    Taken,
    /// Taken, and being bound to vfio-pci again.
    Again,
    /// To be given back to the kernel, and forgotten then.
    Release,
}

/// A drive that is taken from the kernel, or on its way there or back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TakenRecord {
    /// Serial number of the controller, which identifies it among the recorded ones.
    pub(crate) serial: String,
    /// Its model, as far as it is known.
    #[serde(default)]
    pub(crate) model: String,
    /// The worldwide name of its first namespace, as far as it is known.
    #[serde(default)]
    pub(crate) wwid: String,
    /// Its PCI address when it was last seen.
    pub(crate) address: String,
    /// Where it is on its way to.
    pub(crate) aim: Aim,
    /// The boot of the host in which it was recorded that it is on its way.
    #[serde(default)]
    pub(crate) boot: String,
}

impl TakenRecord {
    /// The drive `identity` at `address` is on its way, since the boot `boot`.
    pub(crate) fn new(identity: Identity, address: String, aim: Aim, boot: String) -> Self {
        let Identity { serial, model, wwid } = identity;
        Self { serial, model, wwid, address, aim, boot }
    }

    /// What identifies the drive.
    pub(crate) fn identity(&self) -> Identity {
        let (serial, model) = (self.serial.clone(), self.model.clone());
        Identity { serial, model, wwid: self.wwid.clone() }
    }

    /// Whether it is taken, at whatever driver it is now.
    pub(crate) fn is_taken(&self) -> bool {
        matches!(self.aim, Aim::Taken | Aim::Again)
    }
}

impl Config {
    /// The record of the controller with this serial number.
    pub(crate) fn taken_of(&self, serial: &str) -> Option<&TakenRecord> {
        self.taken.iter().find(|record| record.serial == serial)
    }

    /// The record of the controller that was last recorded at this address.
    pub(crate) fn taken_at(&self, address: &str) -> Option<&TakenRecord> {
        self.taken.iter().rev().find(|record| record.address == address)
    }

    /// Paths of the drives that are taken.
    pub(crate) fn taken_paths(&self) -> Vec<String> {
        let taken = self.taken.iter().filter(|record| record.is_taken());
        taken.map(|record| format!("{SCHEME}{}", record.address)).collect()
    }

    /// Records a controller, in place of what was recorded of it.
    pub(crate) fn put_taken(&mut self, record: TakenRecord) {
        self.taken.retain(|known| known.serial != record.serial);
        self.taken.push(record);
    }

    /// Forgets the controller with this serial number.
    pub(crate) fn drop_taken(&mut self, serial: &str) {
        self.taken.retain(|known| known.serial != serial);
    }

    /// Whether an array or a spare is recorded with the drive at `path`.
    pub(crate) fn names_path(&self, path: &str) -> bool {
        let of_arrays = self.arrays.iter().any(|array| {
            array.drives.iter().any(|drive| drive == path)
                || array.copies.iter().any(|copy| copy.path == path)
                || array.silent.iter().any(|silent| silent.path == path)
        });
        of_arrays || self.spares.iter().any(|spare| spare.path == path)
    }

    /// Controllers are at other addresses than before, all at once: `moved` are their new records. A controller that
    /// was not found, and was last at one of the new addresses, is recorded at an address that they left: two
    /// controllers with one address would get one path in the record of an array.
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
            // A path at which two are recorded is that of the one that stays there.
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

    /// `moved` has the new path of each old one.
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
