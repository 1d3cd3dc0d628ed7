//! The negotiation with a client, as a pure state machine: bytes in, replies and a decision out.
//!
//! ```text
//! greeting sent -> Flags -> Options -+-> Serve   EXPORT_NAME, GO
//!                             ^      +-> Close   ABORT, violations, floods
//!                             +- Skip            an option too long to look at
//! ```
//! The state machine reads no socket and no clock. The caller provides bytes, sends the returned answer, and calls
//! again only after the whole answer was sent, so a client that never reads cannot grow memory. The negotiation does
//! not access the device: the directory answers with the properties from when the export was added (CVE-2019-14850: a
//! back end was opened for every client that connected).

mod options;

use crate::limits::{OPTION_BYTES_MAX, OPTIONS_MAX, SKIPPED_BYTES_MAX};
use crate::wire::{
    self, CLIENT_FLAGS_BYTES, Cursor, OPTION_HEADER_BYTES, OptionHeader, allocation, client_flag,
    option, option_reply,
};
use options::{Answer, ContextQuery, Wanted, flags};

/// The properties of an export that are reported to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The name in the directory. It differs from the requested name if that name was empty.
    pub name: String,
    /// The description for users; it may be empty.
    pub description: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Transmission flags, without those that depend on the negotiation.
    pub flags: u16,
    /// Bytes of the smallest request.
    pub block_bytes: u32,
    /// Preferred size of a request in bytes.
    pub preferred_bytes: u32,
    /// Bytes of the largest payload.
    pub payload_bytes_max: u32,
}

/// The reason why a client is refused an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No export has this name.
    Unknown,
    /// The export has its maximum number of clients.
    Full,
    /// The server is stopping.
    Stopping,
}

/// The directory in which the negotiation looks up exports.
pub trait Directory {
    /// The right of one client to use an export. Dropping it releases the right.
    type ConnectionSlot;

    /// Calls `each` with the name and description of every export.
    fn list(&self, each: &mut dyn FnMut(&str, &str));

    /// Describes an export. The empty name is the only existing export.
    ///
    /// # Errors
    /// The export is not available; the error is the reason.
    fn find(&self, name: &str) -> Result<Offer, Refusal>;

    /// Describes an export and takes a connection slot at it.
    ///
    /// # Errors
    /// The export is not available; the error is the reason.
    fn claim(&self, name: &str) -> Result<(Offer, Self::ConnectionSlot), Refusal>;
}

/// The form of the replies of the server from now on (section "Structured reply chunk message").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplyStyle {
    /// Simple replies only.
    #[default]
    Simple,
    /// Structured replies.
    Structured,
}

/// Whether the client may query the blocks that were never written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Allocation {
    /// The client did not request this.
    #[default]
    Unavailable,
    /// The client selected `base:allocation` for its export.
    Selected,
}

/// The result of the negotiation; the default is the state before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Agreement {
    /// The form of the replies.
    pub replies: ReplyStyle,
    /// Whether block status may be requested.
    pub allocation: Allocation,
}

/// The reason why the server ends a negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goodbye {
    /// The client aborted the negotiation.
    Aborted,
    /// The client set flags that do not exist.
    UnknownFlags,
    /// An option did not begin with the magic number.
    BadMagic,
    /// More than [`OPTIONS_MAX`] options.
    TooManyOptions,
    /// More than [`SKIPPED_BYTES_MAX`] skipped bytes.
    TooMuchSkipped,
    /// `NBD_OPT_EXPORT_NAME` for an export that is not available; the protocol has no reply for this.
    NoExport,
}

/// The next action of the caller.
#[derive(Debug, PartialEq, Eq)]
pub enum Next<S> {
    /// Send the replies, then receive more bytes from the client.
    More,
    /// Send the replies, then start the transmission phase.
    Serve(S, Agreement),
    /// Send the replies, then close the connection.
    Close(Goodbye),
}

/// One step of the negotiation.
#[derive(Debug, PartialEq, Eq)]
pub struct Step<S> {
    /// Number of consumed input bytes. If it is 0 and `next` is `More`, more input is needed.
    pub taken: usize,
    /// The next action of the caller.
    pub next: Next<S>,
}

impl<S> Step<S> {
    const fn more(taken: usize) -> Self {
        Self { taken, next: Next::More }
    }

