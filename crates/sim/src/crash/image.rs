//! The content of a small drive: pages that copies share, so that a copy costs a few hundred pointers.

use std::sync::Arc;

use crate::medium::PAGE;

/// Pages of a chunk.
const CHUNK_PAGES: usize = 64;
const CHUNK: usize = CHUNK_PAGES * PAGE;

type Page = Option<Arc<[u8; PAGE]>>;

#[derive(Clone)]
struct Chunk([Page; CHUNK_PAGES]);

/// A change of a drive's content.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Bytes(Arc<[u8]>),
    Zeroes(u64),
}

impl Change {
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Zeroes(len) => *len,
        }
    }

    /// The bytes `from .. to` of the change.
    fn part(&self, from: u64, to: u64) -> Self {
        match self {
            Self::Bytes(bytes) => Self::Bytes(bytes[from as usize..to as usize].into()),
            Self::Zeroes(_) => Self::Zeroes(to - from),
        }
    }
}

/// The content of a drive. Unwritten pages are zeroes.
#[derive(Clone)]
pub(super) struct Image {
    chunks: Vec<Option<Arc<Chunk>>>,
}

impl Image {
    /// An image of `bytes` bytes of zeroes.
    pub(super) fn new(bytes: u64) -> Self {
        Self { chunks: vec![None; (bytes as usize).div_ceil(CHUNK)] }
    }

    /// Reads bytes.
    pub(super) fn read(&self, offset: u64, mut data: &mut [u8]) {
        let mut at = offset as usize;
        while !data.is_empty() {
            let (chunk, within) = (at / CHUNK, at % CHUNK);
            let Some(chunk) = &self.chunks[chunk] else {
                let (part, rest) = data.split_at_mut(data.len().min(CHUNK - within));
                part.fill(0);
                at += part.len();
                data = rest;
                continue;
            };
            let (page, within) = (within / PAGE, within % PAGE);
            let (part, rest) = data.split_at_mut(data.len().min(PAGE - within));
            match &chunk.0[page] {
                Some(bytes) => part.copy_from_slice(&bytes[within..within + part.len()]),
                None => part.fill(0),
            }
            at += part.len();
            data = rest;
        }
    }

    /// The page at `offset`, a multiple of its size; `None` if it was never written or is zeroes.
    pub(super) fn page(&self, offset: u64) -> Option<Arc<[u8; PAGE]>> {
        let at = offset as usize / PAGE;
        let page = self.chunks[at / CHUNK_PAGES].as_ref()?.0[at % CHUNK_PAGES].as_ref()?;
        page.iter().any(|byte| *byte != 0).then(|| Arc::clone(page))
    }

    /// The first bytes from `from` to `to` that may be other than zeroes, up to the next unwritten page.
    pub(super) fn data_within(&self, from: u64, to: u64) -> Option<(u64, u64)> {
        let pages = from as usize / PAGE..(to as usize).div_ceil(PAGE);
        let first = self.next_page(pages.clone(), true)?;
        let end = self.next_page(first..pages.end, false).unwrap_or(pages.end);
        Some((from.max((first * PAGE) as u64), to.min((end * PAGE) as u64)))
    }

    /// The first of these pages that is written, or that is unwritten.
    fn next_page(&self, pages: std::ops::Range<usize>, written: bool) -> Option<usize> {
        let mut at = pages.start;
        while at < pages.end {
            match &self.chunks[at / CHUNK_PAGES] {
                Some(chunk) if chunk.0[at % CHUNK_PAGES].is_some() == written => return Some(at),
                Some(_) => at += 1,
                None if written => at = (at / CHUNK_PAGES + 1) * CHUNK_PAGES,
                None => return Some(at),
            }
        }
        None
    }

    /// Writes bytes.
    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        let (from, to) = (offset as usize, offset as usize + data.len());
        let mut at = from;
        while at < to {
            let within = at % PAGE;
            let len = (to - at).min(PAGE - within);
            let part = &data[at - from..at - from + len];
            if len == PAGE && part == [0; PAGE] {
                // Most zeroed pages were never written.
                self.zero(at / PAGE, within, len);
            } else {
                self.page_mut(at / PAGE)[within..within + len].copy_from_slice(part);
            }
            at += len;
        }
    }

    /// Applies a change at `offset`.
    pub(super) fn apply(&mut self, offset: u64, change: &Change) {
        let bytes = match change {
            Change::Bytes(data) => return self.write(offset, data),
            Change::Zeroes(bytes) => *bytes,
        };
        let (mut at, to) = (offset as usize, (offset + bytes) as usize);
        while at < to {
            let within = at % PAGE;
            let len = (to - at).min(PAGE - within);
            self.zero(at / PAGE, within, len);
            at += len;
        }
    }

    /// Applies the part of a change that [`Torn`] leaves.
    pub(super) fn apply_torn(&mut self, offset: u64, change: &Change, torn: Torn) {
        let (from, to) = torn.kept(change.len());
        self.apply(offset + from, &change.part(from, to));
    }

    fn zero(&mut self, page: usize, within: usize, len: usize) {
        let Some(chunk) = &mut self.chunks[page / CHUNK_PAGES] else { return };
        if chunk.0[page % CHUNK_PAGES].is_none() {
            return;
        }
        if len == PAGE {
            Arc::make_mut(chunk).0[page % CHUNK_PAGES] = None;
        } else {
            self.page_mut(page)[within..within + len].fill(0);
        }
    }

    fn page_mut(&mut self, page: usize) -> &mut [u8; PAGE] {
        let chunk = self.chunks[page / CHUNK_PAGES]
            .get_or_insert_with(|| Arc::new(Chunk([const { None }; CHUNK_PAGES])));
        let page = &mut Arc::make_mut(chunk).0[page % CHUNK_PAGES];
        Arc::make_mut(page.get_or_insert_with(|| Arc::new([0; PAGE])))
    }
}

/// The part of a write that reached the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Torn {
    /// All of it.
    Whole,
    /// Its first bytes.
    Head(u64),
    /// All but its first bytes.
    Tail(u64),
}

impl Torn {
    fn kept(self, len: u64) -> (u64, u64) {
        match self {
            Self::Whole => (0, len),
            Self::Head(bytes) => (0, bytes.min(len)),
            Self::Tail(bytes) => (bytes.min(len), len),
        }
    }
}
