//! The drives of the host as the kernel reports them, without opening one.
//!
//! The attributes are documented in the kernel's Documentation/ABI: stable/sysfs-block, testing/sysfs-nvme,
//! stable/sysfs-class-enclosure, testing/sysfs-class-led, and in drivers/nvme/host/sysfs.c.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::slot_names::SlotNames;
use crate::sysfs::{BlockSysfs, Uses, attribute, entries};

/// Kernel devices that are not drives: memory, loop devices, and devices that other software has built.
const NOT_DRIVES: [&str; 9] = ["ram", "loop", "zram", "dm-", "md", "nbd", "sr", "fd", "ublk"];

/// The folders of the kernel's information about drives: those of the host, or a test directory.
#[derive(Clone, Debug)]
pub struct Machine {
    sys: PathBuf,
    dev: PathBuf,
    proc: PathBuf,
    etc: PathBuf,
}

impl Default for Machine {
    fn default() -> Self {
        Self::at(Path::new("/"))
    }
}

/// A drive as the kernel reports it. A drive with several paths is listed once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelDrive {
    /// The kernel's name, such as `nvme0n1`.
    pub name: String,
    /// Its device node.
    pub path: String,
    /// The identity of the medium, which is the same over every path.
    pub identity: String,
    /// The manufacturer's model name; empty if unknown.
    pub model: String,
    /// The manufacturer's serial number; empty if unknown.
    pub serial: String,
    /// The NVMe namespace ID.
    pub namespace: Option<u32>,
    /// The addresses of its PCI functions, such as `0000:3b:00.0`; several if it has several ports.
    pub pci: Vec<String>,
    /// The name of its slot: see [`Slot::name`](crate::Slot::name).
    pub slot: String,
    /// Capacity in bytes.
    pub size_bytes: u64,
    /// Bytes of a block, 0 if unknown.
    pub block_bytes: u32,
    /// Other paths of the same drive.
    pub aliases: Vec<String>,
    /// The current user of the drive, as a phrase.
    pub user: Option<String>,
    /// The reason why it cannot be used, as far as this is known without reading it.
    pub trouble: Option<String>,
    /// Its folder in sysfs.
    pub(crate) folder: PathBuf,
}

/// The result of a lookup of a drive by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Named {
    /// No drive of this host.
    Nothing,
    /// This drive.
    One(Box<KernelDrive>),
    /// Several drives, by path, because they share the name.
    Several(Vec<String>),
}

impl Machine {
    /// A host whose /sys, /dev, /proc and /etc are in `root`.
    #[must_use]
    pub fn at(root: &Path) -> Self {
        let [sys, dev, proc, etc] = ["sys", "dev", "proc", "etc"].map(|folder| root.join(folder));
        Self { sys, dev, proc, etc }
    }

    pub(crate) fn sys(&self) -> &Path {
        &self.sys
    }

    pub(crate) fn proc(&self) -> &Path {
        &self.proc
    }

    pub(crate) fn etc(&self) -> &Path {
        &self.etc
    }

