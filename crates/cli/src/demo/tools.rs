//! Clients that others wrote, where they are installed: proof that the export is real NBD.

use crate::error::CliError;
use std::path::Path;
use std::process::{Command, Stdio};

/// What each of them writes.
pub const BYTES: u64 = 64 << 20;
/// Where `nbdcopy` writes: it always begins at the beginning.
pub const NBDCOPY_AT: u64 = 0;
/// Where `qemu-io` writes.
pub const QEMU_AT: u64 = BYTES;
/// First byte that no tool writes.
pub const END: u64 = 2 * BYTES;
/// The byte that `qemu-io` writes everywhere in its part.
const PATTERN: u8 = 0x5a;

/// Is the program `name` in the search path?
#[must_use]
pub fn installed(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(name).is_file())
}

/// Lets `nbdcopy` write the image at `path` to the beginning of the export at `uri`.
///
/// # Errors
/// With what it said, when it does not succeed.
pub fn nbdcopy(image: &Path, uri: &str) -> Result<(), CliError> {
    run(Command::new("nbdcopy").arg("--flush").arg(image).arg(uri))
}

/// Lets `qemu-io` write its part of the export at `uri`.
///
/// # Errors
/// With what it said, when it does not succeed.
pub fn qemu_write(uri: &str) -> Result<(), CliError> {
    let write = format!("write -P {PATTERN} {QEMU_AT} {BYTES}");
    run(Command::new("qemu-io").args(["-f", "raw", "-c", &write, "-c", "flush", uri]))
}

/// Lets `qemu-io` read its part of the export at `uri` and compare it.
///
/// # Errors
/// With what it said, when it does not succeed or anything differs.
pub fn qemu_verify(uri: &str) -> Result<(), CliError> {
    let read = format!("read -P {PATTERN} {QEMU_AT} {BYTES}");
    run(Command::new("qemu-io").args(["-r", "-f", "raw", "-c", &read, uri]))
}

fn run(command: &mut Command) -> Result<(), CliError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|e| CliError::io(format_args!("cannot run {name}"), &e))?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    // qemu-io has ended with 0 after a mismatch in some versions, but has always said so.
    if output.status.success() && !said.contains("failed") {
        return Ok(());
    }
    Err(CliError::mismatch(format!("{name} did not succeed ({}): {}", output.status, said.trim())))
}
