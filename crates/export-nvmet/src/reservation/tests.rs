//! Compares the rules with an independent model, and checks each rule separately.

use super::{Held, Registrant, Reservations, Rights};
use crate::limits::{REGISTRANTS_MAX, REGISTRANTS_PER_NAME_MAX};
use std::collections::BTreeMap;
use strake_fuzz::{Chance, runs};
use strake_nvme_wire::Status;
use strake_nvme_wire::reservation::{
    Acquire, Action, HostId, KeyCheck, Keys, NoticeKind, Persistence, ReservationType as T,
};

const KEPT: Persistence = Persistence::Unchanged;

const fn host(number: u8) -> HostId {
    [number; 16]
}

const fn keys(current: u64, other: u64) -> Keys {
    Keys { current, other }
}

/// Hosts 1, 2, ... with these keys, and the reservation with its holder.
fn with(keys: &[u64], held: Option<(T, u8)>) -> Reservations {
    let registrants = keys.iter().enumerate().map(|(at, &key)| {
        let number = at as u8 + 1;
        Registrant { host: host(number), name: format!("host {number}"), key }
    });
    let held = held.map(|(kind, by)| Held::by(host(by), kind));
    Reservations { registrants: registrants.collect(), held, ..Reservations::default() }
}

fn after(
    state: &Reservations,
    by: u8,
    action: Action,
    keys: Keys,
) -> Result<super::Change, Status> {
    state.after((&host(by), &format!("host {by}")), action, keys)
}

/// The model: numbers of hosts with their keys, the type, and the holders.
#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    keys: BTreeMap<u8, u64>,
    kind: u8,
    holders: Vec<u8>,
    generation: u32,
}

impl Model {
    /// In types 5 and 6 all registrants are holders; without a holder there is no reservation.
    fn settle(&mut self) {
        if self.kind >= 5 {
            self.holders = self.keys.keys().copied().collect();
        }
        self.holders.retain(|holder| self.keys.contains_key(holder));
        if self.holders.is_empty() {
            self.kind = 0;
        }
    }

    fn take(&mut self, by: u8, kind: u8) {
        (self.kind, self.holders) = (kind, vec![by]);
    }

    fn drop_key(&mut self, key: u64, but: Option<u8>) -> bool {
        let before = self.keys.len();
        self.keys.retain(|&who, &mut known| known != key || Some(who) == but);
        before != self.keys.len()
    }

    /// Executes a command; returns whether it is possible.
    fn obey(&mut self, by: u8, action: Action, Keys { current, other }: Keys) -> bool {
        let own = self.keys.get(&by).copied();
        let knows = |check| own.is_some() && (check == KeyCheck::Off || own == Some(current));
        let counts = !matches!(action, Action::Acquire(Acquire::Free, _) | Action::Release(_));
        let done = match action {
            Action::Register(_) => match own {
                _ if other == 0 => false,
                Some(known) => known == other,
                None => self.keys.insert(by, other).is_none(),
            },
            Action::Replace(check, _) => {
                let may = other != 0 && (knows(check) || (own.is_none() && check == KeyCheck::Off));
                may && (self.keys.insert(by, other), true).1
            }
            Action::Unregister(check, _) => knows(check) && self.keys.remove(&by).is_some(),
            _ if !knows(KeyCheck::On) => false,
            Action::Clear => {
                self.keys.clear();
                true
            }
            Action::Release(kind) if self.holders.contains(&by) => {
                let is_it = self.kind == kind as u8;
                if is_it {
                    self.holders.clear();
                    self.kind = 0;
                }
                is_it
            }
            Action::Release(_) => true,
            Action::Acquire(Acquire::Free, kind) if self.kind == 0 => {
                self.take(by, kind as u8);
                true
            }
            Action::Acquire(Acquire::Free, kind) => {
                self.holders.contains(&by) && self.kind == kind as u8
            }
            Action::Acquire(_, kind) => self.preempt(by, kind as u8, other),
        };
        if done && counts {
            self.generation += 1;
        }
        self.settle();
        done
    }

    fn preempt(&mut self, by: u8, kind: u8, key: u64) -> bool {
        match self.kind {
            5 | 6 if key == 0 => {
                self.keys.retain(|&who, _| who == by);
                self.take(by, kind);
                true
            }
            1..=4 if self.keys[&self.holders[0]] == key => {
                self.drop_key(key, Some(by));
                self.take(by, kind);
                true
            }
            _ => self.drop_key(key, None),
        }
    }