    /// The sorted names of block devices and of NVMe controllers, without details; this is cheap.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let mut names = entries(&self.sys.join("block"));
        names.extend(entries(&self.sys.join("class/nvme")));
        names
    }

    /// Every drive, sorted by name. Unusable drives are included, with the reason.
    #[must_use]
    pub fn drives(&self) -> Vec<KernelDrive> {
        let names = self.slot_names();
        let mut drives = self.block_devices_in(&names);
        drives.extend(self.dead_controllers(&names));
        drives
    }

    /// Drives with a block device, sorted by name.
    #[must_use]
    pub fn block_devices(&self) -> Vec<KernelDrive> {
        self.block_devices_in(&self.slot_names())
    }

    fn block_devices_in(&self, names: &SlotNames) -> Vec<KernelDrive> {
        let links = self.links();
        let uses = Uses::of(&self.proc);
        let mut drives: Vec<KernelDrive> = Vec::new();
        for name in entries(&self.sys.join("block")) {
            if NOT_DRIVES.iter().any(|prefix| name.starts_with(prefix)) {
                continue;
            }
            let Some(mut drive) = self.drive(&name, &uses, names) else { continue };
            drive.aliases = links.get(&PathBuf::from(&drive.path)).cloned().unwrap_or_default();
            // Two paths to one medium have the same size as well; the size usually distinguishes drives whose
            // manufacturer gave all of them one serial number.
            let same = drives
                .iter_mut()
                .find(|d| d.identity == drive.identity && d.size_bytes == drive.size_bytes);
            match same {
                Some(first) => first.merge(drive),
                None => drives.push(drive),
            }
        }
        drives
    }

    /// The drive with the name `name`: a path of it, the kernel's name, its serial number, with `:NAMESPACE` if a drive
    /// has several, its worldwide name, its PCI address or a name in /dev/disk.
    #[must_use]
    pub fn find(&self, name: &str) -> Named {
        let mut found: Vec<KernelDrive> =
            self.drives().into_iter().filter(|drive| drive.answers_to(name)).collect();
        match (found.pop(), found.len()) {
            (None, _) => Named::Nothing,
            (Some(one), 0) => Named::One(Box::new(one)),
            (Some(last), _) => {
                let mut paths: Vec<String> = found.into_iter().map(|drive| drive.path).collect();
                paths.push(last.path);
                Named::Several(paths)
            }
        }
    }

    /// True if `path` is in the folder of device nodes, whether it exists or not.
    #[must_use]
    pub fn has_node(&self, path: &str) -> bool {
        Path::new(path).starts_with(&self.dev)
    }

    /// The drive whose device node is at `path`, or at the end of links from there. `None` if this is not a device node
    /// of a drive of this host, for example a regular file.
    #[must_use]
    pub fn at_node(&self, path: &str) -> Option<KernelDrive> {
        let node = fs::canonicalize(path).ok().filter(|node| node.starts_with(&self.dev))?;
        let node = node.display().to_string();
        let is_node = |drive: &KernelDrive| drive.path == node || drive.aliases.contains(&node);
        self.drives().into_iter().find(is_node)
    }

    fn drive(&self, name: &str, uses: &Uses, names: &SlotNames) -> Option<KernelDrive> {
        let block = BlockSysfs::at(&self.sys.join("block").join(name));
        let folder = block.own().to_owned();
        let is = |what: &str| attribute(&folder, what).as_deref() == Some("1");
        // Skips a path of a multipath NVMe namespace, which has a device of its own, and a card reader without a card.
        if is("hidden") || (is("removable") && block.size_bytes() == 0) {
            return None;
        }
        let text = |what: &str| attribute(&folder, what).unwrap_or_default();
        let pci = pci_addresses(&folder);
        let size_bytes = block.size_bytes();
        Some(KernelDrive {
            name: name.to_owned(),
            // The kernel replaces the slash of a name in a subfolder of /dev by an exclamation mark.
            path: self.dev.join(name.replace('!', "/")).display().to_string(),
            identity: block.identity(),
            model: text("device/model"),
            serial: block.serial().unwrap_or_default(),
            namespace: attribute(&folder, "nsid").and_then(|id| id.parse().ok()),
            slot: self.slot(&folder, &pci, names).name,
            pci,
            size_bytes,
            block_bytes: block.block_bytes(),
            aliases: Vec::new(),
            user: block.users(uses),
            trouble: (size_bytes == 0).then(|| "it says that it holds no bytes".to_owned()),
            folder,
        })
    }

    /// NVMe controllers without a namespace: the visible rest of a failed drive.
    fn dead_controllers(&self, names: &SlotNames) -> Vec<KernelDrive> {
        let class = self.sys.join("class/nvme");
        let mut dead = Vec::new();
        for name in entries(&class) {
            let link = class.join(&name);
            let folder = fs::canonicalize(&link).unwrap_or(link);
            // `nvme0n1`, or `nvme0c0n1` for one path of several.
            let is_namespace = |entry: &String| {
                entry.strip_prefix("nvme").is_some_and(|number| number.contains('n'))
            };
            let shows = entries(&folder).iter().any(is_namespace);
            let state = attribute(&folder, "state").unwrap_or_default();
            if shows
                || (state == "live" && attribute(&folder, "cntrltype").as_deref() != Some("io"))
            {
                continue;
            }
            let text = |what: &str| attribute(&folder, what).unwrap_or_default();
            let pci = pci_addresses(&folder);
            let serial = text("serial");
            dead.push(KernelDrive {
                path: self.dev.join(&name).display().to_string(),
                identity: if serial.is_empty() {
                    format!("controller:{name}")
                } else {
                    format!("serial:{serial}")
                },
                model: text("model"),
                serial,
                slot: self.slot(&folder, &pci, names).name,
                pci,
                trouble: Some(format!(
                    "its controller is {} and shows no namespace",
                    if state.is_empty() { "silent" } else { &state }
                )),
                name,
                folder,
                ..KernelDrive::default()
            });
        }
        dead
    }

    /// Names in /dev/disk, by the device node that they lead to.
    fn links(&self) -> BTreeMap<PathBuf, Vec<String>> {
        let mut links: BTreeMap<PathBuf, Vec<String>> = BTreeMap::new();
        let disk = self.dev.join("disk");
        for folder in ["by-id", "by-path"] {
            let folder = disk.join(folder);
            for name in entries(&folder) {
                let link = folder.join(name);
                if let Ok(target) = fs::canonicalize(&link) {
                    links.entry(target).or_default().push(link.display().to_string());
                }
            }
        }
        links
    }
}

