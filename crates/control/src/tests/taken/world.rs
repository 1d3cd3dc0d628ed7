//! A simulated host in a directory, whose kernel is a function, and a control plane on it that can be killed at every
//! step.

use std::any::Any;
use std::fs;
use std::io;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, Weak};

use strake_api::v1::{DriverChanges, ListEventsRequest, ReleaseDrivesRequest, TakeDrivesRequest};
use strake_block::{BlockDevice, DeviceError, IoErrorKind};
use strake_dev_nvme::{Binder, Host, Identity, Kernel};
use strake_dev_uring::Machine;
use strake_testkit::{Folder, PciHost};

use super::{ADDRESS, OTHER};
use crate::control::Control;
use crate::drives::pci::open_as_file;
use crate::error::ControlError;
use crate::manager::Options;
use crate::record::store::{Aim, Config, TakenRecord};
use crate::tests::testbed::{folder, impatient};

/// A simulated kernel that can end the process at every step, as `kill -9` does.
#[derive(Debug)]
pub(super) struct Fake {
    pub(super) root: PathBuf,
    pub(super) host: PciHost,
    pub(super) writes: AtomicUsize,
    /// Events that must never happen, and did.
    pub(super) faults: Mutex<Vec<String>>,
    pub(super) claims: Arc<AtomicUsize>,
    /// A device node that another program has opened.
    pub(super) busy: Mutex<Option<PathBuf>>,
    pub(super) is_dead: AtomicBool,
    /// The serial number that controllers report, if it is not their own.
    pub(super) answers: Mutex<Option<String>>,
    /// The other identity data that controllers report.
    pub(super) other: Mutex<Identity>,
    /// The signal that a controller waits for before it answers.
    pub(super) gate: Mutex<Option<Receiver<()>>>,
    /// The result of a driver probe by the kernel, if it does not succeed: it fails, or it binds no driver.
    pub(super) probe: Mutex<Option<bool>>,
    /// A device that must be closed before its controller is unbound.
    pub(super) open: Mutex<Option<Weak<dyn BlockDevice>>>,
    /// Whether the open device is known to be closed.
    is_closed: AtomicBool,
    /// The number of steps until the process ends.
    pub(super) left: Mutex<Option<usize>>,
}

