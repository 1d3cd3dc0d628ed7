//! What was written where: a model of the bytes that the array must give back.

use std::ops::Range;

/// The unit of content, in bytes. Every granule names its place and its version in each of its words, so that a
/// lost, old, torn or misplaced write is seen.
pub const GRANULE: usize = 4096;

/// An operation on whole granules of an area.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Read these granules and compare them.
    Read(Range<u32>),
    /// Write these granules in this version.
    Write(Range<u32>, u32),
}

impl Op {
    /// The granules it is about.
    #[must_use]
    pub const fn granules(&self) -> &Range<u32> {
        match self {
            Self::Read(granules) | Self::Write(granules, _) => granules,
        }
    }
}

/// A part of the array that has at most one request in flight, and the versions that it must hold.
#[derive(Clone, Debug)]
pub struct Area {
    /// Where it begins on the array, in bytes.
    offset: u64,
    /// Version of each granule; 0 for never written, which reads as zeroes.
    versions: Vec<u32>,
    /// The last version given out.
    last: u32,
    /// A write that was cut off before its answer: each granule of it may hold the old or the new version.
    unanswered: Option<(Range<u32>, u32)>,
}

impl Area {
    /// `granules` granules at byte `offset`, never written.
    #[must_use]
    pub fn new(offset: u64, granules: u32) -> Self {
        Self { offset, versions: vec![0; granules as usize], last: 0, unanswered: None }
    }

    /// Its length in granules.
    #[must_use]
    pub fn granules(&self) -> u32 {
        u32::try_from(self.versions.len()).unwrap_or(u32::MAX)
    }

    /// Where granule `index` begins on the array, in bytes.
    #[must_use]
    pub fn byte(&self, index: u32) -> u64 {
        self.offset + u64::from(index) * GRANULE as u64
    }

    /// A write of `granules` in a version that was never used before.
    pub fn write(&mut self, granules: Range<u32>) -> Op {
        self.last += 1;
        Op::Write(granules, self.last)
    }

    /// Puts what a write must carry into `bytes`.
    pub fn fill(&self, granules: &Range<u32>, version: u32, bytes: &mut [u8]) {
        for (index, granule) in granules.clone().zip(bytes.chunks_exact_mut(GRANULE)) {
            let word = first_word(self.byte(index), version);
            for (i, chunk) in granule.chunks_exact_mut(8).enumerate() {
                chunk.copy_from_slice(&nth(word, i).to_le_bytes());
            }
        }
    }

    /// The server has answered that a write is done.
    pub fn acknowledged(&mut self, granules: &Range<u32>, version: u32) {
        for index in granules.clone() {
            self.versions[index as usize] = version;
        }
    }

    /// The connection broke before the answer to `op` came.
    pub fn cut_off(&mut self, op: Op) {
        match op {
            Op::Write(granules, version) => self.unanswered = Some((granules, version)),
            Op::Read(_) => {}
        }
    }

    /// Compares what was read with what was written; gives the number of granules that differ. A granule of a
    /// write that was never answered may be either version, and stays what it turned out to be.
    pub fn compare(&mut self, granules: &Range<u32>, bytes: &[u8]) -> u64 {
        let mut wrong = 0;
        for (index, granule) in granules.clone().zip(bytes.chunks_exact(GRANULE)) {
            let version = self.versions[index as usize];
            if holds(granule, self.byte(index), version) {
                continue;
            }
            match &self.unanswered {
                Some((range, new))
                    if range.contains(&index) && holds(granule, self.byte(index), *new) =>
                {
                    self.versions[index as usize] = *new;
                }
                Some(_) | None => wrong += 1,
            }
        }
        wrong
    }

    /// Everything was read once since the connection broke: no write is in doubt.
    pub fn settled(&mut self) {
        self.unanswered = None;
    }
}

/// True when `granule` is what was written at byte `at` in `version`.
fn holds(granule: &[u8], at: u64, version: u32) -> bool {
    let word = first_word(at, version);
    let expected = |i: usize| if version == 0 { 0 } else { nth(word, i) };
    granule.chunks_exact(8).enumerate().all(|(i, chunk)| chunk == expected(i).to_le_bytes())
}

/// A well mixed word out of a place and a version (the finalizer of splitmix64, Steele, Lea and Flood 2014).
fn first_word(at: u64, version: u32) -> u64 {
    mix(at ^ (u64::from(version) << 40) ^ u64::from(version))
}

/// The `i`th word of a granule that begins with `first`.
const fn nth(first: u64, i: usize) -> u64 {
    first.wrapping_add((i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

const fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Numbers that look random and come again with the same seed: the demo does the same every time.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Dice that begin at `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `limit`, which is not 0.
    pub fn below(&mut self, limit: u32) -> u32 {
        self.0 = self.0.wrapping_add(1);
        u32::try_from(mix(self.0) % u64::from(limit)).unwrap_or(0)
    }
}
