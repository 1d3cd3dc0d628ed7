//! Drives of a host that is reproduced in a folder.

use std::fs;
use std::ops::Deref;
use std::path::Path;

use strake_dev_uring::{KernelDrive, Machine, Named};
use strake_testkit::Folder;

/// A host in a folder.
struct Root(Folder);

impl Deref for Root {
    type Target = Folder;

    fn deref(&self) -> &Folder {
        &self.0
    }
}

impl Root {
    fn new() -> Self {
        let root = Folder::new("strake-machine");
        fs::create_dir_all(root.join("sys/block")).expect("a folder can be made");
        Self(root)
    }

    fn machine(&self) -> Machine {
        Machine::at(&self.0)
    }

    /// Adds an NVMe drive with its own controller; its device node is a file.
    fn nvme(&self, number: u32, pci: &str, serial: &str) -> String {
        let controller = format!("sys/devices/pci0000:00/0000:00:01.0/{pci}/nvme/nvme{number}");
        let block = format!("{controller}/nvme{number}n1");
        self.put(&format!("sys/devices/pci0000:00/0000:00:01.0/{pci}/class"), "0x010802");
        self.put(&format!("{controller}/serial"), serial);
        self.put(&format!("{controller}/model"), "Example 9000");
        self.put(&format!("{controller}/state"), "live");
        self.put(&format!("{controller}/cntrltype"), "io");
        self.put(&format!("{block}/size"), "131072");
        self.put(&format!("{block}/dev"), &format!("259:{number}"));
        self.put(&format!("{block}/nsid"), "1");
        self.put(&format!("{block}/wwid"), &format!("eui.00{serial}"));
        self.put(&format!("{block}/queue/logical_block_size"), "4096");
        self.link(&format!("{block}/device"), &controller);
        self.link(&format!("sys/block/nvme{number}n1"), &block);
        self.link(&format!("sys/class/nvme/nvme{number}"), &controller);
        self.put(&format!("dev/nvme{number}n1"), "");
        controller
    }
}

fn one(machine: &Machine, name: &str) -> KernelDrive {
    match machine.find(name) {
        Named::One(drive) => *drive,
        other => panic!("{name} is {other:?}"),
    }
}

fn path(root: &Root, name: &str) -> String {
    root.join("dev").join(name).display().to_string()
}

#[test]
fn a_drive_answers_to_every_name_it_has() {
    let root = Root::new();
    root.nvme(0, "0000:3b:00.0", "S5AAA");
    root.nvme(1, "0001:5e:00.0", "S5BBB");
    root.link("dev/disk/by-id/nvme-Example_9000_S5AAA", "dev/nvme0n1");
    let machine = root.machine();
    let want = path(&root, "nvme0n1");
    let by_id = root.join("dev/disk/by-id/nvme-Example_9000_S5AAA").display().to_string();
    let names = [
        &want,
        "nvme0n1",
        "S5AAA",
        "S5AAA:1",
        "eui.00S5AAA",
        "wwid:eui.00S5AAA",
        "0000:3b:00.0",
        "3b:00.0",
        "3B:00.0",
        &by_id,
        "nvme-Example_9000_S5AAA",
    ];
    for name in names {
        assert_eq!(one(&machine, name).path, want, "{name}");
    }
    assert_eq!(one(&machine, &want).aliases, [by_id]);
    assert_eq!(one(&machine, "0001:5e:00.0").serial, "S5BBB");
    for name in ["", "5e:00.0", "nvme9n1", "S5", "0000:00:01.0", "/dev/nvme0n1/x"] {
        assert_eq!(machine.find(name), Named::Nothing, "{name}");
    }
}

#[test]
fn what_sysfs_knows_of_a_drive_is_reported() {
    let root = Root::new();
    let controller = root.nvme(0, "0000:3b:00.0", "S5AAA");
    root.put(&format!("{controller}/hwmon3/temp1_input"), "38850");
    root.put("sys/bus/pci/slots/12/address", "0000:3b:00");
    let drive = one(&root.machine(), "nvme0n1");
    assert_eq!((drive.model.as_str(), drive.serial.as_str()), ("Example 9000", "S5AAA"));
    assert_eq!((drive.size_bytes, drive.block_bytes), (64 << 20, 4096));
    assert_eq!(drive.identity, "wwid:eui.00S5AAA");
    assert_eq!((drive.slot.as_str(), drive.temperature_c()), ("PCI slot 12", Some(38)));
    assert_eq!((drive.user, drive.trouble), (None, None));
}

