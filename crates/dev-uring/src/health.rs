//! Admin commands of NVMe drives that the kernel has connected: log pages, Identify and maintenance commands.
//!
//! The only unsafe code is two ioctls. One passes the kernel a command and a buffer that both outlive the call; the
//! other has no argument.
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
/// `NVME_IOCTL_ID`, which is `_IO('N', 0x40)`.
const NAMESPACE_ID: libc::c_ulong = 0x4e40;

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

/// The data of an admin command.
#[derive(Clone, Copy, Debug)]
pub enum NvmeData<'a> {
    /// No data.
    None,
    /// So many bytes from the drive.
    FromDrive(u32),
    /// These bytes to the drive.
    ToDrive(&'a [u8]),
}

/// An admin command. The caller decides which commands exist.
#[derive(Clone, Copy, Debug)]
pub struct NvmeCommand<'a> {
    /// The opcode.
    pub opcode: u8,
    /// The namespace ID.
    pub nsid: u32,
    /// Dwords 10 to 15.
    pub dwords: [u32; 6],
    /// The data.
    pub data: NvmeData<'a>,
    /// The time limit. The kernel aborts a command that exceeds it, and then resets the controller.
    pub time_s: u32,
}

/// The answer of a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NvmeAnswer {
    /// The status code type and the status code, with Do Not Retry as bit 14; 0 for success.
    pub status: u16,
    /// Dword 0 of the completion.
    pub result: u32,
    /// The data from the drive.
    pub data: Vec<u8>,
}

/// Executes an admin command on the open NVMe drive `device`, a block device or a controller. Waits for the drive.
///
/// Returns an error if the device is not NVMe (`ENOTTY`), denies access (`EACCES`), or does not answer. A status of the
/// drive is no error.
pub fn nvme_command(device: &File, command: NvmeCommand<'_>) -> io::Result<NvmeAnswer> {
    let mut data = match command.data {
        NvmeData::None => Vec::new(),
        NvmeData::FromDrive(bytes) => vec![0; bytes as usize],
        NvmeData::ToDrive(bytes) => bytes.to_vec(),
    };
    let [cdw10, cdw11, cdw12, cdw13, cdw14, cdw15] = command.dwords;
    let passed = Command {
        opcode: command.opcode,
        namespace: command.nsid,
        cdw10,
        cdw11,
        cdw12,
        cdw13,
        cdw14,
        cdw15,
        timeout_ms: command.time_s.saturating_mul(1000),
        ..Command::default()
    };
    let (status, result) = execute(device, &mut data, passed)?;
    if status != 0 || !matches!(command.data, NvmeData::FromDrive(_)) {
        data.clear();
    }
    Ok(NvmeAnswer { status, result, data })
}

/// Returns the namespace ID of the open NVMe block device `device`.
///
/// Returns an error if the device is no NVMe namespace (`ENOTTY`).
pub fn nvme_namespace(device: &File) -> io::Result<u32> {
    // SAFETY: the file is open, and the request has no argument.
    let number = unsafe { libc::ioctl(device.as_raw_fd(), NAMESPACE_ID) };
    u32::try_from(number).map_err(|_| io::Error::last_os_error())
}

/// Executes a command that returns `bytes` bytes on the drive at `path`.
fn read(path: &Path, bytes: u32, command: Command) -> io::Result<Vec<u8>> {
    let mut data = vec![0_u8; bytes as usize];
    match execute(&File::open(path)?, &mut data, command)? {
        (0, _) => Ok(data),
        (refused, _) => {
            Err(io::Error::other(format!("the drive refused with NVMe status {refused:#x}")))
        }
    }
}

/// Executes a command with the buffer `data` on the drive `file`, and returns its status and result.
fn execute(file: &File, data: &mut [u8], command: Command) -> io::Result<(u16, u32)> {
    let data_bytes = u32::try_from(data.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let address = if data.is_empty() { 0 } else { data.as_mut_ptr() as u64 };
    let mut command = Command { data: address, data_bytes, ..command };
    // SAFETY: the file is open; the command has the layout of this request number, and its buffer has the stated
    // length. Both live until the synchronous call returns.
    let status = unsafe { libc::ioctl(file.as_raw_fd(), ADMIN_COMMAND, &raw mut command) };
    match u16::try_from(status) {
        Ok(status) => Ok((status, command.result)),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        File, NvmeCommand, NvmeData, Path, nvme_command, nvme_controller_page, nvme_log_page,
        nvme_namespace,
    };

    #[test]
    fn what_is_no_nvme_drive_says_so() {
        let error = nvme_log_page(Path::new("/dev/null"), 2, 512).expect_err("it has no pages");
        assert_eq!(error.raw_os_error(), Some(libc::ENOTTY));
        assert!(nvme_log_page(Path::new("/nowhere"), 2, 512).is_err());
        let error = nvme_controller_page(Path::new("/dev/null")).expect_err("it has no controller");
        assert_eq!(error.raw_os_error(), Some(libc::ENOTTY));
        let plain = NvmeCommand {
            opcode: 0x02,
            nsid: u32::MAX,
            dwords: [0; 6],
            data: NvmeData::None,
            time_s: 60,
        };
        let null = File::open("/dev/null").expect("it exists");
        for data in [NvmeData::None, NvmeData::FromDrive(512), NvmeData::ToDrive(&[0; 512])] {
            let refused = nvme_command(&null, NvmeCommand { data, ..plain });
            assert_eq!(refused.expect_err("it is no drive").raw_os_error(), Some(libc::ENOTTY));
        }
        let error = nvme_namespace(&null).expect_err("it has no namespace");
        assert_eq!(error.raw_os_error(), Some(libc::ENOTTY));
    }
}
