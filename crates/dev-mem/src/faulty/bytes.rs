//! Bytes of a device that differ from the inner device: runs that never overlap, and the log of writes that a cache has
//! not made stable.

use std::collections::BTreeMap;

/// Content of a run of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Run {
    Zeroes(u64),
    Data(Vec<u8>),
}

impl Run {
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Zeroes(len) => *len,
            Self::Data(data) => data.len() as u64,
        }
    }

    /// Removes and returns the bytes after the first `at` bytes.
    pub(super) fn split_off(&mut self, at: u64) -> Self {
        match self {
            Self::Zeroes(len) => {
                let tail = *len - at;
                *len = at;
                Self::Zeroes(tail)
            }
            Self::Data(data) => Self::Data(data.split_off(at as usize)),
        }
    }

    /// Copies the overlapping part into `target`. The arguments are the first bytes of the run and of `target`.
    pub(super) fn copy_into(&self, start: u64, target: &mut [u8], target_start: u64) {
        let from = start.max(target_start);
        let to = (start + self.len()).min(target_start + target.len() as u64);
        if from >= to {
            return;
        }
        let part = &mut target[(from - target_start) as usize..(to - target_start) as usize];
        match self {
            Self::Zeroes(_) => part.fill(0),
            Self::Data(data) => {
                part.copy_from_slice(&data[(from - start) as usize..(to - start) as usize]);
            }
        }
    }
}

/// Runs by their first byte; they never overlap and are never empty.
#[derive(Debug, Default)]
pub(super) struct Runs {
    runs: BTreeMap<u64, Run>,
}

impl Runs {
    /// Divides the run that covers `byte`, so that a run starts at `byte`.
    fn split_at(&mut self, byte: u64) {
        if let Some((start, run)) = self.runs.range_mut(..byte).next_back()
            && byte < start + run.len()
        {
            let tail = run.split_off(byte - start);
            self.runs.insert(byte, tail);
        }
    }

    fn insert(&mut self, start: u64, run: Run) {
        let end = start + run.len();
        if start == end {
            return;
        }
        self.split_at(start);
        self.split_at(end);
        let covered: Vec<u64> = self.runs.range(start..end).map(|(at, _)| *at).collect();
        for at in covered {
            self.runs.remove(&at);
        }
        self.runs.insert(start, run);
    }

    fn copy_into(&self, target: &mut [u8], target_start: u64) {
        let end = target_start + target.len() as u64;
        let before = self.runs.range(..target_start).next_back();
        for (start, run) in before.into_iter().chain(self.runs.range(target_start..end)) {
            run.copy_into(*start, target, target_start);
        }
    }
}

/// The progress of a write in the cache.
///
/// ```text
/// Arrived --answered--> Answered --flush--> Stable
///    \---------------FUA------------------/
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Arrived,
    Answered,
    Stable,
}

#[derive(Debug)]
struct Entry {
    serial: u64,
    start: u64,
    run: Run,
    progress: Progress,
}

/// The write cache of a drive. Reads always return the newest content. After a power cut, stable writes survive, and
/// the caller determines the result of the others.
#[derive(Debug, Default)]
pub(super) struct Cache {
    stable: Runs,
    log: Vec<Entry>,
    next: u64,
}

impl Cache {
    /// Records a write. The serial number identifies the write at its completion.
    pub(super) fn record(&mut self, start: u64, run: Run, progress: Progress) -> u64 {
        self.next += 1;
        self.log.push(Entry { serial: self.next, start, run, progress });
        self.fold();
        self.next
    }

    /// The completion of the write `serial` has been reported to the caller: flushes cover it from now on.
    pub(super) fn answered(&mut self, serial: u64) {
        if let Ok(index) = self.log.binary_search_by_key(&serial, |entry| entry.serial)
            && self.log[index].progress == Progress::Arrived
        {
            self.log[index].progress = Progress::Answered;
        }
    }

    /// Makes the writes stable that a flush must make stable: those that completed before. Other writes may be lost.
    pub(super) fn flush(&mut self) {
        for entry in &mut self.log {
            if entry.progress == Progress::Answered {
                entry.progress = Progress::Stable;
            }
        }
        self.fold();
    }

