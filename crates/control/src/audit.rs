//! The audit log: every command that changes something, with its caller and its result.
//!
//! A command has an entry before it runs and one after it. Both are on disk when the client has its answer. Entries
//! form a chain of hashes (`audit/chain.rs`), and files are rotated only here, so a change or a removal by another
//! process is found: by the next write, by the next start, or by [`Audit::verify`]. A user who may write the files of
//! the daemon can still write new lines with right hashes. Therefore the daemon also logs the hash after each command,
//! and a host can send its log to another one.
//!
//! If the state directory refuses writes, commands still run: an array must remain repairable. Their entries are
//! written when the directory accepts writes again.

mod chain;
mod segments;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Instant;

use strake_api::v1::{
    AuditEntry, AuditReport, ListAuditRequest, ListAuditResponse, VerifyAuditRequest,
};
use strake_wording::say;

use crate::actor::Actor;
use crate::error::ControlError;
use crate::events::{EventKind, Events, Note, WallClock};
use crate::limits::{
    AUDIT_DENIALS_EVERY, AUDIT_DENIED_USERS_MAX, AUDIT_LIST_MAX, AUDIT_PENDING_MAX,
    AUDIT_TEXT_BYTES_MAX,
};
use crate::record::files::StateFolder;
use chain::{Head, Verifier, is_hash, lines, parse};
use segments::{Limits, Segments};

/// What an entry is about.
mod phase {
    /// A command begins.
    pub(super) const STARTED: &str = "started";
    /// A command has ended.
    pub(super) const ENDED: &str = "ended";
    /// A call was denied, because the role of its caller does not permit it.
    pub(super) const DENIED: &str = "denied";
    /// The log itself.
    pub(super) const LOG: &str = "log";
}

/// A command and its object.
#[derive(Clone, Copy)]
pub(crate) struct Subject<'a> {
    /// The command as typed.
    pub(crate) command: &'a str,
    /// The object, as events name it.
    pub(crate) object: &'a str,
}

impl Subject<'_> {
    fn entry(self, actor: &Actor) -> AuditEntry {
        let (command, object) = (self.command.to_owned(), self.object.to_owned());
        AuditEntry { command, object, ..of(actor) }
    }
}

/// The result of a command.
#[derive(Clone, Copy)]
pub(crate) struct Ended<'a> {
    /// The result word of the answer, or `refused`.
    pub(crate) result: &'a str,
    /// The reason of a refusal.
    pub(crate) cause: &'a str,
}

/// Denied calls of a user.
struct Denials {
    /// The time of the last entry.
    recorded: Instant,
    /// Number of calls since then.
    count: u64,
    /// The newest call.
    newest: AuditEntry,
}

struct Inner {
    segments: Segments,
    /// Entries that are not in the file yet, the oldest first.
    pending: VecDeque<AuditEntry>,
    /// Number of the newest entry, in the file or pending.
    last: u64,
    /// Number of entries that were dropped because too many were pending.
    dropped: u64,
    denials: BTreeMap<u32, Denials>,
}

/// True if the next entry about the denied calls is due.
fn is_over(denials: &Denials) -> bool {
    denials.recorded.elapsed() >= AUDIT_DENIALS_EVERY
}

/// The audit log. Its methods write to the state directory, and take no lock but their own.
pub struct Audit {
    inner: Mutex<Inner>,
    /// The reason why entries cannot be written now. It has its own lock, because a write may take long.
    trouble: Mutex<Option<String>>,
    events: Arc<Events>,
    clock: WallClock,
}

impl Audit {
    /// Continues the log in the state directory. A log that another process has changed is reported, and continued.
    pub(crate) fn open_in(state: StateFolder, events: &Arc<Events>, clock: WallClock) -> Self {
        Self::open_with(state, events, clock, Limits::default())
    }

