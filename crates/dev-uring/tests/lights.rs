//! Slots and their LEDs, on hosts that are reproduced in a folder: an enclosure of SAS drives, PCIe enclosure
//! management on a port and on drives, Intel VMD, and hot-plug slots.

use std::fs;
use std::ops::Deref;
use std::path::Path;
use std::time::Duration;

use strake_dev_uring::{Machine, Named, Pattern, Slot};
use strake_testkit::Folder;

/// A host in a folder.
struct Host(Folder);

impl Deref for Host {
    type Target = Folder;

    fn deref(&self) -> &Folder {
        &self.0
    }
}

impl Host {
    fn new() -> Self {
        let root = Folder::new("strake-lights");
        fs::create_dir_all(root.join("sys/block")).expect("a folder can be made");
        Self(root)
    }

    fn machine(&self) -> Machine {
        Machine::at(&self.0)
    }

    /// Adds a PCI function at `folder` below the devices, with a driver other than the kernel's NVMe driver.
    fn function(&self, folder: &str) -> String {
        let device = format!("sys/devices/{folder}");
        let address = folder.rsplit('/').next().expect("it has a name");
        self.put(&format!("{device}/class"), "0x010802");
        self.link(&format!("sys/bus/pci/devices/{address}"), &device);
        self.link(&format!("{device}/driver"), "sys/bus/pci/drivers/vfio-pci");
        device
    }

    /// As [`function`](Self::function), with the kernel's driver and a namespace.
    fn nvme(&self, folder: &str, number: u32) -> String {
        let device = self.function(folder);
        fs::remove_file(self.join(&device).join("driver")).expect("it was there");
        self.link(&format!("{device}/driver"), "sys/bus/pci/drivers/nvme");
        let controller = format!("{device}/nvme/nvme{number}");
        let block = format!("{controller}/nvme{number}n1");
        self.put(&format!("{controller}/serial"), &format!("S{number}"));
        self.put(&format!("{block}/size"), "131072");
        self.put(&format!("{block}/wwid"), &format!("eui.{number}"));
        self.link(&format!("{block}/device"), &controller);
        self.link(&format!("sys/block/nvme{number}n1"), &block);
        device
    }

    /// Adds the LEDs of the kernel for the indications of `address` at `device`.
    fn npem(&self, device: &str, address: &str, indications: &[&str]) {
        for indication in indications {
            self.put(&format!("{device}/leds/{address}:enclosure:{indication}/brightness"), "0");
            self.put(
                &format!("{device}/leds/{address}:enclosure:{indication}/max_brightness"),
                "1",
            );
        }
    }

    fn drive_slot(&self, name: &str) -> Slot {
        let machine = self.machine();
        match machine.find(name) {
            Named::One(drive) => machine.slot_of(&drive),
            other => panic!("{name} is {other:?}"),
        }
    }

    fn pci_slot(&self, address: &str) -> Slot {
        self.machine().slot_at(address).expect("there is such a function")
    }
}

/// Shows every pattern after every other one, and compares the content of `files` with `want`. A file that already has
/// the right value is written only if it is an LED: a line of the kernel ends with a newline, a written value does not.
fn check(host: &Host, slot: &Slot, files: &[String], want: impl Fn(Pattern) -> Vec<&'static str>) {
    let light = slot.light.as_ref().expect("it has a light");
    assert!(light.is_there());
    for (first, then) in Pattern::ALL.iter().flat_map(|a| Pattern::ALL.map(|b| (*a, b))) {
        for (file, value) in files.iter().zip(want(first)) {
            host.put(file, value);
        }
        light.show(then, Duration::MAX).expect("it can be switched");
        for ((file, was), is) in files.iter().zip(want(first)).zip(want(then)) {
            let text = fs::read_to_string(host.join(file)).expect("it can be read");
            let is_left = was == is && light.backend() != "npem";
            let expected = if is_left { format!("{is}\n") } else { is.to_owned() };
            assert_eq!(text, expected, "{file}: {first:?}, then {then:?}");
        }
    }
}

