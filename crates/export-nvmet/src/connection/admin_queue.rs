//! What an admin queue has besides what every queue has: what its host set, whether that is alive, and its requests for
//! events.

use super::news::News;
use crate::admin::{self, Decision, Page, Setting};
use crate::controller::Controller;
use crate::limits::{EVENT_REQUESTS_MAX, QUEUES_MAX};
use crate::registry::{Registry, Room};
use strake_nvme_wire::reservation::Notice;
use strake_nvme_wire::{Sqe, Status};
use strake_units::Nanos;

pub(super) struct AdminQueue {
    setting: Setting,
    /// When the host last showed that it is alive.
    pub(super) heard: Nanos,
    /// Requests for events that are kept.
    held: u8,
    news: News,
}

impl AdminQueue {
    pub(super) fn new(controller: &Controller, registry: &Registry, now: Nanos) -> Self {
        let setting = Setting { events: 0, queues: QUEUES_MAX };
        Self { setting, heard: now, held: 0, news: News::of(controller, registry) }
    }

    /// When the host counts as gone.
    pub(super) fn deadline(&self, controller: &Controller, room: &Room) -> Option<Nanos> {
        let patience = match (controller.keep_alive_ms(), room) {
            (0, Room::ConnectionSlot(_)) => return None,
            (0, Room::DiscoveryConnection(visit)) => visit.silence_max(),
            (asked, _) => Nanos(u64::from(asked) * Nanos::MILLI.0),
        };
        Some(self.heard.plus(patience))
    }

    pub(super) fn decide(
        &mut self,
        sqe: &Sqe,
        controller: &Controller,
        registry: &Registry,
    ) -> Result<Decision, Status> {
        admin::decide(sqe, controller, registry, &mut self.setting)
    }

    /// Keeps one more request for events.
    pub(super) const fn hold(&mut self) -> Result<(), Status> {
        if self.held >= EVENT_REQUESTS_MAX {
            return Err(Status::TOO_MANY_EVENT_REQUESTS);
        }
        self.held += 1;
        Ok(())
    }

    /// What to answer to a request for events that is kept, if there is one and something is new.
    pub(super) fn next_event(
        &mut self,
        controller: &Controller,
        registry: &Registry,
    ) -> Option<u64> {
        if self.held == 0 {
            return None;
        }
        let event = self.news.next(self.setting.events, controller, registry)?;
        self.held -= 1;
        Some(event)
    }

    /// The host reads a page. Returns what it had seen before of its topic, and the notice that it reads.
    pub(super) fn read(
        &mut self,
        page: &Page,
        controller: &Controller,
        registry: &Registry,
    ) -> (u64, Option<Notice>) {
        match page {
            Page::Log(request) => (self.news.look(request, controller, registry), None),
            Page::Notice(request) => (0, self.news.read_notice(request, controller)),
            _ => (0, None),
        }
    }
}
