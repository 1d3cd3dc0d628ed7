//! The additional state of an admin queue: features that the host has set, the keep-alive time, and outstanding
//! Asynchronous Event Requests.

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
    /// The time of the last keep-alive.
    pub(super) heard: Nanos,
    /// The number of outstanding Asynchronous Event Requests.
    held: u8,
    news: News,
}

impl AdminQueue {
    pub(super) fn new(controller: &Controller, registry: &Registry, now: Nanos) -> Self {
        let setting = Setting { events: 0, queues: QUEUES_MAX };
        Self { setting, heard: now, held: 0, news: News::of(controller, registry) }
    }

    /// The time at which the keep-alive timeout expires.
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

    /// Keeps one more Asynchronous Event Request outstanding.
    pub(super) const fn hold(&mut self) -> Result<(), Status> {
        if self.held >= EVENT_REQUESTS_MAX {
            return Err(Status::TOO_MANY_EVENT_REQUESTS);
        }
        self.held += 1;
        Ok(())
    }

    /// The result of an outstanding Asynchronous Event Request, if there is one and an event has occurred.
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

    /// Records that the host reads a page. Returns the state of its topic that the host had seen before, and the notice
    /// that it reads.
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
