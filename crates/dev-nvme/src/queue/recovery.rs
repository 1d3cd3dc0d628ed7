//! Commands of a session that has ended, and commands without an answer for a long time.

use super::NvmeQueue;
use super::slot::{SlotIndex, Stage};
use crate::error::Reason;
use crate::lifecycle::{Named, Phase};
use crate::limits::{ABORT_SCANS, HOLD_SCANS, RESET_SCANS, SCAN, SLOT_BITS, TRIES_MAX};
use crate::shared::{Request, Word};
use std::sync::atomic::Ordering;
use strake_block::IoErrorKind;

impl NvmeQueue {
    /// Handles the end of a session: no sent command can be executed any longer. A command with a completion was
    /// executed; the others wait for the next session, or fail if they were sent too often.
    pub(super) fn recover(&mut self) {
        if self.session.take().is_none() {
            return;
        }
        // The loop is limited to the entries of the ring: a controller may continue writing.
        let posted = if std::mem::take(&mut self.is_broken) { 0 } else { self.port.entries };
        for _ in 0..posted {
            let Some((cid, status)) = self.rings.pop() else { break };
            let index = cid & ((1 << SLOT_BITS) - 1);
            let slot = self.slots.get_mut(usize::from(index));
            if slot.is_some_and(|slot| slot.is_answered(cid)) {
                self.complete_slowly(index, status);
            }
        }
        for index in (0..self.slots.len() as u16).rev() {
            if self.slots[usize::from(index)].stage == Stage::Sent {
                self.replay(index);
            }
        }
        self.sent = 0;
        self.rings.reset();
    }

    fn replay(&mut self, index: SlotIndex) {
        self.settle_loan(index, false);
        let block = self.ability.block;
        let slot = &mut self.slots[usize::from(index)];
        slot.know_size(block);
        slot.forget();
        if slot.ages.tries >= TRIES_MAX {
            return self.end(index, Err(IoErrorKind::Gone));
        }
        slot.stage = Stage::Ready;
        self.ready.push_front(index);
        // The counter is informative; no memory depends on its order.
        self.shared.counters.replays.fetch_add(1, Ordering::Relaxed);
    }

    /// Checks the ages of all requests.
    #[cold]
    pub(super) fn scan(&mut self, word: Word) {
        self.scan_at = self.now.plus(SCAN);
        let is_live = word.phase() == Phase::Live;
        for index in 0..self.slots.len() as u16 {
            let slot = &mut self.slots[usize::from(index)];
            match slot.stage {
                Stage::Free | Stage::Over(_) => continue,
                Stage::Ready | Stage::Sent => {
                    slot.ages.held = slot.ages.held.saturating_add(1);
                }
            }
            if slot.stage == Stage::Sent && is_live {
                slot.ages.age = slot.ages.age.saturating_add(1);
                let named = Named { queue: self.port.number, cid: slot.cid() };
                match slot.ages.age {
                    ABORT_SCANS => self.shared.ask(Request::AbortDue(named)),
                    RESET_SCANS => {
                        let session = self.session.unwrap_or_default();
                        self.shared.ask(Request::Broken(session, Reason::NoAnswer));
                    }
                    _ => {}
                }
            }
        }
        if self.live == Word::NONE && matches!(word.phase(), Phase::Fenced | Phase::Live) {
            self.give_up();
        }
    }

    /// Fails requests that have waited for a session for too long. They can no longer be executed.
    fn give_up(&mut self) {
        for _ in 0..self.ready.len() {
            let Some(index) = self.ready.pop_front() else { break };
            if self.slots[usize::from(index)].ages.held >= HOLD_SCANS {
                self.end(index, Err(IoErrorKind::Gone));
            } else {
                self.ready.push_back(index);
            }
        }
    }
}
