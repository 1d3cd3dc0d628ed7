//! The checks of requests: they are between the numbers from a client and the device.
//!
//! The check is a pure function. Every rule of the sections "Size constraints", "Command flags", "Request types" and
//! "Error values" of the protocol is therefore one line of a table in a test.

use crate::handshake::{Agreement, Allocation, ReplyStyle};
use crate::limits::REQUEST_BYTES_MAX;
use crate::wire::{Code, Request, command, command_flag};
use strake_block::Durability;
pub use strake_export_net::{Ability, Access, Rights};
use strake_units::BlockSize;

/// The properties of an export and of a client against which requests are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Size of the export in bytes.
    pub bytes: u64,
    /// Smallest unit of a request.
    pub block: BlockSize,
    /// Whether the export may be changed.
    pub access: Access,
    /// Whether the device can deallocate.
    pub trim: Ability,
    /// Whether the device zeroes faster than it writes.
    pub fast_zeroes: Ability,
    /// The result of the negotiation.
    pub agreement: Agreement,
}

/// The form in which the data of a read is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// As chunks, in any order.
    Chunks,
    /// As one chunk (`NBD_CMD_FLAG_DF`).
    OneChunk,
    /// After a simple reply.
    Simple,
}

/// The extents that a status request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extents {
    /// As many as fit in a reply.
    Several,
    /// The first (`NBD_CMD_FLAG_REQ_ONE`).
    One,
}

/// The work for an accepted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Succeed without access to the device: an empty range, or a hint that has no effect here.
    Nothing,
    /// Read and send data.
    Read(Framing),
    /// Receive and write data.
    Write(Durability),
    /// Write zeroes.
    Zeroes(Durability),
    /// Deallocate; with [`Durability::Fua`] a flush follows, because deallocation itself has no such mode.
    Trim(Durability),
    /// Make completed writes stable.
    Flush,
    /// Report the blocks that were never written.
    Status(Extents),
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The request is executed.
    Do(Work),
    /// The request is answered with an error, and its payload is discarded.
    Refuse(Code, &'static str),
    /// The client disconnects.
    Disconnect,
    /// The server closes the connection: the payload is too large to receive it only for an error reply.
    Violation,
}

/// Returns the number of bytes that follow the header of the request.
#[must_use]
pub const fn payload_bytes(request: &Request) -> u32 {
    if request.command == command::WRITE { request.length } else { 0 }
}

/// Decides on a request.
#[must_use]
pub fn admit(request: &Request, terms: &Terms) -> Verdict {
    // This check comes first, because it decides whether the payload is received.
    if payload_bytes(request) > REQUEST_BYTES_MAX {
        return Verdict::Violation;
    }
    if request.command == command::DISC {
        return Verdict::Disconnect;
    }
    match decide(request, terms) {
        Ok(work) => Verdict::Do(work),
        Err((code, words)) => Verdict::Refuse(code, words),
    }
}

/// Checks whether a reservation of a host of another export permits this work to the client. This check is made in
/// addition to [`admit`], at every piece of a request, because its payload may arrive long after its header.
///
/// # Errors
/// `NBD_EPERM` with a text for the operator.
pub const fn permit(work: Work, rights: Rights) -> Result<(), (Code, &'static str)> {
    match (work, rights) {
        (_, Rights::All)
        | (Work::Nothing | Work::Flush, _)
        | (Work::Read(_) | Work::Status(_), Rights::Read) => Ok(()),
        (Work::Write(_) | Work::Zeroes(_) | Work::Trim(_), _)
        | (Work::Read(_) | Work::Status(_), Rights::Nothing) => {
            Err((Code::Perm, "a host of another export has reserved the array"))
        }
    }
}

