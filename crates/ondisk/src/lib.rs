//! What Strake writes on a drive besides user data, and which drives form an array.
//!
//! **What it is.** Codecs between values and bytes (labels, bitmap pages, the protective partition table), the places
//! those bytes have on a drive, and the decision which labels found on drives form an array. The format is described
//! byte for byte in `docs/on-disk.md`, and images of every released version are opened by tests forever.
//!
//! **What it must never do.** No I/O, clock, threads, randomness or `unsafe`; the caller reads the drive and passes
//! the bytes. No bytes, however hostile, make it panic. It never decides about redundancy: how many failures an array
//! tolerates follows from the geometry, which `strake-raid` owns.
//!
//! **Where to start.** [`layout`] for where things are, [`slot`] for which copy of a record counts, [`superblock`] for
//! the label, [`bitmap`] for the bitmaps of region bits, [`bad_blocks`] for what is lost, [`ring`] and [`redo`] for
//! writes in progress, then [`mod@assemble`], which turns labels into arrays or says why not.

#![forbid(unsafe_code)]

pub mod areas;
pub mod assemble;
pub mod bad_blocks;
pub mod bitmap;
mod bytes;
pub mod config_record;
mod consistency;
pub mod error;
pub mod features;
pub mod foreign;
pub mod gpt;
mod labels;
pub mod layout;
pub mod limits;
pub mod lineage;
pub mod partial_write;
pub mod pool;
pub mod recovery;
pub mod redo;
pub mod ring;
pub mod slot;
pub mod superblock;

pub use areas::{AREAS, Area, AreaKind, Areas, Format, data_bytes_of_2};
pub use assemble::{
    Assembled, AssembledMember, Difference, Found, IgnoreReason, Lacks, Policy, Refusal, Stale,
    StaleReason, Verdict, assemble,
};
pub use bad_blocks::{
    BAD_PAGES, BAD_RUNS_MAX, BAD_SLOT_BYTES, BadEvent, BadList, BadListFull, BadRun, Badness,
    newest_bad_list,
};
pub use bitmap::{
    Bitmap, Bits, PAGE_BITS, PAGES_PER_BITMAP, PageRecord, REGIONS_MAX, encode_page, newest_page,
};
pub use config_record::{
    CONFIG_BYTES_MAX, CONFIG_HEADER_BYTES, CONFIG_SLOT_BYTES, config_bytes, decode_config,
    encode_config,
};
pub use consistency::Consistency;
pub use error::{LabelError, LabelErrorKind};
pub use features::{
    COMPAT_AFTER_CRASH, COMPAT_CLEAN_START, COMPAT_HISTORY, COMPAT_MEMBER_BITMAPS, COMPAT_REMOTE,
    Features, INCOMPAT_BAD_BLOCKS, INCOMPAT_IN_DOUBT, INCOMPAT_PARTIAL_WRITES, INCOMPAT_REDO,
};
pub use foreign::{
    FOREIGN_HEAD_BYTES, Foreign, OnDrive, foreign_signature, is_claimed_behind, written_over,
};
pub use gpt::{protective_head, protective_tail};
pub use labels::{RingScan, newest, ring_labels};
pub use layout::{
    AreaLayout, BITMAP_BYTES, Copy, HEAD_BYTES, MEMBER_BYTES_MIN, RING_SLOTS, SLOT_BYTES,
    TAIL_BYTES,
};
pub use limits::{FOREIGN_TAIL_BYTES, MEMBERS_MAX, VERSION};
pub use lineage::{
    Activation, HISTORY_MAX, REPLACEMENTS_MAX, ReplacementRecord, Returning, returning,
};
pub use partial_write::{
    PARTIAL_WRITE_BLOCKS_MAX, PARTIAL_WRITE_PARITIES_MAX, PartialWrite, PartialWriteList,
    PartialWritePlace, WITNESS_BYTES, Witness,
};
pub use pool::{
    LOG_HEADER_BYTES, LOG_PAYLOAD_MAX, LogBlock, LogStart, POOL_BLOCK_BYTES, POOL_HEADER_BYTES,
    PoolHeader, PoolSlot, RootHeader, decode_log_block, decode_pool_header, decode_root_header,
    device_mark, encode_log_block, encode_pool_header, encode_root_header, newest_pool_header,
};
pub use redo::{
    REDO_BLOCK_BYTES, REDO_HEADER_BYTES, REDO_PAYLOAD_MAX, RedoHeader, RedoPart, RedoPayload,
    RedoRecord, decode_redo, encode_redo, encode_redo_again,
};
pub use ring::{REDO_LEAD_BYTES, redo_ring};
pub use slot::{PAGE_BYTES, SEQUENCE_MAX, Sequenced, newer, newest_of};
pub use superblock::{Address, GeometryRecord, MemberRecord, RecordedState, Superblock};

#[cfg(test)]
mod tests;
