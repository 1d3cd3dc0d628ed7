//! Maintenance commands of NVMe drives, through the driver of the kernel or of this process.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use strake_block::IoErrorKind;
use strake_dev_nvme::LogReader;
use strake_dev_uring::{NvmeCommand, NvmeData, nvme_command, nvme_namespace};
use strake_nvme_wire::Status;
use strake_nvme_wire::identified::ControllerFacts;
use strake_nvme_wire::maintenance::{AdminCommand, Answer, Functions, Transfer, is_refusal};

use crate::drives::health::{in_words, whole};

pub(crate) mod apart;
#[cfg(test)]
pub(crate) mod fake;

/// Why a command was not executed, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Undone {
    /// The drive did not get the command, or refused it: nothing was changed.
    Unchanged(String),
    /// The drive may execute the command, or may have executed it.
    Unknown(String),
}

impl Undone {
    /// Returns the reason.
    pub(crate) fn why(self) -> String {
        match self {
            Self::Unchanged(why) | Self::Unknown(why) => why,
        }
    }
}

/// A drive that executes maintenance commands.
pub(crate) trait AdminSource: Send + Sync {
    /// Executes a command. Waits for the drive as long as the command may take.
    ///
    /// # Errors
    /// The reason why there is no answer. A status of the drive is an answer.
    fn run(&self, command: AdminCommand) -> Result<Answer, Undone>;

    /// Returns the namespace ID of the drive.
    ///
    /// # Errors
    /// The reason for a failure, as text.
    fn namespace(&self) -> Result<u32, String>;
}

/// A drive of the kernel driver. Its device stays open from the first command on: after an exchange of drives, another
/// drive may have the same path, but it gets no command.
pub(crate) struct OfKernel {
    path: String,
    device: Mutex<Option<Arc<File>>>,
}

impl OfKernel {
    /// Returns the device, which the first call opens.
    fn device(&self) -> io::Result<Arc<File>> {
        // No holder of the lock leaves an invalid value.
        let mut device = self.device.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = &*device {
            return Ok(Arc::clone(device));
        }
        let opened = Arc::new(File::open(Path::new(&self.path))?);
        *device = Some(Arc::clone(&opened));
        Ok(opened)
    }
}

/// True if the kernel returns `error` before it sends a command to the drive.
fn is_unsent(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    match error.kind() {
        Kind::PermissionDenied | Kind::InvalidInput | Kind::OutOfMemory => true,
        // The device has no such ioctl.
        _ => error.raw_os_error() == Some(NO_IOCTL),
    }
}

/// `ENOTTY`.
const NO_IOCTL: i32 = 25;

impl AdminSource for OfKernel {
    fn run(&self, command: AdminCommand) -> Result<Answer, Undone> {
        let device = self.device().map_err(|error| Undone::Unchanged(in_words(&error)))?;
        let data = match command.transfer() {
            Transfer::Nothing => NvmeData::None,
            Transfer::FromDrive(bytes) => NvmeData::FromDrive(*bytes),
            Transfer::ToDrive(bytes) => NvmeData::ToDrive(bytes),
        };
        let passed = NvmeCommand {
            opcode: command.opcode(),
            nsid: command.nsid(),
            dwords: *command.dwords(),
            data,
            time_s: command.time_s(),
        };
        let answer = nvme_command(&device, passed).map_err(|error| {
            let why = in_words(&error);
            if is_unsent(&error) { Undone::Unchanged(why) } else { Undone::Unknown(why) }
        })?;
        let status = Status::of_word(answer.status << 1);
        Ok(Answer { status, result: answer.result, data: answer.data })
    }

    fn namespace(&self) -> Result<u32, String> {
        let number = self.device().and_then(|device| nvme_namespace(&device));
        number.map_err(|error| in_words(&error))
    }
}

/// A drive that this process drives.
impl AdminSource for LogReader {
    fn run(&self, command: AdminCommand) -> Result<Answer, Undone> {
        self.maintain(command).map_err(|error| match error.kind {
            IoErrorKind::Timeout | IoErrorKind::Aborted => Undone::Unknown(error.to_string()),
            _ => Undone::Unchanged(error.to_string()),
        })
    }

    fn namespace(&self) -> Result<u32, String> {
        Self::namespace(self).ok_or_else(|| "it was not ready yet".to_owned())
    }
}

/// A drive with its identification.
pub(crate) struct Maintained {
    source: Arc<dyn AdminSource>,
    /// Serial number, model and revision of the firmware.
    pub(crate) facts: ControllerFacts,
    /// The supported commands.
    pub(crate) functions: Functions,
}

