//! Hosts in a folder, with a simulated kernel.

use super::{Binder, Claims, Host, Identity, Kernel, Untaken};
use std::any::Any;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use strake_block::{DeviceError, IoErrorKind};
use strake_testkit::{Folder, PciHost};

const ADDRESS: &str = "0000:3b:00.0";

/// A kernel that logs writes.
#[derive(Debug)]
struct Fake {
    root: PathBuf,
    host: PciHost,
    /// The log: writes, and ended claims.
    done: Arc<Mutex<Vec<String>>>,
    is_up: bool,
}

/// A claim that logs its end.
struct Held(Arc<Mutex<Vec<String>>>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.lock().expect("no test has failed").push("closed".to_owned());
    }
}

impl Kernel for Fake {
    fn write(&self, file: &Path, text: &str) -> io::Result<()> {
        let file =
            file.strip_prefix(&self.root).expect("it is below the root").display().to_string();
        self.host.write(&file, text)?;
        let name = file.rsplit('/').next().unwrap_or_default().to_owned();
        self.done.lock().expect("no test has failed").push(name);
        Ok(())
    }

    fn claim(&self, node: &Path) -> io::Result<Box<dyn Any + Send>> {
        if node.ends_with("busy") {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        Ok(Box::new(Held(Arc::clone(&self.done))))
    }

    fn identify(&self, _: &Host, address: &str) -> Result<Identity, DeviceError> {
        if self.is_up {
            return Ok(named(&self.host.get(address, "serial")));
        }
        Err(DeviceError::new(IoErrorKind::Device, address, "does not become ready"))
    }

    fn await_closed(&self, _: &str) -> bool {
        true
    }
}

fn named(serial: &str) -> Identity {
    Identity { serial: serial.to_owned(), ..Identity::default() }
}

struct World {
    _folder: Folder,
    host: PciHost,
    binder: Binder,
    done: Arc<Mutex<Vec<String>>>,
}

impl World {
    fn new(is_up: bool) -> Self {
        let folder = Folder::new("nvme-bind");
        let host = PciHost::at(&folder);
        host.add_nvme(ADDRESS, 0, "S1");
        let done = Arc::new(Mutex::new(Vec::new()));
        let (root, fake) = (folder.to_path_buf(), host.clone());
        let kernel = Fake { root, host: fake, done: Arc::clone(&done), is_up };
        let binder = Binder::new(Host::at(&folder), Arc::new(kernel));
        Self { _folder: folder, host, binder, done }
    }

    fn claims(&self) -> Claims {
        self.binder.claim(&[PathBuf::from("/dev/nvme0n1")]).expect("it is free")
    }

    fn take(&self, serial: &str, claims: Claims) -> Result<(), Untaken> {
        let seen = self.binder.host().picture(ADDRESS).expect("it is there");
        self.binder.take(&seen, &named(serial), claims)
    }

    fn done(&self) -> Vec<String> {
        std::mem::take(&mut *self.done.lock().expect("no test has failed"))
    }

    fn state(&self) -> (Option<String>, String) {
        (self.host.driver(ADDRESS), self.host.get(ADDRESS, "driver_override"))
    }
}

fn on(driver: &str, only: &str) -> (Option<String>, String) {
    (Some(driver.to_owned()), only.to_owned())
}

#[test]
fn a_controller_is_taken_and_released_and_both_are_idempotent() {
    let world = World::new(true);
    for expected in [&["driver_override", "unbind", "drivers_probe", "closed"][..], &["closed"]] {
        world.take("S1", world.claims()).expect("it is taken");
        assert_eq!(world.done(), expected);
        assert_eq!(world.state(), on("vfio-pci", "vfio-pci"));
    }
    for expected in [&["unbind", "driver_override", "drivers_probe"][..], &[]] {
        world.binder.release(ADDRESS).expect("it is released");
        assert_eq!(world.done(), expected);
        assert_eq!(world.state(), on("nvme", "(null)"));
    }
}

/// A drive that was bound only by its address may be another drive.
#[test]
fn another_serial_number_and_a_dead_controller_are_refused_and_can_be_undone() {
    for (is_up, serial, words) in [
        (true, "S2", "has the serial number S1 (model ), not S2"),
        (false, "S1", "does not become ready"),
    ] {
        let world = World::new(is_up);
        let refused = world.take(serial, world.claims());
        let text = refused.expect_err("it is another drive").to_string();
        assert!(text.contains(words), "{text}");
        world.binder.release(ADDRESS).expect("it is undone");
        assert_eq!(world.state(), on("nvme", "(null)"));
    }
}

/// The writes are exactly the printed ones, and they lead to the same end from every intermediate state.
#[test]
fn d24_every_cut_of_a_take_and_a_release_is_completed_exhaustive() {
    for cut in 0..=3 {
        let world = World::new(true);
        let picture = || world.binder.host().picture(ADDRESS).expect("it is there");
        for write in picture().to_take().iter().take(cut) {
            world.host.write(&write.file, &write.text).expect("the kernel does it");
        }
        world.take("S1", Claims::default()).expect("it is completed");
        assert_eq!(world.state(), on("vfio-pci", "vfio-pci"), "cut {cut}");
        assert_eq!(picture().to_take(), []);
        for write in picture().to_release().iter().take(cut) {
            world.host.write(&write.file, &write.text).expect("the kernel does it");
        }
        world.binder.release(ADDRESS).expect("it is completed");
        assert_eq!(world.state(), on("nvme", "(null)"), "cut {cut}");
        assert_eq!(picture().to_release(), []);
    }
}

#[test]
fn writes_are_shown_with_their_files() {
    let world = World::new(true);
    let picture = world.binder.host().picture(ADDRESS).expect("it is there");
    let shown: Vec<String> = picture.to_take().iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [
            "write vfio-pci to /sys/bus/pci/devices/0000:3b:00.0/driver_override",
            "write 0000:3b:00.0 to /sys/bus/pci/devices/0000:3b:00.0/driver/unbind",
            "write 0000:3b:00.0 to /sys/bus/pci/drivers_probe",
        ]
    );
    assert_eq!(world.done(), [""; 0]);
}

