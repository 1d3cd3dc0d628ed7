//! The state that a host has seen, and the events that are due (Base, section 5.2).

use crate::controller::Controller;
use crate::registry::Registry;
use strake_nvme_wire::feature::event;
use strake_nvme_wire::log::{self, page};
use strake_nvme_wire::reservation::{Notice, takes_notice};

/// The subject of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Topic {
    /// The subsystems of the discovery log page.
    Discovery,
    /// The access states of namespaces.
    Access,
    /// The namespaces and their sizes.
    Namespaces,
    /// Reservations that other hosts changed.
    Reservations,
}

impl Topic {
    /// The log page, the bit with which a host enables the event (zero if it is always enabled), and the result of the
    /// event.
    const fn names(self) -> (u8, u32, u64) {
        match self {
            Self::Discovery => {
                (page::DISCOVERY, event::DISCOVERY_CHANGED, event::DISCOVERY_CHANGED_RESULT)
            }
            Self::Access => (page::ACCESS, event::ACCESS_CHANGED, event::ACCESS_CHANGED_RESULT),
            Self::Namespaces => (
                page::CHANGED_NAMESPACES,
                event::NAMESPACES_CHANGED,
                event::NAMESPACES_CHANGED_RESULT,
            ),
            // Another feature masks this event (Base, section 5.27.1, feature 82h).
            Self::Reservations => (page::RESERVATION, 0, event::RESERVATION_RESULT),
        }
    }

    /// A number that changes with the topic.
    fn now(self, controller: &Controller, registry: &Registry) -> u64 {
        match (self, &controller.subsystem) {
            (Self::Access, Some(subsystem)) => subsystem.reached(),
            (Self::Namespaces, Some(subsystem)) => subsystem.listed(),
            (Self::Reservations, _) => controller.noticed(),
            (Self::Discovery, _) | (Self::Access | Self::Namespaces, None) => registry.generation(),
        }
    }
}

/// The state of a topic that a host has seen.
struct Known {
    topic: Topic,
    /// The number of the topic when the host last read its log page.
    seen: u64,
    reported: Reported,
}

/// Whether an event was reported since the host last read the log page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reported {
    No,
    Yes,
}

/// The seen state of all topics of a controller.
pub(super) struct News(Vec<Known>);

impl News {
    /// A host that connects knows the current state, except for notices: a notice may have arrived after the controller
    /// was created.
    pub(super) fn of(controller: &Controller, registry: &Registry) -> Self {
        let topics: &[Topic] = match controller.subsystem {
            Some(_) => &[Topic::Access, Topic::Namespaces, Topic::Reservations],
            None => &[Topic::Discovery],
        };
        let seen = |topic: Topic| match topic {
            Topic::Reservations => 0,
            Topic::Discovery | Topic::Access | Topic::Namespaces => topic.now(controller, registry),
        };
        let known = |&topic: &Topic| Known { topic, seen: seen(topic), reported: Reported::No };
        Self(topics.iter().map(known).collect())
    }

    /// The next event for a host that enabled `wanted`. Each event is reported once until the host reads the log page.
    pub(super) fn next(
        &mut self,
        wanted: u32,
        controller: &Controller,
        registry: &Registry,
    ) -> Option<u64> {
        let is_new = |known: &&mut Known| {
            let bit = known.topic.names().1;
            known.reported == Reported::No
                && (bit == 0 || wanted & bit != 0)
                && known.seen != known.topic.now(controller, registry)
        };
        let known = self.0.iter_mut().find(is_new)?;
        known.reported = Reported::Yes;
        Some(known.topic.names().2)
    }

    /// Records that a host reads a log page. Returns the state that it had seen before.
    pub(super) fn look(
        &mut self,
        request: &log::Request,
        controller: &Controller,
        registry: &Registry,
    ) -> u64 {
        let is_meant = |known: &&mut Known| known.topic.names().0 == request.page;
        let Some(known) = self.0.iter_mut().find(is_meant) else { return 0 };
        let before = known.seen;
        if !request.retains_event {
            (known.seen, known.reported) = (known.topic.now(controller, registry), Reported::No);
        }
        before
    }

    /// A host reads the oldest notice of reservations, or an empty one. The notice is removed unless the host retains
    /// it. Later changes are reported again, including changes directly after this call.
    pub(super) fn read_notice(
        &mut self,
        request: &log::Request,
        controller: &Controller,
    ) -> Option<Notice> {
        let mut notices = controller.notices();
        let (notice, count) = (notices.first(), notices.count);
        let of_them = |known: &&mut Known| known.topic == Topic::Reservations;
        if let Some(known) = self.0.iter_mut().find(of_them)
            && takes_notice(request)
        {
            notices.drop_first();
            known.seen = notice.map_or(count, |notice| notice.number);
            known.reported = Reported::No;
        }
        notice
    }
}

#[cfg(test)]
mod tests;
