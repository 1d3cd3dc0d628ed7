//! Slots and their lights, on machines that are laid out in a folder as kernels show them: an enclosure of SAS drives,
//! PCIe enclosure management on a port and on drives, Intel VMD, hot-plug slots, and a program of the operator's.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use strake_dev_uring::{Machine, Named, Pattern, Slot};
use strake_testkit::Folder;

/// A machine in a folder.
struct Host(Folder);

impl Host {
    fn new() -> Self {
        let root = Folder::new("strake-lights");
        fs::create_dir_all(root.join("sys/block")).expect("a folder can be made");
        Self(root)
    }

    fn machine(&self) -> Machine {
        Machine::at(&self.0)
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().expect("it is in a folder"))
            .expect("a folder can be made");
        fs::write(path, format!("{text}\n")).expect("a file can be written");
    }

    fn get(&self, path: &str) -> String {
        let text = fs::read_to_string(self.0.join(path)).expect("it can be read");
        text.trim().to_owned()
    }

    fn link(&self, at: &str, to: &str) {
        let at = self.0.join(at);
        fs::create_dir_all(at.parent().expect("it is in a folder")).expect("a folder can be made");
        symlink(self.0.join(to), at).expect("a link can be made");
    }

    /// A PCI function at `folder` below the devices, with a driver other than the kernel's for NVMe.
    fn function(&self, folder: &str) -> String {
        let device = format!("sys/devices/{folder}");
        let address = folder.rsplit('/').next().expect("it has a name");
        self.put(&format!("{device}/class"), "0x010802");
        self.link(&format!("sys/bus/pci/devices/{address}"), &device);
        self.link(&format!("{device}/driver"), "sys/bus/pci/drivers/vfio-pci");
        device
    }

    /// The same with the kernel's driver and a namespace.
    fn nvme(&self, folder: &str, number: u32) -> String {
        let device = self.function(folder);
        fs::remove_file(self.0.join(&device).join("driver")).expect("it was there");
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

    /// LEDs that the kernel makes for the indications of `address` at `device`.
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

/// Shows every pattern after every other one, and compares what is in `files` then with `want`. What holds already what
/// it should is not written: the kernel's line ends with a newline, which ours do not.
fn check(host: &Host, slot: &Slot, files: &[String], want: impl Fn(Pattern) -> Vec<&'static str>) {
    let light = slot.light.as_ref().expect("it has a light");
    assert!(light.is_there());
    for (first, then) in Pattern::ALL.iter().flat_map(|a| Pattern::ALL.map(|b| (*a, b))) {
        for (file, value) in files.iter().zip(want(first)) {
            host.put(file, value);
        }
        light.show(then).expect("it can be switched");
        for ((file, was), is) in files.iter().zip(want(first)).zip(want(then)) {
            let text = fs::read_to_string(host.0.join(file)).expect("it can be read");
            let expected = if was == is { format!("{is}\n") } else { is.to_owned() };
            assert_eq!(text, expected, "{file}: {first:?}, then {then:?}");
        }
    }
}

fn on(condition: bool) -> &'static str {
    if condition { "1" } else { "0" }
}

/// A SAS drive behind an expander whose enclosure the kernel's module `ses` has.
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
    // The controller's own slot is not the drive's.
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
    fs::remove_file(host.0.join(element).join("fault")).expect("it was there");
    let light = host.drive_slot("sda").light.expect("it can be located still");
    assert_eq!(light.seen(Pattern::Fail), Pattern::Off, "there is nothing to show it with");
    light.show(Pattern::Fail).expect("there is nothing to write");
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
    // Further up is the port of a switch, which several slots share.
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

/// Drives with the NPEM capability of their own, of which some have few indications.
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
    fs::remove_dir_all(host.0.join(&device).join("leds")).expect("they were there");
    assert!(!light.is_there());
    assert!(light.show(Pattern::Locate).is_err());
}

/// Drives behind Intel VMD: the kernel passes the two indicator fields on as they are. Written as for an attention
/// indicator, 2 was "power indicator reserved, attention blinking", and the backplane showed another pattern.
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

/// A hot-plug slot of the platform, with the attention indicator that the PCIe specification describes.
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

#[test]
fn a_program_switches_what_the_kernel_cannot() {
    let host = Host::new();
    host.function("pci0000:00/0000:00:01.0/0000:3b:00.0");
    let device = host.function("pci0000:00/0000:00:02.0/0000:3c:00.0");
    host.npem(&device, "0000:3c:00.0", &["locate"]);
    let (program, said) = (host.0.join("led"), host.0.join("said"));
    let script = format!("#!/bin/sh\necho \"$1:$2:$HOME\" >>{}\n[ $2 != pfa ]", said.display());
    host.put("led", &script);
    let allow = |mode| {
        fs::set_permissions(&program, fs::Permissions::from_mode(mode)).expect("it is ours");
    };
    allow(0o755);
    let names = "[slots]\n\"0000:3b:00.0\" = \"bay 3\"";
    host.put("etc/strake/slots.toml", &format!("led_command = \"{}\"\n{names}", program.display()));
    let light = host.pci_slot("0000:3b:00.0").light.expect("the program is its light");
    assert_eq!(light.backend(), "led_command");
    for pattern in Pattern::ALL {
        assert_eq!(light.show(pattern).is_err(), pattern == Pattern::Pfa, "{pattern:?}");
        assert_eq!(light.seen(pattern), pattern);
    }
    let want: Vec<String> = Pattern::ALL.iter().map(|p| format!("bay 3:{}:", p.word())).collect();
    assert_eq!(fs::read_to_string(&said).expect("it ran").lines().collect::<Vec<_>>(), want);
    assert_eq!(host.pci_slot("0000:3c:00.0").light.map(|l| l.backend()), Some("npem"));
    allow(0o775);
    let refused = light.show(Pattern::Ok).expect_err("its group could change it").to_string();
    assert!(refused.contains("only root"), "{refused}");
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
