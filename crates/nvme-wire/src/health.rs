//! Reports of a drive about its own state: the SMART / Health Information log page, entries of the error log, and the
//! extended page of the Open Compute Project.
//!
//! Base is revision 2.0; the layouts are the same in 2.1. OCP is the *Datacenter NVMe SSD Specification 2.0*.

use crate::bytes::{array_at, u16_at, u32_at, u64_at};
use crate::log::{ERROR_BYTES, HEALTH_BYTES};

/// Identifier of the list of supported log pages (Base, section 5.16.1.1).
pub const LIST_PAGE: u8 = 0x00;
/// Bytes of that page.
pub const LIST_BYTES: usize = 1024;

/// Log page support of a controller (Base, Figure 275).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogPages {
    /// Entries of the error log (ELPE).
    pub error_entries: usize,
    /// Whether the list of supported log pages exists (LPA bit 5).
    pub has_list: bool,
}

impl LogPages {
    /// Parses the Identify page of the controller.
    #[must_use]
    pub const fn of(page: &[u8; 4096]) -> Self {
        Self { error_entries: page[262] as usize + 1, has_list: page[261] & 1 << 5 != 0 }
    }
}

/// True if the list of supported log pages contains `page` (Base, Figures 203 and 204: bit 0 of four bytes for each).
#[must_use]
pub const fn is_listed(list: &[u8; LIST_BYTES], page: u8) -> bool {
    list[4 * page as usize] & 1 != 0
}

/// Identifier of the SMART / Health Information Extended page (OCP, section 4.8.6). Without OCP, a vendor may use it
/// for another page: only the GUID identifies the page.
pub const OCP_PAGE: u8 = 0xc0;
/// Bytes of that page.
pub const OCP_BYTES: usize = 512;
/// The GUID of the page, AFD514C9-7C6F-4F9C-A4F2-BFEA2810AFC5, in the byte order of its last 16 bytes.
const OCP_GUID: [u8; 16] = [
    0xc5, 0xaf, 0x10, 0x28, 0xea, 0xbf, 0xf2, 0xa4, 0x9c, 0x4f, 0x6f, 0x7c, 0xc9, 0x14, 0xd5, 0xaf,
];

/// A bit of the Critical Warning field (Base, Figure 207, byte 0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Warning {
    /// Bit 0: the available spare is below its threshold.
    Spare,
    /// Bit 1: a temperature is beyond a threshold.
    Temperature,
    /// Bit 2: the NVM subsystem is unreliable because of media errors or internal errors.
    Reliability,
    /// Bit 3: all of the media is read-only.
    ReadOnly,
    /// Bit 4: the volatile memory backup has failed.
    Backup,
    /// Bit 5: the persistent memory region is read-only or unreliable.
    PersistentMemory,
}

impl Warning {
    /// Every bit, in order.
    pub const ALL: [Self; 6] = [
        Self::Spare,
        Self::Temperature,
        Self::Reliability,
        Self::ReadOnly,
        Self::Backup,
        Self::PersistentMemory,
    ];

    const fn bit(self) -> u8 {
        1 << self as u8
    }

    /// The name of the warning in messages.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Spare => "spare",
            Self::Temperature => "temperature",
            Self::Reliability => "reliability",
            Self::ReadOnly => "read_only",
            Self::Backup => "backup",
            Self::PersistentMemory => "persistent_memory",
        }
    }
}