    const fn close(taken: usize, why: Goodbye) -> Self {
        Self { taken, next: Next::Close(why) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Flags,
    Options,
    Skip { left: u64 },
}

/// Whether 124 zeroes follow the answer to `NBD_OPT_EXPORT_NAME` (section "Client flags").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Padding {
    Zeroes,
    Nothing,
}

/// A negotiation in progress.
#[derive(Debug)]
pub struct Handshake {
    phase: Phase,
    padding: Padding,
    replies: ReplyStyle,
    /// The export name, as the client wrote it, for which it selected `base:allocation` last.
    allocation_of: Option<String>,
    options: u32,
    skipped: u64,
}

impl Default for Handshake {
    fn default() -> Self {
        Self::new()
    }
}

impl Handshake {
    /// Creates a negotiation in which the greeting ([`wire::greeting`]) was sent and no byte was received.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            phase: Phase::Flags,
            padding: Padding::Zeroes,
            replies: ReplyStyle::Simple,
            allocation_of: None,
            options: 0,
            skipped: 0,
        }
    }

    /// Consumes the next complete item at the front of `input` and appends the answer to `out`. An item is never longer
    /// than [`OPTION_BYTES_MAX`] and its header, so a buffer of this size always makes progress.
    pub fn step<D: Directory>(
        &mut self,
        input: &[u8],
        directory: &D,
        out: &mut Vec<u8>,
    ) -> Step<D::ConnectionSlot> {
        match self.phase {
            Phase::Flags => self.client_flags(input),
            Phase::Options => self.option(input, directory, out),
            Phase::Skip { left } => {
                let taken = (input.len() as u64).min(left);
                let left = left - taken;
                self.phase = if left == 0 { Phase::Options } else { Phase::Skip { left } };
                Step::more(taken as usize)
            }
        }
    }

    fn client_flags<S>(&mut self, input: &[u8]) -> Step<S> {
        let Some(flags) = Cursor::new(input).u32() else { return Step::more(0) };
        // Section "Client flags": an unknown flag ends the connection.
        if flags & !(client_flag::FIXED_NEWSTYLE | client_flag::NO_ZEROES) != 0 {
            return Step::close(CLIENT_FLAGS_BYTES, Goodbye::UnknownFlags);
        }
        if flags & client_flag::NO_ZEROES != 0 {
            self.padding = Padding::Nothing;
        }
        self.phase = Phase::Options;
        Step::more(CLIENT_FLAGS_BYTES)
    }

    fn option<D: Directory>(
        &mut self,
        input: &[u8],
        directory: &D,
        out: &mut Vec<u8>,
    ) -> Step<D::ConnectionSlot> {
        let Some((head, rest)) = input.split_first_chunk::<OPTION_HEADER_BYTES>() else {
            return Step::more(0);
        };
        let Some(header) = OptionHeader::parse(head) else {
            return Step::close(OPTION_HEADER_BYTES, Goodbye::BadMagic);
        };
        let length = header.length as usize;
        if length > OPTION_BYTES_MAX {
            return self.skip(header, out);
        }
        let Some(data) = rest.get(..length) else { return Step::more(0) };
        self.options += 1;
        let next = if self.options > OPTIONS_MAX {
            Next::Close(Goodbye::TooManyOptions)
        } else {
            self.answer(header.option, data, directory, &mut Answer { option: header.option, out })
        };
        Step { taken: OPTION_HEADER_BYTES + length, next }
    }

    /// Answers an option that is longer than any valid client sends (CVE-2017-15119), and discards its data as it
    /// arrives.
    fn skip<S>(&mut self, header: OptionHeader, out: &mut Vec<u8>) -> Step<S> {
        self.options += 1;
        self.skipped += u64::from(header.length);
        if self.options > OPTIONS_MAX {
            return Step::close(OPTION_HEADER_BYTES, Goodbye::TooManyOptions);
        }
        if self.skipped > SKIPPED_BYTES_MAX {
            return Step::close(OPTION_HEADER_BYTES, Goodbye::TooMuchSkipped);
        }
        if header.option == option::EXPORT_NAME {
            return Step::close(OPTION_HEADER_BYTES, Goodbye::NoExport);
        }
        self.phase = Phase::Skip { left: u64::from(header.length) };
        Answer { option: header.option, out }
            .error(option_reply::ERR_TOO_BIG, "the option's data is too long");
        Step::more(OPTION_HEADER_BYTES)
    }

    fn answer<D: Directory>(
        &mut self,
        code: u32,
        data: &[u8],
        directory: &D,
        answer: &mut Answer<'_>,
    ) -> Next<D::ConnectionSlot> {
        match code {
            option::EXPORT_NAME => return self.export_name(data, directory, answer),
            option::ABORT => {
                answer.ack();
                return Next::Close(Goodbye::Aborted);
            }
            option::GO => return self.go(data, directory, answer),
            option::INFO => inform(data, directory, self.replies, answer),
            option::LIST => list(data, directory, answer),
            option::STRUCTURED_REPLY => self.structured_reply(data, answer),
            option::LIST_META_CONTEXT => self.list_contexts(data, directory, answer),
            option::SET_META_CONTEXT => self.set_contexts(data, directory, answer),
            // Section "NOTLS mode". A later STARTTLS must discard everything that was negotiated before it
            // (CVE-2021-3716). STARTTLS is refused, so this case does not occur.
            option::STARTTLS => {
                answer.error(
                    option_reply::ERR_POLICY,
                    "TLS is not supported; this server accepts only local \
                    connections",
                );
            }
            _ => answer.error(option_reply::ERR_UNSUP, "unknown option"),
        }
        Next::More
    }

    fn agreement(&self, name: &str) -> Agreement {
        let allocation = match &self.allocation_of {
            Some(selected) if selected == name => Allocation::Selected,
            Some(_) | None => Allocation::Unavailable,
        };
        Agreement { replies: self.replies, allocation }
    }

    fn export_name<D: Directory>(
        &mut self,
        data: &[u8],
        directory: &D,
        answer: &mut Answer<'_>,
    ) -> Next<D::ConnectionSlot> {
        let claim = wire::text(data).and_then(|name| Some((name, directory.claim(name).ok()?)));
        let Some((name, (offer, connection_slot))) = claim else {
            return Next::Close(Goodbye::NoExport);
        };
        answer.out.extend_from_slice(&offer.bytes.to_be_bytes());
        answer.out.extend_from_slice(&flags(&offer, self.replies).to_be_bytes());
        match self.padding {
            Padding::Zeroes => answer.out.extend_from_slice(&[0; wire::EXPORT_NAME_PADDING]),
            Padding::Nothing => {}
        }
        Next::Serve(connection_slot, self.agreement(name))
    }

    fn go<D: Directory>(
        &mut self,
        data: &[u8],
        directory: &D,
        answer: &mut Answer<'_>,
    ) -> Next<D::ConnectionSlot> {
        let Some(wanted) = Wanted::parse(data) else {
            answer.error(option_reply::ERR_INVALID, "malformed request for an export");
            return Next::More;
        };
        match directory.claim(wanted.name) {
            Ok((offer, connection_slot)) => {
                wanted.describe(&offer, self.replies, answer);
                Next::Serve(connection_slot, self.agreement(wanted.name))
            }
            Err(refusal) => {
                answer.refuse(refusal);
                Next::More
            }
        }
    }

    fn structured_reply(&mut self, data: &[u8], answer: &mut Answer<'_>) {
        if data.is_empty() {
            self.replies = ReplyStyle::Structured;
            answer.ack();
        } else {
            answer.error(option_reply::ERR_INVALID, "this option takes no data");
        }
    }

    fn list_contexts(&self, data: &[u8], directory: &impl Directory, answer: &mut Answer<'_>) {
        let Some(query) = self.context_query(data, directory, answer) else { return };
        if query.count == 0 || query.finds_allocation || query.finds_wildcard {
            // The identifier is reserved here (section "Option types", `NBD_OPT_LIST_META_CONTEXT`).
            answer.context(0);
        }
        answer.ack();
    }

    fn set_contexts(&mut self, data: &[u8], directory: &impl Directory, answer: &mut Answer<'_>) {
        // Even a failed request discards the selection (section "Option types").
        self.allocation_of = None;
        let Some(query) = self.context_query(data, directory, answer) else { return };
        if query.finds_allocation {
            answer.context(allocation::CONTEXT);
            self.allocation_of = Some(query.name.to_owned());
        }
        answer.ack();
    }

    /// Reads a query and makes the checks that both context options share. Returns `None` after it answered with an
    /// error.
    fn context_query<'a>(
        &self,
        data: &'a [u8],
        directory: &impl Directory,
        answer: &mut Answer<'_>,
    ) -> Option<ContextQuery<'a>> {
        if self.replies == ReplyStyle::Simple {
            answer.error(option_reply::ERR_INVALID, "negotiate structured replies first");
            return None;
        }
        let Some(query) = ContextQuery::parse(data) else {
            answer.error(option_reply::ERR_INVALID, "malformed metadata query");
            return None;
        };
        if let Err(refusal) = directory.find(query.name) {
            answer.refuse(refusal);
            return None;
        }
        Some(query)
    }
}

fn inform(data: &[u8], directory: &impl Directory, replies: ReplyStyle, answer: &mut Answer<'_>) {
    let Some(wanted) = Wanted::parse(data) else {
        answer.error(option_reply::ERR_INVALID, "malformed request for an export");
        return;
    };
    match directory.find(wanted.name) {
        Ok(offer) => wanted.describe(&offer, replies, answer),
        Err(refusal) => answer.refuse(refusal),
    }
}

fn list(data: &[u8], directory: &impl Directory, answer: &mut Answer<'_>) {
    if !data.is_empty() {
        answer.error(option_reply::ERR_INVALID, "this option takes no data");
        return;
    }
    directory.list(&mut |name, description| {
        let length = (name.len() as u32).to_be_bytes();
        answer.reply(option_reply::SERVER, &[&length, name.as_bytes(), description.as_bytes()]);
    });
    answer.ack();
}

#[cfg(test)]
mod tests;
