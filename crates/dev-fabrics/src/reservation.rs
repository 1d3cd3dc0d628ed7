//! Reservation of a drive at its target, so that no other host can write to it (Base, section 8.19).
//!
//! Two hosts that run the same array would overwrite each other's parity and bitmaps. So a host that connects a drive
//! becomes the holder of a "write exclusive" reservation. A host that finds another holder is rejected unless it takes
//! the drive over. Every host may read. The reservation belongs to the host, not to an association: it survives
//! associations and, if the target supports this, a restart of the target.
//!
//! Reservation commands are sent to I/O queues, and the data cores own the I/O queues of a drive. So a separate
//! association makes the reservation, and is then closed.

use crate::address::{Address, HostName};
use crate::dialog::{Dialog, Load};
use crate::error::{Breach, Reason};
use crate::limits::{ADMIN_ENTRIES, REGISTRANTS_MAX, REGISTRANTS_READ, SETUP_TIME_MAX};
use crate::session::{accepted, connect_of, enable, join, leave};
use crate::stream::Until;
use std::sync::{Mutex, PoisonError};
use strake_nvme_tcp::Digests;
use strake_nvme_wire::command::admin;
use strake_nvme_wire::fabrics::ANY_CONTROLLER;
use strake_nvme_wire::feature;
use strake_nvme_wire::reservation::{
    Acquire, Action, KeyCheck, Keys, Persistence, REPORT_BYTES, Report, ReportHead,
    ReportedRegistrant, ReservationType,
};
use strake_nvme_wire::{Cqe, Sgl, Sqe, Status};

/// The use of a reservation against other hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ReservationMode {
    /// No reservation: for a process that does not write, or whose writes may be lost.
    #[default]
    Off,
    /// The drive is reserved, unless another host has reserved it.
    Claim,
    /// The drive is reserved even if another host has reserved it: writes of that host then fail.
    TakeOver,
}

/// The reservation capabilities of a target for a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ability {
    /// Whether reservations can persist through its restart.
    pub(crate) can_persist: bool,
}

/// A reservation of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claimed {
    /// Whether it was made just now.
    pub(crate) is_new: bool,
}

/// The target, and the host of the request.
pub(crate) struct Asked<'a> {
    pub(crate) address: &'a Address,
    pub(crate) host: &'a HostName,
    pub(crate) digests: Digests,
}

/// The reservation state that a target reports for a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Reserved {
    /// The number of registration changes that the target has counted.
    generation: u32,
    kind: Option<ReservationType>,
    registrants: Vec<ReportedRegistrant>,
}

impl Reserved {
    fn of(&self, host: [u8; 16]) -> Option<ReportedRegistrant> {
        self.registrants.iter().find(|registrant| registrant.host == host).copied()
    }

    /// Another host that holds the reservation, or that may write because the type includes all registrants.
    fn rival(&self, host: [u8; 16]) -> Option<ReportedRegistrant> {
        let others = || self.registrants.iter().filter(|it| it.host != host);
        let favoured = self.kind.is_some_and(ReservationType::favours_registrants);
        others().find(|it| it.holds).or_else(|| others().find(|_| favoured)).copied()
    }

    /// True if `host` holds the reservation exclusively, with its own key.
    fn is_kept_for(&self, host: [u8; 16]) -> bool {
        let is_sole = self.kind.is_some_and(|kind| !kind.favours_registrants());
        let is_ours = |ours: ReportedRegistrant| ours.holds && ours.key == key_of(host);
        is_sole && self.of(host).is_some_and(is_ours) && self.rival(host).is_none()
    }

    /// True if no other host can have had access since the target started to count: no host has registered, or only
    /// `host`, which has not acquired the reservation.
    fn is_untouched(&self, host: [u8; 16]) -> bool {
        let is_ours = |it: &ReportedRegistrant| (it.host, it.key) == (host, key_of(host));
        self.kind.is_none()
            && match self.generation {
                0 => self.registrants.is_empty(),
                1 => !self.registrants.is_empty() && self.registrants.iter().all(is_ours),
                _ => false,
            }
    }
}

/// The commands that are needed to hold the reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// None: the reservation is held.
    Keep,
    /// Register, if needed, and acquire the reservation, with the key of the preempted holder.
    Acquire { register: Option<Action>, how: Acquire, key: u64 },
}

