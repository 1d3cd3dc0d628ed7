//! The checks before a drive is erased by a command of its own, and the record of the operation.

use std::collections::BTreeSet;
use std::sync::Arc;

use strake_api::v1::{Drive as DriveMessage, DriveChange};
use strake_engine::Drive;
use strake_nvme_wire::identify::cns;
use strake_nvme_wire::maintenance::{AdminCommand, namespaces};
use strake_wording::Amendment;

use crate::bounded;
use crate::commands::begun::Begun;
use crate::commands::maintain::{Subject, kernel_drive};
use crate::commands::take::refuse_member;
use crate::control::Control;
use crate::drives::maintenance::Maintained;
use crate::drives::occupied::occupant;
use crate::error::ControlError;
use crate::limits::LOOK_LIMIT;
use crate::manager::Manager;
use crate::state::maintenance::Operation;

/// The drive of a request, and the consent of the request.
pub(crate) struct Wanted<'a> {
    pub(crate) path: &'a str,
    /// The serial number that the drive must have; empty for any.
    pub(crate) serial: &'a str,
    /// Whether the content of the drive may be lost.
    pub(crate) force: bool,
}

/// A drive that may be erased. It is open and reserved, so that no other program and no other command uses it.
pub(crate) struct Erasable {
    pub(crate) subject: Subject,
    pub(crate) drive: Drive,
    pub(crate) maintained: Arc<Maintained>,
    /// The other namespaces of the NVM subsystem, also those without a controller.
    others: Vec<u32>,
    /// The losses, as steps of a plan.
    pub(crate) plan: Vec<String>,
}

impl Erasable {
    /// Checks the drive. Nothing is changed.
    ///
    /// # Errors
    /// If there is no such drive, it is in use, it holds content and the request does not accept the loss, or it does
    /// not answer.
    pub(crate) fn check(control: &Control, wanted: &Wanted<'_>) -> Result<Self, ControlError> {
        let mut subject = Subject::named(control, wanted.path)?;
        let path = subject.path.clone();
        control.run(|m| refuse_busy(m, &path))?;
        let drive = subject.reserved.open(&path)?;
        let identity = drive.device.identity();
        control.run(|m| {
            refuse_member(m, &path, Some(&identity))?;
            m.maintenance.refuse_running(&identity)
        })?;
        let source = Arc::clone(&subject.source);
        let look = move || {
            let nsid = source.namespace()?;
            let maintained = Maintained::of(source)?;
            let others = other_namespaces(&maintained, nsid)?;
            Ok((maintained, others))
        };
        let looked = bounded::ask(&format!("identification of {path}"), LOOK_LIMIT, look)?;
        let (maintained, others) = looked.map_err(|why: String| {
            ControlError::device(format!("{path} cannot be identified: {why}"))
        })?;
        control.run(|m| subject.check_same(m, &maintained.facts.serial))?;
        check_serial(&path, &maintained.facts.serial, wanted.serial)?;
        if maintained.functions.shares {
            return Err(ControlError::refused(format!(
                "{path} may have further controllers, whose namespaces would be erased, too; erase it with the tool of \
                 its manufacturer"
            )));
        }
        let plan = check_content(&drive, wanted.force)?;
        Ok(Self { subject, drive, maintained: Arc::new(maintained), others, plan })
    }

    /// Refuses a drive with further namespaces, for the operation `what` that erases all of them.
    pub(crate) fn refuse_others(&self, what: &str) -> Result<(), ControlError> {
        if self.others.is_empty() {
            return Ok(());
        }
        let numbers: Vec<String> = self.others.iter().map(u32::to_string).collect();
        Err(ControlError::refused(format!(
            "{} is one of {} namespaces of its NVM subsystem, and {what} erases all of them; delete the other \
             namespaces first, also those that no controller has attached: {}",
            self.subject.path,
            self.others.len() + 1,
            numbers.join(", ")
        )))
    }

    /// Describes the drive in a plan.
    pub(crate) fn title(&self) -> String {
        let facts = &self.maintained.facts;
        format!("{} ({}, serial number {})", self.subject.path, facts.model, facts.serial)
    }

