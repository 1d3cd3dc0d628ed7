//! Admission of I/O commands: the checks of the values that a host sends, before they reach a device.
//!
//! All functions are pure, so each rule of the specifications is one line of a table in a test.

use crate::limits::{COPY_BYTES_MAX, EFFECT_BYTES_MAX, IN_CAPSULE_BYTES, TRANSFER_BYTES_MAX};
use crate::reservation::Rights;
use strake_block::Durability;
pub use strake_export_net::{Ability, Access};
use strake_nvme_wire::command::Fuse;
use strake_nvme_wire::identify::CopyLimits;
use strake_nvme_wire::nvm::{
    Blocks, Copy, Dataset, RANGE_BYTES, RANGES_MAX, Range, SOURCE_BYTES, SourceRange, opcode,
};
use strake_nvme_wire::{Sgl, SglError, Sqe, Status};
use strake_units::{BlockSize, Lba, LbaRange};

/// Properties of a namespace that commands are checked against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Size of the namespace in logical blocks.
    pub blocks: u64,
    /// Size of a block.
    pub block: BlockSize,
    /// Whether the namespace is writable.
    pub access: Access,
    /// Whether the device can deallocate.
    pub deallocate: Ability,
}

impl Terms {
    /// The limits of one Copy (NVM, section 3.2.2).
    #[must_use]
    pub const fn copy(&self) -> CopyLimits {
        let blocks = (COPY_BYTES_MAX >> self.block.shift()) as u32;
        let source_blocks = if blocks > u16::MAX as u32 { u16::MAX } else { blocks as u16 };
        CopyLimits { sources: RANGES_MAX as u16, source_blocks, blocks }
    }
}

/// Whether a read may be answered from a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// The cache may be used.
    Any,
    /// The data is on non-volatile media before it is returned (Force Unit Access).
    Stable,
}

/// The operation of an admitted command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Read and send data.
    Read(LbaRange, Freshness),
    /// Receive and write data.
    Write(LbaRange, Durability),
    /// Write zeroes to a range.
    Zeroes(LbaRange, Durability),
    /// Receive this number of ranges and deallocate them.
    Deallocate(u32),
    /// Receive this number of ranges, which are only hints about use.
    Advice(u32),
    /// Receive this number of source ranges, and copy them to the blocks from this block on.
    Copy(Lba, u32, Durability),
    /// Receive data, and compare the data with the blocks.
    Compare(LbaRange, Freshness),
    /// Read, and send no data.
    Verify(LbaRange, Freshness),
    /// Make completed writes stable.
    Flush,
}

/// The data of a command, from the controller's view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// No data.
    Nothing,
    /// This number of bytes is sent to the host.
    Send(u32),
    /// Bytes from the host. Linux sends all 256 ranges of Dataset Management, even if the command uses fewer.
    Receive {
        /// The number of bytes that the command needs.
        least: u32,
        /// The number of bytes that the host may send.
        most: u32,
    },
}

impl Work {
    /// The first block that the command addresses, if the command has one.
    #[must_use]
    pub const fn first_block(&self) -> Option<Lba> {
        match self {
            Self::Read(range, _)
            | Self::Write(range, _)
            | Self::Zeroes(range, _)
            | Self::Compare(range, _)
            | Self::Verify(range, _) => Some(range.start),
            Self::Copy(to, ..) => Some(*to),
            Self::Deallocate(_) | Self::Advice(_) | Self::Flush => None,
        }
    }

    /// The data of the command, on a namespace with blocks of `block`.
    #[must_use]
    pub const fn need(&self, block: BlockSize) -> Need {
        match self {
            Self::Read(range, _) => Need::Send((range.blocks << block.shift()) as u32),
            Self::Write(range, _) | Self::Compare(range, _) => {
                let bytes = (range.blocks << block.shift()) as u32;
                Need::Receive { least: bytes, most: bytes }
            }
            Self::Deallocate(ranges) | Self::Advice(ranges) => Need::Receive {
                least: *ranges * RANGE_BYTES as u32,
                most: (RANGES_MAX * RANGE_BYTES) as u32,
            },
            Self::Copy(_, sources, _) => Need::Receive {
                least: *sources * SOURCE_BYTES as u32,
                most: (RANGES_MAX * SOURCE_BYTES) as u32,
            },
            Self::Zeroes(..) | Self::Verify(..) | Self::Flush => Need::Nothing,
        }
    }
}

