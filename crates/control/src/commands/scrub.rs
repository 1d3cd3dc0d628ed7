//! Commands that start, change and show scrubs.

use crate::events::Note;
use strake_api::v1::{self as api, ChangeScrubRequest, ScrubChange, StartScrubRequest};
use strake_engine::{ScrubFinding, ScrubState};
use strake_raid::Geometry;
use strake_units::BlockSize;
use strake_wording::say;

use crate::error::ControlError;
use crate::events::EventKind;
use crate::manager::Manager;
use crate::record::store::{ScrubAim, ScrubRecord, UnderWay};
use crate::upkeep::doubt::{known_findings, note_suspect};
use crate::upkeep::scrubs::{begin_scrub, note_finished, try_keep_scrub};
use crate::upkeep::settings::put_settings;

impl Manager {
    /// Starts a scrub.
    ///
    /// # Errors
    /// If there is no such running array, a scrub is in progress, or the scrub cannot be recorded.
    pub fn start_scrub(
        &mut self,
        request: &StartScrubRequest,
    ) -> Result<ScrubChange, ControlError> {
        self.check_open()?;
        let aim = ScrubAim::parse(&request.mode)?;
        let at = self.find_running(&request.name)?;
        // The findings of the previous scrub count until this scrub has finished.
        note_finished(self, at, self.options.clock.now_us())?;
        note_suspect(self, at)?;
        begin_scrub(self, at, {
            let begun_us = self.options.clock.now_us();
            UnderWay { mode: aim, paused: false, scheduled: false, begun_us }
        })?;
        let scrub = Some(self.scrub(&request.name)?);
        Ok(ScrubChange { result: "created".into(), scrub })
    }

    /// Pauses, resumes or stops the scrub in progress.
    ///
    /// # Errors
    /// If there is no such running array, no scrub is in progress, or the change cannot be recorded.
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
        let record = self.records.scrub_record(&uuid);
        let Some(scrub) = record.under_way.filter(|_| status.is_some_and(|s| runs(s.state))) else {
            let what = format!("array {name} is not being scrubbed; ");
            let start = StartScrubRequest { name, ..Default::default() };
            return Err(ControlError::state(say(what).run(start)));
        };
        let (under_way, how) = match request.action.as_str() {
            "pause" => (Some(UnderWay { paused: true, ..scrub }), "was paused"),
            "resume" => (Some(UnderWay { paused: false, ..scrub }), "was resumed"),
            // The schedule starts its interval again.
            "stop" => (None, "was stopped"),
            other => {
                let what = format!("unknown action {other:?}; use pause, resume or stop");
                return Err(ControlError::usage(what));
            }
        };
        let settings = self.records.settings(&uuid);
        if request.action == "resume" && settings.paused {
            put_settings(self, &uuid, settings.without_pause())?;
        }
        let since_us = match under_way {
            None => self.options.clock.now_us(),
            Some(_) => record.since_us,
        };
        self.records.put_scrub(&uuid, ScrubRecord { under_way, since_us, ..record })?;
        let array = &self.running[at].array;
        let changed = match under_way {
            Some(scrub) => array.pause_scrub(scrub.paused),
            None => array.stop_scrub(),
        };
        if changed && under_way.is_some() {
            let what = format!("the scrub of array {name} {how}");
            self.record(Note::of_array(EventKind::JobChanged, &name, what));
        }
        // The position is stored before the answer, so that a paused or stopped scrub keeps its position after a crash.
        // The position is stored even if nothing changed, because the last attempt may have failed.
        if under_way.is_none_or(|scrub| scrub.paused)
            && let Err(error) = try_keep_scrub(self, at, true)
        {
            let what = format!(
                "the scrub of array {name} {how}, but its position could not be recorded in the state directory: \
                 {error}. After a crash, the scrub would continue from an older position. Repair the state directory, \
                 and repeat the command"
            );
            return Err(ControlError::state(what));
        }
        let result = if changed { "changed" } else { "unchanged" }.to_owned();
        Ok(ScrubChange { result, scrub: Some(self.scrub(&request.name)?) })
    }

    /// Returns the scrub in progress or the last scrub, with its findings.
    ///
    /// # Errors
    /// If there is no such running array.
    pub fn scrub(&mut self, name: &str) -> Result<api::Scrub, ControlError> {
        let at = self.find_running(name)?;
        // A caller that waits for the end expects the time of the end. Upkeep repeats a record that failed.
        if let Err(error) = note_finished(self, at, self.options.clock.now_us()) {
            tracing::debug!(reason = %error, "end of a scrub not recorded yet");
        }
        let mut scrub = self.view(at).scrub.unwrap_or_default();
        let array = &self.running[at].array;
        let geometry = array.status().geometry;
        let is_whole = scrub.state == "finished" && scrub.unchecked_bytes == 0;
        let findings = if is_whole { array.scrub_findings() } else { known_findings(self, at) };
        scrub.findings = findings.iter().map(|f| finding_message(f, &geometry)).collect();
        Ok(scrub)
    }
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
