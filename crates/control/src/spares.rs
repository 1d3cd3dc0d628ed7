//! Drives that wait to replace failed members: dedicated to one array, or in the pool for all.
//!
//! A spare is held open for as long as the daemon runs, so that nobody else takes it. What is recorded of it is where
//! it was and what identifies its medium; another medium at the same path is no spare.

use std::fs;

use strake_api::v1::{
    AddSpareRequest, ListSparesResponse, RemoveSpareRequest, Spare as SpareMessage, SpareChange,
};
use strake_dev_uring::control_wait;
use strake_engine::{ArrayStatus, Drive, erase_foreign, prepare_drive};
use strake_units::ByteSize;

use crate::actions::Pace;
use crate::bounded;
use crate::control::Control;
use crate::create::refuse_occupied;
use crate::drives::Sighting;
use crate::error::{ControlError, ControlErrorKind};
use crate::events::{EventKind, Note};
use crate::limits::{GLANCE_LIMIT, SPARES_MAX};
use crate::manager::{Manager, array_key, fresh_uuid};
use crate::remote::{is_remote, outlasts};
use crate::sick::slots_for_spares;
use crate::store::SpareRecord;

/// What a spare is like now.
#[derive(Clone)]
pub(crate) enum SpareState {
    /// Open, and holds nothing.
    Ready(Drive),
    /// Not here, for this reason.
    Missing(String),
    /// Here, and of no use, for this reason.
    Failed(String),
}

impl SpareState {
    fn word(&self) -> &'static str {
        match self {
            Self::Ready(_) => "ready",
            Self::Missing(_) => "missing",
            Self::Failed(_) => "failed",
        }
    }

    fn note(&self) -> &str {
        match self {
            Self::Ready(_) => "",
            Self::Missing(why) | Self::Failed(why) => why,
        }
    }
}

/// Whether `drive` can replace any member of an array, and why not.
pub(crate) fn fits(status: &ArrayStatus, drive: &Drive) -> Result<(), String> {
    let info = drive.device.info();
    let block = status.geometry.block_size();
    let used = status.geometry.member_blocks_used() << block.shift();
    let (has, needs) = (info.bytes(), status.format.least_device_bytes(used));
    if has < needs {
        let (name, size) = (&status.name, ByteSize(needs));
        return Err(format!("it has {has} bytes, array {name} needs {needs} ({size})"));
    }
    if info.block_size > block {
        let (has, name) = (info.block_size, &status.name);
        return Err(format!("it has blocks of {has} bytes, array {name} has {block}"));
    }
    if info.read_only {
        return Err("it is read-only".to_owned());
    }
    Ok(())
}

/// Whether an error in giving a spare to an array speaks against the spare. An array that is not ready for it (another
/// member is being copied, somebody was quicker, it stops) may want it a second later.
fn is_of_the_drive(kind: ControlErrorKind) -> bool {
    match kind {
        ControlErrorKind::Device | ControlErrorKind::Silent | ControlErrorKind::Usage => true,
        ControlErrorKind::NotFound
        | ControlErrorKind::Exists
        | ControlErrorKind::State
        | ControlErrorKind::Refused
        | ControlErrorKind::Store
        | ControlErrorKind::Stopped
        | ControlErrorKind::Internal => false,
    }
}

impl Control {
    /// Makes a drive that holds nothing a spare. The same again is "unchanged".
    ///
    /// # Errors
    /// When the drive holds something, is in use, is in memory, or does not fit the array it is for.
    pub fn add_spare(&self, request: &AddSpareRequest) -> Result<SpareChange, ControlError> {
        let path = self.run(|m| m.drives.path_of(&request.drive))?;
        let request = &AddSpareRequest { drive: path, ..request.clone() };
        if !outlasts(&request.drive) {
            return Err(ControlError::usage(format!(
                "{:?} cannot be a spare: a spare outlasts the daemon, so name a drive by its path",
                request.drive
            )));
        }
        self.connect_named([&request.drive], request.dry_run)?;
        let (_, mut reserved) = self.reserve(|m| Ok((m.check_open()?, Vec::new())))?;
        let drive = reserved.open(&request.drive)?;
        let (record, known, mut warnings) = self.run(|m| m.check_spare(request, &drive))?;
        let mut change = SpareChange { result: "unchanged".into(), ..SpareChange::default() };
        if !known {
            change.plan = self.admit(request, &record, &drive)?;
            change.result = if request.dry_run { "planned" } else { "created" }.into();
        }
        change.warnings.append(&mut warnings);
        change.spare = Some(self.run(|m| Ok(m.spare_message(&record)))?);
        Ok(change)
    }

