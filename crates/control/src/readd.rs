//! Members that come back: found again at a path that is remembered, or on a drive that has just appeared.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::time::Instant;

use strake_api::v1::{ArrayChange, ReaddMemberRequest};
use strake_dev_uring::control_wait;
use strake_engine::{ArrayErrorKind, Drive, claim_grown};
use strake_raid::MemberState;
use strake_units::{ByteSize, Uuid};

use crate::actions::Pace;
use crate::bounded::{self, Silent};
use crate::control::{Control, Planned, Reserved};
use crate::error::{ControlError, ControlErrorKind};
use crate::events::{EventKind, Note, Severity};
use crate::import::labelled;
use crate::limits::{GLANCE_LIMIT, LOOK_LIMIT, RETURNS_MAX};
use crate::manager::{Manager, array_key};
use crate::members::{Place, is_out};
use crate::offline::Labelled;
use crate::remote::{is_remote, outlasts};
use crate::returns::{Away, Verdict, verdict};
use crate::scan;
use crate::view::other_half;

/// What tells one thing at a path from another that came there later.
pub(crate) type PathKey = (u64, u64, u64);

/// What tells what is at a path, unless it is silent.
pub(crate) type KeyAt = Result<Option<PathKey>, Silent>;

/// Where the drive of a member that is out may be.
struct Candidate {
    array: String,
    path: String,
}

/// A member that is out, and its drive.
pub(crate) struct Returned {
    place: Place,
    found: Labelled,
    stale_bytes: u64,
}

/// A member that is to be taken back without a command.
struct Welcome {
    returned: Returned,
    away: Away,
    /// What is told when it is back.
    note: Option<Note>,
}

impl Control {
    /// Takes a member that was out back in; only what was written meanwhile is copied to it.
    ///
    /// # Errors
    /// When no member is out, its drive is not found, or its label says that what it lacks is not known.
    pub fn readd_member(&self, request: &ReaddMemberRequest) -> Result<ArrayChange, ControlError> {
        let ((array, name, look), mut reserved) = self.reserve(|m| m.places_of_members(request))?;
        let found = self.find_member(&mut reserved, &array, request, &look)?;
        let returned = self.run(|m| m.check_return(&array, request.member, found))?;
        let Returned { place, found, stale_bytes } = &returned;
        let plan = vec![
            format!("take {} back as member {} of array {name}", found.drive.path, place.member),
            format!(
                "copy {} to it, which is what it may lack, while the array serves",
                ByteSize(*stale_bytes)
            ),
        ];
        let result = if request.dry_run {
            "planned"
        } else {
            self.readd_now(&returned)?;
            self.run(|m| {
                m.returns.forget(returned.found.label.member);
                Ok(())
            })?;
            "changed"
        };
        let array = Some(self.run(|m| m.array(&array))?);
        Ok(ArrayChange { result: result.into(), array, plan, ..ArrayChange::default() })
    }

    fn find_member(
        &self,
        reserved: &mut Reserved,
        array: &str,
        request: &ReaddMemberRequest,
        look: &[String],
    ) -> Result<Labelled, ControlError> {
        if !request.drive.is_empty() {
            self.connect_named([&request.drive], request.dry_run)?;
            let drive = reserved.open(&request.drive)?;
            return labelled(drive, LOOK_LIMIT)?.ok_or_else(|| {
                ControlError::refused(format!(
                    "{} holds no label of an array; to use it all the same: strake array replace {} --member N \
                     --with {}",
                    request.drive, request.name, request.drive
                ))
            });
        }
        for path in look {
            let Ok(Some(found)) =
                reserved.open_now(path).and_then(|drive| labelled(drive, GLANCE_LIMIT))
            else {
                continue;
            };
            let wanted = self.run(|m| Ok(m.is_wanted(array, request.member, &found)))?;
            if wanted {
                return Ok(found);
            }
        }
        Err(ControlError::state(format!(
            "no drive of a member that is out of array {} was found; say where it is with --drive, or: strake array \
             replace",
            request.name
        )))
    }

    fn readd_now(&self, returned: &Returned) -> Result<(), ControlError> {
        let Returned { place, found, .. } = returned;
        self.run(|m| m.remember_also(&place.array, &found.drive))?;
        self.run(|m| {
            m.end_pauses();
            let at = m.find_running(&place.array)?;
            Ok(m.running[at].array.check_readd(place.member, &found.drive, &found.label)?)
        })?;
        claim_grown(&found.drive, &found.label, &mut control_wait())?;
        let readding = self.run(|m| {
            m.check_open()?;
            let at = m.find_running(&place.array)?;
            Ok(m.running[at].array.begin_readd(place.member, &found.drive, &found.label)?)
        })?;
        if let Err(error) = readding.wait() {
            // What speaks against the drive; what only speaks against this moment may be over in the next.
            if error.kind == ArrayErrorKind::Refused {
                self.run(|m| {
                    m.put_prospect(&place.array, found, Some(error.what.clone()));
                    Ok(())
                })?;
            }
            return Err(error.into());
        }
        self.run(|m| m.install(place, found.drive.clone()))
    }

