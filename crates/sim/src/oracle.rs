//! What every block may hold: the specification that reads are compared with.
//!
//! Each block is an atomic register with a memory of what is not yet safe. A write `w` may be seen by an
//! operation that begins at `t` unless a write that began after `w` ended was itself over before `t`, or a read
//! that was over before `t` began after `w` ended and saw something else. After a kill, a write that was under
//! way may have happened or not; after a power cut, so may one that was acknowledged and not flushed, and what
//! only such writes replaced may be back.
//!
//! Copies are the exception: while a write is under way one copy may have it and another not, so reads that see it
//! in turn may see new, old, new. Real mirrors do the same, and no file system relies on more; such sightings
//! prove nothing here.
//!
//! Times are counts of events of this oracle, not of the clock.

mod blocks;

use strake_block::VolatileCache;
use strake_raid::Geometry;
use strake_units::LbaRange;

use crate::content;
use crate::drive::Crash;
use blocks::Blocks;

const NEVER: u64 = u64::MAX;

/// What a write leaves in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Zeroes.
    Zero,
    /// The pattern of this write.
    Pattern(u64),
    /// Anything: never written, or given up when a loss was accepted.
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
    /// When it was acknowledged, or when a crash ended it.
    ended: u64,
    /// When a read had seen it, which proves that it happened before.
    seen: u64,
    /// When a read had seen something else instead.
    gone: u64,
    /// It may not have happened at all.
    weak: bool,
    /// Acknowledged as FUA.
    fua: bool,
}

impl Write {
    fn over(&self) -> u64 {
        self.ended.min(self.seen)
    }
}

/// A host operation under way.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    /// Its number, which is also the identity of what it writes.
    pub id: u64,
    at: u64,
}

/// The model of one array. A clone is another history that begins with the same past.
#[derive(Clone)]
pub struct Oracle {
    blocks: Blocks,
    block_bytes: usize,
    first: Content,
    cache: VolatileCache,
    /// Every block is stored more than once and read from any place.
    copies: bool,
    time: u64,
    /// Acknowledged writes that ended before this are stable.
    stable_before: u64,
    /// When each operation under way began.
    under_way: std::collections::BTreeSet<(u64, u64)>,
}

impl Oracle {
    /// A new array of `geometry` whose blocks read as `first`. `cache` says whether an acknowledged write may be
    /// lost in a power cut.
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

    /// An operation that writes nothing begins.
    pub fn begin(&mut self, id: u64) -> Begun {
        let at = self.tick();
        self.under_way.insert((at, id));
        Begun { id, at }
    }

    /// A write of `range` begins. One that is `weak` may leave every block as it is.
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

    /// A write is acknowledged.
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

    /// A flush is acknowledged: what was acknowledged before it began is stable.
    pub fn end_flush(&mut self, begun: Begun) {
        self.finish(begun);
        self.stable_before = self.stable_before.max(begun.at);
    }

    /// An operation ends without success: what it writes stays possible.
    pub fn end_failed(&mut self, begun: Begun) {
        self.finish(begun);
    }

    /// Everything acknowledged so far is stable: the array was stopped in order.
    pub fn all_stable(&mut self) {
        self.stable_before = self.tick();
    }

    fn finish(&mut self, begun: Begun) -> u64 {
        self.under_way.remove(&(begun.at, begun.id));
        self.tick()
    }

    /// A read is answered with `data`.
    ///
    /// # Errors
    /// What is wrong with it.
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

    /// Compares what lies somewhere with what a read that begins now might see. Learns nothing from it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn might_read(&self, range: LbaRange, data: &[u8]) -> Result<(), String> {
        let first = [self.first_write()];
        for (lba, bytes) in (range.start.0..).zip(data.chunks_exact(self.block_bytes)) {
            let block = self.blocks.get(lba);
            let block = if block.is_empty() { &first[..] } else { block };
            check(block, lba, bytes, self.time + 1, self.time + 2)?;
        }
        Ok(())
    }

    /// The machine stops: no request is under way after that.
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

    /// The operator has accepted that `lba` may hold anything.
    pub fn give_up(&mut self, lba: u64) {
        let now = self.tick();
        let unknown =
            Write { content: Content::Unknown, begun: now, ended: now, ..self.first_write() };
        *self.blocks.get_mut(lba) = vec![unknown];
    }

    /// True when a write to `lba` is not yet stable, or may or may not have happened.
    #[must_use]
    pub fn is_unsettled(&self, lba: u64, crash: Crash) -> bool {
        self.blocks.get(lba).iter().any(|w| match crash {
            Crash::Kill => w.ended == NEVER,
            Crash::Power => w.ended == NEVER || !is_stable(w, self.cache, self.stable_before),
        })
    }

    /// Blocks that were ever written.
    pub fn written(&self) -> impl Iterator<Item = u64> {
        self.blocks.written()
    }
}

fn is_stable(write: &Write, cache: VolatileCache, stable_before: u64) -> bool {
    let acknowledged = write.ended != NEVER;
    acknowledged && (cache == VolatileCache::Absent || write.fua || write.ended < stable_before)
}

/// Forgets writes that no read can return and no crash can bring back.
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

/// Finds the writes that a read may have seen, and those that explain what it saw.
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
    /// No other write explains it.
    alone: bool,
}

/// True when what a read saw proves something.
fn shows(block: &[Write], seen: &Seen, copies: bool) -> bool {
    let under_way = |w: &Write| w.content == seen.content && w.ended == NEVER;
    block.len() >= 2 && seen.content != Content::Unknown && !(copies && block.iter().any(under_way))
}

/// Learns from what a read saw.
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
