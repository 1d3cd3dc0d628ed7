//! Health reports of drives.

use std::sync::Arc;
use std::time::{Duration, Instant};

use strake_api::v1::{DriveHealth, GetDriveHealthRequest, ListDrivesRequest, ReleaseDrivesRequest};
use strake_dev_uring::KernelDrive;
use strake_wording::{Text, say};

use crate::bounded::{self, Silent};
use crate::commands::scan::drive_path;
use crate::control::Control;
use crate::drives::address::{is_remote, pci_address};
use crate::drives::health::{HealthSource, Report, report_of, source_of_kernel};
use crate::error::ControlError;
use crate::limits::LOOK_LIMIT;
use crate::manager::Manager;
use crate::policy::sick::Page;
use crate::upkeep::sick::health_source;
use crate::view::health::message_of;

impl Control {
    /// Returns the health report of an NVMe drive. Queries the drive through the driver of the kernel or of this
    /// process.
    ///
    /// # Errors
    /// If there is no such drive, it is not an NVMe drive, it is taken but not open, or it does not answer.
    pub fn drive_health(
        &self,
        request: &GetDriveHealthRequest,
    ) -> Result<DriveHealth, ControlError> {
        let (path, machine, ours) = self.run(|m| {
            let path = drive_path(m, &request.path)?;
            let source = pci_address(&path).and_then(|_| health_source(m, &path));
            Ok((path, m.drives.machine().clone(), source))
        })?;
        let named = || machine.drives().into_iter().find(|drive| drive.path == path);
        let drive = machine.at_node(&path).or_else(named);
        let is_nvme = |drive: &&KernelDrive| drive.name.starts_with("nvme");
        let kernels = || Some(source_of_kernel(&drive.as_ref().filter(is_nvme)?.path));
        let Some(source) = ours.or_else(kernels) else {
            return Err(ControlError::state(no_source(&path)));
        };
        let report = ask(&path, LOOK_LIMIT, source)?;
        let report = report.map_err(|why| {
            let what = say(format!("{path} does not report its health: {why}; "));
            ControlError::device(what.run(ListDrivesRequest {}).say(" shows its state"))
        })?;
        let (model, serial) = match drive {
            Some(drive) => (drive.model, drive.serial),
            None => self
                .with(|m| {
                    let open = m.drives.all().iter().find(|open| open.drive.path == path);
                    let facts = open.and_then(|open| open.pci.as_ref()?.facts());
                    facts.map(|facts| (facts.controller.model, facts.controller.serial))
                })?
                .unwrap_or_default(),
        };
        Ok(DriveHealth { model, serial, ..message_of(&path, &report) })
    }
}

impl Manager {
    /// Returns the last health pages of the drives of members and of spares, without a query.
    #[must_use]
    pub fn health_pages(&self) -> Vec<DriveHealth> {
        let message = |page: &Page| {
            message_of(&page.path, &Report { smart: page.smart, ..Report::default() })
        };
        self.sick.pages(Instant::now()).map(message).collect()
    }
}

/// Queries the drive at `path`. A drive that does not answer log pages may still serve I/O, so it counts as
/// unresponsive only for log pages.
fn ask(
    path: &str,
    limit: Duration,
    source: Arc<dyn HealthSource>,
) -> Result<Result<Report, String>, Silent> {
    bounded::ask(&format!("health of {path}"), limit, move || report_of(&*source))
}

/// Returns the reason why the drive has no health report, and an alternative.
fn no_source(path: &str) -> Text {
    if pci_address(path).is_some() {
        let release = ReleaseDrivesRequest { drives: vec![path.to_owned()], dry_run: false };
        let what = format!(
            "{path} is not open, so its health cannot be read; add the drive to an array or as a spare, or: "
        );
        return say(what).run(release);
    }
    if is_remote(path) {
        return say(format!("{path} is a remote drive; its own host reports its health"));
    }
    say(format!(
        "{path} is not an NVMe drive of this host, and only such drives have this health log; for SATA and SAS \
         drives: smartctl --all {path}"
    ))
}

#[cfg(test)]
mod tests {
    use super::{HealthSource, ask, bounded};
    use std::sync::mpsc::{Receiver, channel};
    use std::sync::{Arc, Mutex};
    use std::time::Duration;
    use strake_nvme_wire::health::LogPages;

    /// A drive that answers after the drop of the other end of the channel.
    struct Hanging(Mutex<Receiver<()>>);

    impl HealthSource for Hanging {
        fn log_page(&self, _number: u8, _bytes: u32) -> Result<Vec<u8>, String> {
            let _ = self.0.lock().expect("nothing panics").recv();
            Err("it is over".to_owned())
        }

        fn pages(&self) -> Result<LogPages, String> {
            Err("it is not asked".to_owned())
        }
    }

    /// The history of the bug: labels and records were no longer written to a drive that did not answer a log page.
    #[test]
    fn a_drive_that_does_not_answer_log_pages_is_not_silent() {
        let (go, gate) = channel::<()>();
        let source: Arc<dyn HealthSource> = Arc::new(Hanging(Mutex::new(gate)));
        let path = "/dev/nvme-that-hangs";
        let ask = || ask(path, Duration::from_millis(1), Arc::clone(&source));
        assert!(ask().is_err());
        assert_eq!(bounded::silent(path), None);
        assert_eq!(bounded::ask(path, Duration::from_secs(60), || 7), Ok(7));
        assert!(ask().is_err(), "one thread is enough");
        drop(go);
    }
}
