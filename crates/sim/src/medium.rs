//! Bytes of a drive: pages that are shared until written, so that keeping what would survive a power cut beside
//! what is visible now costs next to nothing.

use std::sync::Arc;

use crate::rng::mix;

/// Bytes shared, copied and zeroed together.
pub const PAGE: usize = 4096;

#[derive(Clone, Debug)]
enum Page {
    /// What the drive held when it was new.
    Fresh,
    Zero,
    Bytes(Arc<[u8; PAGE]>),
}

/// The content of a drive.
#[derive(Clone, Debug)]
pub struct Medium {
    pages: Vec<Page>,
    /// A new drive is full of junk made from this, or of zeroes.
    junk: Option<u64>,
}

impl Medium {
    /// A medium of `bytes` bytes, a multiple of [`PAGE`], full of zeroes, or of junk.
    #[must_use]
    pub fn new(bytes: u64, junk: Option<u64>) -> Self {
        Self { pages: vec![Page::Fresh; bytes as usize / PAGE], junk }
    }

    /// Moves the end. What is new is zeroes.
    pub fn resize(&mut self, bytes: u64) {
        self.pages.resize(bytes as usize / PAGE, Page::Zero);
    }

    /// True when the page at `offset` is known to hold nothing but zeroes.
    #[must_use]
    pub fn is_zero_page(&self, offset: u64) -> bool {
        match &self.pages[offset as usize / PAGE] {
            Page::Fresh => self.junk.is_none(),
            Page::Zero => true,
            Page::Bytes(_) => false,
        }
    }

    /// Copies bytes out.
    pub fn read(&self, offset: u64, data: &mut [u8]) {
        for (page, within, part) in split(offset, data.len()) {
            let target = &mut data[part];
            match &self.pages[page] {
                Page::Bytes(bytes) => target.copy_from_slice(&bytes[within..within + target.len()]),
                Page::Zero => target.fill(0),
                Page::Fresh => match self.junk {
                    None => target.fill(0),
                    Some(junk) => target
                        .copy_from_slice(&junk_page(junk, page)[within..within + target.len()]),
                },
            }
        }
    }

    /// Copies bytes in.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        for (page, within, part) in split(offset, data.len()) {
            let source = &data[part];
            let bytes = self.page_mut(page);
            bytes[within..within + source.len()].copy_from_slice(source);
        }
    }

    /// Zeroes bytes.
    pub fn zero(&mut self, offset: u64, bytes: u64) {
        for (page, within, part) in split(offset, bytes as usize) {
            if part.len() == PAGE {
                self.pages[page] = Page::Zero;
            } else {
                self.page_mut(page)[within..within + part.len()].fill(0);
            }
        }
    }

    fn page_mut(&mut self, page: usize) -> &mut [u8; PAGE] {
        let place = &mut self.pages[page];
        match place {
            Page::Bytes(_) => {}
            Page::Zero => *place = Page::Bytes(Arc::new([0; PAGE])),
            Page::Fresh => {
                let bytes = self.junk.map_or([0; PAGE], |junk| junk_page(junk, page));
                *place = Page::Bytes(Arc::new(bytes));
            }
        }
        match place {
            Page::Bytes(bytes) => Arc::make_mut(bytes),
            Page::Fresh | Page::Zero => unreachable!("made bytes just now"),
        }
    }
}

fn junk_page(junk: u64, page: usize) -> [u8; PAGE] {
    let mut bytes = [0; PAGE];
    let base = mix(junk ^ page as u64);
    for (at, word) in bytes.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&base.rotate_left(at as u32).wrapping_add(at as u64).to_le_bytes());
    }
    bytes
}

/// Cuts a byte range at page boundaries: page, offset in it, range of the caller's slice.
fn split(offset: u64, len: usize) -> impl Iterator<Item = (usize, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = offset as usize + done;
        let (page, within) = (at / PAGE, at % PAGE);
        let take = (PAGE - within).min(len - done);
        done += take;
        Some((page, within, done - take..done))
    })
}
