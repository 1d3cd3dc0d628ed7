//! Whether what is read is what was written last.
//!
//! A block that the load writes is filled with words that follow from its address and from how often it was written.
//! The load remembers that number for every place and never has two requests out for one place, so it knows what any
//! read has to find. Places that it has not written yet are not looked at.

use strake_block::{Sg, SgMut};
use strake_units::Lba;

/// A request is out for the place.
const BUSY: u32 = 1 << 31;

/// How often each place was written.
pub(super) struct Verify {
    places: Vec<u32>,
    seed: u64,
}

impl Verify {
    pub(super) fn new(places: u64, seed: u64) -> Self {
        Self { places: vec![0; places as usize], seed }
    }

    /// Takes `place` for a request unless one is out for it.
    pub(super) fn begin(&mut self, place: u64, write: bool) -> bool {
        let state = &mut self.places[place as usize];
        if *state & BUSY != 0 {
            return false;
        }
        *state = (*state + u32::from(write)) | BUSY;
        true
    }

    /// Fills `data` with what is to be at `at` from now on. `None` when its memory is not ours alone.
    pub(super) fn fill(&self, place: u64, at: Lba, data: Sg) -> Option<Sg> {
        let version = self.places[place as usize] & !BUSY;
        let mut word = self.first_word(at, version);
        let mut filled: Option<Sg> = None;
        for part in data.into_parts() {
            let mut part = part.reclaim().ok()?;
            for bytes in part.as_mut_slice().chunks_mut(8) {
                bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
                word = next(word);
            }
            let part = part.freeze();
            match &mut filled {
                None => filled = Some(Sg::from(part)),
                Some(list) => list.push(part).ok()?,
            }
        }
        filled
    }

    /// The request for `place` has completed: whether `read`, when it is one, found what was written.
    pub(super) fn end(&mut self, place: u64, at: Lba, read: Option<&SgMut>) -> bool {
        let state = &mut self.places[place as usize];
        *state &= !BUSY;
        let version = *state;
        let Some(read) = read.filter(|_| version > 0) else { return true };
        let mut word = self.first_word(at, version);
        read.parts().iter().flat_map(|part| part.as_slice().chunks(8)).all(|bytes| {
            let same = *bytes == word.to_le_bytes()[..bytes.len()];
            word = next(word);
            same
        })
    }

    fn first_word(&self, at: Lba, version: u32) -> u64 {
        next(self.seed ^ at.0.rotate_left(32) ^ u64::from(version))
    }
}

/// A step of SplitMix64 (Steele, Lea and Flood, 2014): its words differ wherever their predecessors do.
const fn next(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

#[cfg(test)]
mod tests {
    use super::Verify;
    use strake_block::{BufMut, Sg, SgMut};
    use strake_units::Lba;

    fn read(data: &Sg) -> SgMut {
        let mut buffer = BufMut::alone(data.len());
        data.copy_to(buffer.as_mut_slice());
        SgMut::from(buffer)
    }

    fn blank() -> Sg {
        Sg::from(BufMut::alone(4096).freeze())
    }

    #[test]
    fn stale_torn_and_misplaced_data_are_found() {
        let mut verify = Verify::new(4, 9);
        let write = |verify: &mut Verify, place: u64| {
            assert!(verify.begin(place, true));
            let data = verify.fill(place, Lba(place), blank()).expect("ours alone");
            assert!(verify.end(place, Lba(place), None));
            data
        };
        let first = write(&mut verify, 0);
        let other = write(&mut verify, 1);
        let second = write(&mut verify, 0);
        let mut look = |data: &SgMut| {
            assert!(verify.begin(0, false));
            verify.end(0, Lba(0), Some(data))
        };
        assert!(look(&read(&second)));
        assert!(!look(&read(&first)), "stale");
        assert!(!look(&read(&other)), "misplaced");
        let mut torn = read(&second);
        torn.parts_mut()[0].as_mut_slice()[4095] ^= 1;
        assert!(!look(&torn), "torn");
    }

    #[test]
    fn one_request_at_a_time_per_place_and_nothing_is_said_of_what_was_never_written() {
        let mut verify = Verify::new(2, 9);
        assert!(verify.begin(1, false));
        assert!(!verify.begin(1, true));
        assert!(verify.end(1, Lba(1), Some(&read(&blank()))));
        assert!(verify.begin(1, true));
    }
}
