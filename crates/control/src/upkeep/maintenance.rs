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
        let path = work.path.clone();
        let source = control.with(|m| source_now(m, &identity, &work))?;
        let job = move || status(source);
        // A drive that does not answer is asked again in the next round.
        if let Ok(Ok(Some(progress))) =
            bounded::ask(&format!("progress of {path}"), LOOK_LIMIT, job)
        {
            control.with(|m| note(m, &identity, &path, &progress))?;
        }
    }
    Ok(())
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

/// Returns the sanitize status of a drive; `None` if it has no sanitize operations.
fn status(source: Arc<dyn AdminSource>) -> Result<Option<Progress>, String> {
    let maintained = Maintained::of(source)?;
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
        let asked = Arc::clone(&source);
        let name = format!("progress of {}", drive.path);
        let found = bounded::ask(&name, LOOK_LIMIT, move || status(asked));
        if let Ok(Ok(Some(progress))) = found {
            control.with(|m| adopt(m, &drive.identity, &drive.path, source, &progress))?;
        }
    }
    Ok(())
}

/// Records an operation that is in progress or has failed.
fn adopt(
    manager: &mut Manager,
    identity: &str,
    path: &str,
    source: Arc<dyn AdminSource>,
    progress: &Progress,
) {
    if matches!(progress.state, State::Running | State::Failed)
        && !manager.maintenance.has(identity)
    {
        let (operation, stage) = (Operation::Sanitize, Stage::Running(None));
        let work = Work { path: path.to_owned(), operation, stage, is_sent: true, source };
        manager.maintenance.put(identity, work);
        note(manager, identity, path, progress);
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
    use super::adopt;
    use crate::Control;
    use crate::drives::maintenance::fake::Fake;
    use crate::manager::Options;
    use strake_nvme_wire::maintenance::sanitize::{Progress, State};
    use strake_testkit::Folder;

    #[test]
    fn operations_of_an_earlier_daemon_keep_the_drive_from_arrays() {
        let state = Folder::in_memory("strake-adopt");
        let control = Control::start(&state, Options::default()).expect("it starts");
        let progress = |state| Progress { state, action: None, done: 32_768, estimate_s: None };
        let check = |state, words: Option<&str>| {
            let fake = Fake::new("S1");
            let refused = control.run(|m| {
                m.maintenance.end("id");
                adopt(m, "id", "/dev/nvme0n1", fake, &progress(state));
                m.maintenance.refuse("id")
            });
            let what = refused.err().map(|error| error.what).unwrap_or_default();
            assert_eq!(words.is_none(), what.is_empty(), "{what}");
            assert!(what.contains(words.unwrap_or_default()), "{what}");
        };
        check(State::Running, Some("is being sanitized (50 % done)"));
        check(State::Failed, Some("sanitize the drive again"));
        check(State::Completed, None);
        check(State::Never, None);
    }
}