fn on(condition: bool) -> &'static str {
    if condition { "1" } else { "0" }
}

/// A SAS drive behind an expander whose enclosure is managed by the kernel module `ses`.
#[test]
fn an_element_of_an_enclosure_has_locate_and_fault_exhaustive() {
    let host = Host::new();
    let device = "sys/devices/pci0000:00/0000:00:03.0/0000:02:00.0/host0/port-0:0/expander-0:0/target0:0:7/0:0:7:0";
    let enclosure = "sys/devices/pci0000:00/0000:00:03.0/0000:02:00.0/host0/target0:0:8/0:0:8:0/enclosure/0:0:8:0";
    let element = &format!("{enclosure}/Slot 07");
    for attribute in ["active", "fault", "locate"] {
        host.put(&format!("{element}/{attribute}"), "0");
    }
    host.put(&format!("{element}/status"), "OK");
    host.put(&format!("{device}/block/sda/size"), "131072");
    host.link(&format!("{device}/block/sda/device"), device);
    host.link(&format!("{device}/enclosure_device:Slot 07"), element);
    host.link("sys/block/sda", &format!("{device}/block/sda"));
    // The slot of the controller is not the slot of the drive.
    host.put("sys/bus/pci/slots/2/address", "0000:02:00");
    host.put("sys/bus/pci/slots/2/attention", "0");
    let slot = host.drive_slot("sda");
    assert_eq!(slot.name, "enclosure 0:0:8:0 Slot 07");
    let files = ["locate", "fault"].map(|attribute| format!("{element}/{attribute}"));
    check(&host, &slot, &files, |pattern| {
        vec![on(pattern == Pattern::Locate), on(pattern == Pattern::Fail)]
    });
    assert_eq!(host.get(&format!("{element}/active")), "0");
    assert_eq!(host.get("sys/bus/pci/slots/2/attention"), "0");
    let light = slot.light.expect("it has one");
    assert_eq!((light.backend(), light.seen(Pattern::Rebuild)), ("ses", Pattern::Off));
    fs::remove_file(host.join(element).join("fault")).expect("it was there");
    let light = host.drive_slot("sda").light.expect("it can be located still");
    assert_eq!(light.seen(Pattern::Fail), Pattern::Off, "there is nothing to show it with");
    light.show(Pattern::Fail, Duration::ZERO).expect("there is nothing to write");
}

const INDICATIONS: [Pattern; 8] = [
    Pattern::Ok,
    Pattern::Locate,
    Pattern::Fail,
    Pattern::Rebuild,
    Pattern::Pfa,
    Pattern::Hotspare,
    Pattern::Ica,
    Pattern::Ifa,
];

