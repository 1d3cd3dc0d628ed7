//! The counters of a queue: its own stats, the stats of namespaces, and the error log.

use super::devices::Devices;
use crate::admit::Work;
use crate::controller::Place;
use crate::slots::{Slot, Task};
use crate::stats::Stats;
use std::sync::Arc;
use strake_export_net::count;
use strake_nvme_wire::log::Failure;

/// The counters of a queue.
pub(super) struct Accounting {
    pub(super) stats: Arc<Stats>,
    /// The index of this core in the counters of the export.
    pub(super) lane: usize,
}

impl Accounting {
    /// Records a failed command in the error log.
    pub(super) fn failure(&self, slot: &Slot, devices: &Devices, place: &Place) {
        let Slot { cid, status, task, .. } = *slot;
        if status.is_success() {
            return;
        }
        self.stats.counts.failure();
        let (mut block, mut namespace) = (0, 0);
        if let Task::Device(work, at) = task {
            block = work.first_block().map_or(0, |lba| lba.0);
            namespace = devices.served(at).map_or(0, |served| served.namespace);
        }
        let failure = Failure { number: 0, queue: place.queue, cid, status, block, namespace };
        place.controller.failures().note(failure);
    }

    /// Counts a completed I/O command.
    #[inline]
    pub(super) fn end(&self, slot: &Slot, devices: &Devices) {
        let Task::Device(work, at) = slot.task else { return };
        let Some(served) = devices.served(at) else { return };
        let counters = &served.counters[self.lane];
        let shift = served.facts.terms.block.shift();
        if !slot.status.is_success() {
            return count(&counters.errors, 1);
        }
        match work {
            Work::Read(range, _) => {
                count(&counters.reads, 1);
                count(&counters.read_bytes, range.blocks << shift);
            }
            Work::Write(range, _) => {
                count(&counters.writes, 1);
                count(&counters.written_bytes, range.blocks << shift);
            }
            Work::Zeroes(..) | Work::Deallocate(_) | Work::Copy(..) => {
                count(&counters.effects, 1);
            }
            Work::Flush => count(&counters.flushes, 1),
            Work::Advice(_) | Work::Compare(..) | Work::Verify(..) => {}
        }
    }
}