    fn admit(
        &self,
        request: &AddSpareRequest,
        record: &SpareRecord,
        drive: &Drive,
    ) -> Result<Vec<String>, ControlError> {
        let mut plan = Vec::new();
        if request.overwrite {
            plan.push(format!("erase {}; what it holds is lost", record.path));
        } else {
            refuse_occupied(std::slice::from_ref(drive))?;
        }
        let whom = if request.array.is_empty() { "every array" } else { &request.array };
        plan.push(format!("keep {} open as a spare of {whom}", record.path));
        if request.dry_run {
            return Ok(plan);
        }
        // What could not be recorded is not begun.
        self.run(|m| m.store.prepare(&m.with_spare(record)).map(drop))?;
        if request.overwrite {
            erase_foreign(drive, &mut control_wait())?;
            prepare_drive(drive, fresh_uuid()?, &mut control_wait())?;
        }
        self.run(|m| m.adopt_spare(record, drive))?;
        Ok(plan)
    }

    /// Makes it an ordinary free drive again.
    ///
    /// # Errors
    /// When it is no spare.
    pub fn remove_spare(&self, request: &RemoveSpareRequest) -> Result<SpareChange, ControlError> {
        // A spare that is not here is known by the path it was recorded with.
        let (path, machine) = self.run(|m| {
            let path = m.drives.path_of(&request.drive).unwrap_or_else(|_| request.drive.clone());
            Ok((path, m.drives.machine().clone()))
        })?;
        // Without the lock: the path may lie on something that does not answer.
        let seen = Sighting::within(&path, &machine, GLANCE_LIMIT).ok();
        self.run(|m| m.drop_spare(&path, seen.as_ref()))
    }

