//! Checksums of strips: the two checksums that NVMe drives and file formats use.
//!
//! The crate `crc-fast` computes them with carry-less multiplication and selects the instructions itself. Without wide
//! carry-less multiplication, the CRC-32C of the host's CRC instruction takes fewer instructions.

use crc_fast::{CrcAlgorithm, Digest};

use crate::kernels;

/// Returns the CRC-32C (Castagnoli; RFC 3720, section 12.1), which iSCSI, ext4 and NVMe use.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c_append(0, bytes)
}

/// Returns the CRC-32C of a message whose start has the CRC-32C `so_far` (0 for nothing) and which continues with
/// `bytes`.
#[must_use]
pub fn crc32c_append(so_far: u32, bytes: &[u8]) -> u32 {
    if let Some(state) = kernels::crc32c(!so_far, bytes) {
        return !state;
    }
    if so_far == 0 {
        // This is faster, and any message with this CRC has the state of the empty message.
        return crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32;
    }
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!so_far));
    digest.update(bytes);
    digest.finalize() as u32
}

/// Returns the CRC-64/NVME (NVM Command Set Specification, section 5.2.1.3.4), which 64-bit protection information
/// uses.
#[must_use]
pub fn crc64_nvme(bytes: &[u8]) -> u64 {
    crc_fast::checksum(CrcAlgorithm::Crc64Nvme, bytes)
}
