//! Tests of a ring on a medium with any combination of torn writes. They compare the ring with its required properties.

use crate::REDO_HEADER_BYTES;
use crate::ring::{Entry, Floors, Offer, RecordId, Ring};

const BLOCK: u64 = REDO_HEADER_BYTES as u64;
const LARGEST: u64 = 6 * BLOCK;

/// A generator with the same numbers for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// For each block of the medium, the last record or mark that wrote the block, and the index of the block in it.
type Medium = Vec<Option<(usize, u64)>>;

/// A record or a mark that was written.
struct Written {
    entry: Entry,
    blocks: u64,
    stable: bool,
    failed: bool,
    done: bool,
}

impl Written {
    /// True if blocks of the write may still reach the medium.
    fn in_progress(&self) -> bool {
        !self.stable && !self.failed
    }
}

/// Stores random blocks of a write on the medium.
fn land(medium: &mut Medium, number: usize, written: &Written, all: bool, random: &mut Random) {
    for block in 0..written.blocks {
        if all || random.below(2) == 0 {
            medium[(written.entry.at / BLOCK + block) as usize] = Some((number, block));
        }
    }
}

/// Checks the result of a start with `medium`: the oldest stable record that is not done must count, and all stable
/// records after the oldest whole record that counts must be whole.
fn check(medium: &Medium, all: &[Written]) {
    let visible =
        |number: usize| medium[(all[number].entry.at / BLOCK) as usize] == Some((number, 0));
    let whole = |number: usize| {
        let first = all[number].entry.at / BLOCK;
        (0..all[number].blocks)
            .all(|block| medium[(first + block) as usize] == Some((number, block)))
    };
    let mut floors = Floors::default();
    (0..all.len()).filter(|n| visible(*n)).for_each(|n| floors.add(0, all[n].entry.floor));
    let records = || (0..all.len()).filter(|n| all[*n].entry.sequence != 0);
    let is_current =
        |n: usize| floors.is_current(RecordId { ring: 0, sequence: all[n].entry.sequence });
    let pending = records().find(|n| all[*n].stable && !all[*n].done);
    assert!(pending.is_none_or(is_current), "a record that is not done counts");
    let oldest = records().find(|n| is_current(*n) && whole(*n));
    let Some(oldest) = oldest else { return };
    for later in records().filter(|n| *n > oldest && all[*n].stable) {
        let sequence = all[later].entry.sequence;
        assert!(
            whole(later),
            "{} counts ({floors:?}), and {sequence}, which is newer and was acted upon, is not whole",
            all[oldest].entry.sequence
        );
    }
}

fn run(seed: u64) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let bytes = BLOCK * (9 + random.below(30));
    let mut ring = Ring::new(0, bytes, LARGEST);
    let mut medium: Medium = vec![None; (bytes / BLOCK) as usize];
    let mut all: Vec<Written> = Vec::new();
    let mut places = 0;
    for _ in 0..600 {
        let writing: Vec<usize> = (0..all.len()).filter(|n| all[*n].in_progress()).collect();
        let acting: Vec<usize> = (0..all.len())
            .filter(|n| all[*n].stable && !all[*n].done && all[*n].entry.sequence != 0)
            .collect();
        match random.below(4) {
            0 | 1 => {
                let blocks = 2 + random.below(5);
                // A mark is written alone.
                let marking = writing.iter().any(|n| all[*n].entry.sequence == 0);
                let offer = if marking { Offer::Nothing } else { ring.offer(blocks * BLOCK) };
                let (entry, blocks) = match offer {
                    Offer::Place(entry) => (entry, blocks),
                    Offer::Mark(entry) => (entry, 1),
                    Offer::Nothing => continue,
                };
                assert!(entry.at + blocks * BLOCK <= bytes, "it lies in the ring");
                places += usize::from(entry.sequence != 0);
                all.push(Written { entry, blocks, stable: false, failed: false, done: false });
            }
            // A member fails the write of a record, whose blocks may or may not be on the medium.
            2 if !writing.is_empty() && random.below(8) == 0 => {
                let number = writing[random.below(writing.len() as u64) as usize];
                let all_blocks = random.below(2) == 0;
                land(&mut medium, number, &all[number], all_blocks, &mut random);
                (all[number].failed, all[number].done) = (true, true);
                ring.failed(all[number].entry);
            }
            2 if !writing.is_empty() => {
                let number = writing[random.below(writing.len() as u64) as usize];
                land(&mut medium, number, &all[number], true, &mut random);
                all[number].stable = true;
                ring.stable(all[number].entry);
            }
            3 if !acting.is_empty() => {
                // Some operations stay in progress for a long time.
                let number = acting[(random.below(acting.len() as u64)) as usize];
                if acting.len() == 1 || number > acting[0] || random.below(8) == 0 {
                    all[number].done = true;
                    ring.done(all[number].entry);
                }
            }
            _ => {}
        }
        // The host fails now. Any blocks of the writes in progress have reached the medium.
        for _ in 0..3 {
            let mut torn = medium.clone();
            for number in (0..all.len()).filter(|n| all[*n].in_progress()) {
                land(&mut torn, number, &all[number], false, &mut random);
            }
            check(&torn, &all);
        }
    }
    assert!(places > 20, "the ring went around");
}

#[test]
fn whatever_is_torn_no_record_counts_without_the_later_ones() {
    (1..=60).for_each(run);
}

/// Records that were not written occupy no space, and do not delay a mark.
#[test]
fn records_that_failed_give_up_their_space() {
    let mut ring = Ring::new(0, 10 * BLOCK, BLOCK);
    let mut record = || match ring.offer(BLOCK) {
        Offer::Place(entry) => Some(entry),
        Offer::Mark(_) | Offer::Nothing => None,
    };
    let entries: Vec<Entry> = std::iter::from_fn(&mut record).collect();
    assert_eq!(entries.len(), 8, "all blocks after the slots of marks");
    assert!(!ring.has_room(BLOCK) && !ring.is_idle());
    entries.iter().for_each(|entry| ring.failed(*entry));
    assert!(ring.is_idle());
    let Offer::Mark(mark) = ring.offer(BLOCK) else { panic!("nothing else records the floor") };
    ring.stable(mark);
    assert!(ring.has_room(BLOCK));
    assert!(matches!(ring.offer(BLOCK), Offer::Place(_)));
}
