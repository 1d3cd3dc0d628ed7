//! The clusters of a pool: their references, their last records, and their partial states.
//!
//! While a root is written, the clusters also have the state of the checkpoint: before a cluster of a page changes for
//! the first time, the page is kept. A page is forgotten when the root contains it.

use std::collections::BTreeMap;

use crate::blocks::Partial;
use crate::ids::{ClusterId, Number, Ring};

/// Clusters of a page. Tests use small pages, so that small pools have several.
pub(crate) const PAGE: usize = if cfg!(test) { 2 } else { 256 };

/// The record that changed a cluster last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Home {
    pub(crate) ring: Ring,
    pub(crate) number: Number,
}

/// The state of a cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClusterState<'a> {
    /// Entries and bases that refer to the cluster.
    pub(crate) count: u32,
    pub(crate) home: Home,
    /// `None` if all blocks are own blocks, or the cluster is free.
    pub(crate) partial: Option<&'a Partial>,
}

/// The result of the end of a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Released {
    /// Others refer to the cluster.
    InUse,
    /// The cluster is free. Its reference to this base ends too.
    Free { base: Option<ClusterId> },
}

/// Consecutive clusters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Rows {
    counts: Vec<u32>,
    homes: Vec<Home>,
    partials: Vec<Option<Box<Partial>>>,
}

impl Rows {
    fn state(&self, at: usize) -> ClusterState<'_> {
        let partial = self.partials[at].as_deref();
        ClusterState { count: self.counts[at], home: self.homes[at], partial }
    }

    fn release(&mut self, at: usize, home: Home) -> Released {
        self.homes[at] = home;
        let count = &mut self.counts[at];
        *count = count.checked_sub(1).expect("a reference is given up once");
        if *count > 0 {
            return Released::InUse;
        }
        Released::Free { base: self.partials[at].take().and_then(|partial| partial.base) }
    }
}

/// The pages of a checkpoint that have changed since.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Kept {
    /// The root contains the pages below.
    written: usize,
    pages: BTreeMap<usize, Rows>,
}

/// All clusters of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Clusters {
    rows: Rows,
    /// The state of the checkpoint whose root is being written.
    kept: Option<Kept>,
}

impl Clusters {
    /// Returns free clusters without records.
    pub(crate) fn new(clusters: usize) -> Self {
        let home = Home { ring: Ring::LEADER, number: Number(0) };
        let (homes, partials) = (vec![home; clusters], vec![None; clusters]);
        Self { rows: Rows { counts: vec![0; clusters], homes, partials }, kept: None }
    }

    /// The references to each cluster.
    pub(crate) fn counts(&self) -> &[u32] {
        &self.rows.counts
    }

    pub(crate) fn count(&self, cluster: ClusterId) -> u32 {
        self.rows.counts[cluster.at()]
    }

    pub(crate) fn home(&self, cluster: ClusterId) -> Home {
        self.rows.homes[cluster.at()]
    }

    pub(crate) fn partial(&self, cluster: ClusterId) -> Option<&Partial> {
        self.rows.partials[cluster.at()].as_deref()
    }

    /// Returns the states of all partial clusters.
    pub(crate) fn partials(&self) -> impl Iterator<Item = &Partial> {
        self.rows.partials.iter().flatten().map(|partial| &**partial)
    }

    /// Returns the rows, of which one of this cluster will change.
    fn rows_mut(&mut self, cluster: ClusterId) -> &mut Rows {
        if let Some(kept) = &mut self.kept {
            kept.keep(&self.rows, cluster.at() / PAGE);
        }
        &mut self.rows
    }

    pub(crate) fn set_count(&mut self, cluster: ClusterId, count: u32) {
        self.rows_mut(cluster).counts[cluster.at()] = count;
    }

    pub(crate) fn add_reference(&mut self, cluster: ClusterId) {
        self.rows_mut(cluster).counts[cluster.at()] += 1;
    }

    pub(crate) fn set_home(&mut self, cluster: ClusterId, home: Home) {
        self.rows_mut(cluster).homes[cluster.at()] = home;
    }

    /// Forgets the records that changed the clusters.
    pub(crate) fn reset_homes(&mut self) {
        self.rows.homes.fill(Home { ring: Ring::LEADER, number: Number(0) });
    }

    /// Sets the partial state of a cluster, and returns the previous one.
    pub(crate) fn set_partial(
        &mut self,
        cluster: ClusterId,
        partial: Option<Box<Partial>>,
    ) -> Option<Box<Partial>> {
        std::mem::replace(&mut self.rows_mut(cluster).partials[cluster.at()], partial)
    }

    /// Ends one reference, which the record `home` gave up.
    pub(crate) fn release(&mut self, cluster: ClusterId, home: Home) -> Released {
        self.rows_mut(cluster).release(cluster.at(), home)
    }

    /// Keeps the present state from now on, without references that records gave up.
    pub(crate) fn freeze(&mut self, given_up: impl Iterator<Item = (ClusterId, Home)>) {
        let mut kept = Kept::default();
        for (cluster, home) in given_up {
            let mut next = Some(cluster);
            while let Some(cluster) = next {
                let page = kept.keep(&self.rows, cluster.at() / PAGE);
                let page = page.expect("no page is written yet");
                next = match page.release(cluster.at() % PAGE, home) {
                    Released::Free { base } => base,
                    Released::InUse => None,
                };
            }
        }
        self.kept = Some(kept);
    }

    /// The state of a cluster at the checkpoint.
    pub(crate) fn frozen(&self, cluster: ClusterId) -> ClusterState<'_> {
        let page = self.kept.as_ref().and_then(|kept| kept.pages.get(&(cluster.at() / PAGE)));
        page.map_or_else(|| self.rows.state(cluster.at()), |page| page.state(cluster.at() % PAGE))
    }

    /// Forgets the pages before this cluster: the root contains them.
    pub(crate) fn written(&mut self, before: u32) {
        if let Some(kept) = &mut self.kept {
            kept.written = before as usize / PAGE;
            while kept.pages.first_key_value().is_some_and(|(page, _)| *page < kept.written) {
                kept.pages.pop_first();
            }
        }
    }

    /// Forgets the state of the checkpoint.
    pub(crate) fn thaw(&mut self) {
        self.kept = None;
    }
}

impl Kept {
    /// Keeps a page that will change, unless the root contains it already.
    fn keep(&mut self, rows: &Rows, page: usize) -> Option<&mut Rows> {
        if page < self.written {
            return None;
        }
        Some(self.pages.entry(page).or_insert_with(|| {
            let range = page * PAGE..((page + 1) * PAGE).min(rows.counts.len());
            Rows {
                counts: rows.counts[range.clone()].to_vec(),
                homes: rows.homes[range.clone()].to_vec(),
                partials: rows.partials[range].to_vec(),
            }
        }))
    }
}
