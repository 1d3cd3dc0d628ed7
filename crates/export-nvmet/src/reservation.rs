//! The rules of reservations: the effect of each command on the access of hosts to a namespace (Base, section 8.19).
//!
//! Pure: a command turns a value into the next value, which can be recorded before any queue applies it.
//!
//! ```text
//! none   --Register--> registrants --Acquire--> registrants with one holder, or all as holders
//!    ^--Unregister, Clear--'   ^--Release, Unregister of the holder--'--Preempt--> another holder
//! ```

use crate::limits::{REGISTRANTS_MAX, REGISTRANTS_PER_NAME_MAX};
pub use strake_export_net::Rights;
use strake_nvme_wire::Status;
use strake_nvme_wire::reservation::{
    Acquire, Action, HostId, KeyCheck, Keys, NoticeKind, Persistence, ReportHead,
    ReportedRegistrant, ReservationType,
};

/// A registrant of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registrant {
    /// The host identifier, which identifies the registrant.
    pub host: HostId,
    /// The NQN under which the host registered. Another NQN cannot use the identifier.
    pub name: String,
    /// The reservation key, which is not zero.
    pub key: u64,
}

/// A reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The type, which defines the access of other hosts.
    pub kind: ReservationType,
    /// The holder; `None` if all registrants are holders.
    pub holder: Option<HostId>,
}

impl Held {
    fn by(host: HostId, kind: ReservationType) -> Self {
        Self { kind, holder: (!kind.is_held_by_all()).then_some(host) }
    }
}

/// The reservation state of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reservations {
    /// The number of registration changes, modulo 2^32.
    pub generation: u32,
    /// Whether the state persists through a power loss, which for hosts includes a restart.
    pub persists: bool,
    /// The reservation.
    pub held: Option<Held>,
    /// Registrants in the order of their registration.
    pub registrants: Vec<Registrant>,
}

/// The effect of a command on reservations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The next state.
    pub next: Reservations,
    /// Notices, with the hosts that receive them.
    pub reported: Vec<(HostId, NoticeKind)>,
    /// Hosts whose commands are to be aborted.
    pub expelled: Vec<HostId>,
}

impl Change {
    const fn quiet(next: Reservations) -> Self {
        Self { next, reported: Vec::new(), expelled: Vec::new() }
    }
}

impl Reservations {
    /// The access rights of `host` (Base, section 8.19.3 "Reservation Types").
    #[must_use]
    pub fn rights(&self, host: &HostId) -> Rights {
        let Some(held) = &self.held else { return Rights::All };
        let profits = held.kind.favours_registrants() && self.key_of(host).is_some();
        if self.holds(host) || profits {
            Rights::All
        } else if held.kind.lets_others_read() {
            Rights::Read
        } else {
            Rights::Nothing
        }
    }

    /// The access rights of a client that cannot register, because its protocol has no reservations.
    #[must_use]
    pub fn rights_of_others(&self) -> Rights {
        // No host has this identifier.
        self.rights(&[0; 16])
    }

    /// True if the identifier `host` is registered under another NQN than `name`.
    #[must_use]
    pub fn is_of_another(&self, host: &HostId, name: &str) -> bool {
        self.registrants.iter().any(|known| known.host == *host && known.name != name)
    }

    /// True if a host holds the reservation, perhaps with others.
    #[must_use]
    pub fn holds(&self, host: &HostId) -> bool {
        match self.held {
            None => false,
            Some(Held { holder: Some(holder), .. }) => holder == *host,
            Some(Held { holder: None, .. }) => self.key_of(host).is_some(),
        }
    }

    fn key_of(&self, host: &HostId) -> Option<u64> {
        self.registrants.iter().find(|known| known.host == *host).map(|known| known.key)
    }