    /// The table of the specification, one line for each type: holder, registrant, any other host.
    fn rights(&self, of: u8) -> Rights {
        use Rights::{All, Nothing, Read};
        let table = [
            [All, All, All],
            [All, Read, Read],
            [All, Nothing, Nothing],
            [All, All, Read],
            [All, All, Nothing],
            [All, All, Read],
            [All, All, Nothing],
        ];
        let column = if self.holders.contains(&of) {
            0
        } else if self.keys.contains_key(&of) {
            1
        } else {
            2
        };
        table[usize::from(self.kind)][column]
    }
}

fn any_action(chance: &mut Chance) -> Action {
    let check = chance.pick(&[KeyCheck::On, KeyCheck::Off]);
    let kind = chance.pick(&T::ALL);
    match chance.below(9) {
        0 | 1 => Action::Register(KEPT),
        2 => Action::Unregister(check, KEPT),
        3 => Action::Replace(check, KEPT),
        4 => Action::Acquire(Acquire::Free, kind),
        5 => Action::Acquire(Acquire::Preempt, kind),
        6 => Action::Acquire(Acquire::PreemptAndAbort, kind),
        7 => Action::Release(kind),
        _ => Action::Clear,
    }
}

#[test]
fn random_commands_do_what_the_model_does() {
    runs(1_000, |seed| {
        let mut chance = Chance::new(seed);
        let (mut state, mut model) = (Reservations::default(), Model::default());
        for step in 0..40 {
            let by = chance.below(4) as u8 + 1;
            let action = any_action(&mut chance);
            // Mostly the current key of the host, so that most commands pass the key check.
            let own = model.keys.get(&by).copied().unwrap_or(0);
            let current = if chance.below(8) == 0 { chance.below(4) as u64 } else { own };
            let keys = keys(current, chance.below(4) as u64);
            let before = state.clone();
            let what = format!("seed {seed}, step {step}: {by} {action:?} {keys:?} on {before:?}");
            let obeyed = model.obey(by, action, keys);
            match after(&before, by, action, keys) {
                Ok(change) => {
                    assert!(obeyed, "the model refuses {what}");
                    let reported = change.reported.iter().all(|(who, _)| *who != host(by));
                    assert!(
                        reported && !change.expelled.contains(&host(by)),
                        "tells its own: {what}"
                    );
                    state = change.next;
                }
                Err(_) => assert!(!obeyed, "only the model obeys {what}"),
            }
            state.check().unwrap_or_else(|why| panic!("{why}: {what}"));
            let known: BTreeMap<u8, u64> =
                state.registrants.iter().map(|known| (known.host[0], known.key)).collect();
            assert_eq!(known, model.keys, "{what}");
            assert_eq!(state.held.map_or(0, |held| held.kind as u8), model.kind, "{what}");
            assert_eq!(state.generation, model.generation, "{what}");
            for of in 1..=5 {
                assert_eq!(state.holds(&host(of)), model.holders.contains(&of), "{of}: {what}");
                assert_eq!(state.rights(&host(of)), model.rights(of), "{of}: {what}");
            }
        }
    });
}

/// Checks each status: a model that only knows success and failure would accept any of them.
#[test]
fn each_refusal_has_its_status() {
    let conflict = Status::RESERVATION_CONFLICT;
    let (we, ea) = (T::WriteExclusive, T::ExclusiveAccess);
    let held = with(&[1, 2], Some((we, 1)));
    let acquire = |how, kind| Action::Acquire(how, kind);
    let replace = |check| Action::Replace(check, KEPT);
    for (what, by, action, keys, status) in [
        ("a key of zero", 3, Action::Register(KEPT), keys(0, 0), Status::INVALID_FIELD),
        ("another key", 1, Action::Register(KEPT), keys(1, 7), conflict),
        ("in place of a wrong one", 1, replace(KeyCheck::On), keys(9, 7), conflict),
        ("in place of none", 3, replace(KeyCheck::On), keys(0, 7), conflict),
        ("zero in place", 1, replace(KeyCheck::Off), keys(1, 0), Status::INVALID_FIELD),
        ("going that never came", 3, Action::Unregister(KeyCheck::Off, KEPT), keys(0, 0), conflict),
        ("a stranger's wish", 3, acquire(Acquire::Free, we), keys(0, 0), conflict),
        ("what another has", 2, acquire(Acquire::Free, we), keys(2, 0), conflict),
        ("another type", 1, acquire(Acquire::Free, ea), keys(1, 0), conflict),
        ("nobody's key", 2, acquire(Acquire::Preempt, we), keys(2, 9), conflict),
        ("no key", 2, acquire(Acquire::Preempt, we), keys(2, 0), Status::INVALID_FIELD),
        ("another type's release", 1, Action::Release(ea), keys(1, 0), Status::INVALID_FIELD),
        ("a release with a wrong key", 1, Action::Release(we), keys(2, 0), conflict),
        ("a stranger's clearance", 3, Action::Clear, keys(0, 0), conflict),
        ("nobody's clearance", 0, Action::Clear, keys(0, 0), Status::INVALID_FIELD),
    ] {
        assert_eq!(after(&held, by, action, keys).map(|_| ()), Err(status), "{what}");
    }
}

