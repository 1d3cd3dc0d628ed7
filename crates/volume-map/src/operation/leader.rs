//! Operations of the leader that need no cut of running writes: create, clone, delete, grow, policies and names.

use crate::error::{Error, ErrorKind};
use crate::ids::{Number, Ring, VolumeId};
use crate::operation::{Done, Progress, Wait};
use crate::record::{Change, Cut, SpacePolicy, VolumesChange};
use crate::state::MapState;

use strake_units::Name;

/// The change that the leader records.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LeaderKind {
    Create { name: Name, blocks: u64, policy: SpacePolicy },
    Clone { snapshot: VolumeId, name: Name },
    Delete { volume: VolumeId },
    Grow { volume: VolumeId, blocks: u64 },
    SetPolicy { volume: VolumeId, policy: SpacePolicy },
    Rename { volume: VolumeId, name: Name },
}

/// One record of the leader.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Leader {
    kind: LeaderKind,
    recorded: Option<(Number, Done)>,
}

impl Leader {
    pub(crate) fn new(kind: LeaderKind) -> Self {
        Self { kind, recorded: None }
    }

    pub(crate) fn advance(&mut self, map: &mut MapState) -> Progress {
        if let Some((number, done)) = &self.recorded {
            if !map.is_stable(Ring::LEADER, *number) {
                return Progress::Wait(Wait::Records { ring: Ring::LEADER, number: *number });
            }
            if let Done::Made(volumes) = done {
                volumes.iter().for_each(|volume| {
                    map.unreported.remove(volume);
                });
            }
            return Progress::Finished(Ok(done.clone()));
        }
        if map.is_led {
            return Progress::Wait(Wait::Leader);
        }
        if let LeaderKind::Grow { volume, .. } = self.kind
            && let Some(wait) = map.wait_for_growth(volume)
        {
            return Progress::Wait(wait);
        }
        let new = VolumeId(map.tables.next_volume);
        let (change, done) = match self.change(map, new) {
            Ok(change) => change,
            Err(error) => return Progress::Finished(Err(error)),
        };
        let grown = self.grown(map);
        let number = map.put_of_leader(change);
        map.growing.extend(grown.map(|(volume, blocks)| (volume, (blocks, number))));
        match &done {
            Done::Dying(volume) => {
                map.deletions.insert(*volume, number);
            }
            Done::Made(volumes) => map.unreported.extend(volumes),
            Done::Done => {}
        }
        self.change_need(map, new, number, grown);
        self.recorded = Some((number, done));
        self.advance(map)
    }

    /// Applies the effect of the record on reservations. An end takes effect when the record is stable.
    fn change_need(
        &self,
        map: &mut MapState,
        new: VolumeId,
        number: Number,
        grown: Option<(VolumeId, u64)>,
    ) {
        let clusters = |blocks| map.tables.shape.clusters_of(blocks);
        match &self.kind {
            LeaderKind::Grow { volume, blocks } => {
                let is_reserved = map.tables.volumes[volume].policy.reserved;
                let before = grown.map_or(*blocks, |(_, before)| before);
                let more = clusters(*blocks) - clusters(before);
                map.needs.add(*volume, if is_reserved { more as i64 } else { 0 });
            }
            LeaderKind::Create { blocks, policy, .. } if policy.reserved => {
                map.needs.set(new, clusters(*blocks));
            }
            LeaderKind::SetPolicy { volume, policy } if policy.reserved => {
                map.needs.set(*volume, map.need_of(&map.tables.volumes[volume]));
            }
            LeaderKind::Delete { volume } | LeaderKind::SetPolicy { volume, .. } => {
                map.needs.end(*volume, number);
            }
            LeaderKind::Create { .. } | LeaderKind::Clone { .. } | LeaderKind::Rename { .. } => {}
        }
    }

    /// Returns the volume that grows, and its previous size.
    fn grown(&self, map: &MapState) -> Option<(VolumeId, u64)> {
        let LeaderKind::Grow { volume, .. } = self.kind else { return None };
        map.tables.volumes.get(&volume).map(|known| (volume, known.blocks))
    }

    fn change(&self, map: &MapState, new: VolumeId) -> Result<(VolumesChange, Done), Error> {
        match &self.kind {
            LeaderKind::Create { name, blocks, policy } => {
                map.check_name(name)?;
                map.check_blocks(*blocks)?;
                map.check_room(1, map.tables.shape.leaves_of(*blocks))?;
                let clusters = map.tables.shape.clusters_of(*blocks);
                let need = if policy.reserved { clusters } else { 0 };
                map.check_need(&[(new, need)])?;
                let (volume, name) = (new, name.clone());
                let change =
                    VolumesChange::Create { volume, name, blocks: *blocks, policy: *policy };
                Ok((change, Done::Made(vec![new])))
            }
            LeaderKind::Clone { snapshot, name } => {
                map.check_name(name)?;
                map.check_snapshot(*snapshot)?;
                map.check_room(1, map.entries_of(*snapshot))?;
                let (snapshot, volume, name) = (*snapshot, new, name.clone());
                let change = VolumesChange::Clone { snapshot, volume, name };
                Ok((change, Done::Made(vec![new])))
            }
            LeaderKind::Delete { volume } => {
                map.serving(*volume)?;
                Ok((VolumesChange::Delete(*volume), Done::Dying(*volume)))
            }
            LeaderKind::Grow { volume, blocks } => {
                let known = map.writable(*volume)?;
                map.check_blocks(*blocks)?;
                if *blocks < known.blocks {
                    return Err(ErrorKind::DiscardsTail.of(*volume));
                }
                let leaves = map.tables.shape.leaves_of(*blocks);
                map.check_room(0, leaves - known.root.len())?;
                if known.policy.reserved {
                    let clusters = |blocks| map.tables.shape.clusters_of(blocks);
                    let more = clusters(*blocks) - clusters(known.blocks);
                    map.check_need(&[(*volume, map.needs.of(*volume) + more)])?;
                }
                let (volume, blocks) = (*volume, *blocks);
                Ok((VolumesChange::Size { volume, blocks }, Done::Done))
            }
            LeaderKind::SetPolicy { volume, policy } => {
                let known = map.writable(*volume)?;
                let need = if policy.reserved { map.need_of(known) } else { 0 };
                map.check_need(&[(*volume, need)])?;
                let (volume, policy) = (*volume, *policy);
                Ok((VolumesChange::Policy { volume, policy }, Done::Done))
            }
            LeaderKind::Rename { volume, name } => {
                map.serving(*volume)?;
                map.check_name(name)?;
                let (volume, name) = (*volume, name.clone());
                Ok((VolumesChange::Rename { volume, name }, Done::Done))
            }
        }
    }
}

impl MapState {
    /// Appends a record of the leader, with the record numbers of each ring below which records were applied before it.
    pub(crate) fn put_of_leader(&mut self, change: VolumesChange) -> Number {
        let cut: Cut = self.next_numbers();
        self.put(Ring::LEADER, Change::Volumes(change, cut))
    }
}