/// The SMART data of a drive (Base, section 5.16.1.3, Figure 207). A 128-bit counter above the range of 64 bits is
/// decoded as the largest 64-bit number, which no drive reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Smart {
    /// The critical warning: see [`Warning`].
    pub warnings: u8,
    /// Degrees Celsius; absent if the drive does not report them.
    pub temperature_c: Option<i32>,
    /// Percent of the spare blocks that are left.
    pub spare_percent: u8,
    /// Percent of spare blocks below which the drive warns.
    pub spare_threshold_percent: u8,
    /// Percent of the rated endurance that is used; may exceed 100.
    pub wear_percent: u8,
    /// Data that hosts have read, in units of 512,000 bytes.
    pub read_units: u64,
    /// Data that hosts have written, in units of 512,000 bytes.
    pub written_units: u64,
    /// Read commands of hosts.
    pub reads: u64,
    /// Write commands of hosts.
    pub writes: u64,
    /// Minutes in which the controller executed commands.
    pub busy_minutes: u64,
    /// Number of power-ons.
    pub power_cycles: u64,
    /// Hours with power.
    pub power_on_hours: u64,
    /// Power losses without a shutdown notification.
    pub unsafe_shutdowns: u64,
    /// Unrecovered data errors.
    pub media_errors: u64,
    /// Entries that were added to the error log.
    pub log_entries: u64,
    /// Minutes above the warning temperature.
    pub warm_minutes: u32,
    /// Minutes above the critical temperature.
    pub hot_minutes: u32,
    /// Degrees Celsius of each existing sensor.
    pub sensors_c: [Option<i32>; 8],
}

impl Smart {
    /// Parses the page.
    #[must_use]
    pub fn decode(page: &[u8; HEALTH_BYTES]) -> Self {
        Self {
            warnings: page[0],
            temperature_c: celsius(u16_at(page, 1)),
            spare_percent: page[3],
            spare_threshold_percent: page[4],
            wear_percent: page[5],
            read_units: long_at(page, 32),
            written_units: long_at(page, 48),
            reads: long_at(page, 64),
            writes: long_at(page, 80),
            busy_minutes: long_at(page, 96),
            power_cycles: long_at(page, 112),
            power_on_hours: long_at(page, 128),
            unsafe_shutdowns: long_at(page, 144),
            media_errors: long_at(page, 160),
            log_entries: long_at(page, 176),
            warm_minutes: u32_at(page, 192),
            hot_minutes: u32_at(page, 196),
            sensors_c: std::array::from_fn(|sensor| celsius(u16_at(page, 200 + 2 * sensor))),
        }
    }

    /// The active warnings.
    pub fn warned(&self) -> impl Iterator<Item = Warning> {
        let bits = self.warnings;
        Warning::ALL.into_iter().filter(move |warning| bits & warning.bit() != 0)
    }

    /// The reason for a predicted failure, if the drive predicts one. A high temperature is not such a reason.
    #[must_use]
    pub fn prediction(&self) -> Option<&'static str> {
        let reasons = [
            (Warning::ReadOnly, "the drive has become read-only to protect its data"),
            (Warning::Reliability, "the drive calls itself unreliable because of many errors"),
            (Warning::Spare, "the drive runs out of spare blocks"),
            (Warning::Backup, "the drive's backup for power cuts has failed"),
        ];
        let is_set = |warning: Warning| self.warnings & warning.bit() != 0;
        reasons.into_iter().find(|(warning, _)| is_set(*warning)).map(|(_, text)| text)
    }
}

/// An entry of the error log (Base, section 5.16.1.2, Figure 205).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorEntry {
    /// The number of the error, from 1 on.
    pub number: u64,
    /// The queue of the command.
    pub queue: u16,
    /// The CID of the command.
    pub cid: u16,
    /// The status of the command: status code type (bits 10:8) and status code (7:0).
    pub status: u16,
    /// The first block of the command, if it had blocks.
    pub block: u64,
    /// The namespace of the command.
    pub namespace: u32,
}

impl ErrorEntry {
    /// Parses an entry; `None` if it is unused.
    #[must_use]
    pub fn decode(entry: &[u8; ERROR_BYTES]) -> Option<Self> {
        let number = u64_at(entry, 0);
        (number != 0).then(|| Self {
            number,
            queue: u16_at(entry, 8),
            cid: u16_at(entry, 10),
            // Bit 0 is the phase tag; the bits above the code and its type are hints for the host.
            status: u16_at(entry, 12) >> 1 & 0x7ff,
            block: u64_at(entry, 16),
            namespace: u32_at(entry, 24),
        })
    }