type Decision = Result<Work, (Code, &'static str)>;

fn decide(request: &Request, terms: &Terms) -> Decision {
    check_flags(request, terms)?;
    let durability =
        if request.flags & command_flag::FUA == 0 { Durability::Normal } else { Durability::Fua };
    match request.command {
        command::READ => read(request, terms),
        command::WRITE => {
            changes(request, terms)?;
            Ok(unless_empty(request, Work::Write(durability)))
        }
        command::WRITE_ZEROES => zeroes(request, terms, durability),
        command::TRIM => trim(request, terms, durability),
        command::FLUSH => flush(request),
        command::CACHE => {
            lies_inside(request, terms, Code::Invalid)?;
            Ok(Work::Nothing)
        }
        command::BLOCK_STATUS => status(request, terms),
        _ => Err((Code::Invalid, "unknown command")),
    }
}

fn unless_empty(request: &Request, work: Work) -> Work {
    if request.length == 0 { Work::Nothing } else { work }
}

/// Section "Command flags": unknown ones are refused, `NBD_CMD_FLAG_FUA` is accepted everywhere.
fn check_flags(request: &Request, terms: &Terms) -> Result<(), (Code, &'static str)> {
    let own = match request.command {
        command::READ if terms.agreement.replies == ReplyStyle::Structured => command_flag::DF,
        command::WRITE_ZEROES => command_flag::NO_HOLE | command_flag::FAST_ZERO,
        command::BLOCK_STATUS => command_flag::REQ_ONE,
        _ => 0,
    };
    if request.flags & !(own | command_flag::FUA) == 0 {
        Ok(())
    } else {
        Err((Code::Invalid, "unknown command flag"))
    }
}

fn lies_inside(request: &Request, terms: &Terms, beyond: Code) -> Result<(), (Code, &'static str)> {
    let end = request.offset.checked_add(u64::from(request.length));
    if end.is_none_or(|end| end > terms.bytes) {
        return Err((beyond, "beyond the end of the export"));
    }
    let odd = u64::from(terms.block.bytes() - 1);
    if (request.offset | u64::from(request.length)) & odd != 0 {
        return Err((Code::Invalid, "not aligned to the export's blocks"));
    }
    Ok(())
}

/// Section "Error values": `NBD_EPERM` on a read-only export, `NBD_ENOSPC` beyond the end.
fn changes(request: &Request, terms: &Terms) -> Result<(), (Code, &'static str)> {
    match terms.access {
        Access::ReadOnly => Err((Code::Perm, "the export is read-only")),
        Access::ReadWrite => lies_inside(request, terms, Code::NoSpace),
    }
}

fn read(request: &Request, terms: &Terms) -> Decision {
    let framing = match terms.agreement.replies {
        ReplyStyle::Simple => Framing::Simple,
        ReplyStyle::Structured if request.flags & command_flag::DF != 0 => Framing::OneChunk,
        ReplyStyle::Structured => Framing::Chunks,
    };
    lies_inside(request, terms, Code::Invalid)?;
    let (longest, code) = match framing {
        Framing::Simple => (REQUEST_BYTES_MAX, Code::Invalid),
        Framing::OneChunk => (crate::limits::HELD_BYTES_MAX, Code::Overflow),
        Framing::Chunks => (REQUEST_BYTES_MAX, Code::Overflow),
    };
    if request.length > longest {
        return Err((code, "more bytes than one request may have"));
    }
    Ok(unless_empty(request, Work::Read(framing)))
}

fn zeroes(request: &Request, terms: &Terms, durability: Durability) -> Decision {
    changes(request, terms)?;
    // `NBD_CMD_FLAG_NO_HOLE` needs nothing further: the device contract knows only full provisioning.
    if request.flags & command_flag::FAST_ZERO != 0 && terms.fast_zeroes == Ability::Absent {
        return Err((Code::NotSupported, "zeroing is no faster than writing here"));
    }
    Ok(unless_empty(request, Work::Zeroes(durability)))
}

fn trim(request: &Request, terms: &Terms, durability: Durability) -> Decision {
    if terms.access == Access::ReadOnly {
        return Err((Code::Perm, "the export is read-only"));
    }
    lies_inside(request, terms, Code::Invalid)?;
    match terms.trim {
        Ability::Present => Ok(unless_empty(request, Work::Trim(durability))),
        Ability::Absent => Err((Code::Invalid, "the export cannot trim")),
    }
}

fn flush(request: &Request) -> Decision {
    if request.offset == 0 && request.length == 0 {
        Ok(Work::Flush)
    } else {
        Err((Code::Invalid, "a flush has no range"))
    }
}

fn status(request: &Request, terms: &Terms) -> Decision {
    if terms.agreement.allocation == Allocation::Unavailable {
        return Err((Code::Invalid, "no metadata context was selected"));
    }
    lies_inside(request, terms, Code::Invalid)?;
    if request.length == 0 {
        return Err((Code::Invalid, "a status needs a range"));
    }
    let one = request.flags & command_flag::REQ_ONE != 0;
    Ok(Work::Status(if one { Extents::One } else { Extents::Several }))
}

#[cfg(test)]
mod tests;