/// Decides how `host` acquires the reservation; `before` is its earlier reservation.
fn step(
    reserved: &Reserved,
    host: [u8; 16],
    can_persist: bool,
    (reservation, before): (ReservationMode, Option<Claimed>),
) -> Result<Step, Reason> {
    if reserved.is_kept_for(host) {
        return Ok(Step::Keep);
    }
    // A target that restarted, or serves the namespace again, may have lost the reservation. That is harmless only if
    // no other host has had access since.
    if before.is_some() && !reserved.is_untouched(host) {
        return Err(Reason::TakenOver);
    }
    let ours = reserved.of(host);
    let (how, key) = match reserved.rival(host) {
        Some(other) if reservation != ReservationMode::TakeOver => {
            return Err(Reason::Held(other.host));
        }
        // No single key identifies the holders of a shared reservation (Base, section 8.19.7).
        _ if reserved.kind.is_some_and(ReservationType::is_held_by_all) => {
            (Acquire::PreemptAndAbort, 0)
        }
        Some(other) if other.holds => (Acquire::PreemptAndAbort, other.key),
        // A holder changes the type by preempting itself (Base, section 8.19.7).
        _ if ours.is_some_and(|ours| ours.holds) && reserved.kind.is_some_and(|it| it != KIND) => {
            (Acquire::PreemptAndAbort, key_of(host))
        }
        Some(_) | None => (Acquire::Free, 0),
    };
    let persistence = if can_persist { Persistence::On } else { Persistence::Unchanged };
    let register = match ours {
        None => Some(Action::Register(persistence)),
        Some(ours) if ours.key != key_of(host) => Some(Action::Replace(KeyCheck::Off, persistence)),
        Some(_) => None,
    };
    Ok(Step::Acquire { register, how, key })
}

/// The key of a host: unique per host, and constant.
fn key_of(host: [u8; 16]) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = host;
    // 0 is not a valid key.
    u64::from_le_bytes([a, b, c, d, e, f, g, h]).max(1)
}

const KIND: ReservationType = ReservationType::WriteExclusive;

/// Reserves the namespace for `asked.host`. `intent` includes the reservation that the host had while it used the
/// drive: if that is lost, other hosts may have written, and the content of the drive is unknown. The paths of one
/// device change the reservation one after another.
pub(crate) fn claim(
    asked: &Asked<'_>,
    ability: Ability,
    intent: (ReservationMode, Option<Claimed>),
    turn: &Mutex<()>,
) -> Result<Claimed, Reason> {
    let host = asked.host.id;
    with_queue(asked, |queue| {
        if queue.report()?.is_kept_for(host) {
            return Ok(Claimed { is_new: false });
        }
        // Another path of this device may be making the reservation: its intermediate states must not be taken for
        // another host's.
        let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
        let step = step(&queue.report()?, host, ability.can_persist, intent)?;
        let Step::Acquire { register, how, key } = step else {
            return Ok(Claimed { is_new: false });
        };
        if let Some(register) = register {
            accepted(queue.change(register, 0, key_of(host))?)?;
        }
        let acquired = queue.change(Action::Acquire(how, KIND), key_of(host), key)?;
        let after = queue.report()?;
        if !acquired.status.is_success() || !after.is_kept_for(host) {
            if matches!(register, Some(Action::Register(_))) {
                // The registration must not remain; independently of this, the reservation failed.
                let _ = queue.unregister(host);
            }
            let status = match acquired.status {
                Status::SUCCESS => Status::RESERVATION_CONFLICT,
                status => status,
            };
            return Err(match after.rival(host) {
                Some(_) if intent.1.is_some() => Reason::TakenOver,
                Some(other) if status.is(Status::RESERVATION_CONFLICT) => Reason::Held(other.host),
                Some(_) | None => Reason::Refused(status),
            });
        }
        Ok(Claimed { is_new: true })
    })
}

/// Releases the registration and reservation of `asked.host` for the namespace.
pub(crate) fn release(asked: &Asked<'_>) -> Result<(), Reason> {
    let released = with_queue(asked, |queue| match queue.report()?.of(asked.host.id) {
        Some(_) => queue.unregister(asked.host.id),
        None => Ok(()),
    });
    let nothing = [Status::INVALID_OPCODE, Status::INVALID_NAMESPACE];
    match released {
        // The target has no reservations, or the namespace does not exist.
        Err(Reason::Refused(status)) if nothing.iter().any(|it| status.is(*it)) => Ok(()),
        released => released,
    }
}