#[test]
fn which_host_is_notified_of_what() {
    use NoticeKind::{RegistrationPreempted, ReservationPreempted, ReservationReleased};
    let abort = Acquire::PreemptAndAbort;
    let (we, ea) = (T::WriteExclusive, T::ExclusiveAccess);
    let (ro, all) = (T::WriteExclusiveRegistrants, T::ExclusiveAccessAll);
    let gone = |number| (host(number), RegistrationPreempted);
    let released = |number| (host(number), ReservationReleased);
    let cleared = |number| (host(number), ReservationPreempted);
    let leave = Action::Unregister(KeyCheck::On, KEPT);
    for (what, state, action, other, reported) in [
        (
            "the holder's release",
            Some((ro, 1)),
            Action::Release(ro),
            0,
            vec![released(2), released(3)],
        ),
        ("one that was for it alone", Some((we, 1)), Action::Release(we), 0, vec![]),
        ("what all held", Some((all, 1)), Action::Release(all), 0, vec![released(2), released(3)]),
        ("nothing to release", Some((ro, 2)), Action::Release(ro), 0, vec![]),
        ("the holder goes", Some((ro, 1)), leave, 0, vec![released(2), released(3)]),
        ("it had it for itself", Some((ea, 1)), leave, 0, vec![]),
        ("one of several holders goes", Some((all, 1)), leave, 0, vec![]),
        ("an end of everything", Some((we, 2)), Action::Clear, 0, vec![cleared(2), cleared(3)]),
        ("a preemption", Some((we, 2)), Action::Acquire(abort, we), 2, vec![gone(2)]),
        (
            "to another type",
            Some((we, 2)),
            Action::Acquire(abort, ro),
            2,
            vec![gone(2), released(3)],
        ),
        ("of a registration", Some((we, 2)), Action::Acquire(abort, ro), 3, vec![gone(3)]),
        ("of itself", Some((we, 1)), Action::Acquire(abort, ro), 1, vec![released(2), released(3)]),
        ("of all", Some((all, 1)), Action::Acquire(abort, we), 0, vec![gone(2), gone(3)]),
        ("where nothing is held", None, Action::Acquire(abort, we), 3, vec![gone(3)]),
    ] {
        let change = after(&with(&[1, 2, 3], state), 1, action, keys(1, other)).expect(what);
        assert_eq!(change.reported, reported, "{what}");
        let out = reported.iter().filter(|(_, kind)| *kind == RegistrationPreempted);
        assert_eq!(change.expelled, out.map(|(who, _)| *who).collect::<Vec<_>>(), "{what}");
        if let Action::Acquire(_, kind) = action {
            let action = Action::Acquire(Acquire::Preempt, kind);
            let change = after(&with(&[1, 2, 3], state), 1, action, keys(1, other)).expect(what);
            assert_eq!(
                (change.reported, change.expelled),
                (reported, vec![]),
                "without abort: {what}"
            );
        }
    }
}

/// This number of registrants, with unique identifiers, under these names in turn.
fn crowd(count: usize, names: &[&str]) -> Reservations {
    (1..=count as u16).fold(Reservations::default(), |state, number| {
        let mut id = host(0);
        id[..2].copy_from_slice(&number.to_le_bytes());
        let name = names[usize::from(number) % names.len()];
        let change = state.after((&id, name), Action::Register(KEPT), keys(0, 1));
        change.expect("there is room").next
    })
}

/// The results of another registration in each possible way.
fn another(state: &Reservations, name: &str) -> [Result<(), Status>; 2] {
    [Action::Register(KEPT), Action::Replace(KeyCheck::Off, KEPT)]
        .map(|action| state.after((&host(0xff), name), action, keys(0, 1)).map(|_| ()))
}

