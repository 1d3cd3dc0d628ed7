//! Maintenance commands of NVMe drives, through the driver of the kernel or of this process.

use std::io;
use std::path::Path;
use std::sync::Arc;

use strake_dev_nvme::LogReader;
use strake_dev_uring::{NvmeCommand, NvmeData, nvme_command, nvme_namespace};
use strake_nvme_wire::Status;
use strake_nvme_wire::identified::ControllerFacts;
use strake_nvme_wire::maintenance::{AdminCommand, Answer, Functions, Transfer};

use crate::drives::health::{in_words, whole};

#[cfg(test)]
pub(crate) mod fake;

/// A drive that executes maintenance commands.
pub(crate) trait AdminSource: Send + Sync {
    /// Executes a command. Waits for the drive as long as the command may take.
    ///
    /// # Errors
    /// The reason why there is no answer, as text. A status of the drive is an answer.
    fn run(&self, command: AdminCommand) -> Result<Answer, String>;

    /// Returns the namespace ID of the drive.
    ///
    /// # Errors
    /// The reason for a failure, as text.
    fn namespace(&self) -> Result<u32, String>;
}

/// A drive of the kernel driver, by its device node.
pub(crate) struct OfKernel(pub(crate) String);

impl AdminSource for OfKernel {
    fn run(&self, command: AdminCommand) -> Result<Answer, String> {
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
        let answer = nvme_command(Path::new(&self.0), passed).map_err(|e| in_words(&e))?;
        let status = Status::of_word(answer.status << 1);
        Ok(Answer { status, result: answer.result, data: answer.data })
    }

    fn namespace(&self) -> Result<u32, String> {
        nvme_namespace(Path::new(&self.0)).map_err(|error: io::Error| in_words(&error))
    }
}

/// A drive that this process drives.
impl AdminSource for LogReader {
    fn run(&self, command: AdminCommand) -> Result<Answer, String> {
        self.maintain(command).map_err(|error| error.to_string())
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
    /// The reason why there is no answer, as text.
    pub(crate) fn status(&self, command: AdminCommand) -> Result<Status, String> {
        Ok(self.source.run(command)?.status)
    }

    /// Executes a command, and returns its data.
    ///
    /// # Errors
    /// The reason for a failure, as text.
    pub(crate) fn data(&self, command: AdminCommand) -> Result<Vec<u8>, String> {
        data(&*self.source, command)
    }
}

/// Executes a command, and returns its data, which have the length of the command.
fn data(source: &dyn AdminSource, command: AdminCommand) -> Result<Vec<u8>, String> {
    let (name, bytes) = (command.name(), command.transfer().bytes());
    let is_read = matches!(command.transfer(), Transfer::FromDrive(_));
    let answer = source.run(command)?;
    if !answer.status.is_success() {
        return Err(format!("{name} failed with {}", answer.status));
    }
    if is_read && answer.data.len() != bytes {
        return Err(format!("{name} returned {} bytes instead of {bytes}", answer.data.len()));
    }
    Ok(answer.data)
}

/// Returns the source of the drive at `path`, which the kernel drives.
pub(crate) fn source_of_kernel(path: &str) -> Arc<dyn AdminSource> {
    Arc::new(OfKernel(path.to_owned()))
}
