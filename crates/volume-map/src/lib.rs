//! The map of volumes: which cluster holds which blocks of a volume, snapshot or clone.
//!
//! **What it is.** A pool is divided into clusters. A volume is a root of references to leaves, and a leaf has one
//! entry per cluster; snapshots and clones share leaves, and clusters count their references. A write to an unmapped or
//! shared cluster takes a new one and writes only its own blocks: the cluster is *partial*, and its other blocks are
//! those of a base, or zero. [`VolumeMap`] has the operations: each returns steps (reads and writes of clusters) and
//! records, in the order that keeps every promise through a crash. A record exists only after the data that it refers
//! to are stable; an operation ends only after its record is stable; a cluster is used again only after the record that
//! freed it is stable and older I/Os have completed. [`Image`] is a checkpoint, and [`VolumeMap::open`] replays the log
//! over it.
//!
//! **What it must never do.** No I/O, clock, threads, randomness or `unsafe`; a lookup does not allocate. No bytes of
//! an image or a log make it panic. `strake-volume` is the driver; decision 39 lists under *Open* what is missing.
//!
//! **Where to start.** [`VolumeMap`] for the interface to a driver, [`Request`], [`Step`] and [`Progress`] for
//! operations as values, [`Change`] for records, then `operation/io.rs` for the orders of a write.
//! `docs/decisions/0039-volume-map.md` has the choices, and ARCHITECTURE.md the orders with their tests.

#![forbid(unsafe_code)]

mod apply;
mod begin;
mod blocks;
mod body;
mod checks;
mod clusters;
mod codec;
mod difference;
mod epoch;
mod error;
mod found;
mod free;
mod ids;
mod image;
pub mod limits;
mod log;
mod needs;
mod operation;
mod record;
mod replay;
mod root;
mod shape;
mod space;
mod state;
mod step_kind;
mod tables;
mod volume_map;
mod waiting;

pub use blocks::{BlockSet, Blocks, Partial};
pub use difference::{Differences, Span};
pub use epoch::Epoch;
pub use error::{Error, ErrorKind};
pub use ids::{ClusterId, LeafId, Number, OperationId, Ring, Start, VolumeId};
pub use image::Image;
pub use log::{LogScan, decode_record, encode_record, follows, scan_log};
pub use operation::{Done, Progress, Request, Stability, Step, Tail, Wait};
pub use record::{Change, Cut, Record, SpacePolicy, VolumesChange};
pub use shape::{Shape, cluster_bytes};
pub use space::{PoolSpace, VolumeSpace};
pub use step_kind::StepKind;
pub use tables::{Part, Parts, Source, Volume, VolumeKind};
pub use volume_map::{Direct, VolumeMap};
pub use waiting::Revoked;

#[cfg(test)]
mod tests;
