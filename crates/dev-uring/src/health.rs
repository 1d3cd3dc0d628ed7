//! Log pages and the Identify page of NVMe drives that the kernel has connected.
//!
//! The only unsafe code is one ioctl, which passes the kernel a command and a buffer that both outlive it.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

/// Largest transfer in bytes: every drive supports it in one command.
const PAGE_BYTES_MAX: u32 = 4096;
/// Get Log Page (NVM Express Base Specification 2.0, figure 85).
const GET_LOG_PAGE: u8 = 0x02;
/// Identify, and its CNS value for the controller (figures 85 and 273).
const IDENTIFY: u8 = 0x06;
const CONTROLLER: u32 = 1;
/// The namespace ID for a log of the whole controller.
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
    /// 0 selects the kernel's default for these commands. The kernel resets a controller that exceeds the timeout, so a
    /// short timeout could remove a working drive.
    timeout_ms: u32,
    result: u32,
}

const _: () = assert!(size_of::<Command>() == 72);

/// Reads the first `bytes` bytes, a multiple of four, of the log page `page` of the NVMe drive at `path`, a block
/// device or a controller. Waits for the kernel's timeout, which is a minute by default.
///
/// Returns an error if the drive cannot be opened, is not NVMe (`ENOTTY`), denies access (`EACCES`), has no such page,
/// or does not answer.
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

/// Reads the Identify page of the controller of the NVMe drive at `path`, with 4096 bytes. Waits as [`nvme_log_page`]
/// does.
///
/// Returns the errors of [`nvme_log_page`].
pub fn nvme_controller_page(path: &Path) -> io::Result<Vec<u8>> {
    let command = Command { opcode: IDENTIFY, cdw10: CONTROLLER, ..Command::default() };
    read(path, PAGE_BYTES_MAX, command)
}

/// Executes a command that returns `bytes` bytes on the drive at `path`.
fn read(path: &Path, bytes: u32, command: Command) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let mut data = vec![0_u8; bytes as usize];
    let mut command = Command { data: data.as_mut_ptr() as u64, data_bytes: bytes, ..command };
    // SAFETY: the file is open; the command has the layout of this request number, and its buffer has the stated
    // length. Both live until the synchronous call returns.
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
