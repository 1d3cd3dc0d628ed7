//! What a PDU has around its data on its way out: its header, the digest of that and padding in front, the digest of
//! the data behind.

use crate::digest::{self, DIGEST_BYTES};
use crate::pdu::{Digests, HEADER_BYTES_MAX, Use};

/// What headers are padded with: less than one byte can say (TCP, sections 3.6.2.2 and 3.6.2.3, HPDA and CPDA).
static PADDING: [u8; u8::MAX as usize] = [0; u8::MAX as usize];

/// Bytes in a place of their own.
#[derive(Clone, Copy, Debug)]
struct Fixed<const N: usize> {
    bytes: [u8; N],
    used: u8,
}

impl<const N: usize> Fixed<N> {
    const fn new() -> Self {
        Self { bytes: [0; N], used: 0 }
    }

    fn push(&mut self, more: &[u8]) {
        let used = usize::from(self.used);
        self.bytes[used..used + more.len()].copy_from_slice(more);
        self.used += more.len() as u8;
    }

    fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.used)]
    }
}

/// What a PDU has around its data: up to `HEAD` bytes and padding in front, up to `TAIL` behind. It is small, because
/// it moves with every command.
#[derive(Clone, Copy, Debug)]
pub struct Framing<const HEAD: usize, const TAIL: usize> {
    head: Fixed<HEAD>,
    padding: u8,
    tail: Fixed<TAIL>,
}

impl<const HEAD: usize, const TAIL: usize> Default for Framing<HEAD, TAIL> {
    fn default() -> Self {
        Self { head: Fixed::new(), padding: 0, tail: Fixed::new() }
    }
}

impl<const HEAD: usize, const TAIL: usize> Framing<HEAD, TAIL> {
    /// A PDU that is only a header.
    #[must_use]
    pub fn bare(header: &[u8], digests: Digests) -> Self {
        let mut framing = Self::default();
        framing.head.push(header);
        if digests.header == Use::On {
            framing.head.push(&digest::of(header));
        }
        framing
    }

    /// `lead` is not less than the header and its digest.
    fn padded(header: &[u8], digests: Digests, lead: usize) -> Self {
        let mut framing = Self::bare(header, digests);
        debug_assert!(lead >= usize::from(framing.head.used), "the data would lie in the header");
        framing.padding = (lead - usize::from(framing.head.used)) as u8;
        framing
    }

    /// Data in several places, which begins at byte `lead` of the PDU.
    #[must_use]
    pub fn around<'a>(
        header: &[u8],
        digests: Digests,
        lead: usize,
        data: impl IntoIterator<Item = &'a [u8]>,
    ) -> Self {
        let mut framing = Self::padded(header, digests, lead);
        if digests.data == Use::On {
            framing.tail.push(&digest::of_all(data));
        }
        framing
    }

    /// A few bytes of data, which are kept here.
    #[must_use]
    pub fn holding(header: &[u8], digests: Digests, lead: usize, data: &[u8]) -> Self {
        let mut framing = Self::padded(header, digests, lead);
        framing.tail.push(data);
        if digests.data == Use::On {
            framing.tail.push(&digest::of(data));
        }
        framing
    }

    /// The PDU with its data.
    pub fn parts<'a>(
        &'a self,
        data: impl Iterator<Item = &'a [u8]>,
    ) -> impl Iterator<Item = &'a [u8]> {
        let padding = &PADDING[..usize::from(self.padding)];
        [self.head.as_slice(), padding].into_iter().chain(data).chain([self.tail.as_slice()])
    }

    /// Bytes of all but the data.
    #[must_use]
    pub fn bytes(&self) -> usize {
        [self.head.used, self.padding, self.tail.used].map(usize::from).into_iter().sum()
    }
}

/// A whole PDU, for what is not sent often: a header alone when there is no data. Not for ICReq and ICResp, whose
/// headers are as long as `Framing` holds here and have no digest.
#[must_use]
pub fn whole(header: &[u8], digests: Digests, lead: usize, data: &[u8]) -> Vec<u8> {
    type Any = Framing<HEADER_BYTES_MAX, DIGEST_BYTES>;
    let framing = match data {
        [] => Any::bare(header, digests),
        data => Any::around(header, digests, lead, [data]),
    };
    framing.parts([data].into_iter()).flatten().copied().collect()
}
