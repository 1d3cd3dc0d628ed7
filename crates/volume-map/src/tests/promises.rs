//! The guarantees of the driver: the oracle records them, and contents are compared with them.

use std::collections::BTreeMap;

use super::oracle::{Oracle, Presence, Set};
use super::world::{Op, Task, World, blocks_of};
use crate::VolumeKind;

impl World {
    /// Records a requested operation in the oracle.
    pub(crate) fn asked(&mut self, at: usize) {
        let Task { op, what, .. } = self.tasks[at].clone();
        let acked = self.oracle.acked;
        self.tasks[at].kept = acked;
        if let Some((volume, first, count)) = blocks_of(&what) {
            let is_write = matches!(what, Op::Write(..) | Op::WriteTo(..));
            let volume = volume.to_owned();
            for block in first..first + count {
                let token = if is_write { 1000 * op as i64 + block as i64 } else { 0 };
                self.oracle.wrote(op, &volume, block, token);
            }
        }
        match what {
            Op::Create(volume, size) => {
                self.oracle.must.insert(volume.into(), Presence::May);
                self.oracle.sizes.insert(volume.into(), [size].into());
            }
            Op::Snap(pairs) => {
                for (volume, snapshot) in pairs {
                    self.oracle.must.insert(snapshot.clone(), Presence::May);
                    self.oracle.asked.insert(snapshot, (volume, acked));
                }
            }
            Op::Clone(snapshot, copy) => {
                let Some(fixed) = self.oracle.fixed.get(&snapshot).cloned() else { return };
                self.oracle.must.insert(copy.clone(), Presence::May);
                self.oracle.sizes.insert(copy.clone(), [fixed.len() as u64].into());
                let initial = fixed.into_iter();
                self.oracle.initial.extend(initial.map(|(at, token)| ((copy.clone(), at), token)));
            }
            Op::Delete(volume) => {
                self.oracle.must.insert(volume, Presence::May);
            }
            Op::Roll(volume, snapshot) => {
                let Some(fixed) = self.oracle.fixed.get(&snapshot).cloned() else { return };
                for (block, token) in fixed {
                    self.oracle.wrote(op, &volume, block, token);
                }
                self.oracle.rolls.entry(volume).or_default().push(op);
            }
            Op::Size(volume, size) => {
                let Some(id) = self.id(&volume) else { return };
                let was = self.map.volume(id).map_or(0, |volume| volume.blocks);
                self.oracle.sizes.insert(volume.clone(), [was, size].into());
                // The earlier rollbacks have finished, and none of them contained the new blocks at the end.
                self.oracle.rolls.remove(&volume);
                for block in size..was {
                    self.oracle.wrote(op, &volume, block, 0);
                }
                for block in was..size {
                    self.oracle.forget_ended(&volume, block);
                    self.oracle.initial.insert((volume.clone(), block), 0);
                }
            }
            _ => {}
        }
    }

    pub(crate) fn check_read(&self, at: usize, got: &[i64], kept: Set) {
        let Op::Read(volume, block) = &self.tasks[at].what else { return };
        let fixed = self.oracle.fixed.get(volume).map(|fixed| [fixed[block]].into());
        let legal = fixed.unwrap_or_else(|| self.oracle.legal(volume, *block, kept, None));
        assert!(legal.contains(&got[0]), "a read of {volume}.{block} is {got:?}, may be {legal:?}");
    }

    pub(crate) fn report(&mut self, pairs: &[(String, String)]) {
        for (volume, snapshot) in pairs {
            let id = self.id(snapshot).expect("a reported snapshot");
            let content = self.content(id);
            self.oracle.must.insert(snapshot.clone(), Presence::Must);
            self.oracle.sizes.insert(snapshot.clone(), [content.len() as u64].into());
            let acked = self.oracle.asked[snapshot].1;
            for (block, token) in (0..).zip(&content) {
                let legal = self.oracle.legal(volume, block, acked, None);
                assert!(legal.contains(token), "{snapshot}.{block} is {token}, may be {legal:?}");
            }
            self.oracle.fixed.insert(snapshot.clone(), (0..).zip(content).collect());
        }
        self.oracle.check_instant(pairs);
    }

    /// Records that the snapshots of a failed request do not exist.
    pub(crate) fn unmade(&mut self, pairs: &[(String, String)]) {
        for (_, snapshot) in pairs {
            if self.id(snapshot).is_none() {
                self.oracle.must.insert(snapshot.clone(), Presence::Gone);
            }
        }
    }

