//! Scrubs: started, changed and shown.

use strake_api::v1::{self as api, ChangeScrubRequest, ScrubChange, StartScrubRequest};
use strake_engine::{ScrubCounts, ScrubFinding, ScrubMode, ScrubPosition, ScrubState};
use strake_raid::Geometry;
use strake_units::{BlockSize, ByteSize};

use crate::control::Control;
use crate::error::ControlError;
use crate::events::{EventKind, Note, Severity};
use crate::limits::{SCRUB_EVERY_MIN_S, SCRUB_KEEP_EVERY_US};
use crate::manager::Manager;
use crate::scrub_file::{self, Kept};
use crate::store::{ScrubAim, ScrubRecord, UnderWay};

/// Microseconds in a second.
const SECOND_US: u64 = 1_000_000;

/// What was last recorded of the scrub of an array that runs.
#[derive(Debug, Default)]
pub(crate) struct KeptScrub {
    /// It was looked whether there is one to be taken up.
    looked: bool,
    /// Which scrub the array's last one is: when it was begun.
    begun_us: u64,
    /// When that was recorded, and what.
    kept: Option<(u64, ScrubPosition)>,
}

impl ScrubAim {
    const fn mode(self) -> ScrubMode {
        match self {
            Self::Check => ScrubMode::Check,
            Self::Repair => ScrubMode::Repair,
            Self::TrustData => ScrubMode::TrustData,
        }
    }

    /// Reads the interface's word.
    fn parse(word: &str) -> Result<Self, ControlError> {
        match word {
            "" | "check" => Ok(Self::Check),
            "repair" => Ok(Self::Repair),
            "trust_data" => Ok(Self::TrustData),
            other => Err(ControlError::usage(format!(
                "there is no way to scrub called {other:?}; there are check, repair and trust_data"
            ))),
        }
    }
}

/// Reads a time between scrubs.
pub(crate) fn parse_every(seconds: u64) -> Result<u64, ControlError> {
    if seconds != 0 && seconds < SCRUB_EVERY_MIN_S {
        let least = every(SCRUB_EVERY_MIN_S);
        return Err(ControlError::usage(format!(
            "a scrub every {seconds} s would never rest; {least} is the least, 0 is never"
        )));
    }
    Ok(seconds)
}

/// Seconds as somebody types them.
pub(crate) fn every(seconds: u64) -> String {
    match seconds {
        0 => "off".to_owned(),
        s if s.is_multiple_of(24 * 3600) => format!("{}d", s / (24 * 3600)),
        s if s.is_multiple_of(3600) => format!("{}h", s / 3600),
        s => format!("{s}s"),
    }
}

impl Control {
    /// Takes note of scrubs that ended, begins those again that a restart interrupted, and those that are due.
    pub(crate) fn tend_scrubs(&self) -> Result<(), ControlError> {
        self.run(|m| {
            let now_us = m.options.clock.now_us();
            for at in 0..m.running.len() {
                if let Err(error) = m.tend_scrub(at, now_us) {
                    let array = m.running[at].array.name();
                    // That nothing can be recorded is told by others.
                    tracing::debug!(%array, reason = %error, "the scrub is not looked after");
                }
            }
            Ok(())
        })
    }
}

impl Manager {
    /// Begins a scrub.
    ///
    /// # Errors
    /// When there is no such running array, one is under way, or it cannot be recorded.
    pub fn start_scrub(
        &mut self,
        request: &StartScrubRequest,
    ) -> Result<ScrubChange, ControlError> {
        self.check_open()?;
        let aim = ScrubAim::parse(&request.mode)?;
        let at = self.find_running(&request.name)?;
        // What the one before found counts until this one finished.
        self.note_finished(at, self.options.clock.now_us())?;
        self.begin_scrub(at, {
            let begun_us = self.options.clock.now_us();
            UnderWay { mode: aim, paused: false, scheduled: false, begun_us }
        })?;
        let scrub = Some(self.scrub(&request.name)?);
        Ok(ScrubChange { result: "created".into(), scrub })
    }