#[test]
fn registrants_are_limited() {
    let names: Vec<String> = (0..REGISTRANTS_MAX).map(|number| number.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut state = crowd(REGISTRANTS_MAX - 1, &names);
    assert_eq!(another(&state, "late"), [Ok(()); 2]);
    state = crowd(REGISTRANTS_MAX, &names);
    assert_eq!(another(&state, "late"), [Err(Status::NO_ROOM); 2]);
}

/// One host that invented identifiers used up all entries.
#[test]
fn one_name_leaves_room_for_others() {
    let state = crowd(REGISTRANTS_PER_NAME_MAX - 1, &["a"]);
    assert_eq!(another(&state, "a"), [Ok(()); 2]);
    let state = crowd(REGISTRANTS_PER_NAME_MAX, &["a"]);
    assert_eq!(another(&state, "a"), [Err(Status::NO_ROOM); 2]);
    assert_eq!(another(&state, "b"), [Ok(()); 2]);
    let known = state.registrants[0].host;
    let again = state.after((&known, "a"), Action::Replace(KeyCheck::On, KEPT), keys(1, 2));
    assert!(again.is_ok(), "one that is there can change its key");
}

#[test]
fn persistence_changes_with_a_command_that_succeeds() {
    let state = with(&[1], None);
    let on = after(&state, 1, Action::Register(Persistence::On), keys(0, 1)).expect("again").next;
    assert!(on.persists);
    assert!(after(&on, 1, Action::Register(KEPT), keys(0, 1)).expect("again").next.persists);
    let off = Action::Replace(KeyCheck::On, Persistence::Off);
    assert!(after(&on, 1, off, keys(9, 1)).is_err(), "a wrong key");
    assert!(!after(&on, 1, off, keys(1, 2)).expect("another key").next.persists);
    let gone = Action::Unregister(KeyCheck::On, Persistence::Off);
    assert!(!after(&on, 1, gone, keys(1, 0)).expect("it goes").next.persists);
}

#[test]
fn what_cannot_have_come_about_is_found() {
    assert_eq!(with(&[1, 2], Some((T::WriteExclusive, 1))).check(), Ok(()));
    let mut twice = with(&[1, 2], None);
    twice.registrants[1].host = host(1);
    let mut anonymous = with(&[1], None);
    anonymous.registrants[0].host = host(0);
    let mut all = with(&[1], Some((T::WriteExclusiveAll, 1)));
    all.held = all.held.map(|held| Held { holder: Some(host(1)), ..held });
    let mut many = with(&[1], None);
    for number in 1..=REGISTRANTS_MAX as u16 {
        let mut one = many.registrants[0].clone();
        one.host[..2].copy_from_slice(&number.to_be_bytes());
        many.registrants.push(one);
    }
    for (what, state) in [
        ("a key of zero", with(&[0], None)),
        ("a holder from nowhere", with(&[1], Some((T::WriteExclusive, 2)))),
        ("held by all of nobody", with(&[], Some((T::WriteExclusiveAll, 1)))),
        ("one holder of what all hold", all),
        ("somebody twice", twice),
        ("nobody", anonymous),
        ("too many", many),
    ] {
        assert!(state.check().is_err(), "{what}");
    }
}

#[test]
fn a_report_names_every_registrant() {
    let mut state = with(&[1, 2], Some((T::WriteExclusive, 2)));
    (state.generation, state.persists) = (7, true);
    let report = state.report();
    assert_eq!(report.len(), 3 * 64);
    assert_eq!(report[..10], [7, 0, 0, 0, 1, 2, 0, 0, 0, 1]);
    assert_eq!((report[64 + 2], report[64 + 8], report[64 + 16]), (0, 1, 1));
    assert_eq!((report[128 + 2], report[128 + 8], report[128 + 16]), (1, 2, 2));
}

/// Another host that learned the identifier of a registrant could act as the registrant.
#[test]
fn an_identifier_serves_only_the_name_that_registered_it() {
    let state = with(&[7], None);
    assert!(state.is_of_another(&host(1), "host 2") && !state.is_of_another(&host(1), "host 1"));
    assert!(!state.is_of_another(&host(2), "host 2"), "it is not registered");
    for action in [
        Action::Register(KEPT),
        Action::Replace(KeyCheck::Off, KEPT),
        Action::Unregister(KeyCheck::Off, KEPT),
        Action::Acquire(Acquire::Free, T::WriteExclusive),
        Action::Release(T::WriteExclusive),
        Action::Clear,
    ] {
        let refused = state.after((&host(1), "host 2"), action, keys(7, 7));
        assert_eq!(refused, Err(Status::RESERVATION_CONFLICT), "{action:?}");
    }
}