/// A server whose firmware has `_DSM` for the ports of its backplane; the drive has any driver, or none.
#[test]
fn enclosure_management_of_the_port_shows_every_pattern_exhaustive() {
    let host = Host::new();
    let port = "sys/devices/pci0000:5a/0000:5a:01.0/0000:5b:00.0/0000:5c:08.0";
    host.nvme("pci0000:5a/0000:5a:01.0/0000:5b:00.0/0000:5c:08.0/0000:5d:00.0", 0);
    host.function("pci0000:5a/0000:5a:01.0/0000:5b:00.0/0000:5c:09.0/0000:5e:00.0");
    let words: Vec<&str> =
        INDICATIONS.iter().map(|p| p.word()).chain(["idt", "disabled"]).collect();
    host.npem(port, "0000:5c:08.0", &words);
    host.npem(&port.replace("08.0", "09.0"), "0000:5c:09.0", &words);
    // A port of a switch is further up, which several slots share.
    host.npem("sys/devices/pci0000:5a/0000:5a:01.0", "0000:5a:01.0", &words);
    host.put("sys/bus/pci/slots/12/address", "0000:5d:00");
    host.put("sys/bus/pci/slots/12/attention", "0");
    let files = |at: &str, address: &str| {
        INDICATIONS
            .map(|p| format!("{at}/leds/{address}:enclosure:{}/brightness", p.word()))
            .to_vec()
    };
    let want = |pattern| INDICATIONS.iter().map(|led| on(pattern == *led)).collect();
    let slot = host.drive_slot("nvme0n1");
    assert_eq!(
        (slot.name.as_str(), slot.light.as_ref().map(|l| l.backend())),
        ("PCI slot 12", Some("npem"))
    );
    assert_eq!(
        slot,
        host.pci_slot("0000:5d:00.0"),
        "its name and light do not depend on the driver"
    );
    check(&host, &slot, &files(port, "0000:5c:08.0"), want);
    assert_eq!(host.get("sys/bus/pci/slots/12/attention"), "0");
    assert_eq!(host.get(&format!("{port}/leds/0000:5c:08.0:enclosure:disabled/brightness")), "0");
    let taken = host.pci_slot("0000:5e:00.0");
    check(&host, &taken, &files(&port.replace("08.0", "09.0"), "0000:5c:09.0"), want);
}

/// Drives with the NPEM capability, some of which have few indications.
#[test]
fn enclosure_management_of_the_drive_shows_what_it_has_exhaustive() {
    let host = Host::new();
    let device = host.function("pci0000:00/0000:00:01.0/0000:3b:00.0");
    host.npem(&device, "0000:3b:00.0", &["locate", "fail", "rebuild"]);
    let other = host.function("pci0000:00/0000:00:02.0/0000:3c:00.0");
    host.npem(&other, "0000:3c:00.0", &["fail"]);
    let slot = host.pci_slot("0000:3b:00.0");
    assert_eq!(slot.name, "0000:3b:00.0");
    let leds = [Pattern::Locate, Pattern::Fail, Pattern::Rebuild];
    let file =
        |led: Pattern| format!("{device}/leds/0000:3b:00.0:enclosure:{}/brightness", led.word());
    check(&host, &slot, &leds.map(file), |pattern| leds.map(|led| on(pattern == led)).to_vec());
    let light = slot.light.expect("it has one");
    let seen = Pattern::ALL.map(|pattern| light.seen(pattern));
    let dark = |pattern: &Pattern| !leds.contains(pattern);
    assert!(
        seen.iter()
            .zip(Pattern::ALL)
            .all(|(seen, p)| *seen == if dark(&p) { Pattern::Off } else { p })
    );
    assert_eq!(
        host.pci_slot("0000:3c:00.0").light,
        None,
        "one that cannot locate is no light for us"
    );
    fs::remove_dir_all(host.join(&device).join("leds")).expect("they were there");
    assert!(!light.is_there());
    assert!(light.show(Pattern::Locate, Duration::ZERO).is_err());
}

/// Drives behind Intel VMD: the kernel passes the two raw indicator fields on. The value 2 for an attention indicator
/// meant "power indicator reserved, attention blinking", and the backplane showed another pattern.
#[test]
fn a_slot_behind_vmd_takes_raw_indicators_exhaustive() {
    let host = Host::new();
    let folder = "pci0000:e2/0000:e2:00.5/pci10000:e0/10000:e0:02.0/10000:e1:00.0";
    host.nvme(folder, 0);
    host.put("sys/bus/pci/slots/2-1/address", "10000:e1:00");
    host.put("sys/bus/pci/slots/2-1/attention", "0");
    let slot = host.drive_slot("nvme0n1");
    assert_eq!(slot.name, "PCI slot 2-1");
    assert_eq!(slot, host.pci_slot("10000:e1:00.0"));
    let attention = ["sys/bus/pci/slots/2-1/attention".to_owned()];
    check(&host, &slot, &attention, |pattern| match pattern {
        Pattern::Locate => vec!["7"],
        Pattern::Rebuild => vec!["5"],
        Pattern::Fail => vec!["13"],
        _ => vec!["15"],
    });
    let light = slot.light.expect("it has one");
    assert_eq!((light.backend(), light.seen(Pattern::Pfa)), ("vmd", Pattern::Off));
}