    /// Records a scrub and begins it.
    fn begin_scrub(&mut self, at: usize, scrub: UnderWay) -> Result<(), ControlError> {
        let uuid = self.running[at].uuid();
        let before = self.scrub_record(&uuid);
        if before.under_way.is_none() {
            self.put_scrub(&uuid, ScrubRecord { under_way: Some(scrub), ..before })?;
        }
        let running = &mut self.running[at];
        running.scrub.begun_us = scrub.begun_us;
        let array = &running.array;
        // Never begun first and paused then: a core could scrub a region in between.
        let begun = match scrub.paused {
            true => array.begin_paused_scrub(scrub.mode.mode()),
            false => array.begin_scrub(scrub.mode.mode()),
        };
        if let Err(error) = begun {
            if before.under_way.is_none() {
                self.put_scrub(&uuid, before)?;
            }
            return Err(error.into());
        }
        Ok(())
    }

    /// Pauses, resumes or stops the scrub in progress.
    ///
    /// # Errors
    /// When there is no such running array or no scrub under way, or it cannot be recorded.
    pub fn change_scrub(
        &mut self,
        request: &ChangeScrubRequest,
    ) -> Result<ScrubChange, ControlError> {
        self.check_open()?;
        let at = self.find_running(&request.name)?;
        let uuid = self.running[at].uuid();
        let name = self.running[at].array.name().to_string();
        let status = self.running[at].array.status().scrub;
        let runs = |state| matches!(state, ScrubState::Running | ScrubState::Paused);
        let record = self.scrub_record(&uuid);
        let Some(scrub) = record.under_way.filter(|_| status.is_some_and(|s| runs(s.state))) else {
            return Err(ControlError::state(format!(
                "array {name} is not being scrubbed; strake array scrub start {name}"
            )));
        };
        let (under_way, how) = match request.action.as_str() {
            "pause" => (Some(UnderWay { paused: true, ..scrub }), "was paused"),
            "resume" => (Some(UnderWay { paused: false, ..scrub }), "was resumed"),
            // The schedule waits for its time again.
            "stop" => (None, "was stopped"),
            other => {
                let what =
                    format!("there is no action {other:?}; there are pause, resume and stop");
                return Err(ControlError::usage(what));
            }
        };
        let settings = self.settings(&uuid);
        if request.action == "resume" && settings.paused {
            self.put_settings(&uuid, settings.without_pause())?;
        }
        let since_us = match under_way {
            None => self.options.clock.now_us(),
            Some(_) => record.since_us,
        };
        self.put_scrub(&uuid, ScrubRecord { under_way, since_us, ..record })?;
        let array = &self.running[at].array;
        let changed = match under_way {
            Some(scrub) => array.pause_scrub(scrub.paused),
            None => array.stop_scrub(),
        };
        if changed && under_way.is_some() {
            let what = format!("the scrub of array {name} {how}");
            self.record(note(&name, EventKind::JobChanged, what));
        }
        let result = if changed { "changed" } else { "unchanged" }.to_owned();
        Ok(ScrubChange { result, scrub: Some(self.scrub(&request.name)?) })
    }

    /// The scrub under way or the last one, with what it found.
    ///
    /// # Errors
    /// When there is no such running array.
    pub fn scrub(&mut self, name: &str) -> Result<api::Scrub, ControlError> {
        let at = self.find_running(name)?;
        let mut scrub = self.view(at).scrub.unwrap_or_default();
        let array = &self.running[at].array;
        let geometry = array.status().geometry;
        let findings = array.scrub_findings();
        scrub.findings = findings.iter().map(|f| finding_message(f, &geometry)).collect();
        Ok(scrub)
    }

