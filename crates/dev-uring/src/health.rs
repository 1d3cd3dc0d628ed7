//! What NVMe drives of the kernel say about themselves: log pages, and the Identify page of the controller.
//!
//! The only unsafe code is one ioctl, which hands the kernel a command and a buffer that both outlive it.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

/// Most bytes that are read at once: any drive transfers so many in one command.
const PAGE_BYTES_MAX: u32 = 4096;
/// Get Log Page (NVM Express Base Specification 2.0, figure 85).
const GET_LOG_PAGE: u8 = 0x02;
/// Identify, and what it asks for: the controller (figures 85 and 273).
const IDENTIFY: u8 = 0x06;
const CONTROLLER: u32 = 1;
/// The log of the whole controller.
const ALL_NAMESPACES: u32 = 0xffff_ffff;
/// `NVME_IOCTL_ADMIN_CMD`, which is `_IOWR('N', 0x41, struct nvme_passthru_cmd)` (include/uapi/linux/nvme_ioctl.h).
const ADMIN_COMMAND: libc::c_ulong = 0xc048_4e41;

/// `struct nvme_passthru_cmd` (include/uapi/linux/nvme_ioctl.h), 72 bytes.
#[repr(C)]
#[derive(Default)]
struct Command {
    opcode: u8,
    flags: u8,
    reserved: u16,
    namespace: u32,
    cdw2: u32,
    cdw3: u32,
    metadata: u64,
    data: u64,
    metadata_bytes: u32,
    data_bytes: u32,
    cdw10: u32,
    cdw11: u32,
    cdw12: u32,
    cdw13: u32,
    cdw14: u32,
    cdw15: u32,
    /// 0 is the kernel's own for these commands. The kernel resets a controller that exceeds it, so that a short one
    /// would take a drive away that serves.
    timeout_ms: u32,
    result: u32,
}

const _: () = assert!(size_of::<Command>() == 72);

/// Reads the first `bytes` bytes, a multiple of four, of the log page `page` of the NVMe drive at `path`, a block
/// device or a controller. Waits for as long as the kernel does, which is a minute unless it is set otherwise.
///
/// # Errors
/// When it cannot be opened, is not NVMe (`ENOTTY`), the caller may not ask (`EACCES`), it has no such page, or it does
/// not answer.
pub fn nvme_log_page(path: &Path, page: u8, bytes: u32) -> io::Result<Vec<u8>> {
    let bytes = bytes.clamp(4, PAGE_BYTES_MAX) & !3;
    let command = Command {
        opcode: GET_LOG_PAGE,
        namespace: ALL_NAMESPACES,
        cdw10: (bytes / 4 - 1) << 16 | u32::from(page),
        ..Command::default()
    };
    read(path, bytes, command)
}

/// Reads the Identify page of the controller of the NVMe drive at `path`, of 4096 bytes. Waits as [`nvme_log_page`].
///
/// # Errors
/// As [`nvme_log_page`].
pub fn nvme_controller_page(path: &Path) -> io::Result<Vec<u8>> {
    let command = Command { opcode: IDENTIFY, cdw10: CONTROLLER, ..Command::default() };
    read(path, PAGE_BYTES_MAX, command)
}

/// Has the drive at `path` execute a command that returns `bytes` bytes.
fn read(path: &Path, bytes: u32, command: Command) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let mut data = vec![0_u8; bytes as usize];
    let mut command = Command { data: data.as_mut_ptr() as u64, data_bytes: bytes, ..command };
    // SAFETY: the file is open; the command has the layout that this request number stands for, and its buffer is
    // exactly as long as it says. Both live until the call, which is synchronous, is over.
    let status = unsafe { libc::ioctl(file.as_raw_fd(), ADMIN_COMMAND, &raw mut command) };
    match status {
        0 => Ok(data),
        negative if negative < 0 => Err(io::Error::last_os_error()),
        refused => {
            Err(io::Error::other(format!("the drive refused with NVMe status {refused:#x}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Path, nvme_controller_page, nvme_log_page};

    #[test]
    fn what_is_no_nvme_drive_says_so() {
        let error = nvme_log_page(Path::new("/dev/null"), 2, 512).expect_err("it has no pages");
        assert_eq!(error.raw_os_error(), Some(libc::ENOTTY));
        assert!(nvme_log_page(Path::new("/nowhere"), 2, 512).is_err());
        let error = nvme_controller_page(Path::new("/dev/null")).expect_err("it has no controller");
        assert_eq!(error.raw_os_error(), Some(libc::ENOTTY));
    }
}
