//! I/Os that do not pass the pool core: the views that they use, and the epochs that they are in.
//!
//! For the map, all of them are one I/O in its current epoch. When the map closes the epoch, the pool core flips the
//! sections, and this I/O leaves the epoch when no I/O is in the earlier half of any section.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use strake_volume_map::{Epoch, Revoked, Ring, VolumeId, VolumeMap};

use crate::grace::{Grace, Half, Section};
use crate::view::View;

/// The state of I/Os that do not pass the pool core.
pub(super) struct Directs {
    grace: Arc<Grace>,
    sections: Vec<Arc<Section>>,
    /// The views of volumes that have devices.
    views: BTreeMap<VolumeId, Arc<View>>,
    /// The epoch of I/Os that enter sections now. Those between the end of the epoch and the next flip count in it too.
    /// `None` without sections.
    present: Option<Epoch>,
    /// The epoch and the half of I/Os from before the last flip.
    older: Option<(Epoch, Half)>,
}

impl Directs {
    pub(super) fn new(grace: Arc<Grace>) -> Self {
        let (sections, views) = (Vec::new(), BTreeMap::new());
        Self { grace, sections, views, present: None, older: None }
    }

    /// Returns the view of a volume for its devices.
    pub(super) fn view(&mut self, map: &VolumeMap, id: VolumeId) -> Option<&Arc<View>> {
        let blocks = map.usable_blocks(id)?;
        let parts = map.shape().clusters_of(blocks);
        Some(self.views.entry(id).or_insert_with(|| Arc::new(View::new(blocks, parts))))
    }

    /// Publishes the sizes of volumes after a change of whole volumes.
    pub(super) fn refresh_sizes(&mut self, map: &VolumeMap) {
        self.views.retain(|id, view| {
            let Some(blocks) = map.usable_blocks(*id) else { return false };
            view.blocks.store(blocks, Ordering::Release);
            true
        });
    }

    /// Lets a new queue use views.
    pub(super) fn connect(&mut self, map: &mut VolumeMap, section: Arc<Section>) {
        self.forget_gone();
        self.present.get_or_insert_with(|| map.enter());
        self.grace.hold_writes(must_hold(map));
        section.open();
        self.sections.push(section);
    }

    /// Adds a part to the view of its volume, if reads of it need nothing else.
    pub(super) fn show(&self, map: &VolumeMap, id: VolumeId, part: u32) {
        if self.present.is_some()
            && let Some(view) = self.views.get(&id)
            && let Some(direct) = map.direct(id, part)
        {
            view.add(part, direct);
        }
    }

    /// Makes later writes pass the pool core.
    pub(super) fn hold_writes(&self) {
        self.grace.hold_writes(true);
    }

    /// Makes all later I/Os pass the pool core.
    pub(super) fn close(&self) {
        self.grace.close();
    }

    /// Ends all changes after a write that the device may still execute: no cluster may be used again.
    pub(super) fn note_lost_write(&self, map: &mut VolumeMap) {
        if self.grace.has_lost_write() && !map.is_read_only() {
            map.log_failed();
        }
    }

    /// True if no I/O is in a section.
    pub(super) fn are_idle(&self) -> bool {
        self.sections.iter().all(|section| section.is_idle())
    }

    /// True if an I/O in a section may delay an operation of the map.
    pub(super) fn are_awaited(&self, map: &VolumeMap) -> bool {
        self.older.is_some() || self.present.is_some_and(|epoch| map.is_closed(epoch))
    }

    /// Removes from the views what the map revoked, and then ends epochs without I/Os. Returns the number of changes.
    /// Called in each turn, after all calls of the map, and before I/Os are sent. No answer of a turn follows from a
    /// record that is appended in the same turn.
    pub(super) fn settle(&mut self, map: &mut VolumeMap) -> usize {
        for revoked in map.revoked() {
            match revoked {
                Revoked::Part(id, part) => {
                    if let Some(view) = self.views.get(&id) {
                        view.remove(part);
                    }
                }
                Revoked::Volume(id) => {
                    if let Some(view) = self.views.get(&id) {
                        view.clear();
                    }
                }
            }
        }
        if self.present.is_none() {
            return 0;
        }
        let is_held = must_hold(map);
        if is_held != self.grace.holds_writes() {
            self.grace.hold_writes(is_held);
        }
        let mut work = 0;
        if let Some((epoch, half)) = self.older
            && self.sections.iter().all(|section| section.is_empty(half))
        {
            self.note_lost_write(map);
            map.leave(epoch);
            self.older = None;
            work += 1;
        }
        if self.older.is_none()
            && let Some(epoch) = self.present
            && map.is_closed(epoch)
        {
            self.forget_gone();
            // The next I/O of a section is in an epoch that the map enters before the flip.
            self.present = Some(map.enter());
            self.older = Some((epoch, self.grace.flip()));
            work += 1;
        }
        work
    }

    fn forget_gone(&mut self) {
        self.sections.retain(|section| !section.is_gone());
    }
}

/// True if writes must pass the pool core.
fn must_hold(map: &VolumeMap) -> bool {
    map.is_held(Ring::LEADER) || map.is_read_only()
}