/// Two ports of one drive, without multipath in the kernel: two block devices, one medium.
#[test]
fn f20_a_second_path_to_a_drive_is_the_same_drive() {
    let root = Root::new();
    root.nvme(0, "0000:3b:00.0", "S5AAA");
    root.nvme(1, "0000:5e:00.0", "S5AAA");
    let drives = root.machine().drives();
    assert_eq!(drives.len(), 1, "{drives:?}");
    assert_eq!(drives[0].aliases, [path(&root, "nvme1n1")]);
    for name in ["nvme0n1", "nvme1n1", "5e:00.0", "S5AAA"] {
        assert_eq!(one(&root.machine(), name).path, path(&root, "nvme0n1"), "{name}");
    }
}

/// The same drive with multipath in the kernel: one namespace below a subsystem, with hidden paths.
#[test]
fn a_shared_namespace_is_one_drive_on_two_controllers() {
    let root = Root::new();
    let subsystem = "sys/devices/virtual/nvme-subsystem/nvme-subsys0";
    let block = format!("{subsystem}/nvme0n1");
    for (number, pci) in [(0, "0000:3b:00.0"), (1, "0000:5e:00.0")] {
        let controller = format!("sys/devices/pci0000:00/{pci}/nvme/nvme{number}");
        root.put(&format!("{controller}/address"), pci);
        root.put(&format!("{controller}/state"), "live");
        let hidden = format!("{controller}/nvme0c{number}n1");
        root.put(&format!("{hidden}/hidden"), "1");
        root.put(&format!("{hidden}/size"), "131072");
        root.link(&format!("sys/block/nvme0c{number}n1"), &hidden);
        root.link(&format!("{subsystem}/nvme{number}"), &controller);
        root.link(&format!("sys/class/nvme/nvme{number}"), &controller);
    }
    root.put(&format!("{subsystem}/serial"), "S5AAA");
    root.put(&format!("{block}/size"), "131072");
    root.put(&format!("{block}/wwid"), "uuid.6f1c");
    root.link(&format!("{block}/device"), subsystem);
    root.link("sys/block/nvme0n1", &block);
    let drives = root.machine().drives();
    assert_eq!(drives.len(), 1, "{drives:?}");
    assert_eq!(drives[0].pci, ["0000:3b:00.0", "0000:5e:00.0"]);
    assert_eq!(one(&root.machine(), "5e:00.0").serial, "S5AAA");
}

#[test]
fn a_name_that_several_drives_share_chooses_none() {
    let root = Root::new();
    let controller = root.nvme(0, "0000:3b:00.0", "S5AAA");
    let second = format!("{controller}/nvme0n2");
    root.put(&format!("{second}/size"), "2048");
    root.put(&format!("{second}/nsid"), "2");
    root.put(&format!("{second}/wwid"), "eui.02");
    root.link(&format!("{second}/device"), &controller);
    root.link("sys/block/nvme0n2", &second);
    let machine = root.machine();
    let both = vec![path(&root, "nvme0n1"), path(&root, "nvme0n2")];
    assert_eq!(machine.find("S5AAA"), Named::Several(both.clone()));
    assert_eq!(machine.find("3b:00.0"), Named::Several(both));
    assert_eq!(one(&machine, "S5AAA:2").name, "nvme0n2");
}

#[test]
fn a_drive_that_cannot_be_used_is_reported_with_the_reason() {
    let root = Root::new();
    root.nvme(0, "0000:3b:00.0", "S5AAA");
    root.put("sys/block/nvme0n1/size", "0");
    let dead = "sys/devices/pci0000:00/0000:5e:00.0/nvme/nvme7";
    root.put(&format!("{dead}/state"), "dead");
    root.put(&format!("{dead}/serial"), "S5DEAD");
    root.link("sys/class/nvme/nvme7", dead);
    root.put("sys/block/sdz/size", "0");
    root.put("sys/block/sdz/removable", "1");
    root.put("sys/block/loop0/size", "2048");
    let check = |name: &str, words: &str| {
        let trouble = one(&root.machine(), name).trouble.unwrap_or_default();
        assert!(trouble.contains(words), "{name}: {trouble}");
    };
    check("nvme0n1", "no bytes");
    check("S5DEAD", "dead");
    check("5e:00.0", "dead");
    assert_eq!(root.machine().drives().len(), 2, "no empty reader, no loop device");
}

#[test]
fn a_drive_in_use_says_by_whom() {
    let root = Root::new();
    root.nvme(0, "0000:3b:00.0", "S5AAA");
    root.nvme(1, "0000:5e:00.0", "S5BBB");
    root.put("proc/self/mountinfo", "30 22 259:0 / /data rw - ext4 /dev/nvme0n1 rw");
    root.put("sys/block/nvme1n1/holders/md127/x", "");
    let check = |name: &str, words: &str| {
        let user = one(&root.machine(), name).user.unwrap_or_default();
        assert!(user.contains(words), "{name}: {user}");
    };
    check("nvme0n1", "mounted at /data");
    check("nvme1n1", "part of md127");
}

#[test]
fn a_machine_without_sysfs_has_no_drives() {
    assert_eq!(Machine::at(Path::new("/nowhere")).drives(), []);
}