#[test]
fn what_cannot_be_bound_has_an_obstacle_with_what_to_do() {
    let check = |change: &dyn Fn(&PciHost, &Path), words: &[&str]| {
        let folder = Folder::new("nvme-bind");
        let host = PciHost::at(&folder);
        host.add_nvme(ADDRESS, 0, "S1");
        change(&host, &folder);
        let picture = Host::at(&folder).picture(ADDRESS).expect("it is there");
        let text = picture.obstacle().unwrap_or_default();
        assert!(words.iter().all(|word| text.contains(word)), "{words:?}: {text}");
        assert_eq!(text.is_empty(), words.is_empty(), "{text}");
    };
    check(&|_, _| {}, &[]);
    check(&|host, _| host.set(ADDRESS, "class", "0x010601"), &["no NVMe controller", "0x010601"]);
    check(
        &|_, root| {
            std::fs::remove_file(
                root.join("sys/devices/pci0000:00").join(ADDRESS).join("iommu_group"),
            )
            .expect("it is there");
        },
        &["no IOMMU", "intel_iommu=on"],
    );
    check(&|host, _| host.set(ADDRESS, "sriov_numvfs", "4"), &["4 virtual functions", "echo 0"]);
    let neighbour = |host: &PciHost, class: &str, driver: &str| {
        host.add("0000:3b:00.1", class, Some(0));
        host.bind("0000:3b:00.1", driver);
    };
    check(&|host, _| neighbour(host, "0x020000", "e1000e"), &["0000:3b:00.1", "e1000e", "slot"]);
    check(&|host, _| neighbour(host, "0x020000", "vfio-pci"), &[]);
    check(&|host, _| neighbour(host, "0x060400", "pcieport"), &[]);
    check(
        &|_, root| {
            std::fs::remove_dir(root.join("sys/bus/pci/drivers/vfio-pci")).expect("it is there");
        },
        &["not loaded", "modprobe vfio-pci"],
    );
}

#[test]
fn a_node_in_use_is_not_claimed() {
    let world = World::new(true);
    let error = world.binder.claim(&["/dev/free".into(), "/dev/busy".into()]);
    let text = error.expect_err("it is busy").to_string();
    assert!(text.contains("/dev/busy") && text.contains("is open in another program"), "{text}");
    // The earlier claim was released.
    assert_eq!(world.done(), ["closed"]);
}

#[test]
fn controllers_are_found_by_their_serial_number_while_the_kernel_drives_them() {
    let world = World::new(true);
    world.host.add_nvme("0000:3c:00.0", 1, "S2");
    world.host.add_nvme("0000:3d:00.0", 2, "S2");
    let of = |serial| world.binder.host().addresses_of(serial);
    assert_eq!(of("S1"), [ADDRESS]);
    assert_eq!(of("S2"), ["0000:3c:00.0", "0000:3d:00.0"]);
    assert_eq!(of("S3"), [""; 0]);
    world.take("S1", Claims::default()).expect("it is taken");
    assert_eq!(of("S1"), [""; 0]);
}

/// After the check, a drive was exchanged, or a namespace was found.
#[test]
fn a_controller_that_changed_after_the_check_is_not_taken() {
    let changes: [&dyn Fn(&World); 4] = [
        &|world| world.host.set(ADDRESS, "nvme/nvme0/serial", "S2"),
        &|world| world.host.set(ADDRESS, "nvme/nvme0/model", "Other"),
        &|world| world.host.set(ADDRESS, "nvme/nvme0/nvme0n2/size", "8"),
        &|world| world.host.set(ADDRESS, "driver_override", "uio_pci_generic"),
    ];
    for change in changes {
        let world = World::new(true);
        let seen = world.binder.host().picture(ADDRESS).expect("it is there");
        change(&world);
        let refused = world.binder.take(&seen, &named("S1"), Claims::default());
        assert!(matches!(refused, Err(Untaken::Changed(_))), "{refused:?}");
        assert_eq!(world.done(), [""; 0]);
    }
}

/// Another program bound the controller without an override.
#[test]
fn a_bound_controller_is_compared_before_anything_is_written() {
    let world = World::new(true);
    world.take("S1", Claims::default()).expect("it is taken");
    world.host.set(ADDRESS, "driver_override", "(null)");
    world.done();
    world.take("S2", Claims::default()).expect_err("it is another drive");
    assert_eq!(world.done(), [""; 0]);
    world.take("S1", Claims::default()).expect("it is this one");
    assert_eq!(world.done(), ["driver_override"]);
}

#[test]
fn a_daemon_without_rights_is_referred_to_the_manual() {
    let check = |kind: io::ErrorKind, is_referred: bool| {
        let advice = super::advice(&kind.into());
        assert_eq!(advice.contains("PRIVILEGES in straked(8)"), is_referred, "{kind}: {advice}");
    };
    check(io::ErrorKind::PermissionDenied, true);
    check(io::ErrorKind::ReadOnlyFilesystem, true);
    check(io::ErrorKind::ResourceBusy, false);
}