/// A hot-plug slot of the platform, with the attention indicator of the PCIe specification.
#[test]
fn a_hot_plug_slot_blinks_to_be_found_and_is_lit_for_a_failure_exhaustive() {
    let host = Host::new();
    host.nvme("pci0000:5a/0000:5a:01.0/0000:5e:00.0", 0);
    host.nvme("pci0000:5a/0000:5a:02.0/0000:5f:00.0", 1);
    host.put("sys/bus/pci/slots/4/address", "0000:5e:00");
    host.put("sys/bus/pci/slots/4/attention", "0");
    host.put("sys/bus/pci/slots/5/address", "0000:5f:00");
    let slot = host.drive_slot("nvme0n1");
    let attention = ["sys/bus/pci/slots/4/attention".to_owned()];
    check(&host, &slot, &attention, |pattern| match pattern {
        Pattern::Locate => vec!["2"],
        Pattern::Fail => vec!["1"],
        _ => vec!["0"],
    });
    assert_eq!(slot.light.expect("it has one").backend(), "attention");
    let without = host.drive_slot("nvme1n1");
    assert_eq!((without.name.as_str(), without.light), ("PCI slot 5", None));
}

#[test]
fn a_slot_has_the_name_of_the_operator_the_slot_or_the_firmware() {
    let host = Host::new();
    let first = host.function("pci0000:00/0000:00:01.0/0000:3b:00.0");
    host.nvme("pci0000:00/0000:00:02.0/0000:3c:00.0", 1);
    let name = |address: &str| host.pci_slot(address).name;
    assert_eq!(
        (name("0000:3b:00.0"), name("0000:3c:00.0")),
        ("0000:3b:00.0".into(), "0000:3c:00.0".into())
    );
    host.put(&format!("{first}/firmware_node/sun"), "21");
    host.put("sys/devices/pci0000:00/0000:00:02.0/firmware_node/sun", "22");
    assert_eq!((name("0000:3b:00.0"), name("0000:3c:00.0")), ("slot 21".into(), "slot 22".into()));
    host.put("sys/bus/pci/slots/7/address", "0000:3b:00");
    assert_eq!(name("0000:3b:00.0"), "PCI slot 7");
    host.put(
        "etc/strake/slots.toml",
        "[slots]\n\"PCI slot 7\" = \"front 1\"\n\"0000:00:02.0\" = \"front 2\"",
    );
    assert_eq!((name("0000:3b:00.0"), name("0000:3c:00.0")), ("front 1".into(), "front 2".into()));
    let Named::One(drive) = host.machine().find("front 2") else {
        panic!("it answers to its slot")
    };
    assert_eq!((drive.slot.as_str(), drive.name.as_str()), ("front 2", "nvme1n1"));
    assert_eq!(host.machine().slot_at("0000:3d:00.0"), None);
    assert_eq!(host.machine().slot_names_trouble(), None);
    host.put("etc/strake/slots.toml", "[slots]\nfront 1");
    assert_eq!(name("0000:3b:00.0"), "PCI slot 7", "a file that is not understood names nothing");
    let trouble = host.machine().slot_names_trouble().expect("it is reported");
    assert!(trouble.contains("slots.toml: line 2"), "{trouble}");
}