/// An I/O queue for reservation commands.
struct Queue {
    dialog: Dialog,
    nsid: u32,
}

impl Queue {
    /// Executes a reservation command.
    fn change(&mut self, action: Action, current: u64, other: u64) -> Result<Cqe, Reason> {
        let keys = Keys { current, other }.bytes();
        let data = &keys[..action.data_bytes() as usize];
        let sqe =
            action.command(self.nsid, Sgl::InCapsule { offset: 0, length: data.len() as u32 });
        self.dialog.run(sqe, Load::Sent(data), SETUP_TIME_MAX)
    }

    fn unregister(&mut self, host: [u8; 16]) -> Result<(), Reason> {
        let action = Action::Unregister(KeyCheck::Off, Persistence::Unchanged);
        accepted(self.change(action, key_of(host), 0)?).map(drop)
    }

    fn report(&mut self) -> Result<Reserved, Reason> {
        let (reserved, whole) = self.report_of(REGISTRANTS_READ)?;
        if whole <= REGISTRANTS_READ {
            return Ok(reserved);
        }
        // More registrants may have been added since.
        let (reserved, whole) = self.report_of(REGISTRANTS_MAX)?;
        if whole > REGISTRANTS_MAX { Err(Breach::Log.into()) } else { Ok(reserved) }
    }

    /// Reads a report into a buffer for this number of registrants; returns the report and the number of all
    /// registrants.
    fn report_of(&mut self, registrants: usize) -> Result<(Reserved, usize), Reason> {
        let mut bytes = vec![0; REPORT_BYTES * (1 + registrants)];
        let report = Report { length: bytes.len() as u64, is_extended: true };
        let command = report.command(self.nsid);
        accepted(self.dialog.run(command, Load::Message(&mut bytes), SETUP_TIME_MAX)?)?;
        reserved_of(&bytes, registrants)
    }
}

/// Parses a report that was read into a buffer for `room` registrants; returns the number of all registrants, too.
fn reserved_of(bytes: &[u8], room: usize) -> Result<(Reserved, usize), Reason> {
    let (parts, _) = bytes.as_chunks::<REPORT_BYTES>();
    let (head, rest) = parts.split_first().ok_or(Breach::Short)?;
    let head = ReportHead::parse(head);
    let whole = usize::from(head.registrants);
    if rest.len() < whole.min(room) {
        return Err(Breach::Short.into());
    }
    let registrants = rest.iter().take(whole).map(ReportedRegistrant::parse).collect();
    Ok((Reserved { generation: head.generation, kind: head.kind, registrants }, whole))
}

/// Executes `work` with an I/O queue of a temporary association.
fn with_queue<T>(
    asked: &Asked<'_>,
    work: impl FnOnce(&mut Queue) -> Result<T, Reason>,
) -> Result<T, Reason> {
    let &Asked { address, host, digests } = asked;
    let until = Until::within(SETUP_TIME_MAX);
    let mut dialog = Dialog::begin(address, host, digests, until)?;
    dialog.finish_by(until);
    let connect = connect_of(0, ADMIN_ENTRIES.into(), 0);
    let controller = join(&mut dialog, address, host, (connect, ANY_CONTROLLER))?.result as u16;
    enable(&mut dialog)?;
    let asked = Sqe::new(admin::SET_FEATURES, 0, Sgl::Transport { length: 0 })
        .with(10, feature::QUEUES.into())
        .with(11, feature::queues_asked(1));
    accepted(dialog.run(asked, Load::Nothing, SETUP_TIME_MAX)?)?;
    let mut io = Dialog::begin_at(&[dialog.place()?], address, host, digests, until)?;
    io.finish_by(until);
    join(&mut io, address, host, (connect_of(1, ENTRIES, 0), controller))?;
    let mut queue = Queue { dialog: io, nsid: address.nsid };
    let result = work(&mut queue);
    leave(dialog);
    result
}

/// Entries of the queue, the minimum: one command at a time.
const ENTRIES: u32 = 2;

#[cfg(test)]
mod tests;
