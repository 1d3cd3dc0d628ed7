//! The data of options, and the replies to them.

use super::{Offer, Refusal, ReplyStyle};
use crate::wire::{self, Cursor, allocation, info, option_reply, transmission_flag};

/// The transmission flags for one client: `NBD_FLAG_SEND_DF` exactly when replies are structured (section
/// "Transmission flags").
pub(super) fn flags(offer: &Offer, replies: ReplyStyle) -> u16 {
    match replies {
        ReplyStyle::Simple => offer.flags,
        ReplyStyle::Structured => offer.flags | transmission_flag::SEND_DF,
    }
}

/// The data of `NBD_OPT_INFO` and `NBD_OPT_GO`.
pub(super) struct Wanted<'a> {
    pub(super) name: &'a str,
    /// 16-bit numbers of [`info`], two bytes each.
    kinds: &'a [u8],
}

impl<'a> Wanted<'a> {
    pub(super) fn parse(data: &'a [u8]) -> Option<Self> {
        let mut cursor = Cursor::new(data);
        let name = cursor.string()?;
        let count = usize::from(cursor.u16()?);
        let kinds = cursor.bytes(count * 2)?;
        cursor.is_empty().then_some(Self { name, kinds })
    }

    fn wants(&self, kind: u16) -> bool {
        self.kinds.chunks_exact(2).any(|bytes| bytes == kind.to_be_bytes())
    }

    /// Describes the export, with each kind once even if it was requested several times. Block sizes are sent to every
    /// client. They bind only clients that requested them, but they help the other clients to avoid errors.
    pub(super) fn describe(&self, offer: &Offer, replies: ReplyStyle, answer: &mut Answer<'_>) {
        let flags = flags(offer, replies).to_be_bytes();
        answer.info(info::EXPORT, &[&offer.bytes.to_be_bytes()[..], &flags].concat());
        if self.wants(info::NAME) {
            answer.info(info::NAME, offer.name.as_bytes());
        }
        if self.wants(info::DESCRIPTION) {
            answer.info(info::DESCRIPTION, offer.description.as_bytes());
        }
        let sizes = [offer.block_bytes, offer.preferred_bytes, offer.payload_bytes_max];
        answer.info(info::BLOCK_SIZE, &sizes.map(u32::to_be_bytes).concat());
        answer.ack();
    }
}

/// The data of the two metadata context options, reduced to the contexts that this server supports.
pub(super) struct ContextQuery<'a> {
    pub(super) name: &'a str,
    pub(super) count: u32,
    pub(super) finds_allocation: bool,
    pub(super) finds_wildcard: bool,
}

impl<'a> ContextQuery<'a> {
    pub(super) fn parse(data: &'a [u8]) -> Option<Self> {
        let mut cursor = Cursor::new(data);
        let name = cursor.string()?;
        let count = cursor.u32()?;
        let (mut finds_allocation, mut finds_wildcard) = (false, false);
        // The loop ends at the first missing query, even if the count is larger.
        for _ in 0..count {
            let query = cursor.string()?;
            finds_allocation |= query == allocation::NAME;
            finds_wildcard |= query == allocation::WILDCARD;
        }
        cursor.is_empty().then_some(Self { name, count, finds_allocation, finds_wildcard })
    }
}

/// Appends replies to one option.
pub(super) struct Answer<'a> {
    pub(super) option: u32,
    pub(super) out: &'a mut Vec<u8>,
}

impl Answer<'_> {
    pub(super) fn reply(&mut self, kind: u32, parts: &[&[u8]]) {
        let length = parts.iter().map(|part| part.len()).sum();
        self.out.extend_from_slice(&wire::option_reply_header(self.option, kind, length));
        for part in parts {
            self.out.extend_from_slice(part);
        }
    }

    pub(super) fn ack(&mut self) {
        self.reply(option_reply::ACK, &[]);
    }

    pub(super) fn error(&mut self, kind: u32, words: &str) {
        self.reply(kind, &[words.as_bytes()]);
    }

    pub(super) fn refuse(&mut self, refusal: Refusal) {
        match refusal {
            Refusal::Unknown => self.error(option_reply::ERR_UNKNOWN, "no such export"),
            Refusal::Full => self.error(option_reply::ERR_POLICY, "too many clients"),
            Refusal::Stopping => self.error(option_reply::ERR_SHUTDOWN, "the server is stopping"),
        }
    }

    fn info(&mut self, kind: u16, payload: &[u8]) {
        self.reply(option_reply::INFO, &[&kind.to_be_bytes(), payload]);
    }

    pub(super) fn context(&mut self, identifier: u32) {
        let identifier = identifier.to_be_bytes();
        self.reply(option_reply::META_CONTEXT, &[&identifier, allocation::NAME.as_bytes()]);
    }
}