    /// Checks all guarantees, after a start or without operations in progress.
    pub(crate) fn check(&self) {
        for (volume, presence) in &self.oracle.must {
            let is_there = self.id(volume).is_some();
            match presence {
                Presence::May => {}
                Presence::Must => assert!(is_there, "{volume} is missing"),
                Presence::Gone => assert!(!is_there, "{volume} is back after it was deleted"),
            }
        }
        for (id, volume) in self.map.volumes() {
            let name = volume.name.as_str();
            let sizes = self.oracle.sizes.get(name);
            let is_size = sizes.is_none_or(|sizes| sizes.contains(&volume.blocks));
            assert!(is_size, "{name} has {} blocks, may have {sizes:?}", volume.blocks);
            let content = self.content(id);
            for (block, got) in (0..).zip(&content) {
                let parent = self.oracle.asked.get(name);
                let (of, kept) =
                    parent.map_or((name, self.kept), |(of, acked)| (of, self.kept & acked));
                let fixed = self.oracle.fixed.get(name).map(|fixed| [fixed[&block]].into());
                let legal = fixed.unwrap_or_else(|| self.oracle.legal(of, block, kept, None));
                assert!(legal.contains(got), "{name}.{block} is {got}, may be {legal:?}");
            }
            self.oracle.check_rolls(name, &content, self.kept);
        }
        self.check_counts();
    }

    /// Checks that counts equal the references, and that the sums of space are correct.
    pub(crate) fn check_counts(&self) {
        if !self.map.state.has_given_up() {
            assert_eq!(
                self.map.state.tables.recount(),
                self.map.state.tables.clusters.counts(),
                "counts are references"
            );
        }
        self.check_sums();
        let space = self.map.space();
        let all = u64::from(self.map.shape().clusters);
        assert_eq!(space.free + space.in_use + space.in_transit, all);
        let used =
            self.map.state.tables.clusters.counts().iter().filter(|count| **count > 0).count()
                as u64;
        assert_eq!(space.in_use, used);
        for (id, volume) in self.map.volumes() {
            let needs = self.map.state.need_of(volume);
            let is_counted = !volume.policy.reserved || self.map.state.needs.of(id) >= needs;
            assert!(is_counted || self.map.state.has_given_up(), "{id} needs {needs}");
            let space = self.map.volume_space(id).expect("a volume");
            let walked = volume
                .root
                .iter()
                .flatten()
                .flat_map(|slot| &*self.map.state.tables.leaf(*slot).entries);
            assert_eq!(space.mapped, walked.filter(|entry| **entry != u32::MAX).count() as u64);
        }
    }

    /// Checks that running sums equal the results of a walk over all volumes.
    fn check_sums(&self) {
        let (state, tables) = (&self.map.state, &self.map.state.tables);
        let walked: usize = tables.volumes.values().map(|volume| volume.root.len()).sum();
        assert_eq!(tables.root_entries, walked);
        let mut names = BTreeMap::new();
        for (_, volume) in self.map.volumes() {
            *names.entry(volume.name.clone()).or_insert(0) += 1;
        }
        assert_eq!(tables.names, names);
        for (id, volume) in &tables.volumes {
            assert_eq!(volume.leaves as usize, volume.root.iter().flatten().count());
            let taken = state.taken.values().filter(|of| *of == id).count();
            assert_eq!(state.taken_by(*id), taken as u64);
        }
        let needs: u64 = tables.volumes.keys().map(|id| state.needs.of(*id)).sum();
        assert_eq!(state.needs.total(), needs);
    }

    /// Takes the state after a start as the state from now on.
    pub(crate) fn adopt(&mut self) {
        let (acked, ended) = (self.oracle.acked, self.oracle.ended);
        let mut oracle = Oracle { acked, ended, ..Oracle::default() };
        oracle.durable = oracle.acked;
        for volume in self.oracle.must.keys() {
            oracle.must.insert(volume.clone(), Presence::Gone);
        }
        for (id, volume) in self.map.volumes() {
            let name = volume.name.to_string();
            let content = self.content(id);
            oracle.must.insert(name.clone(), Presence::Must);
            oracle.sizes.insert(name.clone(), [volume.blocks].into());
            if volume.kind == VolumeKind::Snapshot {
                oracle.fixed.insert(name.clone(), (0..).zip(content.iter().copied()).collect());
            }
            oracle
                .initial
                .extend((0..).zip(content).map(|(at, token)| ((name.clone(), at), token)));
        }
        self.oracle = oracle;
    }
}