/// Checks that a command can be this half of a fused operation. The only fused operation is Compare and Write of one
/// block, because writes of one block are atomic (NVM, section 2.1.4, ACWU).
///
/// Returns the status of the completion.
pub fn fused(fuse: Fuse, work: &Work) -> Result<(), Status> {
    match (fuse, work) {
        (Fuse::Alone, _) => Ok(()),
        (Fuse::First, Work::Compare(range, _)) | (Fuse::Second, Work::Write(range, _))
            if range.blocks == 1 =>
        {
            Ok(())
        }
        (Fuse::First | Fuse::Second | Fuse::Reserved, _) => Err(Status::INVALID_FIELD),
    }
}

/// Decides on a command of an I/O queue to a namespace with these `terms` (NVM, section 3.2).
///
/// Returns the status of the completion.
pub fn admit(sqe: &Sqe, terms: &Terms) -> Result<Work, Status> {
    let work = match sqe.opcode() {
        opcode::FLUSH => Work::Flush,
        opcode::READ | opcode::COMPARE | opcode::VERIFY | opcode::WRITE | opcode::WRITE_ZEROES => {
            blocks(sqe, terms)?
        }
        opcode::DATASET_MANAGEMENT => dataset(sqe, terms)?,
        opcode::COPY => copy(sqe, terms)?,
        _ => return Err(Status::INVALID_OPCODE),
    };
    fused(sqe.fuse(), &work)?;
    Ok(work)
}

/// Checks that reservations permit this command to a host. A host with read access only may issue no command of the
/// write group, which includes Flush and Dataset Management (Base, section 8.19.3; NVM, section 3.2).
///
/// Returns a reservation conflict if they do not.
pub const fn permit(work: &Work, rights: Rights) -> Result<(), Status> {
    match (rights, work) {
        (Rights::All, _)
        | (Rights::Read, Work::Read(..) | Work::Compare(..) | Work::Verify(..)) => Ok(()),
        (
            Rights::Read,
            Work::Write(..)
            | Work::Zeroes(..)
            | Work::Deallocate(_)
            | Work::Copy(..)
            | Work::Advice(_)
            | Work::Flush,
        )
        | (Rights::Nothing, _) => Err(Status::RESERVATION_CONFLICT),
    }
}

/// If the device cannot deallocate, the command is treated as advice, which the specification permits.
fn dataset(sqe: &Sqe, terms: &Terms) -> Result<Work, Status> {
    let dataset = Dataset::parse(sqe);
    if !dataset.deallocate {
        return Ok(Work::Advice(dataset.ranges));
    }
    writable(terms)?;
    Ok(match terms.deallocate {
        Ability::Present => Work::Deallocate(dataset.ranges),
        Ability::Absent => Work::Advice(dataset.ranges),
    })
}

/// The destination is in the command; the length is known when the ranges have arrived.
fn copy(sqe: &Sqe, terms: &Terms) -> Result<Work, Status> {
    let copy = Copy::parse(sqe);
    if copy.format != 0 || copy.directive {
        return Err(Status::INVALID_FIELD);
    }
    writable(terms)?;
    Ok(Work::Copy(Lba(copy.to), copy.sources, durability(copy.force_unit_access)))
}

const fn durability(force_unit_access: bool) -> Durability {
    if force_unit_access { Durability::Fua } else { Durability::Normal }
}

const fn writable(terms: &Terms) -> Result<(), Status> {
    match terms.access {
        Access::ReadWrite => Ok(()),
        Access::ReadOnly => Err(Status::WRITE_PROTECTED),
    }
}

fn blocks(sqe: &Sqe, terms: &Terms) -> Result<Work, Status> {
    let blocks = Blocks::parse(sqe);
    let bytes = u64::from(blocks.count) << terms.block.shift();
    let durability = durability(blocks.force_unit_access);
    let most = match sqe.opcode() {
        opcode::WRITE_ZEROES => EFFECT_BYTES_MAX,
        _ => u64::from(TRANSFER_BYTES_MAX),
    };
    if bytes > most {
        return Err(Status::INVALID_FIELD);
    }
    let range = inside(blocks.start, u64::from(blocks.count), terms)?;
    let fresh = if blocks.force_unit_access { Freshness::Stable } else { Freshness::Any };
    match sqe.opcode() {
        opcode::READ => return Ok(Work::Read(range, fresh)),
        opcode::COMPARE => return Ok(Work::Compare(range, fresh)),
        opcode::VERIFY => return Ok(Work::Verify(range, fresh)),
        _ => {}
    }
    if blocks.directive {
        return Err(Status::INVALID_FIELD);
    }
    writable(terms)?;
    Ok(match sqe.opcode() {
        opcode::WRITE_ZEROES => Work::Zeroes(range, durability),
        _ => Work::Write(range, durability),
    })
}