    /// Stable writes with nothing unstable before them no longer need the log.
    fn fold(&mut self) {
        let unstable = |entry: &Entry| entry.progress != Progress::Stable;
        let count = self.log.iter().position(unstable).unwrap_or(self.log.len());
        for entry in self.log.drain(..count) {
            self.stable.insert(entry.start, entry.run);
        }
    }

    /// Copies the content of the cache over bytes that were read from the inner device.
    pub(super) fn copy_into(&self, target: &mut [u8], start: u64) {
        self.stable.copy_into(target, start);
        for entry in &self.log {
            entry.run.copy_into(entry.start, target, start);
        }
    }

    /// Returns the number of writes that a power cut may lose.
    pub(super) fn unflushed(&self) -> usize {
        self.log.iter().filter(|entry| entry.progress != Progress::Stable).count()
    }

    /// Cuts the power. For each unflushed write, in ascending order, `keep` returns the end of the bytes that survive;
    /// its arguments are the start and the end of the write. The surviving bytes are stable.
    pub(super) fn power_cut(&mut self, mut keep: impl FnMut(u64, u64) -> u64) {
        for mut entry in std::mem::take(&mut self.log) {
            let end = entry.start + entry.run.len();
            if entry.progress != Progress::Stable {
                let cut = keep(entry.start, end).clamp(entry.start, end);
                drop(entry.run.split_off(cut - entry.start));
            }
            self.stable.insert(entry.start, entry.run);
        }
    }

    /// Removes and returns all content as runs that do not overlap, in order.
    pub(super) fn take(&mut self) -> impl Iterator<Item = (u64, Run)> + use<> {
        self.power_cut(|_, end| end);
        std::mem::take(&mut self.stable.runs).into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::{Cache, Progress, Run, Runs};
    use crate::faulty::random::Random;

    #[test]
    fn runs_agree_with_a_vector() {
        let mut random = Random::new(5);
        let mut runs = Runs::default();
        let mut model = [0xee; 256];
        for step in 0..500u32 {
            let start = random.below(256);
            let len = random.below(257 - start);
            let byte = step as u8;
            let (run, value) = match step % 3 {
                0 => (Run::Zeroes(len), 0),
                _ => (Run::Data(vec![byte; len as usize]), byte),
            };
            runs.insert(start, run);
            model[start as usize..(start + len) as usize].fill(value);
            let (from, to) = (random.below(256), random.below(256));
            let (from, to) = (from.min(to), from.max(to));
            let mut found = vec![0xee; (to - from) as usize];
            runs.copy_into(&mut found, from);
            assert_eq!(found, model[from as usize..to as usize], "step {step}");
        }
    }

    #[test]
    fn a_flush_covers_what_was_answered_before_it() {
        let mut cache = Cache::default();
        let one = |byte| Run::Data(vec![byte]);
        let first = cache.record(0, one(1), Progress::Arrived);
        cache.record(1, one(2), Progress::Arrived);
        cache.record(2, one(3), Progress::Stable);
        cache.answered(first);
        cache.flush();
        assert_eq!(cache.unflushed(), 1);
        let mut shown = [0; 3];
        cache.copy_into(&mut shown, 0);
        assert_eq!(shown, [1, 2, 3]);
        cache.power_cut(|start, _| start);
        let mut left = [9; 3];
        cache.copy_into(&mut left, 0);
        assert_eq!(left, [1, 9, 3]);
        assert_eq!(cache.unflushed(), 0);
    }

    #[test]
    fn a_later_stable_write_survives_an_earlier_lost_one() {
        let mut cache = Cache::default();
        cache.record(0, Run::Data(vec![1; 4]), Progress::Answered);
        cache.record(2, Run::Data(vec![2; 4]), Progress::Stable);
        cache.record(5, Run::Zeroes(2), Progress::Answered);
        let mut asked = Vec::new();
        cache.power_cut(|start, end| {
            asked.push((start, end));
            start + 1
        });
        assert_eq!(asked, [(0, 4), (5, 7)]);
        let mut left = [9; 8];
        cache.copy_into(&mut left, 0);
        assert_eq!(left, [1, 9, 2, 2, 2, 0, 9, 9]);
        assert_eq!(cache.take().count(), 3);
        assert_eq!(cache.take().count(), 0);
    }
}
