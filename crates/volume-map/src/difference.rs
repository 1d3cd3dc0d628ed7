//! The difference of two volumes of one family, for incremental backups.

use crate::error::{Error, ErrorKind};
use crate::ids::VolumeId;
use crate::tables::{Source, Tables, Volume};
use crate::volume_map::VolumeMap;

/// Consecutive blocks of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// The first block of the volume.
    pub first: u64,
    /// The number of blocks.
    pub count: u64,
}

/// Spans in which two volumes may differ, in order. Blocks outside these spans are equal. The search skips a shared
/// leaf without a check of its entries.
#[derive(Clone, Debug)]
pub struct Differences<'a> {
    tables: &'a Tables,
    from: &'a Volume,
    to: &'a Volume,
    at: u64,
    end: u64,
}

impl VolumeMap {
    /// Returns the spans of `to` that may differ from `from`. Blocks beyond the end of `from` count as zero.
    ///
    /// # Errors
    /// If a volume does not exist.
    pub fn differences(&self, from: VolumeId, to: VolumeId) -> Result<Differences<'_>, Error> {
        let known = |id| self.state.tables.serving(id).ok_or(ErrorKind::NoVolume.of(id));
        let (from, to) = (known(from)?, known(to)?);
        Ok(Differences { tables: &self.state.tables, from, to, at: 0, end: to.blocks })
    }
}

impl Differences<'_> {
    /// Limits the search to blocks from `first` up to and without `end`. A search of a large volume is divided so.
    #[must_use]
    pub fn within(mut self, first: u64, end: u64) -> Self {
        (self.at, self.end) = (first, end.min(self.end));
        self
    }

    fn source(&self, volume: &Volume, block: u64) -> Source {
        let per = u64::from(self.tables.shape.cluster_blocks);
        if block >= volume.blocks {
            return Source::Zeroes;
        }
        let cluster = self.tables.lookup(volume, (block / per) as u32).1;
        self.tables.source(cluster, (block % per) as u16)
    }

    /// Returns the end of equal blocks that need no individual check: of a leaf, or of a cluster.
    fn equal_until(&self, block: u64) -> Option<u64> {
        let shape = self.tables.shape;
        let per = u64::from(shape.cluster_blocks);
        let index = (block / per) as u32;
        let (at, _) = shape.entry(index);
        let slot = |volume: &Volume| volume.root.get(at).copied().flatten();
        let leaf_blocks = per * u64::from(shape.leaf_entries);
        if slot(self.from) == slot(self.to) {
            return Some((at as u64 + 1) * leaf_blocks);
        }
        let cluster = |volume| self.tables.lookup(volume, index).1;
        (cluster(self.from) == cluster(self.to)).then_some((u64::from(index) + 1) * per)
    }
}

impl Iterator for Differences<'_> {
    type Item = Span;

    fn next(&mut self) -> Option<Span> {
        let differs =
            |this: &Self, block| this.source(this.from, block) != this.source(this.to, block);
        while self.at < self.end {
            if let Some(until) = self.equal_until(self.at) {
                self.at = until;
            } else if differs(self, self.at) {
                break;
            } else {
                self.at += 1;
            }
        }
        if self.at >= self.end {
            return None;
        }
        let first = self.at;
        let per = u64::from(self.tables.shape.cluster_blocks);
        let cluster_end = (first / per + 1) * per;
        while self.at < self.end.min(cluster_end) && differs(self, self.at) {
            self.at += 1;
        }
        Some(Span { first, count: self.at - first })
    }
}