/// The kernel switches LEDs in a work queue. The locate pattern was set and cleared before the work ran: the LED was
/// read as off, was not written, and stayed on.
#[test]
fn an_led_whose_work_has_not_run_is_written_and_read_again() {
    let host = Host::new();
    let device = host.function("pci0000:00/0000:00:01.0/0000:3b:00.0");
    host.npem(&device, "0000:3b:00.0", &["locate", "fail"]);
    let light = host.pci_slot("0000:3b:00.0").light.expect("it has one");
    let locate = format!("{device}/leds/0000:3b:00.0:enclosure:locate/brightness");
    let raw = || fs::read_to_string(host.join(&locate)).expect("it can be read");
    light.show(Pattern::Off, Duration::MAX).expect("it can be switched");
    assert_eq!(raw(), "0", "it was written, although it was read as off");
    host.put(&locate, "0");
    light.keep(Pattern::Off, Duration::MAX).expect("there is nothing to do");
    assert_eq!(raw(), "0\n");
    // The kernel accepts the write, and the slot rejects the command.
    fs::remove_file(host.join(&locate)).expect("it was there");
    host.link(&locate, "/dev/null");
    let refused = light.show(Pattern::Locate, Duration::ZERO).expect_err("it stays dark");
    assert!(refused.to_string().contains("locate/brightness does not show"), "{refused}");
}

/// A drive behind a host bus adapter is below the adapter's PCI function. The LED of the adapter's slot must not be
/// used: it would lead to the removal of the adapter with all of its drives.
#[test]
fn a_drive_behind_an_adapter_has_nothing_of_the_adapters_slot() {
    let host = Host::new();
    let drive = |address: &str, class: &str, disk: &str| {
        let device = host.function(&format!("pci0000:00/0000:00:01.0/{address}"));
        host.put(&format!("{device}/class"), class);
        host.npem(&device, address, &["locate", "fail"]);
        host.put(&format!("{device}/firmware_node/sun"), "3");
        host.put(&format!("sys/bus/pci/slots/{disk}/address"), address.trim_end_matches(".0"));
        host.put(&format!("sys/bus/pci/slots/{disk}/attention"), "0");
        let block = format!("{device}/host0/target0:0:0/0:0:0:0/block/{disk}");
        host.put(&format!("{block}/size"), "131072");
        host.link(&format!("sys/block/{disk}"), &block);
        device
    };
    // SAS, AHCI, and virtio SCSI.
    drive("0000:02:00.0", "0x010700", "sda");
    drive("0000:03:00.0", "0x010601", "sdb");
    let virtio = drive("0000:04:00.0", "0x010000", "sdc");
    host.put(&format!("{virtio}/vendor"), "0x1af4");
    host.put(&format!("{virtio}/device"), "0x1048");
    host.put("etc/strake/slots.toml", "[slots]\n\"0000:02:00.0\" = \"adapter\"");
    for disk in ["sda", "sdb", "sdc"] {
        assert_eq!(host.drive_slot(disk), Slot::default(), "{disk}");
    }
    host.put(&format!("{virtio}/device"), "0x1042");
    let slot = host.drive_slot("sdc");
    assert_eq!((slot.name.as_str(), slot.light.is_some()), ("PCI slot sdc", true));
}

/// The kernel reads the sensor of an NVMe drive by a command, and waits for a minute if the drive does not answer.
#[test]
fn drives_are_listed_without_a_question_to_any() {
    let host = Host::new();
    let device = host.nvme("pci0000:00/0000:00:01.0/0000:3b:00.0", 0);
    let machine = host.machine();
    let Named::One(drive) = machine.find("nvme0n1") else { panic!("it is there") };
    host.put(&format!("{device}/nvme/nvme0/hwmon1/temp1_input"), "38850");
    assert_eq!(drive.temperature_c(), Some(38), "it is read when it is asked for");
}

#[test]
fn a_program_that_runs_is_found_by_its_name() {
    let host = Host::new();
    host.put("proc/812/comm", "ledmon");
    host.put("proc/sys/comm", "nothing");
    let machine = host.machine();
    assert!(machine.runs("ledmon") && !machine.runs("nothing") && !machine.runs("led"));
    assert!(!Machine::at(Path::new("/nowhere")).runs("ledmon"));
}
