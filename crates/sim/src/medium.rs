//! The bytes of a drive: pages that are shared until they are written, so that two copies (the visible content, and the
//! content that survives a power cut) cost little.

use std::sync::Arc;

use crate::rng::mix;

/// Unit of sharing, copying and zeroing in bytes.
pub const PAGE: usize = 4096;

/// The bytes of one page, shared by all media that contain it.
pub type PageBytes = Arc<[u8; PAGE]>;

#[derive(Clone, Debug)]
enum Page {
    /// The initial content of the drive.
    Fresh,
    Zero,
    Bytes(PageBytes),
}

/// Pages of a chunk: a copy of a drive costs a pointer for each chunk.
const CHUNK_PAGES: usize = 64;

type Chunk = Arc<[Page; CHUNK_PAGES]>;

/// The content of a drive.
#[derive(Clone, Debug)]
pub struct Medium {
    chunks: Vec<Chunk>,
    pages: usize,
    /// The seed of the junk in a new drive; without one, a new drive is full of zeroes.
    junk: Option<u64>,
}

impl Medium {
    /// A medium of `bytes` bytes, a multiple of [`PAGE`], full of zeroes or of junk.
    #[must_use]
    pub fn new(bytes: u64, junk: Option<u64>) -> Self {
        let pages = bytes as usize / PAGE;
        let chunk: Chunk = Arc::new([const { Page::Fresh }; CHUNK_PAGES]);
        Self { chunks: vec![chunk; pages.div_ceil(CHUNK_PAGES)], pages, junk }
    }

    /// Changes the size. New space is zeroes.
    pub fn resize(&mut self, bytes: u64) {
        let pages = bytes as usize / PAGE;
        let chunk: Chunk = Arc::new([const { Page::Zero }; CHUNK_PAGES]);
        self.chunks.resize(pages.div_ceil(CHUNK_PAGES), chunk);
        // The pages of the last chunk beyond the end have no content.
        (self.pages.min(pages)..self.chunks.len() * CHUNK_PAGES)
            .for_each(|page| self.put(page, Page::Zero));
        self.pages = pages;
    }

    fn page(&self, page: usize) -> &Page {
        assert!(page < self.pages, "page {page} is beyond the end");
        &self.chunks[page / CHUNK_PAGES][page % CHUNK_PAGES]
    }

    fn put(&mut self, page: usize, content: Page) {
        Arc::make_mut(&mut self.chunks[page / CHUNK_PAGES])[page % CHUNK_PAGES] = content;
    }

    /// True if the page at `offset` is known to be zeroes.
    #[must_use]
    pub fn is_zero_page(&self, offset: u64) -> bool {
        match self.page(offset as usize / PAGE) {
            Page::Fresh => self.junk.is_none(),
            Page::Zero => true,
            Page::Bytes(_) => false,
        }
    }

    /// The page at `offset`, `None` if it is zeroes.
    #[must_use]
    pub fn page_bytes(&self, offset: u64) -> Option<PageBytes> {
        let page = offset as usize / PAGE;
        let bytes = match (self.page(page), self.junk) {
            (Page::Zero, _) | (Page::Fresh, None) => return None,
            (Page::Bytes(bytes), _) => Arc::clone(bytes),
            (Page::Fresh, Some(junk)) => Arc::new(junk_page(junk, page)),
        };
        (!is_zero(&bytes[..])).then_some(bytes)
    }

    /// Reads bytes.
    pub fn read(&self, offset: u64, data: &mut [u8]) {
        for (page, within, part) in split(offset, data.len()) {
            let target = &mut data[part];
            match self.page(page) {
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

    /// Writes bytes.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        for (page, within, part) in split(offset, data.len()) {
            let source = &data[part];
            if source.len() == PAGE {
                self.write_page((page * PAGE) as u64, share(source));
                continue;
            }
            let bytes = self.page_mut(page);
            bytes[within..within + source.len()].copy_from_slice(source);
        }
    }

    /// Sets the page at `offset` to shared bytes, or to zeroes.
    pub fn write_page(&mut self, offset: u64, bytes: Option<PageBytes>) {
        let page = offset as usize / PAGE;
        assert!(page < self.pages, "page {page} is beyond the end");
        self.put(page, bytes.map_or(Page::Zero, Page::Bytes));
    }

    /// Zeroes bytes.
    pub fn zero(&mut self, offset: u64, bytes: u64) {
        for (page, within, part) in split(offset, bytes as usize) {
            if self.is_zero_page((page * PAGE) as u64) {
                continue;
            }
            if part.len() == PAGE {
                self.put(page, Page::Zero);
            } else {
                self.page_mut(page)[within..within + part.len()].fill(0);
            }
        }
    }

    fn page_mut(&mut self, page: usize) -> &mut [u8; PAGE] {
        assert!(page < self.pages, "page {page} is beyond the end");
        let place = &mut Arc::make_mut(&mut self.chunks[page / CHUNK_PAGES])[page % CHUNK_PAGES];
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

fn is_zero(bytes: &[u8]) -> bool {
    // Most non-zero pages have a non-zero start.
    bytes[..16] == [0; 16] && bytes == [0; PAGE]
}

/// A page for sharing, `None` if it is all zeroes.
///
/// Panics if `bytes` are not a page.
#[must_use]
pub fn share(bytes: &[u8]) -> Option<PageBytes> {
    if is_zero(bytes) {
        return None;
    }
    let bytes: Arc<[u8]> = Arc::from(bytes);
    Some(PageBytes::try_from(bytes).expect("bytes of one page"))
}

fn junk_page(junk: u64, page: usize) -> [u8; PAGE] {
    let mut bytes = [0; PAGE];
    let base = mix(junk ^ page as u64);
    for (at, word) in bytes.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&base.rotate_left(at as u32).wrapping_add(at as u64).to_le_bytes());
    }
    if page == 0 {
        // Junk must not contain the signature of a partition table by chance.
        bytes[510..512].fill(0);
    }
    bytes
}

/// Splits a byte range at page boundaries: page, offset in it, range of the caller's slice.
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