    /// Takes back by themselves members whose drive has come back, and tells of those it cannot take.
    pub(crate) fn readd_returned(&self, pace: Pace) -> Result<(), ControlError> {
        for (array, candidates) in self.run(|m| Ok(m.candidates()))? {
            self.act(pace, format!("returned drives of {array}"), move |control| {
                control.readd_returned_of(candidates)
            })?;
        }
        Ok(())
    }

    fn readd_returned_of(&self, candidates: Vec<Candidate>) -> Result<(), ControlError> {
        for candidate in candidates {
            let Ok(key) = self.key_at(&candidate.path)? else { continue };
            let (news, awaited) = self.run(|m| {
                let awaited = m.awaited(&candidate.array, &candidate.path);
                Ok((m.is_news(&candidate, key), awaited.filter(|_| key.is_some())))
            })?;
            if !news && awaited.is_none() {
                continue;
            }
            let keys = vec![array_key(&candidate.array)];
            let Some(reserved) = self.try_reserve(keys)? else { continue };
            let mut reserved = reserved.limit_to(GLANCE_LIMIT);
            // What cannot be opened now may be with the next round.
            let found = match reserved
                .open_now(&candidate.path)
                .and_then(|drive| labelled(drive, GLANCE_LIMIT))
            {
                Ok(found) => found,
                Err(error) => {
                    tracing::debug!(path = %candidate.path, reason = %error, "not looked at");
                    self.look_later(awaited)?;
                    continue;
                }
            };
            let welcome = self.run(|m| {
                m.looked_at(&candidate, key);
                m.stop_waiting(&candidate, awaited, found.as_ref());
                Ok(found.and_then(|found| m.welcome(&candidate, found)))
            })?;
            if let Some(welcome) = welcome {
                self.take_back(&candidate, welcome)?;
            }
        }
        Ok(())
    }

    fn look_later(&self, awaited: Option<Uuid>) -> Result<(), ControlError> {
        let Some(member) = awaited else { return Ok(()) };
        self.run(|m| {
            m.look_later(member);
            Ok(())
        })
    }

    fn take_back(&self, candidate: &Candidate, welcome: Welcome) -> Result<(), ControlError> {
        let Welcome { returned, away, note } = welcome;
        let member = returned.found.label.member;
        let taken = self.readd_now(&returned);
        // What speaks only against this moment may be over in the next: it owes answers still, or the array is busy.
        if away == Away::Silent
            && taken.as_ref().is_err_and(|error| error.kind == ControlErrorKind::State)
        {
            return self.look_later(Some(member));
        }
        self.run(|m| {
            if away == Away::Silent {
                m.returns.count(member);
            }
            match &taken {
                Ok(()) => note.into_iter().for_each(|note| m.record(note)),
                Err(error) => {
                    m.tell_not_taken(&returned.place, &candidate.path, error);
                    m.look_later(member);
                }
            }
            Ok(())
        })
    }
}

impl Control {
    /// What tells what is at `path` now from what may be there later; `None` when nothing is, and an error when that is
    /// not said. Looked for outside of the lock: a path may lie on something that does not answer.
    pub(crate) fn key_at(&self, path: &str) -> Result<KeyAt, ControlError> {
        if is_remote(path) {
            return self.run(|m| Ok(Ok(m.drives.remote_key(path))));
        }
        let at = path.to_owned();
        Ok(bounded::look(path, move || {
            let meta = std::fs::metadata(at).ok();
            meta.map(|meta| (meta.dev(), meta.ino(), meta.rdev()))
        }))
    }
}

impl Manager {
    fn places_of_members(
        &mut self,
        request: &ReaddMemberRequest,
    ) -> Planned<(String, String, Vec<String>)> {
        self.check_open()?;
        let at = self.find_running(&request.name)?;
        let array = self.running[at].uuid();
        let name = self.running[at].array.name().to_string();
        let status = self.running[at].array.status();
        if !status.members.iter().any(is_out) {
            return Err(ControlError::state(format!(
                "no member of array {name} is out; there is nothing to take back"
            )));
        }
        let mut look: Vec<String> = self
            .config
            .arrays
            .iter()
            .filter(|a| a.uuid == array)
            .flat_map(|a| a.drives.clone())
            .collect();
        look.extend(status.members.iter().filter(|m| is_out(m)).map(|m| m.path.clone()));
        look.extend(scan::block_paths(self.drives.machine()));
        let serving = self.serving_paths(&array);
        look.retain(|path| outlasts(path) && !serving.contains(path));
        let keys = vec![array_key(&array)];
        Ok(((array, name, look), keys))
    }

