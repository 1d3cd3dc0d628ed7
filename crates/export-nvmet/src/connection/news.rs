//! What a host knows, and which events to report to it (Base, section 5.2).

use crate::controller::Controller;
use crate::registry::Registry;
use strake_nvme_wire::feature::event;
use strake_nvme_wire::log::{self, page};
use strake_nvme_wire::reservation::{Notice, takes_notice};

/// What there can be news about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Topic {
    /// Subsystems.
    Discovery,
    /// How namespaces are reached.
    Access,
    /// Namespaces and their sizes.
    Namespaces,
    /// What others did to reservations.
    Reservations,
}

impl Topic {
    /// Its log page, the bit with which a host enables its event (none when that is always enabled), and the event's
    /// result.
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
            // It is masked by a feature of its own (Base, section 5.27.1, feature 82h).
            Self::Reservations => (page::RESERVATION, 0, event::RESERVATION_RESULT),
        }
    }

    /// A number that changes with it.
    fn now(self, controller: &Controller, registry: &Registry) -> u64 {
        match (self, &controller.subsystem) {
            (Self::Access, Some(subsystem)) => subsystem.reached(),
            (Self::Namespaces, Some(subsystem)) => subsystem.listed(),
            (Self::Reservations, _) => controller.noticed(),
            (Self::Discovery, _) | (Self::Access | Self::Namespaces, None) => registry.generation(),
        }
    }
}

/// What a host knows of a topic.
struct Known {
    topic: Topic,
    /// What it saw when it last looked.
    seen: u64,
    reported: Reported,
}

/// Whether an event was reported to a host since it last looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reported {
    No,
    Yes,
}

/// What a host knows of all topics of its controller.
pub(super) struct News(Vec<Known>);

impl News {
    /// A host knows what there is when it connects, but no notices: those are of what happened to it, and some may have
    /// come since its controller was made.
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

    /// What to tell a host that wants to know of `wanted`, each thing once until it looks.
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

    /// A host looks at a page. Returns what it had seen before.
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

    /// A host reads the oldest notice of reservations, or that there is none, and takes it away unless it says
    /// otherwise. Later changes are reported again, also changes directly after this check.
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
