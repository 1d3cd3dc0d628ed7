//! Selection of the path that carries I/O.
//!
//! One path carries the I/O of all queues of a drive. An equally good path is no reason for a change. The selection
//! concerns only new commands; the association decides when commands of another path may be sent again
//! ([`Life`](crate::link::Life)).

use crate::identify::Facts;
use strake_block::VolatileCache;
use strake_nvme_wire::log::Access;

/// The identifier of a path of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PathId(pub(crate) u64);

/// A path with an association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PathCandidate {
    pub(crate) path: PathId,
    /// The ANA state of the namespace over it.
    pub(crate) access: Option<Access>,
    /// Whether the path is to be removed.
    pub(crate) leaving: bool,
    /// Whether a flush over it covers changes that completed over the path in use.
    pub(crate) shares_cache: bool,
    /// Whether a queue could not be connected over it.
    pub(crate) poor: bool,
}

/// The path in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Used {
    pub(crate) path: PathId,
    /// Whether the path has been in use only for a short time.
    pub(crate) lately: bool,
}

/// The rank of a path; the lowest is the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Optimized,
    Roundabout,
    Poor,
    Useless,
}

impl PathCandidate {
    /// An inaccessible path is better than no path: requests are held and retried until it becomes accessible.
    const fn rank(&self) -> Rank {
        match self.access {
            _ if self.leaving => Rank::Useless,
            None | Some(Access::Optimized | Access::NonOptimized) if self.poor => Rank::Poor,
            None | Some(Access::Optimized) => Rank::Optimized,
            Some(Access::NonOptimized) => Rank::Roundabout,
            Some(Access::Inaccessible | Access::Lost | Access::Changing) => Rank::Useless,
        }
    }
}

/// Selects the path of `candidates` that carries I/O from now on.
///
/// A change that only improves speed is made neither if it would lose unflushed changes, nor soon after another change.
pub(crate) fn choose(candidates: &[PathCandidate], used: Option<Used>) -> Option<PathId> {
    let best = candidates.iter().min_by_key(|candidate| candidate.rank())?;
    let Some(Used { path, lately }) = used else { return Some(best.path) };
    let Some(candidate) = candidates.iter().find(|candidate| candidate.path == path) else {
        return Some(best.path);
    };
    let change = match candidate.rank() {
        // The requests of a queue without a connection would eventually fail.
        used @ (Rank::Poor | Rank::Useless) => best.rank() < used,
        Rank::Optimized | Rank::Roundabout => {
            best.rank() < candidate.rank() && best.shares_cache && !lately
        }
    };
    Some(if change { best.path } else { path })
}

/// True if a flush over one path covers changes that completed over the other: if nothing is cached, or if both have
/// the same instance.
pub(crate) fn share_cache(one: &Facts, other: &Facts) -> bool {
    let cached = one.cache == VolatileCache::Present || other.cache == VolatileCache::Present;
    !cached || (one.instance.is_some() && one.instance == other.instance)
}

/// True if both can be paths to one namespace at the same time. Targets that report instances must report the same one;
/// two other targets with the same identity are not known to write to the same medium.
pub(crate) fn are_one(one: &Facts, other: &Facts) -> bool {
    one.instance == other.instance
}

#[cfg(test)]
mod tests;