    fn open_with(
        state: StateFolder,
        events: &Arc<Events>,
        clock: WallClock,
        limits: Limits,
    ) -> Self {
        let (segments, faults) = Segments::open(state, limits);
        let last = segments.ends().head.number;
        let (pending, denials) = (VecDeque::new(), BTreeMap::new());
        let inner = Mutex::new(Inner { segments, pending, last, dropped: 0, denials });
        let trouble = Mutex::new(None);
        let audit = Self { inner, trouble, events: Arc::clone(events), clock };
        for what in faults {
            audit.tell(&what);
            let entry = AuditEntry { cause: what, ..AuditEntry::default() };
            audit.write(&mut audit.lock(), phase::LOG, entry);
        }
        audit
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Every change is complete before a panic can happen, so the data are valid even if the lock is poisoned.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_trouble(&self, trouble: Option<String>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }

    /// Records that a command begins. Returns the number of the entry for [`end`](Self::end).
    pub(crate) fn begin(&self, actor: &Actor, subject: Subject<'_>) -> u64 {
        self.write(&mut self.lock(), phase::STARTED, subject.entry(actor))
    }

    /// Records the result of the command whose entry has the number `started`: the result word, and the reason of a
    /// refusal.
    pub(crate) fn end(&self, started: u64, actor: &Actor, subject: Subject<'_>, ended: Ended<'_>) {
        let (result, cause) = (ended.result.to_owned(), ended.cause.to_owned());
        let entry = AuditEntry { started, result, cause, ..subject.entry(actor) };
        self.write(&mut self.lock(), phase::ENDED, entry);
    }

    /// Records that the role of `actor` does not permit the call `method`. A user gets one entry in
    /// [`AUDIT_DENIALS_EVERY`], with the number of denied calls, so that no user can fill the log. All users without a
    /// role get one entry together.
    pub fn deny(&self, actor: &Actor, method: &str) {
        // Users without a role have one entry in common: one person may have thousands of user IDs.
        let uid = actor.peer.filter(|_| actor.role.is_some()).map_or(u32::MAX, |(uid, _)| uid);
        let entry = AuditEntry { command: method.to_owned(), ..of(actor) };
        let mut inner = self.lock();
        let is_full = inner.denials.len() == AUDIT_DENIED_USERS_MAX;
        match inner.denials.get_mut(&uid) {
            Some(denials) => {
                denials.count += 1;
                denials.newest = entry;
            }
            None if is_full => {}
            None => {
                let denials = Denials { recorded: Instant::now(), count: 0, newest: entry.clone() };
                inner.denials.insert(uid, denials);
                self.write(&mut inner, phase::DENIED, entry);
            }
        }
    }

    /// True if there is something for [`flush`](Self::flush) to write. Never waits for a write.
    pub(crate) fn is_due(&self) -> bool {
        let inner = match self.inner.try_lock() {
            Ok(inner) => inner,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        !inner.pending.is_empty() || inner.dropped > 0 || inner.denials.values().any(is_over)
    }

    /// Writes what is due: entries that the state directory refused before, and the numbers of denied calls.
    pub(crate) fn flush(&self) {
        self.flush_where(&mut self.lock(), is_over);
    }

    /// Writes everything that waits, also the numbers of calls that were denied just now, because the daemon stops.
    /// Returns how many entries the state directory refused.
    pub(crate) fn finish(&self) -> u64 {
        let mut inner = self.lock();
        self.flush_where(&mut inner, |_| true);
        inner.pending.len() as u64 + inner.dropped
    }

    /// Writes the pending entries, and the numbers of denied calls of the users that `is_over` selects.
    fn flush_where(&self, inner: &mut Inner, is_over: impl Fn(&Denials) -> bool) {
        let now = Instant::now();
        let all = std::mem::take(&mut inner.denials);
        let (over, recent) = all.into_iter().partition(|(_, denials)| is_over(denials));
        inner.denials = recent;
        let over: BTreeMap<u32, Denials> = over;
        let due = over.into_iter().filter(|(_, denials)| denials.count > 0);
        for (uid, Denials { count, newest, .. }) in due {
            let cause = format!("{count} calls of this user since the last entry of this user");
            let entry = AuditEntry { cause, ..newest.clone() };
            self.write(inner, phase::DENIED, entry);
            inner.denials.insert(uid, Denials { recorded: now, count: 0, newest });
        }
        if !inner.pending.is_empty() || inner.dropped > 0 {
            self.write_pending(inner);
        }
    }

    /// Returns the reason why entries cannot be written now, if any. Never waits for a write.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records a change of the log as event. The entry may have to wait for the state directory.
    fn tell(&self, what: &str) {
        let next = say("see which entries are affected: ").run(VerifyAuditRequest::default());
        self.events.record(Note::new(EventKind::AuditChanged, "daemon", what).next(next));
    }

    /// Adds an entry and writes all pending ones. Returns its number; 0 if it was dropped.
    fn write(&self, inner: &mut Inner, phase: &str, mut entry: AuditEntry) -> u64 {
        if inner.pending.len() == AUDIT_PENDING_MAX {
            inner.dropped += 1;
            return 0;
        }
        for text in [&mut entry.command, &mut entry.object, &mut entry.cause] {
            *text = printable(text);
        }
        inner.last += 1;
        let number = inner.last;
        let (phase, time_us) = (phase.to_owned(), self.clock.now_us());
        inner.pending.push_back(AuditEntry { number, phase, time_us, ..entry });
        self.write_pending(inner);
        number
    }

    fn write_pending(&self, inner: &mut Inner) {
        while !inner.pending.is_empty() {
            let Inner { segments, pending, .. } = inner;
            let written = segments.append(pending.make_contiguous());
            if let Some(what) = segments.take_news() {
                self.tell(&what);
            }
            match written {
                Ok(found) => {
                    inner.pending.drain(..found.written);
                    self.set_trouble(None);
                    self.write_findings(inner, &found);
                }
                Err(error) => {
                    self.set_trouble(Some(error.to_string()));
                    return;
                }
            }
        }
    }

    /// Reports what a write has found, and how many entries were dropped before it.
    fn write_findings(&self, inner: &mut Inner, found: &segments::Found) {
        if let Some(what) = &found.changed {
            self.write(
                inner,
                phase::LOG,
                AuditEntry { cause: what.clone(), ..AuditEntry::default() },
            );
        }
        if let Some(what) = &found.removed {
            self.events.record(Note::new(EventKind::AuditRemoved, "daemon", what));
        }
        let dropped = std::mem::take(&mut inner.dropped);
        let dropped = (dropped > 0)
            .then(|| format!("{dropped} entries could not be written and were dropped"));
        for cause in dropped.into_iter().chain(found.removed.clone()) {
            self.write(inner, phase::LOG, AuditEntry { cause, ..AuditEntry::default() });
        }
    }

    /// Returns the newest entries that match `request`, the oldest first.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn list(&self, request: &ListAuditRequest) -> Result<ListAuditResponse, ControlError> {
        let wanted = match request.last {
            0 => AUDIT_LIST_MAX,
            last => AUDIT_LIST_MAX.min(last as usize),
        };
        let passes = |entry: &AuditEntry| {
            (request.before == 0 || entry.number < request.before)
                && request.uid.is_none_or(|uid| entry.uid == Some(uid))
                && (request.object.is_empty() || entry.object == request.object)
        };
        let files = self.lock().segments.files(request.before)?;
        let mut entries = Vec::new();
        for file in files.iter().rev() {
            let bytes = file.read()?;
            let valid = lines(&bytes).rev().filter_map(|line| parse(line).ok());
            let matching = valid.map(|line| line.entry).filter(passes);
            entries.extend(matching.take(wanted - entries.len()));
            if entries.len() == wanted {
                break;
            }
        }
        entries.reverse();
        Ok(ListAuditResponse { entries })
    }

    /// Checks all entries: that each has its hash, and that none is missing.
    ///
    /// # Errors
    /// If the request has no valid hash, or the log cannot be read.
    pub fn verify(&self, request: &VerifyAuditRequest) -> Result<AuditReport, ControlError> {
        let VerifyAuditRequest { number, hash } = request;
        if !hash.is_empty() && !is_hash(hash) {
            let what =
                format!("{hash:?} is not the hash of an entry: a hash has 64 hexadecimal digits");
            return Err(ControlError::usage(what));
        }
        if (*number == 0) != hash.is_empty() {
            return Err(ControlError::usage("give the number of an entry together with its hash"));
        }
        let given = (!hash.is_empty()).then(|| Head { number: *number, hash: hash.clone() });
        let (files, ends, changed) = {
            let Inner { segments, .. } = &*self.lock();
            (segments.files(0)?, segments.ends().clone(), segments.known_change())
        };
        let mut verifier = Verifier::new(given);
        if let Some(what) = changed {
            verifier.fault("", 0, 0, what);
        }
        for file in &files {
            let bytes = file.read()?;
            verifier.file(&file.name, &bytes);
        }
        verifier.end(&ends);
        let Verifier { first, entries, faults, faults_omitted, .. } = verifier;
        let Head { number: last, hash } = ends.head;
        Ok(AuditReport { entries, first, last, hash, faults, faults_omitted })
    }
}

/// A text of limited length, in which U+FFFD replaces characters that change how a terminal shows the other characters.
/// JSON would also need six bytes for each of them.
fn printable(text: &str) -> String {
    let is_plain = |c: char| {
        !c.is_control()
            && !matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let plain = |c: char| if is_plain(c) { c } else { char::REPLACEMENT_CHARACTER };
    let mut text: String = text.chars().map(plain).collect();
    crate::events::cut(&mut text, AUDIT_TEXT_BYTES_MAX);
    text
}

/// An entry with the caller only.
fn of(actor: &Actor) -> AuditEntry {
    let (uid, pid) = actor.peer.unzip();
    let role = actor.role.map(|role| role.word().to_owned()).unwrap_or_default();
    AuditEntry { uid, pid, role, ..AuditEntry::default() }
}
