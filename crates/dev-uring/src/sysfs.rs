//! Properties of a block device in sysfs. A missing attribute counts as "no" (Documentation/ABI/stable/sysfs-block in
//! the kernel's source lists them).

use crate::limits::GRANULE_MAX;
use rustix::fs::{Dev, major, minor};
use std::fs;
use std::path::{Path, PathBuf};
use strake_block::VolatileCache;

/// The sysfs folders of a block device. For a partition, `disk` is the folder of the whole device.
pub(crate) struct BlockSysfs {
    number: String,
    own: PathBuf,
    disk: PathBuf,
}

fn folder(device: Dev) -> PathBuf {
    Path::new("/sys/dev/block").join(format!("{}:{}", major(device), minor(device)))
}

/// The text of an attribute, or `None` if it does not exist, is empty or cannot be read.
pub(crate) fn attribute(folder: &Path, name: &str) -> Option<String> {
    let text = fs::read_to_string(folder.join(name)).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// The sorted names in a folder; empty if it cannot be read.
pub(crate) fn entries(folder: &Path) -> Vec<String> {
    let Ok(found) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let names = found.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

impl BlockSysfs {
    pub(crate) fn of(device: Dev) -> Self {
        let mut found = Self::at(&folder(device));
        found.number = format!("{}:{}", major(device), minor(device));
        found
    }

    /// The device whose sysfs folder, or a link to it, is `folder`.
    pub(crate) fn at(folder: &Path) -> Self {
        // The path is resolved, because the parent of the link is not the parent of the device.
        let own = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
        let disk = match (own.join("partition").exists(), own.parent()) {
            (true, Some(parent)) => parent.to_owned(),
            _ => own.clone(),
        };
        Self { number: attribute(&own, "dev").unwrap_or_default(), own, disk }
    }

    /// Its own folder, with links resolved.
    pub(crate) fn own(&self) -> &Path {
        &self.own
    }

    /// An identity that is the same over every path: the worldwide name, else the serial number, else the device
    /// number, which is unique until a reboot.
    pub(crate) fn identity(&self) -> String {
        let of_disk = |name: &str| attribute(&self.disk, name);
        let drive =
            of_disk("wwid").or_else(|| of_disk("device/wwid")).map(|id| format!("wwid:{id}"));
        let drive = drive.or_else(|| {
            let serial = self.serial()?;
            Some(match of_disk("nsid") {
                Some(namespace) => format!("serial:{serial}:{namespace}"),
                None => format!("serial:{serial}"),
            })
        });
        match (drive, attribute(&self.own, "partition")) {
            (None, _) => format!("block:{}", self.number),
            (Some(drive), None) => drive,
            (Some(drive), Some(partition)) => format!("{drive}:part{partition}"),
        }
    }

    /// The serial number of the whole drive.
    pub(crate) fn serial(&self) -> Option<String> {
        attribute(&self.disk, "device/serial").or_else(|| attribute(&self.disk, "serial"))
    }

    pub(crate) fn is_write_protected(&self) -> bool {
        attribute(&self.own, "ro").as_deref() == Some("1")
    }

    pub(crate) fn can_poll(&self) -> bool {
        attribute(&self.disk, "queue/io_poll").as_deref() == Some("1")
    }

    /// True if the kernel reaches the drive over a network. A namespace that several controllers share is below none of
    /// them: then each of its controllers is checked.
    pub(crate) fn is_remote(&self) -> bool {
        let device = self.disk.join("device");
        let controllers = entries(&device).into_iter().filter(|name| name.starts_with("nvme"));
        let places = std::iter::once(device.clone()).chain(controllers.map(|c| device.join(c)));
        places.filter_map(|place| attribute(&place, "transport")).any(|text| is_network(&text))
    }

    /// Present unless the drive reports that there is none.
    pub(crate) fn cache(&self) -> VolatileCache {
        match attribute(&self.disk, "queue/write_cache").as_deref() {
            Some("write through") => VolatileCache::Absent,
            _ => VolatileCache::Present,
        }
    }

    pub(crate) fn fast_zeroes(&self) -> bool {
        self.bytes("queue/write_zeroes_max_bytes") > 0
    }

    /// Checks that space can be deallocated so that it reads as zeroes; returns the reason if not.
    ///
    /// A discard alone (`BLKDISCARD`) is a hint: a drive may ignore any part of it, and members that ignored different
    /// parts no longer match their parity. Parity can rely only on zeroing that may unmap (`blkdev_issue_zeroout`,
    /// block/blk-lib.c; NVMe: Write Zeroes with DEAC). This function determines whether that unmaps at all.
    pub(crate) fn gives_back(&self) -> Result<(), String> {
        let granule = self.bytes("queue/discard_granularity");
        // Linux 6.17 and later report this. Loop devices punch holes and do not report it.
        let unmaps = match attribute(&self.disk, "queue/write_zeroes_unmap_max_bytes") {
            Some(bytes) => bytes != "0" || self.disk.join("loop").exists(),
            None => true,
        };
        if self.bytes("queue/discard_max_bytes") == 0 {
            Err("it has no discard".to_owned())
        } else if !self.fast_zeroes() {
            Err("it does not promise that it reads as zeroes afterwards".to_owned())
        } else if !unmaps {
            Err("zeroing it frees no space".to_owned())
        } else if granule > GRANULE_MAX {
            Err(format!("it frees units of {granule} bytes only, and {GRANULE_MAX} can be used"))
        } else {
            Ok(())
        }
    }

    pub(crate) fn io_bytes_optimal(&self) -> u32 {
        u32::try_from(self.bytes("queue/optimal_io_size")).unwrap_or(0)
    }

    /// Bytes of a logical block, 0 if unknown.
    pub(crate) fn block_bytes(&self) -> u32 {
        u32::try_from(self.bytes("queue/logical_block_size")).unwrap_or(0)
    }

    /// Capacity in bytes. sysfs counts in units of 512 bytes, independent of the block size.
    pub(crate) fn size_bytes(&self) -> u64 {
        let units = attribute(&self.own, "size").and_then(|text| text.parse::<u64>().ok());
        units.unwrap_or(0).saturating_mul(512)
    }

    fn bytes(&self, name: &str) -> u64 {
        attribute(&self.disk, name).and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    /// The users of the device or of a partition of it, as a phrase, as far as the kernel reports them.
    pub(crate) fn users(&self, uses: &Uses) -> Option<String> {
        let mut numbers = vec![self.number.clone()];
        let mut names: Vec<String> =
            self.own.file_name().iter().map(|name| name.to_string_lossy().into_owned()).collect();
        let mut users: Vec<String> = entries(&self.own.join("holders"));
        for entry in entries(&self.own) {
            let part = self.own.join(&entry);
            if part.join("partition").exists() {
                numbers.extend(attribute(&part, "dev"));
                users.extend(entries(&part.join("holders")));
                names.push(entry);
            }
        }
        let mut users: Vec<String> =
            users.into_iter().map(|name| format!("part of {name}")).collect();
        users.extend(numbers.iter().filter_map(|number| mounted(&uses.mounts, number)));
        users
            .extend(names.iter().any(|name| is_swap(&uses.swaps, name)).then(|| "swap".to_owned()));
        (!users.is_empty()).then(|| users.join(", "))
    }
}

/// The kernel's lists of used block devices.
pub(crate) struct Uses {
    mounts: String,
    swaps: String,
}

impl Uses {
    /// Reads the files in `proc`.
    pub(crate) fn of(proc: &Path) -> Self {
        let text = |name: &str| fs::read_to_string(proc.join(name)).unwrap_or_default();
        Self { mounts: text("self/mountinfo"), swaps: text("swaps") }
    }
}

/// True if the device `name` is in /proc/swaps, whose first field is a path (proc(5)).
fn is_swap(swaps: &str, name: &str) -> bool {
    let paths = swaps.lines().filter_map(|line| line.split_whitespace().next());
    paths.filter_map(|path| path.rsplit('/').next()).any(|last| last == name)
}

/// True if an NVMe transport, as the kernel names it (`transport` of a controller, drivers/nvme/host/sysfs.c), is a
/// network transport. The others are `pcie`, `apple-nvme` and `loop`.
fn is_network(transport: &str) -> bool {
    matches!(transport, "tcp" | "rdma" | "fc")
}

/// The users of a block device or of a partition of it, as a phrase, as far as the kernel reports them.
pub(crate) fn users(device: Dev) -> Option<String> {
    BlockSysfs::of(device).users(&Uses::of(Path::new("/proc")))
}

/// The mount point of device `number`: fields 3 and 5 of /proc/self/mountinfo (proc_pid_mountinfo(5)).
fn mounted(mounts: &str, number: &str) -> Option<String> {
    mounts.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        match fields.as_slice() {
            [_, _, device, _, point, ..] if *device == number => {
                Some(format!("mounted at {point}"))
            }
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::{BlockSysfs, Path, VolatileCache, attribute, is_network, mounted};
    use std::fs;

    /// The result of `look` for a drive with these queue attributes.
    fn of_drive<T>(
        is_loop: bool,
        queue: &[(&str, &str)],
        look: impl FnOnce(&BlockSysfs) -> T,
    ) -> T {
        let name = format!("strake-sysfs-{}-{:?}", std::process::id(), std::thread::current().id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(folder.join("queue")).expect("a folder of our own");
        if is_loop {
            fs::create_dir_all(folder.join("loop")).expect("a folder of our own");
        }
        for (attribute, value) in queue {
            fs::write(folder.join("queue").join(attribute), format!("{value}\n")).expect("a file");
        }
        let answer = look(&BlockSysfs::at(&folder));
        fs::remove_dir_all(&folder).expect("it is ours");
        answer
    }

    /// A cache that is not detected would never be flushed.
    #[test]
    fn a_drive_has_a_cache_unless_it_says_that_it_has_none() {
        let check = |queue: &[(&str, &str)], want: VolatileCache| {
            assert_eq!(of_drive(false, queue, BlockSysfs::cache), want, "{queue:?}");
        };
        check(&[("write_cache", "write through")], VolatileCache::Absent);
        check(&[("write_cache", "write back")], VolatileCache::Present);
        check(&[("write_cache", "")], VolatileCache::Present);
        check(&[("write_cache", "write around")], VolatileCache::Present);
        check(&[], VolatileCache::Present);
    }

    #[test]
    fn space_is_given_back_where_it_reads_as_zeroes_afterwards() {
        let [discard, zero] = ["discard_max_bytes", "write_zeroes_max_bytes"];
        let [unmap, granule] = ["write_zeroes_unmap_max_bytes", "discard_granularity"];
        let check = |is_loop: bool, queue: &[(&str, &str)], want: &str| {
            let answer = of_drive(is_loop, queue, BlockSysfs::gives_back);
            let answer = answer.err().unwrap_or_default();
            assert!(answer.contains(want) && answer.is_empty() == want.is_empty(), "{answer:?}");
        };
        let [most, none] = ["4294966784", "0"];
        check(false, &[(discard, most), (zero, most), (granule, "4096")], "");
        check(false, &[(discard, most), (zero, most), (unmap, "131072"), (granule, "512")], "");
        check(true, &[(discard, most), (zero, most), (unmap, none), (granule, "4096")], "");
        check(false, &[(discard, most), (zero, most), (granule, "131072")], "");
        check(false, &[], "no discard");
        check(false, &[(discard, none), (zero, most), (unmap, most)], "no discard");
        check(false, &[(discard, most), (zero, none), (granule, "4096")], "does not promise");
        check(false, &[(discard, most)], "does not promise");
        check(false, &[(discard, most), (zero, most), (unmap, none)], "frees no space");
        check(false, &[(discard, most), (zero, most), (granule, "262144")], "262144 bytes only");
    }

    /// Drives that the kernel had connected over NVMe/TCP had the time limit of a local drive, which is shorter than a
    /// path failure with a reconnect.
    #[test]
    fn drives_that_the_kernel_reaches_over_a_network_are_recognized() {
        for (transport, network) in [
            ("tcp", true),
            ("rdma", true),
            ("fc", true),
            ("pcie", false),
            ("loop", false),
            ("apple-nvme", false),
            ("", false),
        ] {
            assert_eq!(is_network(transport), network, "{transport}");
        }
        let root = std::env::temp_dir().join(format!("strake-transport-{}", std::process::id()));
        // A namespace of one controller; a namespace that two controllers share; and one of a drive without a
        // controller.
        let check = |name: &str, controllers: &[(&str, &str)], remote| {
            let disk = root.join(name);
            for (controller, transport) in controllers {
                let folder = disk.join("device").join(controller);
                fs::create_dir_all(&folder).expect("a folder can be made");
                fs::write(folder.join("transport"), format!("{transport}\n")).expect("a file");
            }
            fs::create_dir_all(&disk).expect("a folder can be made");
            assert_eq!(BlockSysfs::at(&disk).is_remote(), remote, "{name}");
        };
        check("nvme0n1", &[("", "tcp")], true);
        check("nvme1n1", &[("", "pcie")], false);
        check("nvme2n1", &[("nvme2", "pcie"), ("nvme3", "rdma")], true);
        check("nvme4n1", &[("nvme4", "pcie"), ("nvme5", "pcie")], false);
        check("sda", &[], false);
        fs::remove_dir_all(&root).expect("it can be removed");
    }

    #[test]
    fn mounts_are_found_by_device_number() {
        let text =
            "22 1 254:0 / / rw - ext4 /dev/vda rw\n30 22 7:1 / /mnt rw - ext4 /dev/loop1 rw\n";
        let check = |number: &str, want: Option<&str>| {
            assert_eq!(mounted(text, number).as_deref(), want, "{number}");
        };
        check("254:0", Some("mounted at /"));
        check("7:1", Some("mounted at /mnt"));
        check("7:10", None);
        check("", None);
        assert_eq!(attribute(Path::new("/nowhere"), "ro"), None);
    }
}
