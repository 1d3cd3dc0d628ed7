//! Checksums of strips: the two that NVMe drives and file formats agree on.
//!
//! Not our craft: `crc-fast` computes them with carry-less multiplication and chooses its instructions itself.

use crc_fast::CrcAlgorithm;

/// CRC-32C (Castagnoli; RFC 3720, section 12.1): of iSCSI, ext4 and NVMe.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// CRC-64/NVME (NVM Command Set Specification, section 5.2.1.3.4): 64-bit protection information.
#[must_use]
pub fn crc64_nvme(bytes: &[u8]) -> u64 {
    crc_fast::checksum(CrcAlgorithm::Crc64Nvme, bytes)
}