    /// The scrub of the array that `view` is of, without its findings.
    pub(crate) fn scrub_view(&self, at: usize, view: &api::Array) -> api::Scrub {
        let uuid = self.running[at].uuid();
        let (record, settings) = (self.scrub_record(&uuid), self.settings(&uuid));
        let some = |us: u64| (us > 0).then_some(us);
        let mut scrub = api::Scrub {
            array: view.name.clone(),
            ended_us: some(record.ended_us),
            next_us: some(settings.scrub_every_s)
                .filter(|_| record.since_us > 0 && record.under_way.is_none())
                .filter(|_| has_redundancy(&self.running[at].array.status().geometry))
                .map(|every| record.since_us.saturating_add(every.saturating_mul(SECOND_US))),
            ..api::Scrub::default()
        };
        let Some(status) = self.running[at].array.status().scrub else { return scrub };
        let progress = view.progress.iter().find(|progress| progress.job == "scrub");
        let counts = status.counts;
        scrub.state = progress.map_or(status.state.word(), |p| p.state.as_str()).to_owned();
        scrub.mode = status.mode.word().to_owned();
        scrub.done_bytes = counts.done().min(view.size_bytes);
        scrub.total_bytes = view.size_bytes;
        scrub.rate_bytes_per_s = progress.map_or(0, |p| p.rate_bytes_per_s);
        scrub.eta_s = progress.and_then(|p| p.eta_s);
        (scrub.checked_bytes, scrub.unchecked_bytes) = (counts.checked, counts.unchecked);
        (scrub.wrong_bytes, scrub.unsure_bytes) = (counts.wrong, counts.unsure);
        scrub.unreadable_bytes = counts.unreadable;
        (scrub.repaired_bytes, scrub.left_bytes) = (counts.repaired, counts.left());
        scrub.unlisted_findings = status.unlisted;
        scrub.scheduled = record.under_way.is_some_and(|scrub| scrub.scheduled);
        scrub
    }

    /// Bytes of a running array that are known to be wrong: what its scrub left, and until that has been over all of
    /// the array also what the last whole one left.
    pub(crate) fn corrupt_bytes(&self, at: usize) -> u64 {
        let earlier = self.scrub_record(&self.running[at].uuid()).left_bytes;
        match self.running[at].array.status().scrub {
            Some(scrub) if scrub.state == ScrubState::Finished => scrub.counts.left(),
            Some(scrub) => earlier.max(scrub.counts.left()),
            None => earlier,
        }
    }

    fn scrub_record(&self, uuid: &str) -> ScrubRecord {
        let record = self.config.arrays.iter().find(|a| a.uuid == uuid);
        record.map(|array| array.scrub).unwrap_or_default()
    }

    fn put_scrub(&mut self, uuid: &str, scrub: ScrubRecord) -> Result<(), ControlError> {
        let mut config = self.config.clone();
        match config.arrays.iter_mut().find(|array| array.uuid == uuid) {
            Some(array) if array.scrub != scrub => array.scrub = scrub,
            Some(_) | None => return Ok(()),
        }
        self.config = self.store.prepare(&config)?.commit()?;
        Ok(())
    }

    /// Takes up the scrub that is recorded of an array that was started, or shows the last one.
    fn take_up_scrub(&mut self, at: usize) {
        let uuid = self.running[at].uuid();
        self.running[at].scrub.looked = true;
        let kept = match scrub_file::read(self.store.folder(), &uuid) {
            Ok(Some(kept)) => kept,
            Ok(None) => return,
            Err(why) => {
                let array = self.running[at].array.name();
                tracing::warn!(%array, %why, "the position of its scrub is not understood: it starts from the \
                                              beginning");
                return;
            }
        };
        let Kept { begun_us, mut position } = kept;
        let over = matches!(position.state, ScrubState::Finished | ScrubState::Stopped);
        position.state = match self.scrub_record(&uuid).under_way {
            // Another one was begun, of which nothing was recorded yet.
            Some(scrub) if scrub.begun_us != begun_us => return,
            Some(_) if over => position.state,
            Some(scrub) if scrub.paused => ScrubState::Paused,
            Some(_) => ScrubState::Running,
            None if over => position.state,
            None => ScrubState::Stopped,
        };
        if self.running[at].array.take_up_scrub(&position) {
            self.running[at].scrub.begun_us = begun_us;
        } else {
            let array = self.running[at].array.name();
            tracing::warn!(%array, "the position of its scrub is not in this array: it starts from the beginning");
        }
    }