impl KernelDrive {
    /// Degrees Celsius. The kernel queries the drive and waits for it, for a minute if it does not answer.
    #[must_use]
    pub fn temperature_c(&self) -> Option<i32> {
        temperature(&self.folder)
    }

    /// Adds another path to the same medium.
    fn merge(&mut self, other: Self) {
        self.aliases.push(other.path);
        self.aliases.extend(other.aliases);
        self.pci.extend(other.pci);
        self.user = self.user.take().or(other.user);
    }

    fn answers_to(&self, name: &str) -> bool {
        let last = |path: &String| path.rsplit('/').next() == Some(name);
        let paths = || std::iter::once(&self.path).chain(&self.aliases);
        let own = [&self.name, &self.serial, &self.identity, &self.slot];
        let numbered = self.namespace.map(|number| format!("{}:{number}", self.serial));
        !name.is_empty()
            && (own.into_iter().any(|own| own == name)
                || self.identity.strip_prefix("wwid:") == Some(name)
                || self.pci.iter().any(|pci| is_pci(pci, name))
                || (!self.serial.is_empty() && numbered.as_deref() == Some(name))
                || paths().any(|path| path == name || last(path)))
    }
}

/// True if `name` is this PCI address, with its domain or, for domain 0, without.
fn is_pci(pci: &str, name: &str) -> bool {
    pci.eq_ignore_ascii_case(name)
        || pci.strip_prefix("0000:").is_some_and(|short| short.eq_ignore_ascii_case(name))
}

/// The PCI addresses of a device. A namespace that several controllers share is below none of them: then the addresses
/// of its controllers are used.
fn pci_addresses(folder: &Path) -> Vec<String> {
    let mut names = folder.iter().rev().filter_map(|name| name.to_str());
    if let Some(nearest) = names.find(|name| is_pci_address(name)) {
        return vec![nearest.to_owned()];
    }
    let device = folder.join("device");
    let controllers = entries(&device).into_iter().filter(|name| name.starts_with("nvme"));
    let mut addresses: Vec<String> =
        controllers.filter_map(|name| attribute(&device.join(name), "address")).collect();
    addresses.retain(|address| is_pci_address(address));
    addresses.dedup();
    addresses
}

/// `domain:bus:device.function`, all hexadecimal.
pub(crate) fn is_pci_address(name: &str) -> bool {
    let parts: Vec<&str> = name.split([':', '.']).collect();
    let hex = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    parts.len() == 4 && name.matches(':').count() == 2 && parts.iter().all(hex)
}

/// Degrees of the drive's own sensor, which hwmon reports in thousandths (Documentation/hwmon/sysfs-interface.rst).
fn temperature(folder: &Path) -> Option<i32> {
    let device = folder.join("device");
    let mut places = vec![device.clone(), device.join("hwmon"), device.join("device/hwmon")];
    let controllers = entries(&device).into_iter().filter(|name| name.starts_with("nvme"));
    places.extend(controllers.map(|name| device.join(name)));
    let sensors = places.iter().flat_map(|place| {
        let here = entries(place).into_iter();
        here.filter(|name| name.starts_with("hwmon") && name.len() > 5).map(|name| place.join(name))
    });
    let mut degrees =
        sensors.filter_map(|sensor| attribute(&sensor, "temp1_input")?.parse::<i32>().ok());
    degrees.next().map(|thousandths| thousandths / 1000)
}
