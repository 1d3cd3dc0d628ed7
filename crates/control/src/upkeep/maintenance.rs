//! Sanitize operations in progress: their progress and their end.

use std::sync::Arc;
use std::time::Instant;

use strake_dev_uring::KernelDrive;
use strake_nvme_wire::maintenance::sanitize::{Action, Progress, State, read_status};

use crate::bounded;
use crate::control::Control;
use crate::drives::maintenance::{AdminSource, Maintained, source_of_kernel};
use crate::error::ControlError;
use crate::events::{EventKind, Note};
use crate::limits::LOOK_LIMIT;
use crate::manager::Manager;
use crate::state::maintenance::{Operation, Stage, Work};

/// Follows the sanitize operations in progress. The first call also finds those that an earlier daemon has started.
pub(crate) fn follow_sanitize(control: &Control) -> Result<(), ControlError> {
    if !control.with(|m| std::mem::replace(&mut m.maintenance.is_searched, true))? {
        search(control)?;
    }
    control.with(|m| m.maintenance.asked = Some(Instant::now()))?;
    for (identity, work) in control.with(|m| m.maintenance.sanitizing())? {
        let (path, serial) = (work.path.clone(), work.serial.clone());
        let source = control.with(|m| source_now(m, &identity, &work))?;
        let job = move || status(source, &serial);
        let asked = bounded::ask(&format!("progress of {path}"), LOOK_LIMIT, job);
        control.with(|m| match asked {
            _ if !m.maintenance.is_present(&identity, work.number) => {}
            Ok(Ok(Some(progress))) => note(m, &identity, &path, &progress),
            Ok(Ok(None)) => {
                note_silent(m, &identity, &path, "it reports no sanitize operations any more");
            }
            Ok(Err(why)) => note_silent(m, &identity, &path, &why),
            Err(silent) => note_silent(m, &identity, &path, &ControlError::from(silent).what),
        })?;
    }
    Ok(())
}

/// Records that the drive did not report the progress of its operation. It is asked again in the next round.
fn note_silent(manager: &mut Manager, identity: &str, path: &str, why: &str) {
    let why = format!(
        "the drive does not report its progress ({why}), and may still erase its data; if the drive has failed, \
         replace it, and otherwise sanitize it again before it is used"
    );
    if manager.maintenance.silent(identity, &why) {
        let what = format!("the state of the sanitize operation of {path} is unknown");
        let object = format!("drive/{path}");
        manager.record(Note::new(EventKind::DriveMaintenanceFailed, object, what).cause(why));
    }
}

/// Returns the source of the progress: a taken drive may have been given back to the kernel.
fn source_now(manager: &Manager, identity: &str, work: &Work) -> Arc<dyn AdminSource> {
    let drives = manager.drives.machine().drives().into_iter();
    let is_it = |drive: &KernelDrive| drive.identity == identity && drive.name.starts_with("nvme");
    drives
        .into_iter()
        .find(is_it)
        .map_or_else(|| Arc::clone(&work.source), |drive| source_of_kernel(&drive.path))
}

/// Returns the sanitize status of the drive with the serial number `serial`; `None` if it has no sanitize operations.
fn status(source: Arc<dyn AdminSource>, serial: &str) -> Result<Option<Progress>, String> {
    let maintained = Maintained::of(source)?;
    if maintained.facts.serial != serial {
        let other = maintained.facts.serial;
        return Err(format!("another drive answers, with the serial number {other}"));
    }
    if maintained.functions.sanitize.actions().next().is_none() {
        return Ok(None);
    }
    Ok(Some(Progress::parse(&maintained.page(read_status())?)))
}

/// Finds operations of an earlier daemon on the drives of the kernel.
fn search(control: &Control) -> Result<(), ControlError> {
    let machine = control.with(|m| m.drives.machine().clone())?;
    let drives = machine.drives().into_iter().filter(|drive| drive.name.starts_with("nvme"));
    for drive in drives.filter(|drive| drive.user.is_none()) {
        let source = source_of_kernel(&drive.path);
        let (asked, serial) = (Arc::clone(&source), drive.serial.clone());
        let name = format!("progress of {}", drive.path);
        let found = bounded::ask(&name, LOOK_LIMIT, move || status(asked, &serial));
        if let Ok(Ok(Some(progress))) = found {
            control.with(|m| adopt(m, &drive, source, &progress))?;
        }
    }
    Ok(())
}

