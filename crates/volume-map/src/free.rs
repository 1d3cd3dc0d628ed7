//! The free clusters.

use crate::ids::ClusterId;

/// A set of clusters, one bit each.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FreeSet {
    words: Vec<u64>,
    len: u32,
    clusters: u32,
}

impl FreeSet {
    pub(crate) fn all(clusters: u32) -> Self {
        let mut words = vec![u64::MAX; clusters.div_ceil(64) as usize];
        if !clusters.is_multiple_of(64)
            && let Some(last) = words.last_mut()
        {
            *last = (1 << (clusters % 64)) - 1;
        }
        Self { words, len: clusters, clusters }
    }

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn insert(&mut self, cluster: ClusterId) {
        let word = &mut self.words[cluster.at() / 64];
        self.len += u32::from(*word >> (cluster.0 % 64) & 1 == 0);
        *word |= 1 << (cluster.0 % 64);
    }

    pub(crate) fn remove(&mut self, cluster: ClusterId) {
        let word = &mut self.words[cluster.at() / 64];
        self.len -= u32::from(*word >> (cluster.0 % 64) & 1 == 1);
        *word &= !(1 << (cluster.0 % 64));
    }

    /// Returns the first cluster from `from` on, and then from 0 on, that `usable` accepts.
    pub(crate) fn find(
        &self,
        from: ClusterId,
        usable: impl Fn(ClusterId) -> bool,
    ) -> Option<ClusterId> {
        let words = self.words.len();
        let first = from.at().min(self.clusters as usize) / 64;
        let mut bits = (0..=words).flat_map(|step| {
            let at = (first + step) % words;
            let mut word = self.words[at];
            if step == 0 {
                word &= u64::MAX << (from.0 % 64);
            }
            std::iter::from_fn(move || {
                let bit = (word != 0).then(|| word.trailing_zeros())?;
                word &= word - 1;
                Some(ClusterId((at * 64) as u32 + bit))
            })
        });
        bits.find(|cluster| usable(*cluster))
    }
}