    /// Records where the scrubs of all arrays stand.
    pub(crate) fn keep_scrubs(&mut self) {
        (0..self.running.len()).for_each(|at| self.keep_scrub(at, true));
    }

    /// Records where the scrub of an array stands, if that is due or `now`. A directory that refuses is asked again
    /// with the next round; that it refuses is told by others.
    pub(crate) fn keep_scrub(&mut self, at: usize, now: bool) {
        if self.store.is_given_up() {
            return;
        }
        let now_us = self.options.clock.now_us();
        let running = &mut self.running[at];
        let Some(status) = running.array.status().scrub else { return };
        let due = match &running.scrub.kept {
            None => true,
            Some((kept_us, kept)) => {
                let waited = now_us.abs_diff(*kept_us) >= SCRUB_KEEP_EVERY_US;
                kept.state != status.state || kept.mode != status.mode || waited
            }
        };
        if !(now || due) {
            return;
        }
        let Some(position) = running.array.scrub_position() else { return };
        if running.scrub.kept.as_ref().is_some_and(|(_, kept)| *kept == position) {
            return;
        }
        let (uuid, begun_us) = (running.uuid(), running.scrub.begun_us);
        let kept = Kept { begun_us, position };
        match scrub_file::write(self.store.folder(), &uuid, &kept) {
            Ok(()) => running.scrub.kept = Some((now_us, kept.position)),
            Err(error) => {
                let array = running.array.name();
                tracing::debug!(%array, %error, "where its scrub stands could not be recorded");
            }
        }
    }

    /// Records the end of a scrub that has been over all of the array, and what it left.
    fn note_finished(&mut self, at: usize, now_us: u64) -> Result<(), ControlError> {
        let uuid = self.running[at].uuid();
        let record = self.scrub_record(&uuid);
        let scrub = self.running[at].array.status().scrub;
        let Some(scrub) = scrub.filter(|scrub| scrub.state == ScrubState::Finished) else {
            return Ok(());
        };
        if record.under_way.is_none() {
            return Ok(());
        }
        let left_bytes = scrub.counts.left();
        let ended = ScrubRecord { since_us: now_us, ended_us: now_us, under_way: None, left_bytes };
        self.put_scrub(&uuid, ended)
    }

    fn tend_scrub(&mut self, at: usize, now_us: u64) -> Result<(), ControlError> {
        if self.stopping {
            return Ok(());
        }
        let uuid = self.running[at].uuid();
        if !self.running[at].scrub.looked && !self.running[at].array.status().lost {
            self.take_up_scrub(at);
        }
        // Before the end is recorded: of a scrub that is under way, a start takes up what was recorded last.
        self.keep_scrub(at, false);
        let status = self.running[at].array.status();
        let record = self.scrub_record(&uuid);
        match (status.scrub.map(|scrub| scrub.state), record.under_way) {
            (Some(ScrubState::Finished), Some(_)) => return self.note_finished(at, now_us),
            (Some(ScrubState::Stopped), Some(_)) => {
                return self.put_scrub(&uuid, ScrubRecord { under_way: None, ..record });
            }
            (None, Some(scrub)) if !status.lost => return self.begin_scrub(at, scrub),
            (Some(_) | None, Some(_) | None) => {}
        }
        let settings = self.settings(&uuid);
        let every_s = settings.scrub_every_s;
        let scheduled = every_s > 0 && has_redundancy(&status.geometry);
        if !scheduled || record.under_way.is_some() || status.lost {
            return Ok(());
        }
        // A clock that was set back must not keep scrubs away for years.
        if record.since_us == 0 || record.since_us > now_us {
            return self.put_scrub(&uuid, ScrubRecord { since_us: now_us, ..record });
        }
        if now_us - record.since_us < every_s.saturating_mul(SECOND_US) {
            return Ok(());
        }
        let mode = if settings.scrub_repair { ScrubAim::Repair } else { ScrubAim::Check };
        self.begin_scrub(at, UnderWay { mode, paused: false, scheduled: true, begun_us: now_us })
    }
}