/// Records an operation that is in progress or has failed.
fn adopt(
    manager: &mut Manager,
    drive: &KernelDrive,
    source: Arc<dyn AdminSource>,
    progress: &Progress,
) {
    let KernelDrive { path, identity, serial, .. } = drive;
    if matches!(progress.state, State::Running | State::Failed)
        && !manager.maintenance.has(identity)
    {
        let (operation, stage) = (Operation::Sanitize, Stage::Running(None));
        let (path, serial) = (path.clone(), serial.clone());
        let (number, silent_reads) = (0, 0);
        let work =
            Work { number, path, operation, stage, is_sent: true, source, serial, silent_reads };
        manager.maintenance.put(identity, work);
        note(manager, identity, &drive.path, progress);
    }
}

/// Records the progress of an operation.
fn note(manager: &mut Manager, identity: &str, path: &str, progress: &Progress) {
    let object = format!("drive/{path}");
    match progress.state {
        State::Running => {
            manager.maintenance.set(identity, Stage::Running(Some(progress.percent())));
        }
        State::Completed => {
            manager.maintenance.end(identity);
            let what = format!("the sanitize operation of {path} finished: all data are erased");
            manager.record(Note::new(EventKind::DriveMaintenanceFinished, object, what));
            manager.close_unused_drives();
        }
        State::Never | State::Failed | State::Unknown(_) => {
            let action = progress.action.map_or("unknown", Action::word);
            let why = format!(
                "the drive reports a failure of the action {action}, and serves no reads and writes; sanitize the \
                 drive again, with another action if it supports one, or replace the drive"
            );
            manager.maintenance.set(identity, Stage::Failed(why.clone()));
            let what = format!("the sanitize operation of {path} failed");
            manager.record(Note::new(EventKind::DriveMaintenanceFailed, object, what).cause(why));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{adopt, status};
    use crate::Control;
    use crate::drives::maintenance::fake::Fake;
    use crate::manager::Options;
    use strake_dev_uring::Machine;
    use strake_nvme_wire::maintenance::sanitize::{Progress, State};
    use strake_testkit::{Folder, PciHost};

    /// A control plane on a host with the kernel drive S1, and the folders that they use.
    fn control() -> (Control, [Folder; 2]) {
        let (state, root) = (Folder::in_memory("strake-adopt"), Folder::in_memory("strake-root"));
        PciHost::at(&root).add_nvme("0000:3b:00.0", 0, "S1");
        let options = Options { machine: Machine::at(&root), ..Options::default() };
        (Control::start(&state, options).expect("it starts"), [state, root])
    }

    fn progress(state: State) -> Progress {
        Progress { state, action: None, done: 32_768, estimate_s: None }
    }

    /// Records an operation of the drive of [`control`], and returns the refusal of its use.
    fn adopted(control: &Control, fake: &std::sync::Arc<Fake>, state: State) -> String {
        let source = std::sync::Arc::<Fake>::clone(fake);
        let refused = control.run(|m| {
            let drive = m.drives.machine().drives().remove(0);
            m.maintenance.end(&drive.identity);
            adopt(m, &drive, source, &progress(state));
            m.maintenance.refuse(&drive.identity)
        });
        refused.err().map(|error| error.what).unwrap_or_default()
    }

    #[test]
    fn operations_of_an_earlier_daemon_keep_the_drive_from_arrays() {
        let (control, _folders) = control();
        let check = |state, words: Option<&str>| {
            let what = adopted(&control, &Fake::new("S1"), state);
            assert_eq!(words.is_none(), what.is_empty(), "{what}");
            assert!(what.contains(words.unwrap_or_default()), "{what}");
        };
        check(State::Running, Some("is being sanitized (50 % done)"));
        check(State::Failed, Some("sanitize the drive again"));
        check(State::Completed, None);
        check(State::Never, None);
    }

    #[test]
    fn d33_the_status_of_another_drive_does_not_count() {
        let fake = Fake::new("S1");
        fake.state().sanitize[2] = 1;
        let source = || std::sync::Arc::<Fake>::clone(&fake);
        let own = status(source(), "S1").expect("it answers").expect("it has operations");
        assert_eq!(own.state, State::Completed);
        let other = status(source(), "S2").expect_err("it is another drive");
        assert!(other.contains("the serial number S1"), "{other}");
    }
}
