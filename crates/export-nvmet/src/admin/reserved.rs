//! Features of reservations, and the host identifier (Base, section 5.27.1, features 81h to 83h).

use super::{Decision, Page};
use crate::controller::Controller;
use crate::subsystem::{Subsystem, View, is_number};
use strake_nvme_wire::feature;
use strake_nvme_wire::nvm::ALL_NAMESPACES;
use strake_nvme_wire::reservation::NoticeKind;
use strake_nvme_wire::{Sqe, Status};

/// Executes Set Features; returns `None` for other features.
pub(super) fn set(sqe: &Sqe, controller: &Controller) -> Option<Result<Decision, Status>> {
    let subsystem = controller.subsystem.as_deref()?;
    let (value, namespace) = (sqe.dword(11), sqe.nsid());
    let allowed = match sqe.dword(10) as u8 {
        feature::RESERVATION_MASK => NoticeKind::MASK,
        feature::RESERVATION_PERSISTENCE => 1,
        _ => return None,
    };
    // No feature is saved over a reset of the controller (SV, "save").
    if sqe.dword(10) & 1 << 31 != 0 || value & !allowed != 0 {
        return Some(Err(Status::INVALID_FIELD));
    }
    let named = if namespace == ALL_NAMESPACES { Ok(()) } else { check(subsystem, namespace) };
    Some(named.map(|()| {
        if sqe.dword(10) as u8 == feature::RESERVATION_PERSISTENCE {
            return Decision::Persist(value == 1, namespace);
        }
        let all = subsystem.numbers().into_iter();
        let meant = all.filter(|&number| namespace == ALL_NAMESPACES || number == namespace);
        meant.flat_map(|number| subsystem.kept(number)).for_each(|kept| kept.set_mask(value));
        Decision::Result(0)
    }))
}

/// Executes Get Features; returns `None` for other features.
pub(super) fn get(sqe: &Sqe, controller: &Controller) -> Option<Result<Decision, Status>> {
    let subsystem = controller.subsystem.as_deref()?;
    let wanted = sqe.dword(10) as u8;
    if !matches!(
        wanted,
        feature::HOST_ID | feature::RESERVATION_MASK | feature::RESERVATION_PERSISTENCE
    ) {
        return None;
    }
    // Only the current value can be selected, and over fabrics only 128-bit identifiers (EXHID).
    let is_other = sqe.dword(10) >> 8 & 0b111 != 0;
    if is_other || wanted == feature::HOST_ID && sqe.dword(11) & 1 == 0 {
        return Some(Err(Status::INVALID_FIELD));
    }
    if wanted == feature::HOST_ID {
        return Some(Ok(Decision::Page(Page::HostId)));
    }
    let found = check(subsystem, sqe.nsid()).and_then(|()| subsystem.kept(sqe.nsid()));
    Some(found.map(|kept| {
        Decision::Result(match wanted {
            feature::RESERVATION_MASK => kept.mask().into(),
            _ => kept.reservations().persists.into(),
        })
    }))
}

/// Checks that a namespace exists and is accessible.
fn check(subsystem: &Subsystem, namespace: u32) -> Result<(), Status> {
    if !is_number(namespace) {
        return Err(Status::INVALID_NAMESPACE);
    }
    match subsystem.view(namespace) {
        View::Absent => Err(Status::INVALID_NAMESPACE),
        View::Inaccessible => Err(Status::INACCESSIBLE),
        View::Online(_) => Ok(()),
    }
}