struct Held(Arc<AtomicUsize>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Fake {
    /// Ends the thread if no steps are left. The thread has no effect afterwards.
    fn step(&self) {
        let mut left = self.left.lock().expect("no test has failed");
        match left.as_mut() {
            Some(0) => {
                drop(left);
                resume_unwind(Box::new("killed"));
            }
            Some(left) => *left -= 1,
            None => {}
        }
    }

    pub(super) fn cut_after(&self, steps: Option<usize>) {
        *self.left.lock().expect("no test has failed") = steps;
    }

    fn fault(&self, what: String) {
        self.faults.lock().expect("no test has failed").push(what);
    }
}

impl Kernel for Fake {
    fn write(&self, file: &Path, text: &str) -> io::Result<()> {
        self.step();
        let file =
            file.strip_prefix(&self.root).expect("it is below the root").display().to_string();
        let recorded = fs::read_to_string(self.root.join("state/state.json")).unwrap_or_default();
        if !recorded.contains("\"taken\"") {
            self.fault(format!("{file} was written before the record"));
        }
        let is_ours = self.host.driver(text).as_deref() == Some("vfio-pci");
        if file.ends_with("unbind") && is_ours && !self.is_closed.swap(false, Ordering::SeqCst) {
            self.fault("a drive was unbound that may be open".to_owned());
        }
        let is_driven = self.host.driver(text).as_deref() == Some("nvme");
        if file.ends_with("unbind") && is_driven && self.claims.load(Ordering::SeqCst) == 0 {
            self.fault("a drive was unbound that others may open".to_owned());
        }
        let probe = *self.probe.lock().expect("no test has failed");
        match probe.filter(|_| file.ends_with("drivers_probe")) {
            Some(true) => return Err(io::ErrorKind::InvalidInput.into()),
            Some(false) => {}
            None => self.host.write(&file, text)?,
        }
        self.writes.fetch_add(1, Ordering::SeqCst);
        self.step();
        Ok(())
    }

    fn claim(&self, node: &Path) -> io::Result<Box<dyn Any + Send>> {
        let busy = self.busy.lock().expect("no test has failed");
        if busy.as_deref() == Some(node) {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        self.claims.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(Held(Arc::clone(&self.claims))))
    }

    fn identify(&self, _: &Host, address: &str) -> Result<Identity, DeviceError> {
        self.step();
        let gate = self.gate.lock().expect("no test has failed").take();
        // The wait ends when the other side is dropped.
        gate.map(|gate| gate.recv());
        if self.is_dead.load(Ordering::SeqCst) {
            return Err(DeviceError::new(IoErrorKind::Device, address, "does not become ready"));
        }
        let answer = self.answers.lock().expect("no test has failed").clone();
        let serial = answer.unwrap_or_else(|| self.host.get(address, "serial"));
        Ok(Identity { serial, ..self.other.lock().expect("no test has failed").clone() })
    }

    fn await_closed(&self, _: &str) -> bool {
        let open = self.open.lock().expect("no test has failed");
        let is_closed = open.as_ref().is_none_or(|open| open.strong_count() == 0);
        self.is_closed.store(is_closed, Ordering::SeqCst);
        is_closed
    }
}

pub(super) struct World {
    control: Option<Control>,
    pub(super) fake: Arc<Fake>,
    pub(super) host: PciHost,
    pub(super) root: Folder,
}

impl World {
    /// Creates a host with two drives, S1 and S2.
    pub(super) fn new() -> Self {
        let root = folder();
        let host = PciHost::at(&root);
        host.add_nvme(ADDRESS, 0, "S1");
        host.add_nvme(OTHER, 1, "S2");
        let fake = Fake {
            root: root.to_path_buf(),
            host: host.clone(),
            writes: AtomicUsize::new(0),
            faults: Mutex::default(),
            claims: Arc::default(),
            busy: Mutex::default(),
            is_dead: AtomicBool::new(false),
            answers: Mutex::default(),
            other: Mutex::default(),
            gate: Mutex::default(),
            probe: Mutex::default(),
            open: Mutex::default(),
            is_closed: AtomicBool::new(false),
            left: Mutex::default(),
        };
        let mut world = Self { control: None, fake: Arc::new(fake), host, root };
        world.start();
        world
    }

    /// Ends the process without a stop, and starts it again.
    pub(super) fn start(&mut self) {
        self.control = None;
        let kernel: Arc<dyn Kernel> = Arc::<Fake>::clone(&self.fake);
        let options = Options {
            machine: Machine::at(&self.root),
            binder: Binder::new(Host::at(&self.root), kernel),
            ..impatient()
        };
        let control = Control::start(&self.root.join("state"), options);
        self.control = Some(control.expect("the control plane starts"));
    }

    pub(super) fn control(&self) -> &Control {
        self.control.as_ref().expect("it runs")
    }

    pub(super) fn node(&self, name: &str) -> String {
        self.root.join("dev").join(name).display().to_string()
    }

    pub(super) fn take(&self, spec: &str) -> Result<DriverChanges, ControlError> {
        let drives = vec![spec.to_owned()];
        self.control().take_drives(&TakeDrivesRequest { drives, dry_run: false })
    }

    pub(super) fn release(&self, spec: &str) -> Result<DriverChanges, ControlError> {
        let drives = vec![spec.to_owned()];
        self.control().release_drives(&ReleaseDrivesRequest { drives, dry_run: false })
    }

    /// Opens a taken drive.
    pub(super) fn open(&self, address: &str) {
        let serial = self.host.get(address, "serial");
        let opened = open_as_file(address, &self.root.join("media").join(serial));
        let open = Arc::downgrade(&opened.drive.device);
        *self.fake.open.lock().expect("no test has failed") = Some(open);
        self.control().with(|m| m.drives.add(opened)).expect("it answers");
    }

    /// Changes the serial number of the drive at an address.
    pub(super) fn rename(&self, address: &str, serial: &str) {
        self.host.set(address, "serial", serial);
        let number = self.host.get(address, "number");
        if self.host.driver(address).as_deref() == Some("nvme") {
            self.host.set(&format!("{address}/nvme/nvme{number}"), "serial", serial);
        }
    }

    /// Sets the node of `dev` that another program has opened, if any.
    pub(super) fn set_busy(&self, name: Option<&str>) {
        let node = name.map(|name| PathBuf::from(self.node(name)));
        *self.fake.busy.lock().expect("no test has failed") = node;
    }

    /// Changes the recorded configuration.
    pub(super) fn change(&self, change: impl FnOnce(&mut Config)) {
        let changed = self.control().run(|m| m.records.change(change));
        changed.expect("it is recorded");
    }

    pub(super) fn taken(&self) -> Vec<TakenRecord> {
        self.control().with(|m| m.records.taken.clone()).expect("it answers")
    }

    /// Returns the driver of a device, its override, and the recorded serial numbers.
    pub(super) fn state(&self, address: &str) -> (Option<String>, String, Vec<String>) {
        let recorded = self.taken().into_iter().map(|record| {
            assert_eq!(record.aim, Aim::Taken);
            format!("{} {}", record.serial, record.address)
        });
        let only = self.host.get(address, "driver_override");
        (self.host.driver(address), only, recorded.collect())
    }

    pub(super) fn is_taken(&self, address: &str, serial: &str) {
        let recorded = vec![format!("{serial} {address}")];
        assert_eq!(self.state(address), (Some("vfio-pci".into()), "vfio-pci".into(), recorded));
        self.is_sound();
    }

    pub(super) fn is_free(&self, address: &str) {
        assert_eq!(self.state(address), (Some("nvme".into()), "(null)".into(), Vec::new()));
        self.is_sound();
    }

    pub(super) fn is_sound(&self) {
        let faults = self.fake.faults.lock().expect("no test has failed");
        assert_eq!(*faults, Vec::<String>::new());
        assert_eq!(self.fake.claims.load(Ordering::SeqCst), 0, "all claims ended");
    }

    /// Returns the causes of the events about drives that are not taken.
    pub(super) fn not_taken(&self) -> Vec<String> {
        let events = self.control().events().list(&ListEventsRequest::default());
        let events = events.expect("the request is fine");
        events.iter().filter(|e| e.kind == "drive_not_taken").map(|e| e.cause.clone()).collect()
    }
}
