//! The steps that make a controller ready: the commands, and the checks of the answers.

use super::{Keeper, Purpose};
use crate::admin::DataPage;
use crate::error::Reason;
use crate::facts::{Controller, Facts, Namespace, first_namespace};
use crate::lifecycle::{Event, Step};
use crate::limits::{PAGE, QUEUES_MAX};
use crate::shared::lock;
use crate::wire::{command, doorbell_buffers, offset};
use std::sync::atomic::Ordering;
use strake_nvme_wire::bytes::u64_at;
use strake_nvme_wire::command::admin;
use strake_nvme_wire::identify::cns;
use strake_nvme_wire::log::page;
use strake_nvme_wire::{Cqe, feature};

impl Keeper {
    /// Sends the command of a step. A step without a command is answered immediately.
    pub(super) fn ask(&mut self, step: Step) -> Option<Event> {
        let at = (self.admin.page_address(DataPage::Steps), 0);
        let identify = |nsid, what: u8| command(admin::IDENTIFY, nsid, at).with(10, what.into());
        let sqe = match step {
            Step::Controller => identify(0, cns::CONTROLLER),
            Step::CommandSet => identify(0, cns::COMMAND_SET_CONTROLLER),
            Step::Namespaces => identify(0, cns::ACTIVE_NAMESPACES),
            Step::Namespace => identify(self.nsid, cns::NAMESPACE),
            Step::Descriptors => identify(self.nsid, cns::DESCRIPTORS),
            Step::Health => self.log_page(page::HEALTH, 512, DataPage::Steps),
            Step::Queues => {
                let most = feature::queues_asked(self.queues_wanted());
                command(admin::SET_FEATURES, 0, (0, 0))
                    .with(10, feature::QUEUES.into())
                    .with(11, most)
            }
            Step::Events => {
                // Changed namespaces, and all health events.
                let events = feature::event::NAMESPACES_CHANGED | 0x1f;
                let sqe = command(admin::SET_FEATURES, 0, (0, 0));
                sqe.with(10, feature::ASYNC_EVENTS.into()).with(11, events)
            }
            Step::Shadow => {
                let shadow = self.shared.shadow.iova;
                doorbell_buffers(shadow, shadow + PAGE as u64)
            }
        };
        if step == Step::Shadow && !self.prepares_shadow() {
            return Some(Event::Answered(Ok(())));
        }
        self.send(sqe, Purpose::Step(step));
        None
    }

    /// Zeroes the shadow doorbells. Returns whether the controller and the driver can use them.
    fn prepares_shadow(&self) -> bool {
        let offers = self.controller.as_ref().is_some_and(|controller| controller.shadow_doorbells);
        // Partner: the queues, which load it after the start of the session.
        self.shared.uses_shadow.store(false, Ordering::Release);
        let words = self.shared.shadow.memory.words();
        words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        // The page must contain every doorbell.
        offers
            && self.cap.doorbell(2 * usize::from(self.queues_wanted()) + 2)
                <= offset::DOORBELLS + PAGE
    }

    /// The useful number of I/O queues: those with doorbells in the registers and in the page of shadow doorbells.
    fn queues_wanted(&self) -> u16 {
        let bytes = self.function.as_ref().map_or(0, |function| function.registers().bytes());
        let room = bytes.min(offset::DOORBELLS + PAGE).saturating_sub(offset::DOORBELLS);
        // A pair of doorbells for each queue, and one pair for the admin queue.
        let most = (room / (2 * self.cap.doorbell_stride())).saturating_sub(1);
        most.min(QUEUES_MAX) as u16
    }

    /// Checks the answer to a step.
    pub(super) fn judge(&mut self, step: Step, cqe: Cqe) -> Result<(), Reason> {
        let is_good = cqe.status.is_success();
        let failed = |what| if is_good { Ok(()) } else { Err(Reason::Admin(what, cqe.status)) };
        let page = self.admin.page(DataPage::Steps);
        match step {
            Step::Controller => {
                failed("Identify of the controller")?;
                self.controller = Some(Controller::of(&page)?);
            }
            // Controllers before NVMe 2.0 do not support it.
            Step::CommandSet => {
                if let Some(controller) = self.controller.as_mut().filter(|_| is_good) {
                    controller.limit(&page);
                }
            }
            Step::Namespaces => {
                failed("Identify of the active namespaces")?;
                self.nsid = first_namespace(&page)?;
            }
            Step::Namespace => {
                failed("Identify of the namespace")?;
                let controller = self.controller.as_ref().ok_or(Reason::NoNamespace)?;
                self.namespace = Some(Namespace::of(&page, self.nsid, controller)?);
            }
            Step::Descriptors => {
                let facts = lock(&self.shared.known).facts.clone();
                let had_uuid = facts.map(|facts| facts.namespace.has_uuid());
                // Controllers before NVMe 1.3 have no list. If there was a UUID, an unreadable list proves nothing; if
                // there was none, a list that is found later is not used: the identity does not change.
                if had_uuid == Some(true) {
                    failed("Identify of the namespace's identifiers")?;
                }
                let is_used = is_good && had_uuid != Some(false);
                if let Some(namespace) = self.namespace.as_mut().filter(|_| is_used) {
                    namespace.identify(&page);
                }
                self.compare()?;
            }
            Step::Health => self.note_health(is_good.then_some(&page)),
            Step::Queues => self.note_queues(is_good.then_some(cqe.result as u32))?,
            Step::Events => self.send(command(admin::ASYNC_EVENT, 0, (0, 0)), Purpose::Event),
            // Partner: `NvmeQueue::doorbells`.
            Step::Shadow => self.shared.uses_shadow.store(is_good, Ordering::Release),
        }
        Ok(())
    }

    /// Checks that this is the drive of the earlier sessions.
    fn compare(&self) -> Result<(), Reason> {
        let (Some(controller), Some(namespace)) = (&self.controller, &self.namespace) else {
            return Err(Reason::NoNamespace);
        };
        let facts = Facts { controller: controller.clone(), namespace: namespace.clone() };
        match &lock(&self.shared.known).facts {
            Some(earlier) if !facts.continues(earlier) => Err(Reason::AnotherDrive),
            Some(_) | None => Ok(()),
        }
    }

    /// Notes whether the volatile cache may have been lost since the previous session: after a fatal error, a reset of
    /// the subsystem or a power loss, or if the log page is not available.
    fn note_health(&mut self, page: Option<&[u8; PAGE]>) {
        let losses = page.map(|page| (u64_at(page, 112), u64_at(page, 144)));
        let earlier = std::mem::replace(&mut self.losses, losses);
        let is_first = lock(&self.shared.known).facts.is_none();
        let is_same = losses.is_some() && losses == earlier;
        let caches = self
            .controller
            .as_ref()
            .is_some_and(|controller| controller.cache == strake_block::VolatileCache::Present);
        if caches && !is_first && (self.was_fatal || !is_same) {
            // Partner: `NvmeQueue::complete`. The increment precedes the session.
            self.shared.renewals.fetch_add(1, Ordering::Release);
        }
    }

    fn note_queues(&self, result: Option<u32>) -> Result<(), Reason> {
        let granted = feature::queues_of(result.ok_or(Reason::NoQueues)?);
        let granted = granted.min(self.queues_wanted().into()) as u16;
        let mut known = lock(&self.shared.known);
        if granted == 0 {
            return Err(Reason::NoQueues);
        }
        if known.facts.is_none() {
            known.numbers = (1..=granted).rev().collect();
        }
        Ok(())
    }
}
