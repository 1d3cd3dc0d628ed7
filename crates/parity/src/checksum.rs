//! Checksums of strips: the two checksums that NVMe drives and file formats use.
//!
//! The crate `crc-fast` computes them with carry-less multiplication and selects the instructions itself.

use crc_fast::CrcAlgorithm;

/// Returns the CRC-32C (Castagnoli; RFC 3720, section 12.1), which iSCSI, ext4 and NVMe use.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// Returns the CRC-64/NVME (NVM Command Set Specification, section 5.2.1.3.4), which 64-bit protection information
/// uses.
#[must_use]
pub fn crc64_nvme(bytes: &[u8]) -> u64 {
    crc_fast::checksum(CrcAlgorithm::Crc64Nvme, bytes)
}
