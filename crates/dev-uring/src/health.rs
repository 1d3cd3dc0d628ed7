//! What a drive says about its own health.
//!
//! The only unsafe code is one ioctl, which hands the kernel a command and a buffer that both outlive it.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

/// Bytes of the log page.
const PAGE_BYTES: usize = 512;
/// Get Log Page (NVM Express Base Specification 2.0, figure 85).
const GET_LOG_PAGE: u8 = 0x02;
/// SMART / Health Information (figure 206).
const LOG_HEALTH: u32 = 0x02;
/// The log of the whole controller.
const ALL_NAMESPACES: u32 = 0xffff_ffff;
/// `NVME_IOCTL_ADMIN_CMD`, which is `_IOWR('N', 0x41, struct nvme_passthru_cmd)` (include/uapi/linux/nvme_ioctl.h).
const ADMIN_COMMAND: libc::c_ulong = 0xc048_4e41;
/// A drive that takes longer to answer than this has other troubles.
const TIMEOUT_MS: u32 = 1000;

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
    timeout_ms: u32,
    result: u32,
}

const _: () = assert!(size_of::<Command>() == 72);

/// What an NVMe drive says about itself (NVM Express Base Specification 2.0, figure 207).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Bits of what is wrong: 0 spares below the threshold, 1 temperature, 2 unreliable because of errors, 3 it has
    /// become read-only, 4 its backup of volatile memory failed, 5 its persistent memory is read-only.
    pub warnings: u8,
    /// Degrees Celsius; absent when the drive does not say.
    pub temperature_c: Option<i32>,
    /// Percent of the spare blocks left.
    pub spare_percent: u8,
    /// Percent of spare blocks below which it warns.
    pub spare_threshold_percent: u8,
    /// Percent of its rated endurance used; may exceed 100.
    pub wear_percent: u8,
    /// Times that data could not be recovered.
    pub media_errors: u64,
}

impl Health {
    fn decode(page: &[u8; PAGE_BYTES]) -> Self {
        let kelvin = u16::from_le_bytes([page[1], page[2]]);
        let mut errors = [0; 8];
        errors.copy_from_slice(&page[160..168]);
        Self {
            warnings: page[0],
            temperature_c: (kelvin != 0).then(|| i32::from(kelvin) - 273),
            spare_percent: page[3],
            spare_threshold_percent: page[4],
            wear_percent: page[5],
            // The field has 128 bits; no working drive needs the upper half.
            media_errors: u64::from_le_bytes(errors),
        }
    }

    /// Why the drive itself expects to fail, if it does. Being warm is no such reason.
    #[must_use]
    pub fn prediction(&self) -> Option<&'static str> {
        let reasons = [
            (3, "the drive has become read-only to protect its data"),
            (2, "the drive calls itself unreliable because of many errors"),
            (0, "the drive runs out of spare blocks"),
            (4, "the drive's backup for power cuts has failed"),
        ];
        reasons.into_iter().find(|(bit, _)| self.warnings >> bit & 1 == 1).map(|(_, text)| text)
    }
}

/// Asks the NVMe drive at `path`, a block device or a controller. Waits for a second at most.
///
/// # Errors
/// When it cannot be opened, is not NVMe (`ENOTTY`), the caller may not ask (`EACCES`), or it does not answer.
pub fn nvme_health(path: &Path) -> io::Result<Health> {
    let file = File::open(path)?;
    let mut page = [0u8; PAGE_BYTES];
    let dwords = (PAGE_BYTES / 4 - 1) as u32;
    let mut command = Command {
        opcode: GET_LOG_PAGE,
        namespace: ALL_NAMESPACES,
        data: page.as_mut_ptr() as u64,
        data_bytes: PAGE_BYTES as u32,
        cdw10: dwords << 16 | LOG_HEALTH,
        timeout_ms: TIMEOUT_MS,
        ..Command::default()
    };
    // SAFETY: the file is open; the command has the layout that this request number stands for, and its buffer is
    // exactly as long as it says. Both live until the call, which is synchronous, is over.
    let status = unsafe { libc::ioctl(file.as_raw_fd(), ADMIN_COMMAND, &raw mut command) };
    match status {
        0 => Ok(Health::decode(&page)),
        negative if negative < 0 => Err(io::Error::last_os_error()),
        refused => {
            Err(io::Error::other(format!("the drive refused with NVMe status {refused:#x}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Health, PAGE_BYTES, Path, nvme_health};

    #[test]
    fn a_health_page_is_read_field_by_field() {
        let mut page = [0; PAGE_BYTES];
        page[0] = 0b0000_0110;
        page[1..3].copy_from_slice(&311_u16.to_le_bytes());
        page[3..6].copy_from_slice(&[97, 10, 104]);
        page[160..168].copy_from_slice(&7_u64.to_le_bytes());
        let health = Health::decode(&page);
        let want = Health {
            warnings: 6,
            temperature_c: Some(38),
            spare_percent: 97,
            spare_threshold_percent: 10,
            wear_percent: 104,
            media_errors: 7,
        };
        assert_eq!(health, want);
        assert!(health.prediction().is_some_and(|why| why.contains("unreliable")));
        assert_eq!(Health { warnings: 2, ..want }.prediction(), None, "warm is not failing");
        assert_eq!(Health::decode(&[0; PAGE_BYTES]).temperature_c, None);
    }

    #[test]
    fn what_is_no_nvme_drive_says_so() {
        assert!(nvme_health(Path::new("/dev/null")).is_err());
        assert!(nvme_health(Path::new("/nowhere")).is_err());
    }
}
