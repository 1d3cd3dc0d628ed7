//! A naive model of the guarantees: it records writes, answers and snapshots, and has no map.

use std::collections::{BTreeMap, BTreeSet};

/// An operation of a test, as a bit of a set.
pub(crate) type Set = u128;

/// Whether a volume must exist after a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Presence {
    May,
    Must,
    Gone,
}

/// Histories of blocks. Volumes have the names of the test; a token is the content of a block, and 0 is zero.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Oracle {
    pub(crate) acked: Set,
    pub(crate) durable: Set,
    /// The operations that succeeded or failed.
    pub(crate) ended: Set,
    /// For each operation, the operations that were acknowledged when it was requested.
    pub(crate) before: BTreeMap<usize, Set>,
    /// For each operation, the operations that had ended when it was requested.
    pub(crate) ended_before: BTreeMap<usize, Set>,
    pub(crate) history: BTreeMap<(String, u64), Vec<usize>>,
    pub(crate) initial: BTreeMap<(String, u64), i64>,
    pub(crate) token: BTreeMap<(usize, String, u64), i64>,
    pub(crate) must: BTreeMap<String, Presence>,
    pub(crate) sizes: BTreeMap<String, BTreeSet<u64>>,
    /// Contents of reported snapshots.
    pub(crate) fixed: BTreeMap<String, BTreeMap<u64, i64>>,
    /// The source of each snapshot, and the operations that were acknowledged when the snapshot was requested.
    pub(crate) asked: BTreeMap<String, (String, Set)>,
    pub(crate) rolls: BTreeMap<String, Vec<usize>>,
}

impl Oracle {
    pub(crate) fn wrote(&mut self, op: usize, volume: &str, block: u64, token: i64) {
        self.history.entry((volume.into(), block)).or_default().push(op);
        self.token.insert((op, volume.into(), block), token);
        let (acked, ended) = (self.acked, self.ended);
        self.before.entry(op).or_insert(acked);
        self.ended_before.entry(op).or_insert(ended);
    }

    fn written(&self, volume: &str, block: u64) -> &[usize] {
        self.history.get(&(volume.into(), block)).map_or(&[], Vec::as_slice)
    }

    fn token_of(&self, op: usize, volume: &str, block: u64) -> i64 {
        self.token.get(&(op, volume.into(), block)).copied().unwrap_or(i64::MIN)
    }

    fn is_before(&self, early: usize, late: usize) -> bool {
        self.before.get(&late).is_some_and(|before| before >> early & 1 == 1)
    }

    /// True if the early operation had succeeded or failed when the late one was requested.
    fn has_ended(&self, early: usize, late: usize) -> bool {
        self.ended_before.get(&late).is_some_and(|ended| ended >> early & 1 == 1)
    }

    /// Handles a new block: of earlier operations, only those in progress may change it.
    pub(crate) fn forget_ended(&mut self, volume: &str, block: u64) {
        let ended = self.ended;
        if let Some(history) = self.history.get_mut(&(volume.to_owned(), block)) {
            history.retain(|op| ended >> *op & 1 == 0);
        }
    }

    /// Returns the legal contents of a block if the operations in `kept` count, and `but` does not.
    pub(crate) fn legal(
        &self,
        volume: &str,
        block: u64,
        kept: Set,
        but: Option<usize>,
    ) -> BTreeSet<i64> {
        let all = self.written(volume, block).iter().copied().filter(|op| Some(*op) != but);
        let writes: Vec<usize> = all.collect();
        let is_kept = |op: usize| kept >> op & 1 == 1;
        let is_lost = |op: usize| {
            writes.iter().any(|late| *late != op && is_kept(*late) && self.has_ended(op, *late))
        };
        let last = writes.iter().filter(|op| !is_lost(**op));
        let mut legal: BTreeSet<i64> = last.map(|op| self.token_of(*op, volume, block)).collect();
        if !writes.iter().any(|op| is_kept(*op)) {
            legal.insert(self.initial_of(volume, block));
        }
        legal
    }

    fn initial_of(&self, volume: &str, block: u64) -> i64 {
        self.initial.get(&(volume.into(), block)).copied().unwrap_or(0)
    }

    /// Checks that a rolled back volume has all blocks of the rollback, or none of them.
    pub(crate) fn check_rolls(&self, volume: &str, content: &[i64], kept: Set) {
        for roll in self.rolls.get(volume).into_iter().flatten() {
            let (mut has, mut lacks) = (false, false);
            for (block, got) in (0..).zip(content) {
                let token = self.token_of(*roll, volume, block);
                let same = |op: &&usize| self.token_of(**op, volume, block) == *got;
                let writes: Vec<&usize> = self.written(volume, block).iter().filter(same).collect();
                let is_of =
                    *got == token && !self.legal(volume, block, kept, Some(*roll)).contains(got);
                has |= is_of;
                lacks |= *got != token && writes.iter().all(|op| self.is_before(**op, *roll));
            }
            assert!(!(has && lacks), "half of the rollback op{roll} of {volume}: {content:?}");
        }
    }

    /// Checks that a group of snapshots is one instant: with a write it has all that were acknowledged before it.
    pub(crate) fn check_instant(&self, pairs: &[(String, String)]) {
        let mut may: BTreeMap<(String, u64), Vec<Option<usize>>> = BTreeMap::new();
        for (source, snapshot) in pairs {
            for (block, token) in &self.fixed[snapshot] {
                let writes = self.written(source, *block).iter().copied();
                let same = writes.filter(|op| self.token_of(*op, source, *block) == *token);
                let mut from: Vec<Option<usize>> = same.map(Some).collect();
                if self.initial_of(source, *block) == *token {
                    from.push(None);
                }
                may.insert((source.clone(), *block), from);
            }
        }
        let keys: Vec<(String, u64)> = may.keys().cloned().collect();
        let mut again = true;
        while again {
            again = false;
            for (of, with) in keys.iter().flat_map(|of| keys.iter().map(move |with| (of, with))) {
                let writes: Vec<usize> = may[of].iter().flatten().copied().collect();
                for write in writes.into_iter().filter(|_| of != with) {
                    let lacks = |origin: &Option<usize>| {
                        self.written(&with.0, with.1).iter().any(|missed| {
                            Some(*missed) != *origin
                                && origin.is_none_or(|origin| self.is_before(origin, *missed))
                                && self.is_before(*missed, write)
                        })
                    };
                    if may[with].iter().all(lacks) {
                        may.get_mut(of).expect("a key").retain(|op| *op != Some(write));
                        again = true;
                        assert!(
                            !may[of].is_empty(),
                            "{of:?} has op{write}, {with:?} lacks earlier"
                        );
                    }
                }
            }
        }
    }
}