    /// Paths of the drives that serve in an array.
    pub(crate) fn serving_paths(&self, array: &str) -> BTreeSet<String> {
        let Some(running) = self.running.iter().find(|r| r.uuid() == array) else {
            return BTreeSet::new();
        };
        let status = running.array.status();
        let serving = running.drives.iter().zip(&status.members).filter(|(_, m)| !is_out(m));
        serving.filter_map(|(drive, _)| drive.as_ref().map(|d| d.path.clone())).collect()
    }

    /// Whether `found` is a member of `array` that is out, and the one asked for if one was.
    fn is_wanted(&self, array: &str, member: Option<u32>, found: &Labelled) -> bool {
        let Some(running) = self.running.iter().find(|r| r.uuid() == array) else { return false };
        let slot = found.label.slot;
        let status = running.array.status();
        found.label.array.to_string() == array
            && member.is_none_or(|member| member as usize == slot.at())
            && status
                .members
                .get(slot.at())
                .is_some_and(|m| is_out(m) && m.uuid == found.label.member)
    }

    /// Checks whether `found` can be taken back, and remembers how that ended for whoever asks what to do.
    pub(crate) fn check_return(
        &mut self,
        array: &str,
        member: Option<u32>,
        found: Labelled,
    ) -> Result<Returned, ControlError> {
        let checked = self.check_return_of(array, member, found.clone());
        self.put_prospect(array, &found, checked.as_ref().err().map(|error| error.what.clone()));
        checked
    }

    fn check_return_of(
        &mut self,
        array: &str,
        member: Option<u32>,
        found: Labelled,
    ) -> Result<Returned, ControlError> {
        let member = member.unwrap_or(u32::from(found.label.slot.0));
        let (place, _) = self.place(array, member)?;
        let of_this = (place.array.clone(), place.member.at());
        let other = self.swapped.get(&of_this).is_some_and(|was| *was != found.identity());
        if other {
            return Err(ControlError::refused(format!(
                "{} was put in the place of the drive that was member {member} of array {name} while that was in use, \
                 so it is a copy at best, and lacks what was written since; bring the member's own drive back, or: \
                 strake array replace {name} --member {member} --with DRIVE",
                found.drive.path,
                name = place.name
            )));
        }
        self.note_objection(&found);
        if let Some(objection) = found.objection() {
            return Err(ControlError::refused(objection));
        }
        let at = self.find_running(array)?;
        let check = self.running[at].array.check_readd(place.member, &found.drive, &found.label);
        let stale_bytes = check?;
        self.refuse_serving(&found.drive, &place)?;
        Ok(Returned { place, found, stale_bytes })
    }

    /// Remembers why the drive of a member that is out is of no use, as far as was last seen.
    pub(crate) fn note_objection(&mut self, found: &Labelled) {
        let label = &found.label;
        let uuid = label.array.to_string();
        let Some(running) = self.running.iter().find(|r| r.uuid() == uuid) else { return };
        let status = running.array.status();
        // Another drive may have its place by now.
        if status.members.get(label.slot.at()).is_none_or(|m| m.uuid != label.member) {
            return;
        }
        let place = (uuid, label.slot.at());
        match found.damage() {
            Some(damage) => self.objections.insert(place.clone(), damage),
            None => self.objections.remove(&place),
        };
        if self.is_other_half(label) {
            self.other_halves.insert(place, found.drive.path.clone());
        } else {
            self.other_halves.remove(&place);
        }
    }

    /// Refuses a drive that serves elsewhere, or is a spare; the one that was in this place until now is fine.
    fn refuse_serving(&self, drive: &Drive, place: &Place) -> Result<(), ControlError> {
        let own = (place.member.at(), place.name.clone());
        if self.place_of(&drive.device.identity()).is_some_and(|other| other == own) {
            return Ok(());
        }
        self.refuse_members(std::slice::from_ref(drive))
    }

    /// Paths that are remembered of arrays, without those that serve, and block devices that have just appeared.
    fn candidates(&mut self) -> Vec<(String, Vec<Candidate>)> {
        if self.stopping {
            return Vec::new();
        }
        let appeared = self.notice_block_devices();
        let mut candidates = Vec::new();
        for running in &self.running {
            let array = running.uuid();
            let serving = self.serving_paths(&array);
            let record = self.config.arrays.iter().find(|a| a.uuid == array);
            let remembered = record.into_iter().flat_map(|a| a.drives.iter());
            let paths: BTreeSet<&String> = remembered.chain(&appeared).collect();
            let idle = paths.into_iter().filter(|path| !serving.contains(*path));
            let idle = idle.map(|path| Candidate { array: array.clone(), path: path.clone() });
            candidates.push((array.clone(), idle.collect()));
        }
        candidates
    }