    /// Puts spares in the places of members that are out. What fails is told, and tried with another spare.
    pub(crate) fn use_spares(&self, pace: Pace) -> Result<(), ControlError> {
        for (array, slots) in self.run(|m| Ok(m.places_for_spares()))? {
            self.act(pace, format!("spares for {array}"), move |control| {
                for slot in slots {
                    // What went wrong was told; the next round tries another spare.
                    if let Err(error) = control.use_spare(&array, slot) {
                        tracing::debug!(reason = %error, "spare not used");
                    }
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Puts a spare in the place of a member that is out. Does nothing while another command works on the array, or
    /// when there is none.
    pub(crate) fn use_spare(&self, array: &str, slot: usize) -> Result<(), ControlError> {
        let Some(reserved) = self.try_reserve(vec![array_key(array)])? else { return Ok(()) };
        let mut reserved = reserved.limit_to(GLANCE_LIMIT);
        let chosen = self.run(|m| Ok(m.choose_spare(array, slot)))?;
        let Some((place, record)) = chosen else { return Ok(()) };
        let opened = reserved.open_now(&record.path).and_then(|drive| {
            refuse_occupied(std::slice::from_ref(&drive))?;
            Ok(drive)
        });
        let fits = opened.is_ok();
        let used = opened.and_then(|drive| self.replace_now(&place, drive));
        self.run(|m| {
            match &used {
                Ok(()) => m.reported_spare_use(&place.name, slot, &record),
                Err(error) if fits && !is_of_the_drive(error.kind) => {}
                Err(error) => m.note_spare(&record, SpareState::Failed(error.what.clone())),
            }
            Ok(())
        })?;
        used
    }

    /// Opens spares that are not open, and notices those that went.
    pub(crate) fn tend_spares(&self, pace: Pace) -> Result<(), ControlError> {
        for (record, is_open) in self.run(|m| Ok(m.spares_to_look_at()))? {
            self.act(pace, format!("spare {}", record.identity), move |control| {
                control.tend_spare(&record, is_open)
            })?;
        }
        Ok(())
    }

    fn tend_spare(&self, record: &SpareRecord, is_open: bool) -> Result<(), ControlError> {
        let path = record.path.clone();
        let here = is_remote(&path)
            || bounded::look(&record.path, || fs::metadata(path).is_ok()).unwrap_or(is_open);
        if here && is_open {
            return Ok(());
        }
        let Some(reserved) = self.try_reserve(Vec::new())? else { return Ok(()) };
        let mut reserved = reserved.limit_to(GLANCE_LIMIT);
        let state = if !here {
            SpareState::Missing(format!("there is nothing at {}", record.path))
        } else {
            match reserved.open_now(&record.path) {
                Err(error) => SpareState::Missing(error.what),
                Ok(drive) => examine(record, drive),
            }
        };
        self.run(|m| {
            m.note_spare(record, state);
            Ok(())
        })
    }
}

/// What is at a spare's path.
fn examine(record: &SpareRecord, drive: Drive) -> SpareState {
    if drive.device.identity() != record.identity {
        return SpareState::Missing(format!("another drive is at {}", record.path));
    }
    match refuse_occupied(std::slice::from_ref(&drive)) {
        Ok(()) => SpareState::Ready(drive),
        Err(error) => SpareState::Failed(error.what),
    }
}

impl Manager {
    /// Checks everything about a new spare but its contents. True when it is one already.
    fn check_spare(
        &mut self,
        request: &AddSpareRequest,
        drive: &Drive,
    ) -> Result<(SpareRecord, bool, Vec<String>), ControlError> {
        let array = match request.array.as_str() {
            "" => String::new(),
            name => self
                .config
                .arrays
                .iter()
                .find(|a| a.name == name || a.uuid == name)
                .map(|a| a.uuid.clone())
                .ok_or_else(|| self.no_such_array(name))?,
        };
        let info = drive.device.info();
        let record = SpareRecord {
            path: drive.path.clone(),
            identity: info.identity.clone(),
            bytes: info.bytes(),
            array,
        };
        if let Some(known) = self.config.spares.iter().find(|s| s.identity == record.identity) {
            if known.array == record.array {
                return Ok((known.clone(), true, Vec::new()));
            }
        } else {
            self.refuse_members(std::slice::from_ref(drive))?;
        }
        if self.config.spares.len() >= SPARES_MAX {
            return Err(ControlError::state(format!(
                "there are {SPARES_MAX} spares, which is the most one daemon keeps; remove one first"
            )));
        }
        let warnings = self.check_fit(&record, drive)?;
        Ok((record, false, warnings))
    }

    fn check_fit(&self, record: &SpareRecord, drive: &Drive) -> Result<Vec<String>, ControlError> {
        let mut warnings = Vec::new();
        for running in &self.running {
            let status = running.array.status();
            if let Err(why) = fits(&status, drive) {
                if running.uuid() == record.array {
                    return Err(ControlError::usage(format!(
                        "{} cannot be a spare of array {}: {why}",
                        record.path, status.name
                    )));
                }
                if record.array.is_empty() {
                    warnings.push(format!(
                        "{} is no spare for array {}: {why}",
                        record.path, status.name
                    ));
                }
            } else if status.geometry.redundancy(0) == Some(0) {
                warnings.push(format!(
                    "array {} has no redundancy, so that a spare cannot help it",
                    status.name
                ));
            }
        }
        Ok(warnings)
    }

    fn with_spare(&self, record: &SpareRecord) -> crate::store::Config {
        let mut config = self.config.clone();
        config.spares.retain(|s| s.identity != record.identity);
        config.spares.push(record.clone());
        config
    }

    fn adopt_spare(&mut self, record: &SpareRecord, drive: &Drive) -> Result<(), ControlError> {
        self.config = self.store.prepare(&self.with_spare(record))?.commit()?;
        self.spares.insert(record.identity.clone(), SpareState::Ready(drive.clone()));
        let whom = self.whose(record);
        let what = format!("{} became a spare of {whom}", record.path);
        self.record(Note::new(EventKind::SpareAdded, format!("drive/{}", record.path), what));
        Ok(())
    }

    /// Whom a spare is for, for a person.
    fn whose(&self, record: &SpareRecord) -> String {
        if record.array.is_empty() {
            return "every array".to_owned();
        }
        format!("array {}", self.array_name(&record.array))
    }

    pub(crate) fn array_name(&self, uuid: &str) -> String {
        let known = self.config.arrays.iter().find(|a| a.uuid == uuid);
        known.map_or_else(|| uuid.to_owned(), |a| a.name.clone())
    }

    fn drop_spare(
        &mut self,
        path: &str,
        seen: Option<&Sighting>,
    ) -> Result<SpareChange, ControlError> {
        self.check_open()?;
        let open = self.drives.named(path).or_else(|| self.drives.seen_as(path, seen?));
        let open = open.map(|drive| drive.device.identity());
        let same = |s: &&SpareRecord| s.path == path || open.as_ref() == Some(&s.identity);
        let Some(record) = self.config.spares.iter().find(same).cloned() else {
            let known: Vec<&str> = self.config.spares.iter().map(|s| s.path.as_str()).collect();
            let hint = if known.is_empty() {
                "there is none yet: strake spare add ...".to_owned()
            } else {
                format!("there is: {}", known.join(", "))
            };
            return Err(ControlError::not_found(format!("{path} is no spare; {hint}")));
        };
        let spare = Some(self.spare_message(&record));
        self.forget_spare(&record)?;
        let what = format!("{} was removed as a spare", record.path);
        self.record(Note::new(EventKind::SpareRemoved, format!("drive/{}", record.path), what));
        Ok(SpareChange {
            result: "removed".into(),
            spare,
            plan: vec![format!("close {}; it is an ordinary free drive", record.path)],
            warnings: Vec::new(),
        })
    }

    fn forget_spare(&mut self, record: &SpareRecord) -> Result<(), ControlError> {
        let mut config = self.config.clone();
        config.spares.retain(|s| s.identity != record.identity);
        self.config = self.store.prepare(&config)?.commit()?;
        self.spares.remove(&record.identity);
        self.close_unused_drives();
        Ok(())
    }

    /// Every spare.
    #[must_use]
    pub fn list_spares(&self) -> ListSparesResponse {
        let spares = self.config.spares.iter().map(|record| self.spare_message(record)).collect();
        ListSparesResponse { spares }
    }

    /// The drive of a spare that could be used now.
    pub(crate) fn ready_spare(&self, record: &SpareRecord) -> Option<&Drive> {
        match self.spares.get(&record.identity)? {
            SpareState::Ready(drive) => Some(drive),
            SpareState::Missing(_) | SpareState::Failed(_) => None,
        }
    }

    fn spare_message(&self, record: &SpareRecord) -> SpareMessage {
        let state = self.spares.get(&record.identity);
        let array =
            if record.array.is_empty() { String::new() } else { self.array_name(&record.array) };
        SpareMessage {
            path: record.path.clone(),
            identity: record.identity.clone(),
            serial: String::new(),
            size_bytes: record.bytes,
            array,
            state: state.map_or("missing", SpareState::word).to_owned(),
            note: state.map_or("", SpareState::note).to_owned(),
        }
    }

    /// Spares whose path has to be looked at, and whether they are open.
    fn spares_to_look_at(&mut self) -> Vec<(SpareRecord, bool)> {
        if self.stopping {
            return Vec::new();
        }
        // A spare that a crash left in both lists serves as a member.
        let taken: Vec<SpareRecord> = self
            .config
            .spares
            .iter()
            .filter(|s| self.place_of(&s.identity).is_some())
            .cloned()
            .collect();
        for record in taken {
            if let Err(error) = self.forget_spare(&record) {
                tracing::warn!(spare = %record.path, reason = %error, "spare not forgotten");
            }
        }
        let look = |s: &SpareRecord| match self.spares.get(&s.identity) {
            Some(SpareState::Ready(_)) if is_remote(&s.path) => {
                self.drives.remote_key(&s.path).is_none().then_some(false)
            }
            Some(SpareState::Ready(_)) => Some(true),
            Some(SpareState::Missing(_)) | None => Some(false),
            Some(SpareState::Failed(_)) => None,
        };
        let spares = self.config.spares.iter();
        spares.filter_map(|spare| Some((spare.clone(), look(spare)?))).collect()
    }

    fn note_spare(&mut self, record: &SpareRecord, state: SpareState) {
        if self.config.spares.iter().all(|s| s.identity != record.identity) {
            return;
        }
        let before = self.spares.get(&record.identity).map(SpareState::word);
        let object = format!("drive/{}", record.path);
        match (before, &state) {
            (Some("missing" | "failed"), SpareState::Ready(_)) => {
                let what = format!("spare {} is here again", record.path);
                self.record(Note::new(EventKind::SpareReturned, object, what));
            }
            (Some("ready") | None, SpareState::Missing(why) | SpareState::Failed(why)) => {
                let what = format!("spare {} cannot be used", record.path);
                let note = Note::new(EventKind::SpareMissing, object, what).cause(why.clone());
                let path = &record.path;
                self.record(note.next(format!("bring it back, or: strake spare remove {path}")));
            }
            (Some(_) | None, _) => {}
        }
        self.spares.insert(record.identity.clone(), state);
        self.close_unused_drives();
    }

    fn is_copied(&self, array: &str, slot: usize) -> bool {
        let running = self.running.iter().find(|r| r.array.name().to_string() == array);
        running.is_some_and(|r| r.replacement.as_ref().is_some_and(|next| next.slot.at() == slot))
    }

    /// Members that are out or sick, of arrays that take spares by themselves.
    fn places_for_spares(&mut self) -> Vec<(String, Vec<usize>)> {
        if self.stopping || self.config.spares.is_empty() {
            return Vec::new();
        }
        let mut places = Vec::new();
        for running in &self.running {
            let status = running.array.status();
            let uuid = running.uuid();
            if status.lost || !self.settings(&uuid).auto_replace {
                continue;
            }
            let slots = slots_for_spares(&status, |member| self.sick.wants_spare(member));
            if !slots.is_empty() {
                places.push((uuid, slots));
            }
        }
        places
    }

    /// The smallest spare that fits, of the array's own first. When none does, says so once.
    pub(crate) fn choose_spare(
        &mut self,
        array: &str,
        slot: usize,
    ) -> Option<(crate::members::Place, SpareRecord)> {
        // It may have been replaced or stopped in the meantime.
        let (place, _) = self.place(array, slot as u32).ok()?;
        let running = self.running.iter().find(|r| r.uuid() == array)?;
        let status = running.array.status();
        let member = &status.members[slot];
        if !crate::members::is_out(member) && !self.sick.wants_spare(member) {
            return None;
        }
        let usable = |s: &&SpareRecord| match self.spares.get(&s.identity) {
            Some(SpareState::Ready(drive)) => {
                // A crash may have left the drive of a copy among them.
                fits(&status, drive).is_ok() && self.promised(&s.identity, None).is_none()
            }
            Some(SpareState::Missing(_) | SpareState::Failed(_)) | None => false,
        };
        let own = |s: &&SpareRecord| s.array == array || s.array.is_empty();
        let best = self
            .config
            .spares
            .iter()
            .filter(own)
            .filter(usable)
            .min_by_key(|s| (s.array.is_empty(), s.bytes));
        if let Some(best) = best {
            return Some((place, best.clone()));
        }
        let name = place.name;
        let reported = self.seen.get_mut(array).is_some_and(|seen| !seen.tell_no_spare(slot));
        if !reported {
            let what = format!("no spare fits in the place of member {slot} of array {name}");
            let note = Note::new(EventKind::SpareNone, format!("array/{name}"), what).member(slot);
            self.record(
                note.next(format!("strake array replace {name} --member {slot} --with DRIVE")),
            );
        }
        None
    }

    fn reported_spare_use(&mut self, array: &str, slot: usize, record: &SpareRecord) {
        let path = &record.path;
        let what = if self.is_copied(array, slot) {
            format!("member {slot} of array {array} is being copied to spare {path}")
        } else {
            format!("spare {path} took the place of member {slot} of array {array}")
        };
        let note = Note::new(EventKind::SpareUsed, format!("array/{array}"), what);
        self.record(note.member(slot).next("strake spare add DRIVE, so that there is another"));
        if let Err(error) = self.forget_spare(record) {
            tracing::warn!(spare = %path, reason = %error, "spare not forgotten");
        }
    }
}