    /// Records the start of `operation`, with the event `what`.
    pub(crate) fn begin(
        &self,
        control: &Control,
        operation: Operation,
        what: String,
    ) -> Result<Begun, ControlError> {
        let of = (&self.subject, &*self.maintained);
        let identities = vec![self.drive.device.identity()];
        Begun::record(control, operation, of, identities, what, |_| Ok(()))
    }

    /// Closes the drive, and returns the answer about it.
    pub(crate) fn answer(self, control: &Control, result: &str, plan: Vec<String>) -> DriveChange {
        let (path, serial) = (self.subject.path.clone(), self.maintained.facts.serial.clone());
        drop(self);
        answer(control, &path, &serial, result, plan)
    }
}

/// Returns the answer about the drive at `path`. A drive that was just erased may not be listed yet.
pub(crate) fn answer(
    control: &Control,
    path: &str,
    serial: &str,
    result: &str,
    plan: Vec<String>,
) -> DriveChange {
    let drive = control.drive(path).unwrap_or_default();
    let drive = DriveMessage { path: path.to_owned(), serial: serial.to_owned(), ..drive };
    DriveChange { result: result.to_owned(), drive: Some(drive), plan, warnings: Vec::new() }
}

/// Returns the namespaces of the NVM subsystem besides `own`. A controller with Namespace Management lists also those
/// that no controller has attached.
///
/// # Errors
/// The reason for a failure, as text. Without a complete list, no other namespace can be excluded.
fn other_namespaces(maintained: &Maintained, own: u32) -> Result<Vec<u32>, String> {
    let list = |which| maintained.page(AdminCommand::identify(which, 0));
    let mut all: BTreeSet<u32> = namespaces(&list(cns::ACTIVE_NAMESPACES)?).collect();
    if !all.contains(&own) {
        return Err(format!("its list of active namespaces does not contain its namespace {own}"));
    }
    if maintained.functions.manages {
        let allocated = list(cns::ALLOCATED_NAMESPACES);
        let allocated = allocated
            .map_err(|why| format!("its list of allocated namespaces cannot be read: {why}"))?;
        all.extend(namespaces(&allocated));
    }
    all.remove(&own);
    Ok(all.into_iter().collect())
}

/// Refuses drives that the kernel uses, and members of arrays.
fn refuse_busy(manager: &Manager, path: &str) -> Result<(), ControlError> {
    let Some(drive) = kernel_drive(manager, path) else { return Ok(()) };
    let open = manager.drives.all().iter().find(|open| {
        let medium = open.medium.as_ref().map(|(identity, _)| identity);
        open.drive.path == drive.path || medium == Some(&drive.identity)
    });
    let identity = open.map_or_else(|| drive.identity.clone(), |open| open.drive.device.identity());
    refuse_member(manager, path, Some(&identity))?;
    match &drive.user {
        Some(user) => Err(ControlError::refused(format!(
            "{path} is in use: {user}; unmount the drive, disable its swap, or stop the devices that are built on the \
             drive, and try again"
        ))),
        None => Ok(()),
    }
}

fn check_serial(path: &str, serial: &str, wanted: &str) -> Result<(), ControlError> {
    if wanted.is_empty() || wanted == serial {
        return Ok(());
    }
    Err(ControlError::refused(format!(
        "{path} has the serial number {serial}, and the request is for {wanted}"
    )))
}

/// Returns the loss of the content of a drive as a step of a plan.
fn check_content(drive: &Drive, force: bool) -> Result<Vec<String>, ControlError> {
    let path = &drive.path;
    let (what, step) = match occupant(drive) {
        Ok(None) => return Ok(Vec::new()),
        Ok(Some(held)) => {
            (format!("{path} holds {held}"), format!("erase {path}, which holds {held}"))
        }
        Err(error) => (
            format!("the content of {path} cannot be read ({error}), and may be needed"),
            format!("erase {path}, whose content cannot be read"),
        ),
    };
    if force {
        return Ok(vec![step]);
    }
    Err(ControlError::refused(what).unless(Amendment::Force, "; if its content is not needed: "))
}