fn inside(start: u64, count: u64, terms: &Terms) -> Result<LbaRange, Status> {
    let end = start.checked_add(count);
    if end.is_none_or(|end| end > terms.blocks) {
        return Err(Status::OUT_OF_RANGE);
    }
    Ok(LbaRange::new(Lba(start), count))
}

/// Parses a range of Dataset Management, which may be empty.
///
/// # Errors
/// Returns an error if the range is not inside the namespace.
pub fn range(bytes: &[u8; RANGE_BYTES], terms: &Terms) -> Result<LbaRange, Status> {
    let range = Range::parse(bytes);
    inside(range.start, u64::from(range.count), terms)
}

/// Parses a source range of Copy.
///
/// # Errors
/// Returns an error if the range is longer than the limit, or not inside the namespace.
pub fn source_range(bytes: &[u8; SOURCE_BYTES], terms: &Terms) -> Result<LbaRange, Status> {
    let range = SourceRange::parse(bytes);
    if range.count > u32::from(terms.copy().source_blocks) {
        return Err(Status::SIZE_LIMIT);
    }
    inside(range.start, u64::from(range.count), terms)
}

/// Checks a Copy of these `sources` to the blocks from `to` on. A Copy is executed in pieces, so its sources may not
/// overlap its destination (NVM 1.1, section 3.2.2.5, "Overlapping I/O Range").
///
/// Returns the status of the completion.
pub fn copied(
    to: Lba,
    sources: impl Iterator<Item = Result<LbaRange, Status>> + Clone,
    terms: &Terms,
) -> Result<(), Status> {
    let blocks = sources.clone().try_fold(0, |sum, range| Ok(sum + range?.blocks))?;
    if blocks > u64::from(terms.copy().blocks) {
        return Err(Status::SIZE_LIMIT);
    }
    let written = inside(to.0, blocks, terms)?;
    if sources.flatten().any(|range| range.overlaps(written)) {
        return Err(Status::OVERLAP);
    }
    Ok(())
}

/// The location of the data of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// There is no data, or the controller sends the data.
    Nothing,
    /// This number of bytes is in the capsule.
    Capsule(u32),
    /// The host keeps this number of bytes until an R2T requests them.
    Host(u32),
}

/// Checks that the data descriptor of a command fits its `need` and the `carried` bytes of data in its capsule (TCP,
/// section 3.3.2).
///
/// Returns the status of the completion.
pub fn source(sqe: &Sqe, need: Need, carried: u32) -> Result<Source, Status> {
    let sgl = match need {
        Need::Nothing => return Ok(Source::Nothing),
        Need::Send(_) | Need::Receive { .. } => sqe.sgl(),
    };
    let sgl = sgl.map_err(|error| match error {
        SglError::Kind => Status::SGL_TYPE,
    })?;
    match (need, sgl) {
        (Need::Send(bytes), Sgl::Transport { length }) if length >= bytes => Ok(Source::Nothing),
        (Need::Send(_), Sgl::InCapsule { .. }) => Err(Status::SGL_TYPE),
        (Need::Receive { .. }, Sgl::InCapsule { offset, .. }) if offset != 0 => {
            Err(Status::SGL_OFFSET)
        }
        (Need::Receive { least, most }, Sgl::InCapsule { length, .. })
            if (least..=most).contains(&length)
                && length == carried
                && length <= IN_CAPSULE_BYTES =>
        {
            Ok(Source::Capsule(length))
        }
        (Need::Receive { least, most }, Sgl::Transport { length })
            if (least..=most).contains(&length) && carried == 0 =>
        {
            Ok(Source::Host(length))
        }
        (Need::Nothing | Need::Send(_) | Need::Receive { .. }, _) => Err(Status::SGL_LENGTH),
    }
}

#[cfg(test)]
mod tests;