impl Maintained {
    /// Identifies the drive.
    ///
    /// # Errors
    /// The reason for a failure, as text.
    pub(crate) fn of(source: Arc<dyn AdminSource>) -> Result<Self, String> {
        let page = data(&*source, AdminCommand::identify_controller())?;
        let page = whole(&page)?;
        let (facts, functions) = (ControllerFacts::parse(&page), Functions::of(&page));
        Ok(Self { source, facts, functions })
    }

    /// Executes a command, and returns exactly `N` bytes.
    ///
    /// # Errors
    /// The reason for a failure, as text.
    pub(crate) fn page<const N: usize>(&self, command: AdminCommand) -> Result<[u8; N], String> {
        whole(&self.data(command)?)
    }

    /// Executes a command without data, and returns its status.
    ///
    /// # Errors
    /// The reason why there is no answer.
    pub(crate) fn status(&self, command: AdminCommand) -> Result<Status, Undone> {
        Ok(self.source.run(command)?.status)
    }

    /// Executes a command without data, which must succeed.
    ///
    /// # Errors
    /// The reason for a failure.
    pub(crate) fn execute(&self, command: AdminCommand) -> Result<(), Undone> {
        let name = command.name();
        self.status(command).and_then(|status| judged(name, status))
    }

    /// Executes a command, and returns its data.
    ///
    /// # Errors
    /// The reason for a failure, as text.
    pub(crate) fn data(&self, command: AdminCommand) -> Result<Vec<u8>, String> {
        data(&*self.source, command)
    }
}

/// Returns the meaning of the status of the command `name`, which changes the drive.
pub(crate) fn judged(name: &str, status: Status) -> Result<(), Undone> {
    let why = format!("{name} failed with {status}");
    match status {
        status if status.is_success() => Ok(()),
        status if is_refusal(status) => Err(Undone::Unchanged(why)),
        _ => Err(Undone::Unknown(why)),
    }
}

/// Executes a command, and returns its data, which have the length of the command.
fn data(source: &dyn AdminSource, command: AdminCommand) -> Result<Vec<u8>, String> {
    let (name, bytes) = (command.name(), command.transfer().bytes());
    let is_read = matches!(command.transfer(), Transfer::FromDrive(_));
    let answer = source.run(command).map_err(Undone::why)?;
    if !answer.status.is_success() {
        return Err(format!("{name} failed with {}", answer.status));
    }
    if is_read && answer.data.len() != bytes {
        return Err(format!("{name} returned {} bytes instead of {bytes}", answer.data.len()));
    }
    Ok(answer.data)
}

/// Returns the source of the drive at `path`, which the kernel drives. The first command opens its device.
pub(crate) fn source_of_kernel(path: &str) -> Arc<dyn AdminSource> {
    Arc::new(OfKernel { path: path.to_owned(), device: Mutex::default() })
}

#[cfg(test)]
mod tests {
    use super::{AdminSource, Undone, is_unsent, source_of_kernel};
    use std::io;
    use strake_nvme_wire::maintenance::AdminCommand;
    use strake_testkit::Folder;

    /// The history of the bug: each command opened the path again, and another drive could be there.
    #[test]
    fn a_drive_of_the_kernel_stays_open_over_its_commands() {
        let folder = Folder::in_memory("strake-admin");
        let path = folder.join("nvme0n1");
        std::fs::write(&path, "").expect("a file");
        let source: std::sync::Arc<dyn AdminSource> =
            source_of_kernel(path.to_str().expect("it is text"));
        let first = source.run(AdminCommand::identify_controller());
        let first = first.expect_err("a file has no commands");
        assert!(matches!(first, Undone::Unchanged(_)), "{first:?}");
        std::fs::remove_file(&path).expect("it is removed");
        assert_eq!(source.run(AdminCommand::identify_controller()), Err(first));
    }

    #[test]
    fn only_errors_before_the_command_mean_that_nothing_was_changed() {
        let check = |number, unsent| {
            assert_eq!(is_unsent(&io::Error::from_raw_os_error(number)), unsent, "{number}");
        };
        // EPERM, ENOMEM, EACCES, EINVAL, ENOTTY; EINTR, EIO, ENODEV, ETIMEDOUT.
        [1, 12, 13, 22, 25].into_iter().for_each(|number| check(number, true));
        [4, 5, 19, 110].into_iter().for_each(|number| check(number, false));
    }
}