    /// Whether what is at the path is worth a look: it has just come, or a member is missing and it was not looked at.
    fn is_news(&mut self, candidate: &Candidate, key: Option<PathKey>) -> bool {
        let place = (candidate.array.clone(), candidate.path.clone());
        let known = self.looked.get(&place).copied();
        let Some(key) = key else {
            self.looked.insert(place, None);
            return false;
        };
        let missing = self.running.iter().find(|r| r.uuid() == candidate.array).is_some_and(|r| {
            r.array.status().members.iter().any(|m| m.state == MemberState::Missing)
        });
        match known {
            // It was not there before.
            Some(None) => true,
            Some(Some(before)) => before != key,
            None => missing,
        }
    }

    fn looked_at(&mut self, candidate: &Candidate, key: Option<PathKey>) {
        self.looked.insert((candidate.array.clone(), candidate.path.clone()), key);
    }

    /// Says whose drive has come back, and whether it is taken by itself.
    fn welcome(&mut self, candidate: &Candidate, found: Labelled) -> Option<Welcome> {
        let Labelled { label, drive, .. } = &found;
        if label.array.to_string() != candidate.array {
            return None;
        }
        let at = self.find(&candidate.array)?;
        let status = self.running[at].array.status();
        let (name, slot, path) = (status.name.to_string(), label.slot.at(), drive.path.clone());
        let member = status.members.get(slot)?;
        let object = format!("array/{name}");
        if member.uuid != label.member {
            let what = format!(
                "{path} was member {slot} of array {name} and is here again, but another drive has its place"
            );
            let next =
                format!("strake drive clean {path}, which makes it free; or keep it for reference");
            self.record(
                Note::new(EventKind::MemberSuperseded, object, what).member(slot).next(next),
            );
            return None;
        }
        if !is_out(member) {
            return None;
        }
        let auto = self.settings(&candidate.array).auto_readd;
        let away = self.away(&candidate.array, slot, member);
        let verdict = verdict(away, auto, self.returns.tries(label.member), Instant::now());
        let again = if away == Away::Silent { "answers again" } else { "is here again" };
        let what = format!("member {slot} of array {name} {again} at {path}");
        let note = Note::new(EventKind::MemberReturned, object, what).member(slot);
        let member = label.member;
        let checked = self.check_return(&candidate.array, Some(slot as u32), found);
        let readd = format!("strake array readd {name} --member {slot} --drive {path}");
        if away == Away::Silent && (verdict != Verdict::TakeBack || checked.is_err()) {
            self.returns.leave_to_hand(member);
            self.note_silent();
        }
        match (checked, verdict) {
            (Ok(returned), Verdict::TakeBack) => {
                let copied = ByteSize(returned.stale_bytes);
                let note = note.cause(format!("it is taken back, and {copied} are copied to it"));
                // One that may owe answers is taken back a moment later, and told of then.
                if away == Away::Silent {
                    return Some(Welcome { returned, away, note: Some(note) });
                }
                self.record(note);
                Some(Welcome { returned, away, note: None })
            }
            (Ok(_), Verdict::ByHand) => {
                self.record(note.next(readd));
                None
            }
            (Ok(_), Verdict::Unsteady) => {
                let why = format!(
                    "it was taken back {RETURNS_MAX} times within an hour and hung again each time, so only a command \
                     takes it back now"
                );
                self.record(note.severity(Severity::Warning).cause(why).next(readd));
                None
            }
            (Err(error), _) => {
                let note = note.cause(format!("it is not taken: {error}"));
                let half = (candidate.array.clone(), slot);
                self.record(if self.other_halves.contains_key(&half) {
                    let (_, next) = other_half(&name, slot, &path);
                    note.severity(Severity::Critical).next(next)
                } else {
                    note
                });
                None
            }
        }
    }

    /// Waits no more for the drive of the member `awaited` at the path of `candidate` when another one is there.
    fn stop_waiting(
        &mut self,
        candidate: &Candidate,
        awaited: Option<Uuid>,
        found: Option<&Labelled>,
    ) {
        let Some(awaited) = awaited else { return };
        let is_it = |found: &Labelled| {
            found.label.array.to_string() == candidate.array && found.label.member == awaited
        };
        if !found.is_some_and(is_it) {
            self.returns.leave_to_hand(awaited);
            self.note_silent();
        }
    }

    fn tell_not_taken(&mut self, place: &Place, path: &str, error: &ControlError) {
        let Place { name, member, .. } = place;
        let what = format!("member {member} of array {name} could not be taken back from {path}");
        let note = Note::new(EventKind::MemberFailed, format!("array/{name}"), what);
        let next = format!("strake array replace {name} --member {member} --with DRIVE");
        self.record(note.member(member.at()).cause(error.what.clone()).next(next));
    }
}