/// True when there is something to compare data with.
fn has_redundancy(geometry: &Geometry) -> bool {
    geometry.redundancy(0).is_some_and(|left| left > 0)
}

fn finding_message(finding: &ScrubFinding, geometry: &Geometry) -> api::ScrubFinding {
    let size = geometry.block_size();
    let bytes = |blocks: u64, size: BlockSize| blocks << size.shift();
    let member_offset_bytes = finding.rows.start.bytes(size);
    api::ScrubFinding {
        verdict: finding.verdict.word().to_owned(),
        member: finding.member.map(|member| u32::from(member.0)),
        stripe: finding.stripe.0,
        member_offset_bytes,
        member_length_bytes: bytes(finding.rows.blocks, size),
        drive_offset_bytes: strake_ondisk::HEAD_BYTES + member_offset_bytes,
        array_offset_bytes: finding.array.start.bytes(size),
        array_length_bytes: bytes(finding.array.blocks, size),
        repaired: finding.repaired,
    }
}

fn note(name: &str, kind: EventKind, what: String) -> Note {
    Note::new(kind, format!("array/{name}"), what)
}

fn show(name: &str) -> String {
    format!("strake array scrub show {name}")
}

/// A scrub of array `name` began, or goes on after it was over so many bytes.
pub(crate) fn started(name: &str, mode: ScrubMode, done_bytes: u64) -> Note {
    let how = match done_bytes {
        0 => "is being scrubbed".to_owned(),
        done => {
            format!("is being scrubbed from where that was interrupted, after {}", ByteSize(done))
        }
    };
    let what = format!("array {name} {how}: {}", purpose(mode));
    note(name, EventKind::ScrubStarted, what)
}

/// It has found something, so far this.
pub(crate) fn has_found(name: &str, counts: &ScrubCounts) -> Note {
    let what = format!("the scrub of array {name} has found so far: {}", found(counts));
    note(name, EventKind::ScrubFound, what).next(show(name))
}

/// It is over, `whole` when it has been over all of the array.
pub(crate) fn ended(name: &str, whole: bool, counts: &ScrubCounts) -> Note {
    let (kind, how) = match whole {
        true => (EventKind::ScrubFinished, "finished"),
        false => (EventKind::ScrubStopped, "was stopped before it finished"),
    };
    let what = format!("the scrub of array {name} {how}: {}", found(counts));
    let note = note(name, kind, what);
    match counts.left() {
        0 => note,
        _ => note.severity(Severity::Warning).next(show(name)),
    }
}

/// What a scrub does about what it finds.
const fn purpose(mode: ScrubMode) -> &'static str {
    match mode {
        ScrubMode::Check => "check only, no repair",
        ScrubMode::Repair => "strips that are known to be wrong are rewritten from the others",
        ScrubMode::TrustData => {
            "strips that are known to be wrong are rewritten from the others, and where that is not known parity and \
             copies are made to agree with the data as read"
        }
    }
}

/// What was found, in words.
fn found(counts: &ScrubCounts) -> String {
    let kinds = [
        (counts.wrong, "corrupt"),
        (counts.unsure, "inconsistent, wrong strip not known"),
        (counts.unreadable, "unreadable"),
    ];
    let mut parts: Vec<String> = kinds
        .into_iter()
        .filter(|(bytes, _)| *bytes > 0)
        .map(|(bytes, what)| format!("{} {what}", ByteSize(bytes)))
        .collect();
    if parts.is_empty() {
        parts.push("no corruption".to_owned());
    }
    if counts.repaired > 0 {
        parts.push(format!("{} of that repaired", ByteSize(counts.repaired)));
    }
    if counts.unchecked > 0 {
        let what = "could not be checked, for lack of redundancy";
        parts.push(format!("{} {what}", ByteSize(counts.unchecked)));
    }
    parts.join(", ")
}
