//! The permitted content of every block: the specification for reads.
//!
//! Each block is an atomic register that also records unstable writes. An operation that starts at `t` may see a write
//! `w` unless a write that started after the end of `w` had ended before `t`, or a read that ended before `t` and
//! started after the end of `w` saw other content. After a kill, a write in flight may or may not have been executed.
//! After a power cut, the same holds for acknowledged unflushed writes, and content that only such writes replaced may
//! return.
//!
//! Copies are an exception: during a write, one copy may have the new content and another the old one, so successive
//! reads may return new, old, new. Real mirrors behave in the same way, and no file system relies on more; such reads
//! prove nothing here.
//!
//! Times are event counts of this oracle, not clock times.

mod blocks;

use strake_block::VolatileCache;
use strake_raid::Geometry;
use strake_units::LbaRange;

use crate::content;
use crate::drive::Crash;
use blocks::Blocks;

const NEVER: u64 = u64::MAX;

/// The content of a block after a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Zeroes.
    Zero,
    /// The pattern of this write.
    Pattern(u64),
    /// Any content: the block was never written, or its loss was accepted.
    Unknown,
}

impl Content {
    fn matches(self, lba: u64, block: &[u8]) -> bool {
        match self {
            Self::Zero => block.iter().all(|b| *b == 0),
            Self::Pattern(id) => content::is(id, lba, block),
            Self::Unknown => true,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Write {
    id: u64,
    content: Content,
    begun: u64,
    /// The time of the acknowledgement, or of the crash that ended the write.
    ended: u64,
    /// The time of a read that saw the write, which proves its earlier execution.
    seen: u64,
    /// The time of a read that saw other content.
    gone: u64,
    /// Whether the write may not have been executed.
    weak: bool,
    /// Whether the write was acknowledged with FUA.
    fua: bool,
}

impl Write {
    fn over(&self) -> u64 {
        self.ended.min(self.seen)
    }
}

/// A host operation in flight.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    /// Its number, which also identifies the content of a write.
    pub id: u64,
    at: u64,
}

/// The model of one array. A clone is another history with the same past.
#[derive(Clone)]
pub struct Oracle {
    blocks: Blocks,
    block_bytes: usize,
    first: Content,
    cache: VolatileCache,
    /// Whether every block has copies that reads may use.
    copies: bool,
    time: u64,
    /// Acknowledged writes that ended before this time are stable.
    stable_before: u64,
    /// The start of each operation in flight.
    under_way: std::collections::BTreeSet<(u64, u64)>,
}

impl Oracle {
    /// A new array of `geometry` whose blocks have the content `first`. `cache` states whether a power cut may lose an
    /// acknowledged write.
    #[must_use]
    pub fn new(geometry: &Geometry, first: Content, cache: VolatileCache) -> Self {
        Self {
            blocks: Blocks::new(geometry.capacity_blocks() as usize),
            block_bytes: geometry.block_size().bytes() as usize,
            first,
            cache,
            copies: geometry.copies() > 1,
            time: 1,
            stable_before: 0,
            under_way: std::collections::BTreeSet::new(),
        }
    }

    fn tick(&mut self) -> u64 {
        self.time += 1;
        self.time
    }

    /// Starts an operation that writes nothing.
    pub fn begin(&mut self, id: u64) -> Begun {
        let at = self.tick();
        self.under_way.insert((at, id));
        Begun { id, at }
    }

    /// Starts a write of `range`. A `weak` write may leave every block unchanged.
    pub fn begin_write(&mut self, id: u64, range: LbaRange, content: Content, weak: bool) -> Begun {
        let begun = self.begin(id);
        let first = self.first_write();
        let write = Write {
            id,
            content,
            begun: begun.at,
            ended: NEVER,
            seen: NEVER,
            gone: NEVER,
            weak,
            fua: false,
        };
        for lba in range.start.0..range.end().0 {
            let block = self.blocks.get_mut(lba);
            if block.is_empty() {
                block.push(first);
            }
            block.push(write);
        }
        begun
    }

    fn first_write(&self) -> Write {
        Write {
            id: 0,
            content: self.first,
            begun: 0,
            ended: 0,
            seen: NEVER,
            gone: NEVER,
            weak: false,
            fua: true,
        }
    }

    /// Acknowledges a write.
    pub fn end_write(&mut self, begun: Begun, range: LbaRange, fua: bool) {
        let now = self.finish(begun);
        let horizon = self.under_way.first().map_or(now, |(at, _)| *at);
        let (cache, stable_before) = (self.cache, self.stable_before);
        for lba in range.start.0..range.end().0 {
            let block = self.blocks.get_mut(lba);
            if let Some(write) = block.iter_mut().find(|w| w.id == begun.id) {
                write.ended = now;
                write.fua = fua;
            }
            prune(block, cache, stable_before, horizon);
        }
    }

    /// Acknowledges a flush: writes that were acknowledged before its start are stable.
    pub fn end_flush(&mut self, begun: Begun) {
        self.finish(begun);
        self.stable_before = self.stable_before.max(begun.at);
    }

    /// Ends a failed operation: the content of its write remains possible.
    pub fn end_failed(&mut self, begun: Begun) {
        self.finish(begun);
    }

    /// Marks all acknowledged writes as stable, after a clean shutdown.
    pub fn all_stable(&mut self) {
        self.stable_before = self.tick();
    }

    fn finish(&mut self, begun: Begun) -> u64 {
        self.under_way.remove(&(begun.at, begun.id));
        self.tick()
    }

    /// Completes a read with `data`.
    ///
    /// Returns the violation.
    pub fn end_read(&mut self, begun: Begun, range: LbaRange, data: &[u8]) -> Result<(), String> {
        let now = self.finish(begun);
        let first = self.first_write();
        for (at, bytes) in data.chunks_exact(self.block_bytes).enumerate() {
            let lba = range.start.0 + at as u64;
            let block = self.blocks.get(lba);
            if block.is_empty() {
                check(&[first], lba, bytes, begun.at, now)?;
                continue;
            }
            let seen = check(block, lba, bytes, begun.at, now)?;
            if shows(block, &seen, self.copies) {
                observe(self.blocks.get_mut(lba), &seen, begun.at, now);
            }
        }
        Ok(())
    }

    /// Compares content with the permitted results of a read that starts now. The oracle records nothing.
    ///
    /// Returns the violation.
    pub fn might_read(&self, range: LbaRange, data: &[u8]) -> Result<(), String> {
        let first = [self.first_write()];
        for (lba, bytes) in (range.start.0..).zip(data.chunks_exact(self.block_bytes)) {
            let block = self.blocks.get(lba);
            let block = if block.is_empty() { &first[..] } else { block };
            check(block, lba, bytes, self.time + 1, self.time + 2)?;
        }
        Ok(())
    }

    /// Applies a crash: afterwards no request is in flight.
    pub fn crash(&mut self, crash: Crash) {
        let now = self.tick();
        self.under_way.clear();
        let (cache, stable_before) = (self.cache, self.stable_before);
        for block in self.blocks.written_mut() {
            let under_way = block.iter().any(|w| w.ended == NEVER);
            if crash == Crash::Power {
                let stable = |w: &Write| !w.weak && is_stable(w, cache, stable_before);
                let kept: Vec<Write> = block
                    .iter()
                    .filter(|w| !block.iter().any(|x| stable(x) && x.begun > w.ended))
                    .copied()
                    .collect();
                *block = kept;
                block
                    .iter_mut()
                    .filter(|w| !is_stable(w, cache, stable_before))
                    .for_each(|w| w.weak = true);
            }
            for write in block.iter_mut() {
                if write.ended == NEVER {
                    write.ended = now;
                    write.weak = true;
                }
                if under_way || crash == Crash::Power {
                    write.seen = NEVER;
                    write.gone = NEVER;
                }
            }
        }
    }

    /// Permits any content of `lba`, because the operator has accepted its loss.
    pub fn give_up(&mut self, lba: u64) {
        let now = self.tick();
        let unknown =
            Write { content: Content::Unknown, begun: now, ended: now, ..self.first_write() };
        *self.blocks.get_mut(lba) = vec![unknown];
    }

    /// True if a write to `lba` is not yet stable, or may or may not have been executed.
    #[must_use]
    pub fn is_unsettled(&self, lba: u64, crash: Crash) -> bool {
        self.blocks.get(lba).iter().any(|w| match crash {
            Crash::Kill => w.ended == NEVER,
            Crash::Power => w.ended == NEVER || !is_stable(w, self.cache, self.stable_before),
        })
    }

    /// Blocks that were written at any time.
    pub fn written(&self) -> impl Iterator<Item = u64> {
        self.blocks.written()
    }
}

fn is_stable(write: &Write, cache: VolatileCache, stable_before: u64) -> bool {
    let acknowledged = write.ended != NEVER;
    acknowledged && (cache == VolatileCache::Absent || write.fua || write.ended < stable_before)
}

/// Removes writes that no read can return and no crash can restore.
fn prune(block: &mut Vec<Write>, cache: VolatileCache, stable_before: u64, horizon: u64) {
    if block.len() < 2 {
        return;
    }
    let newest = block
        .iter()
        .filter(|x| !x.weak && is_stable(x, cache, stable_before) && x.ended < horizon)
        .map(|x| x.begun)
        .max();
    if let Some(newest) = newest {
        block.retain(|w| newest <= w.ended);
    }
}

/// Finds the writes that a read may have seen, and those that match its data.
fn check(block: &[Write], lba: u64, bytes: &[u8], begun: u64, now: u64) -> Result<Seen, String> {
    let visible = |w: &&Write| {
        w.begun < now
            && w.gone >= begun
            && !block.iter().any(|x| !x.weak && x.begun > w.over() && x.over() < begun)
    };
    let mut matching = block.iter().filter(visible).filter(|w| w.content.matches(lba, bytes));
    let Some(found) = matching.next() else {
        let allowed: Vec<String> =
            block.iter().filter(visible).map(|w| format!("{:?}", w.content)).collect();
        return Err(format!(
            "block {lba} reads as {}; allowed: {}; history: {:?}",
            content::describe(bytes),
            allowed.join(", "),
            block
        ));
    };
    let alone = matching.next().is_none();
    Ok(Seen { id: found.id, content: found.content, alone })
}

struct Seen {
    id: u64,
    content: Content,
    /// Whether no other write matches.
    alone: bool,
}

/// True if the data of a read proves something.
fn shows(block: &[Write], seen: &Seen, copies: bool) -> bool {
    let under_way = |w: &Write| w.content == seen.content && w.ended == NEVER;
    block.len() >= 2 && seen.content != Content::Unknown && !(copies && block.iter().any(under_way))
}

/// Records the evidence of a read.
fn observe(block: &mut [Write], seen: &Seen, begun: u64, now: u64) {
    for write in block.iter_mut() {
        if write.id == seen.id && seen.alone {
            write.seen = write.seen.min(now);
        } else if write.content != seen.content
            && write.content != Content::Unknown
            && write.over() <= begun
        {
            write.gone = write.gone.min(now);
        }
    }
}
