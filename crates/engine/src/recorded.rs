//! Constants of other crates that labels record, against the table in `strake_ondisk::recovery`.
//!
//! Recovery reads them, so a program with another value must not open what one with these values wrote. Changing one
//! does not compile until the table says so too, and then labels of before are refused by the constant's name.

use strake_ondisk::recovery::{BAND_BYTES, FIELD_POLYNOMIAL};

const _: () = assert!(strake_raid::BAND_BYTES_MAX == BAND_BYTES);
const _: () = assert!(strake_parity::FIELD_POLYNOMIAL as u32 == FIELD_POLYNOMIAL);
const _: () = assert!(strake_raid::MEMBERS_MAX == strake_ondisk::MEMBERS_MAX);
const _: () = assert!(strake_raid::REGIONS_MAX == strake_ondisk::REGIONS_MAX as u64);