    /// Checks that the state is consistent.
    ///
    /// Returns the inconsistency.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.registrants.len() > REGISTRANTS_MAX {
            return Err("it has too many registrants");
        }
        for (at, one) in self.registrants.iter().enumerate() {
            if one.key == 0 || one.host == [0; 16] {
                return Err("a registrant has no key or no identifier");
            }
            if self.registrants[..at].iter().any(|other| other.host == one.host) {
                return Err("a registrant is there twice");
            }
        }
        match self.held {
            None => Ok(()),
            Some(held) if held.kind.is_held_by_all() == held.holder.is_some() => {
                Err("its type and its holder do not go together")
            }
            Some(_) if self.registrants.iter().any(|known| self.holds(&known.host)) => Ok(()),
            Some(_) => Err("its holder is no registrant"),
        }
    }

    /// The effect of a command of `host`, whose NQN is `name`.
    ///
    /// Returns the status of the completion; the state is then unchanged.
    pub fn after(
        &self,
        (host, name): (&HostId, &str),
        action: Action,
        keys: Keys,
    ) -> Result<Change, Status> {
        // A host without an identifier cannot be distinguished from others.
        if *host == [0; 16] {
            return Err(Status::INVALID_FIELD);
        }
        // Connect rejects such a host, unless the record of the reservations was read after the Connect.
        if self.is_of_another(host, name) {
            return Err(Status::RESERVATION_CONFLICT);
        }
        match action {
            Action::Register(persistence) => {
                self.register((host, name), keys.other).map(|next| next.persisting(persistence))
            }
            Action::Replace(check, persistence) => {
                self.replace((host, name), check, keys).map(|next| next.persisting(persistence))
            }
            Action::Unregister(check, persistence) => {
                self.check_key(host, check, keys.current)?;
                let mut change = self.unregister(host);
                change.next = change.next.persisting(persistence);
                return Ok(change);
            }
            Action::Acquire(how, kind) => {
                self.check_key(host, KeyCheck::On, keys.current)?;
                return self.acquire(host, how, kind, keys.other);
            }
            Action::Release(kind) => {
                self.check_key(host, KeyCheck::On, keys.current)?;
                return self.release(host, kind);
            }
            Action::Clear => {
                self.check_key(host, KeyCheck::On, keys.current)?;
                return Ok(self.cleared(Some(host)));
            }
        }
        .map(Change::quiet)
    }

    /// The state without reservation and registrants, after a command of a host or of an operator.
    #[must_use]
    pub fn cleared(&self, by: Option<&HostId>) -> Change {
        let next = Self { held: None, registrants: Vec::new(), ..self.clone() }.counted();
        Change {
            next,
            reported: self.reported(by, NoticeKind::ReservationPreempted),
            expelled: Vec::new(),
        }
    }

    fn persisting(mut self, persistence: Persistence) -> Self {
        match persistence {
            Persistence::Unchanged => {}
            Persistence::Off => self.persists = false,
            Persistence::On => self.persists = true,
        }
        self
    }

    fn counted(mut self) -> Self {
        self.generation = self.generation.wrapping_add(1);
        self
    }

    /// Notices for all registrants, or all but one.
    fn reported(&self, but: Option<&HostId>, kind: NoticeKind) -> Vec<(HostId, NoticeKind)> {
        let others = self.registrants.iter().filter(|known| Some(&known.host) != but);
        others.map(|known| (known.host, kind)).collect()
    }

    fn check_key(&self, host: &HostId, check: KeyCheck, key: u64) -> Result<(), Status> {
        match (self.key_of(host), check) {
            (Some(_), KeyCheck::Off) => Ok(()),
            (Some(known), KeyCheck::On) if known == key => Ok(()),
            (Some(_) | None, _) => Err(Status::RESERVATION_CONFLICT),
        }
    }

    /// True if another host with the NQN `name` can register.
    fn has_room_for(&self, name: &str) -> bool {
        let of_it = self.registrants.iter().filter(|known| known.name == name).count();
        self.registrants.len() < REGISTRANTS_MAX && of_it < REGISTRANTS_PER_NAME_MAX
    }

    /// Base, section 8.19.2. A repeated registration changes only the generation.
    fn register(&self, (host, name): (&HostId, &str), key: u64) -> Result<Self, Status> {
        if key == 0 {
            return Err(Status::INVALID_FIELD);
        }
        match self.key_of(host) {
            Some(known) if known != key => return Err(Status::RESERVATION_CONFLICT),
            Some(_) => return Ok(self.clone().counted()),
            None if !self.has_room_for(name) => return Err(Status::NO_ROOM),
            None => {}
        }
        let mut next = self.clone().counted();
        next.registrants.push(Registrant { host: *host, name: name.to_owned(), key });
        Ok(next)
    }

    /// If the key is not checked, the host need not be registered.
    fn replace(&self, who: (&HostId, &str), check: KeyCheck, keys: Keys) -> Result<Self, Status> {
        if keys.other == 0 {
            return Err(Status::INVALID_FIELD);
        }
        let (host, _) = who;
        if self.key_of(host).is_none() && check == KeyCheck::Off {
            return self.register(who, keys.other);
        }
        self.check_key(host, check, keys.current)?;
        let mut next = self.clone().counted();
        let own = next.registrants.iter_mut().filter(|known| known.host == *host);
        own.for_each(|known| known.key = keys.other);
        Ok(next)
    }

    /// The state without some registrants, and without a reservation that then has no holder.
    fn without(&self, leaves: impl Fn(&Registrant) -> bool) -> Self {
        let mut next = self.clone();
        next.registrants.retain(|known| !leaves(known));
        if !next.registrants.iter().any(|known| next.holds(&known.host)) {
            next.held = None;
        }
        next
    }

    /// Base, section 8.19.4.
    fn unregister(&self, host: &HostId) -> Change {
        let next = self.without(|known| known.host == *host).counted();
        let was = self.held.filter(|_| next.held.is_none());
        let reported = match was {
            Some(held) if held.kind.favours_registrants() => {
                self.reported(Some(host), NoticeKind::ReservationReleased)
            }
            Some(_) | None => Vec::new(),
        };
        Change { next, reported, expelled: Vec::new() }
    }

    /// Base, section 8.19.5. A holder changes the type by preempting itself.
    fn acquire(
        &self,
        host: &HostId,
        how: Acquire,
        kind: ReservationType,
        key: u64,
    ) -> Result<Change, Status> {
        match (how, self.held) {
            (Acquire::Free, None) => {
                let held = Some(Held::by(*host, kind));
                Ok(Change::quiet(Self { held, ..self.clone() }))
            }
            (Acquire::Free, Some(held)) if self.holds(host) && held.kind == kind => {
                Ok(Change::quiet(self.clone()))
            }
            (Acquire::Free, Some(_)) => Err(Status::RESERVATION_CONFLICT),
            (Acquire::Preempt | Acquire::PreemptAndAbort, _) => {
                let next = self.preempted(host, kind, key)?.counted();
                let mut change = self.preemption(host, next);
                if how == Acquire::Preempt {
                    change.expelled.clear();
                }
                Ok(change)
            }
        }
    }

    /// Base, section 8.19.7.
    fn preempted(&self, host: &HostId, kind: ReservationType, key: u64) -> Result<Self, Status> {
        let is_other = |known: &Registrant| known.host != *host;
        let taken = match self.held {
            Some(Held { holder: None, .. }) if key == 0 => self.without(is_other),
            Some(Held { holder: Some(holder), .. }) if self.key_of(&holder) == Some(key) => {
                self.without(|known| known.key == key && is_other(known))
            }
            Some(Held { holder: Some(_), .. }) if key == 0 => return Err(Status::INVALID_FIELD),
            Some(_) | None if self.registrants.iter().all(|known| known.key != key) => {
                return Err(Status::RESERVATION_CONFLICT);
            }
            Some(_) | None => return Ok(self.without(|known| known.key == key)),
        };
        Ok(Self { held: Some(Held::by(*host, kind)), ..taken })
    }

    /// The notices after a preemption by `host`, and the hosts whose commands are aborted.
    fn preemption(&self, host: &HostId, next: Self) -> Change {
        let out = |known: &&Registrant| next.key_of(&known.host).is_none() && known.host != *host;
        let expelled: Vec<HostId> = self.registrants.iter().filter(out).map(|k| k.host).collect();
        let mut reported: Vec<_> =
            expelled.iter().map(|&out| (out, NoticeKind::RegistrationPreempted)).collect();
        let kind = |held: Option<Held>| held.map(|held| held.kind);
        if self.held.is_some() && kind(self.held) != kind(next.held) {
            reported.extend(next.reported(Some(host), NoticeKind::ReservationReleased));
        }
        Change { next, reported, expelled }
    }

    /// Base, section 8.19.6. A release by a host that is not the holder succeeds without an effect.
    fn release(&self, host: &HostId, kind: ReservationType) -> Result<Change, Status> {
        let Some(held) = self.held.filter(|_| self.holds(host)) else {
            return Ok(Change::quiet(self.clone()));
        };
        if held.kind != kind {
            return Err(Status::INVALID_FIELD);
        }
        let next = Self { held: None, ..self.clone() };
        let mut change = Change::quiet(next);
        if kind.favours_registrants() {
            change.reported = self.reported(Some(host), NoticeKind::ReservationReleased);
        }
        Ok(change)
    }

    /// The Reservation Status data structure.
    #[must_use]
    pub fn report(&self) -> Vec<u8> {
        let head = ReportHead {
            generation: self.generation,
            kind: self.held.map(|held| held.kind),
            registrants: self.registrants.len() as u16,
            persists: self.persists,
        };
        let mut out = head.bytes().to_vec();
        for Registrant { host, key, .. } in &self.registrants {
            let holds = self.holds(host);
            let registrant = ReportedRegistrant { host: *host, key: *key, holds };
            out.extend_from_slice(&registrant.bytes());
        }
        out
    }
}

#[cfg(test)]
mod tests;
