//! Which of the paths to a namespace carries I/O.
//!
//! One does, for all queues of a drive: what is asked for next goes over it, and a path that is as good as the one in
//! use is no reason to change. What is chosen here is only where new commands go; when those of another path may be
//! sent again is a matter of its association ([`Life`](crate::link::Life)).

use crate::identify::Facts;
use strake_block::VolatileCache;
use strake_nvme_wire::log::Access;

/// Names a path of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PathId(pub(crate) u64);

/// A path whose association is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PathCandidate {
    pub(crate) path: PathId,
    /// How the namespace is reached over it.
    pub(crate) access: Option<Access>,
    /// It is to be removed.
    pub(crate) leaving: bool,
    /// A flush over it covers what completed over the one in use.
    pub(crate) shares_cache: bool,
    /// A queue could not be connected over it.
    pub(crate) poor: bool,
}

/// The path that has carried I/O until now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Used {
    pub(crate) path: PathId,
    /// It has not done so for long.
    pub(crate) lately: bool,
}

/// How well a path serves; the least is best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Optimized,
    Roundabout,
    Poor,
    Useless,
}

impl PathCandidate {
    /// What cannot be reached now is better than nothing: requests are held, and tried, until it can be.
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

/// The path that carries I/O from now on, of those in `candidates`.
///
/// A change that serves nothing but speed is not made where it would cost what is not flushed, nor soon after another.
pub(crate) fn choose(candidates: &[PathCandidate], used: Option<Used>) -> Option<PathId> {
    let best = candidates.iter().min_by_key(|candidate| candidate.rank())?;
    let Some(Used { path, lately }) = used else { return Some(best.path) };
    let Some(candidate) = candidates.iter().find(|candidate| candidate.path == path) else {
        return Some(best.path);
    };
    let change = match candidate.rank() {
        // What a queue is asked that has no connection fails in the end.
        used @ (Rank::Poor | Rank::Useless) => best.rank() < used,
        Rank::Optimized | Rank::Roundabout => {
            best.rank() < candidate.rank() && best.shares_cache && !lately
        }
    };
    Some(if change { best.path } else { path })
}

/// Whether a flush over one path covers what completed over another: where nothing is cached, or where both are of one
/// instance.
pub(crate) fn share_cache(one: &Facts, other: &Facts) -> bool {
    let cached = one.cache == VolatileCache::Present || other.cache == VolatileCache::Present;
    !cached || (one.instance.is_some() && one.instance == other.instance)
}

/// Whether both can be paths to one namespace at the same time. Targets that tell their instances are the same when
/// those are; two that serve one name otherwise are not known to write to one medium.
pub(crate) fn are_one(one: &Facts, other: &Facts) -> bool {
    one.instance == other.instance
}

#[cfg(test)]
mod tests;
