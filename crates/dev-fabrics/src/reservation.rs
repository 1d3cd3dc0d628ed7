//! That no other host writes to a drive while it is ours: a reservation (Base, section 8.19), which the target keeps.
//!
//! Two hosts that run the same array would write parity and intents over each other's. So a host that connects a drive
//! becomes its holder, "write exclusive", and a host that finds another holder is refused unless it takes the drive
//! over. Every host may read. The reservation belongs to the host, not to an association: it outlasts associations and,
//! where the target supports that, the target's restart.
//!
//! Reservation commands go to I/O queues, and those of a drive belong to the data cores. So the drive is reserved over
//! a separate association, which ends when this is done.

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

/// What is done about other hosts that could use a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ReservationMode {
    /// Nothing: for who does not write, or writes what is worth nothing.
    #[default]
    Off,
    /// The drive is reserved, unless another host has done so.
    Claim,
    /// The drive is reserved, also if another host had done so: what that one writes is refused from then on.
    TakeOver,
}

/// What a target can do about reservations of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ability {
    /// Whether they can outlast its restart.
    pub(crate) can_persist: bool,
}

/// A reservation of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claimed {
    /// Whether it was made just now.
    pub(crate) is_new: bool,
}

/// Whom a reservation is asked of, and by whom.
pub(crate) struct Asked<'a> {
    pub(crate) address: &'a Address,
    pub(crate) host: &'a HostName,
    pub(crate) digests: Digests,
}

/// What a target says of the reservation of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Reserved {
    /// Changes there were since the target knows of reservations of the namespace.
    generation: u32,
    kind: Option<ReservationType>,
    registrants: Vec<ReportedRegistrant>,
}

impl Reserved {
    fn of(&self, host: [u8; 16]) -> Option<ReportedRegistrant> {
        self.registrants.iter().find(|registrant| registrant.host == host).copied()
    }

    /// Who else holds it, or may write because a type that favours registrants is held.
    fn rival(&self, host: [u8; 16]) -> Option<ReportedRegistrant> {
        let others = || self.registrants.iter().filter(|it| it.host != host);
        let favoured = self.kind.is_some_and(ReservationType::favours_registrants);
        others().find(|it| it.holds).or_else(|| others().find(|_| favoured)).copied()
    }

    /// Whether `host` holds it so that no other host writes, with its own key.
    fn is_kept_for(&self, host: [u8; 16]) -> bool {
        let is_sole = self.kind.is_some_and(|kind| !kind.favours_registrants());
        let is_ours = |ours: ReportedRegistrant| ours.holds && ours.key == key_of(host);
        is_sole && self.of(host).is_some_and(is_ours) && self.rival(host).is_none()
    }

    /// Whether no other host can have been there since the target began to count: no host has registered, or `host`
    /// alone, which got no further.
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

/// What is to be done to hold a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Nothing: it is held.
    Keep,
    /// To become a registrant, if that is not so yet, and to acquire it; a key to take it from, if that is to be.
    Acquire { register: Option<Action>, how: Acquire, key: u64 },
}

/// Decides how `host` comes to hold the reservation; `before` is what it had of it.
fn step(
    reserved: &Reserved,
    host: [u8; 16],
    can_persist: bool,
    (reservation, before): (ReservationMode, Option<Claimed>),
) -> Result<Step, Reason> {
    if reserved.is_kept_for(host) {
        return Ok(Step::Keep);
    }
    // A target that restarted, or offers the namespace again, may have forgotten us. Then no other was there since.
    if before.is_some() && !reserved.is_untouched(host) {
        return Err(Reason::TakenOver);
    }
    let ours = reserved.of(host);
    let (how, key) = match reserved.rival(host) {
        Some(other) if reservation != ReservationMode::TakeOver => {
            return Err(Reason::Held(other.host));
        }
        // No key names all of those that hold it together (Base, section 8.19.7).
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

/// The key of a host: other hosts have others, and it has the same whenever it comes back.
fn key_of(host: [u8; 16]) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = host;
    // 0 is no key.
    u64::from_le_bytes([a, b, c, d, e, f, g, h]).max(1)
}

const KIND: ReservationType = ReservationType::WriteExclusive;

/// Reserves the namespace for `asked.host`. With the intent goes the reservation that it had while it used the drive:
/// if that is gone, other hosts may have written, and nothing is known of the drive. Paths of one device take turns to
/// change anything.
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
        // Another path of ours may be about to reserve it: what that one does on the way is no other host's.
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
                // It must not stay for ever; whatever becomes of it, we are refused.
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

/// Gives up what `asked.host` has of the reservation of the namespace.
pub(crate) fn release(asked: &Asked<'_>) -> Result<(), Reason> {
    let released = with_queue(asked, |queue| match queue.report()?.of(asked.host.id) {
        Some(_) => queue.unregister(asked.host.id),
        None => Ok(()),
    });
    let nothing = [Status::INVALID_OPCODE, Status::INVALID_NAMESPACE];
    match released {
        // There are no reservations, or there is nothing to reserve.
        Err(Reason::Refused(status)) if nothing.iter().any(|it| status.is(*it)) => Ok(()),
        released => released,
    }
}

/// An I/O queue for commands about the reservation of a namespace.
struct Queue {
    dialog: Dialog,
    nsid: u32,
}

impl Queue {
    /// Changes what there is of the reservation.
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
        // More may have come since.
        let (reserved, whole) = self.report_of(REGISTRANTS_MAX)?;
        if whole > REGISTRANTS_MAX { Err(Breach::Log.into()) } else { Ok(reserved) }
    }

    /// Reads what there is room for, and how many registrants there are.
    fn report_of(&mut self, registrants: usize) -> Result<(Reserved, usize), Reason> {
        let mut bytes = vec![0; REPORT_BYTES * (1 + registrants)];
        let report = Report { length: bytes.len() as u64, is_extended: true };
        let command = report.command(self.nsid);
        accepted(self.dialog.run(command, Load::Message(&mut bytes), SETUP_TIME_MAX)?)?;
        reserved_of(&bytes, registrants)
    }
}

/// What a report says that was read into room for so many registrants, and how many there are.
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

/// Does something over an I/O queue of an association that is there for nothing else.
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

/// Entries of the queue, the fewest there can be: one command at a time.
const ENTRIES: u32 = 2;

#[cfg(test)]
mod tests;