    /// Parses the entries of a page, newest first. The log has had `count` errors. The content behind the kept entries
    /// is undefined: the list ends at the first entry that cannot be older than its predecessor.
    #[must_use]
    pub fn newest(page: &[u8], count: u64) -> Vec<Self> {
        let mut most = count;
        let entries = page.as_chunks().0.iter().map_while(Self::decode);
        let is_older = |entry: &Self| {
            let is_older = entry.number <= most;
            most = entry.number.saturating_sub(1);
            is_older
        };
        entries.take_while(is_older).collect()
    }
}

/// The additional fields of drives for data centers (OCP, section 4.8.6, SMART-1 and following).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ocp {
    /// Bytes written to the media.
    pub physical_written_bytes: u64,
    /// Bytes read from the media.
    pub physical_read_bytes: u64,
    /// NAND blocks of the user area that are out of use.
    pub bad_user_blocks: u64,
    /// NAND blocks of the system area that are out of use.
    pub bad_system_blocks: u64,
    /// Recoveries of data by the drive's internal parity.
    pub xor_recoveries: u64,
    /// Uncorrectable reads.
    pub uncorrectable_reads: u64,
    /// Reads that needed more than the usual correction.
    pub soft_ecc_errors: u64,
    /// Detected errors of the internal data path.
    pub end_to_end_detected: u32,
    /// Corrected errors of the internal data path.
    pub end_to_end_corrected: u32,
    /// Percent of the endurance of the system blocks that is used.
    pub system_wear_percent: u8,
    /// Number of thermal throttlings.
    pub throttlings: u8,
    /// Corrected PCIe errors.
    pub pcie_correctable: u64,
    /// Shutdowns that were not completed before the power loss.
    pub incomplete_shutdowns: u32,
    /// Percent of free blocks.
    pub free_percent: u8,
    /// Percent of the required hold-up energy that the capacitors have; 65,535 if the drive does not report it.
    pub capacitor_percent: u16,
    /// Number of PCIe link retrainings.
    pub link_retrainings: u64,
}

impl Ocp {
    /// Parses the page; `None` if it is another vendor's page with the same number.
    #[must_use]
    pub fn decode(page: &[u8; OCP_BYTES]) -> Option<Self> {
        (array_at::<OCP_BYTES, 16>(page, 496) == OCP_GUID).then(|| Self {
            physical_written_bytes: long_at(page, 0),
            physical_read_bytes: long_at(page, 16),
            bad_user_blocks: u48_at(page, 32),
            bad_system_blocks: u48_at(page, 40),
            xor_recoveries: u64_at(page, 48),
            uncorrectable_reads: u64_at(page, 56),
            soft_ecc_errors: u64_at(page, 64),
            end_to_end_detected: u32_at(page, 72),
            end_to_end_corrected: u32_at(page, 76),
            system_wear_percent: page[80],
            throttlings: page[96],
            pcie_correctable: u64_at(page, 104),
            incomplete_shutdowns: u32_at(page, 112),
            free_percent: page[120],
            capacitor_percent: u16_at(page, 128),
            link_retrainings: u64_at(page, 192),
        })
    }
}

/// Degrees Celsius of a temperature in kelvins; 0 means none.
fn celsius(kelvin: u16) -> Option<i32> {
    (kelvin != 0).then(|| i32::from(kelvin) - 273)
}

/// The 128-bit number at `at`; `u64::MAX` if it exceeds 64 bits.
fn long_at<const N: usize>(page: &[u8; N], at: usize) -> u64 {
    if u64_at(page, at + 8) == 0 { u64_at(page, at) } else { u64::MAX }
}

fn u48_at<const N: usize>(page: &[u8; N], at: usize) -> u64 {
    u64::from(u32_at(page, at)) | u64::from(u16_at(page, at + 4)) << 32
}

#[cfg(test)]
mod tests;
