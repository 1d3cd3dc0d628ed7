//! The environment of every test of this crate: a directory with drives, and a control plane that uses them.

use super::{array, mirror, nbd, raid6};
use crate::control::Control;
use crate::manager::Options;
use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;
use strake_api::v1::{
    Array, CreateExportRequest, Event, Export, ListEventsRequest, RemoveExportRequest,
};
use strake_testkit::Folder;

pub(super) fn folder() -> Folder {
    Folder::new("strake-control")
}

/// Creates drives of 64 MiB.
pub(super) fn drives_in(folder: &Folder, count: usize) -> Vec<String> {
    let drive = |number| folder.sparse(&format!("drive{number}"), 64 << 20);
    (0..count).map(|number| drive(number).display().to_string()).collect()
}

/// Starts a control plane whose state directory is in `folder`.
pub(super) fn control_in(folder: &Path, options: Options) -> Control {
    Control::start(&folder.join("state"), options).expect("the control plane starts")
}

/// Options with which an array starts immediately with the members that are present.
pub(super) fn impatient() -> Options {
    Options { assemble_timeout: Some(Duration::ZERO), ..Options::default() }
}

/// A control plane in a separate directory. It stops at the end of the test, and this stop must not fail.
pub(super) struct Testbed {
    /// `None` between [`Testbed::shut_down`] and [`Testbed::start`].
    control: Option<Control>,
    folder: Folder,
}

impl Testbed {
    pub(super) fn new() -> Self {
        Self::with(Options::default())
    }

    pub(super) fn with(options: Options) -> Self {
        let folder = folder();
        Self { control: Some(control_in(&folder, options)), folder }
    }

    /// `count` drives, and array tank: a RAID 6 on the first four of them.
    pub(super) fn raid6(count: usize) -> (Self, Vec<String>) {
        let bed = Self::new();
        let drives = bed.drives(count);
        bed.create_array(&raid6(drives[..4].to_vec())).expect("it is created");
        (bed, drives)
    }

    /// `count` drives, and array tank: a mirror of the first two of them.
    pub(super) fn mirror(count: usize) -> (Self, Vec<String>) {
        let bed = Self::new();
        let drives = bed.drives(count);
        bed.create_array(&mirror(&drives[..2])).expect("it is created");
        (bed, drives)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(super) fn drives(&self, count: usize) -> Vec<String> {
        drives_in(&self.folder, count)
    }

    pub(super) fn drive_of(&self, name: &str, mib: u64) -> String {
        self.folder.sparse(name, mib << 20).display().to_string()
    }

    pub(super) fn shut_down(&mut self) {
        if let Some(control) = self.control.take() {
            let errors = control.stop();
            assert!(errors.is_empty(), "{errors:?}");
        }
    }

    pub(super) fn start(&mut self) {
        self.start_with(Options::default());
    }

    pub(super) fn start_with(&mut self, options: Options) {
        assert!(self.control.is_none(), "it is shut down");
        self.control = Some(control_in(&self.folder, options));
    }

    pub(super) fn restart(&mut self) {
        self.shut_down();
        self.start();
    }

    /// Removes the state directory with its content.
    pub(super) fn lose_state(&mut self) {
        self.shut_down();
        fs::remove_dir_all(self.path("state")).expect("it can be removed");
    }

    pub(super) fn tank(&self) -> Array {
        array(self, "tank").expect("it is recorded")
    }

    pub(super) fn export(&self, request: &CreateExportRequest) -> Export {
        let change = self.run(|m| m.create_export(request)).expect("it is offered");
        change.export.expect("it is shown")
    }

    /// Exports array tank over NBD, on a socket in the folder.
    pub(super) fn export_nbd(&self) -> Export {
        self.export(&nbd(&self.path("nbd.sock")))
    }

    pub(super) fn remove_export(&self, name: &str) {
        let request = RemoveExportRequest { name: name.into(), force: true };
        self.run(|m| m.remove_export(&request)).expect("it goes");
    }

    /// The configuration as a document.
    pub(super) fn document(&self) -> String {
        self.run(|m| m.config_document()).expect("it can be encoded").json
    }

    /// The events of a kind, or all of them if it is empty.
    pub(super) fn reported(&self, kind: &str) -> Vec<Event> {
        let request = ListEventsRequest { kind: kind.into(), ..Default::default() };
        self.events().list(&request).expect("the request is fine")
    }

    /// Runs `rounds` rounds of upkeep.
    pub(super) fn ticks(&self, rounds: usize) {
        (0..rounds).for_each(|_| self.tick().expect("it answers"));
    }
}

impl Deref for Testbed {
    type Target = Control;

    fn deref(&self) -> &Control {
        self.control.as_ref().expect("it runs")
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        // If the test already failed, its first failure must be reported.
        if !std::thread::panicking() {
            self.shut_down();
        }
    }
}
