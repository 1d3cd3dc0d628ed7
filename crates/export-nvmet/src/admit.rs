//! What an I/O command may do: the checks between a host's numbers and a device.
//!
//! Pure functions, so that every rule of the specifications is one line of a table in a test.

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

/// What commands are checked against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Size of the namespace.
    pub blocks: u64,
    /// Size of a block.
    pub block: BlockSize,
    /// Whether the namespace may be changed.
    pub access: Access,
    /// Whether the device can deallocate.
    pub deallocate: Ability,
}

impl Terms {
    /// What one Copy may do (NVM, section 3.2.2).
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
    /// It may.
    Any,
    /// What it returns is on the medium first (Force Unit Access).
    Stable,
}

/// What to do for an acceptable command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Read and send data.
    Read(LbaRange, Freshness),
    /// Receive and write data.
    Write(LbaRange, Durability),
    /// Make a range read as zeroes.
    Zeroes(LbaRange, Durability),
    /// Receive as many ranges and deallocate them.
    Deallocate(u32),
    /// Receive as many ranges, which are only a hint about use.
    Advice(u32),
    /// Receive so many source ranges, and write what is in them from this block on.
    Copy(Lba, u32, Durability),
    /// Receive data, and say whether it is what is there.
    Compare(LbaRange, Freshness),
    /// Read, and send nothing.
    Verify(LbaRange, Freshness),
    /// Make completed writes stable.
    Flush,
}

/// Data of a command, seen from the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// None.
    Nothing,
    /// As many bytes for the host.
    Send(u32),
    /// Bytes from the host. Linux sends all 256 ranges of Dataset Management, however few of them it means.
    Receive {
        /// As many are needed.
        least: u32,
        /// As many may come.
        most: u32,
    },
}

impl Work {
    /// The first block that it is about, if there is one.
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

    /// The data it needs, on a namespace with blocks of `block`.
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

/// Whether a command can be what it says of a fused operation: of these there is Compare and Write of one block, which
/// is what is written whole (NVM, section 2.1.4, ACWU).
///
/// # Errors
/// With the status to answer.
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
/// # Errors
/// With the status to answer.
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

/// Whether reservations permit this command to a host. A host that may only read may issue no command of the write
/// group, which includes Flush and Dataset Management (Base, section 8.19.3; NVM, section 3.2).
///
/// # Errors
/// When they do not.
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

/// A device that cannot deallocate takes the wish as advice, which a wish to deallocate is by definition.
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

/// Where to is known, and how much comes with the ranges.
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

/// A range of Dataset Management, which may be empty.
///
/// # Errors
/// When it is not inside the namespace.
pub fn range(bytes: &[u8; RANGE_BYTES], terms: &Terms) -> Result<LbaRange, Status> {
    let range = Range::parse(bytes);
    inside(range.start, u64::from(range.count), terms)
}

/// A source range of Copy.
///
/// # Errors
/// When it is longer than it may be, or not inside the namespace.
pub fn source_range(bytes: &[u8; SOURCE_BYTES], terms: &Terms) -> Result<LbaRange, Status> {
    let range = SourceRange::parse(bytes);
    if range.count > u32::from(terms.copy().source_blocks) {
        return Err(Status::SIZE_LIMIT);
    }
    inside(range.start, u64::from(range.count), terms)
}

/// Decides on a Copy of these `sources` to the blocks from `to` on. It is done piece by piece, so nothing that it reads
/// may be where it writes (NVM 1.1, section 3.2.2.5, "Overlapping I/O Range").
///
/// # Errors
/// With the status to answer.
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

/// Where the data of a command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Nowhere: it has none, or it is the controller that sends it.
    Nothing,
    /// As many bytes in the capsule.
    Capsule(u32),
    /// As many bytes with the host until they are asked for.
    Host(u32),
}

/// Whether a command's descriptor fits its `need`, and what its capsule brought, which are `carried` bytes (TCP,
/// section 3.3.2).
///
/// # Errors
/// With the status to answer.
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
