//! Events about changes of arrays since the last report, derived from the states before and after.

use strake_engine::{ArrayEvent, ArrayEventKind, ArrayStatus, MemberStatus};
use strake_raid::MemberState;
use strake_units::{ByteSize, MemberSet};
use strake_wording::{Text, await_goal, replace, say, show};

use crate::events::{EventKind, Note, Severity};
use crate::policy::advice::{cause_of, lost_blocks_next, lost_next};
use crate::policy::members::absent_members;
use crate::policy::scrub;

/// The last reported state of an array.
pub(crate) struct Seen {
    name: String,
    members: Vec<MemberSeen>,
    /// Number of failures tolerated; `None` if data are lost.
    left: Option<u8>,
    resync: bool,
    halted: bool,
    lost: bool,
    /// Members whose missing spare was reported.
    no_spare: MemberSet,
}

struct MemberSeen {
    uuid: String,
    path: String,
    state: MemberState,
    cause: String,
    /// True while the member is being copied to its replacement.
    copied: bool,
}

impl MemberSeen {
    fn of(status: &MemberStatus) -> Self {
        Self {
            uuid: status.uuid.to_string(),
            path: status.path.clone(),
            state: status.state,
            cause: cause_of(status),
            copied: !status.replacement.is_empty(),
        }
    }

    fn is_rebuilding(&self) -> bool {
        matches!(self.state, MemberState::Rebuilding { .. })
    }

    /// Returns the name of a member in events.
    fn named(&self, at: usize) -> String {
        if self.path.is_empty() {
            format!("member {at}")
        } else {
            format!("member {at} ({})", self.path)
        }
    }
}

impl Seen {
    fn of(status: &ArrayStatus) -> Self {
        Self {
            name: status.name.to_string(),
            members: status.members.iter().map(MemberSeen::of).collect(),
            left: status.geometry.redundancy(absent_members(status)),
            resync: status.resync.is_some(),
            halted: status.rebuild_halted,
            lost: status.lost,
            no_spare: MemberSet::EMPTY,
        }
    }

    /// Returns the new state of an array with the earlier state `before` and the status `status`, and the events about
    /// the difference. `objection` returns the reason why the drive of a slot is not used.
    pub(crate) fn next<'a>(
        before: Option<&Self>,
        status: &ArrayStatus,
        objection: impl Fn(usize) -> Option<&'a String>,
    ) -> (Self, Vec<Note>) {
        let mut now = Self::of(status);
        for (slot, member) in now.members.iter_mut().enumerate() {
            // The array knows only that a drive is missing, not the reason.
            if let Some(objection) = objection(slot) {
                member.cause.clone_from(objection);
            }
        }
        let notes = match before {
            Some(before) => {
                // A member that serves again may go out again later.
                now.no_spare = before.no_spare & absent_members(status);
                differences(before, &now)
            }
            None => differences(&Self::ideal(status), &now),
        };
        (now, notes)
    }

    /// Records a replaced member. The array itself reports the replacement, and there was no rebuild.
    pub(crate) fn note_replaced(&mut self, slot: usize, status: &ArrayStatus) {
        self.members[slot].uuid = status.members[slot].uuid.to_string();
    }

    /// Returns true the first time that no spare is found for a member that is out.
    pub(crate) fn tell_no_spare(&mut self, slot: usize) -> bool {
        let first = !self.no_spare.contains(slot);
        self.no_spare.insert(slot);
        first
    }

    /// Returns the ideal state of the array, with which the first status is compared.
    fn ideal(status: &ArrayStatus) -> Self {
        let mut seen = Self::of(status);
        for member in &mut seen.members {
            member.state = MemberState::InSync;
        }
        Self {
            left: status.geometry.redundancy(MemberSet::EMPTY),
            resync: false,
            halted: false,
            lost: false,
            ..seen
        }
    }

    fn out(&self) -> usize {
        self.members.iter().filter(|m| m.state != MemberState::InSync).count()
    }
}

/// Returns the events about the difference of two states.
fn differences(before: &Seen, now: &Seen) -> Vec<Note> {
    let mut notes = Vec::new();
    for (at, (was, is)) in before.members.iter().zip(&now.members).enumerate() {
        notes.extend(member_notes(now, at, was, is));
    }
    notes.extend(redundancy_note(before, now));
    if now.halted && !before.halted {
        let what = format!("the rebuild of array {} stalled", now.name);
        let note = Note::of_array(EventKind::RebuildHalted, &now.name, what);
        notes.push(note.cause("the bad block list is full").next(show(&now.name)));
    }
    match (before.resync, now.resync) {
        (false, true) => notes.push(Note::of_array(
            EventKind::ResyncStarted,
            &now.name,
            format!("array {} started a resync of parity or copies", now.name),
        )),
        (true, false) if !now.lost => notes.push(Note::of_array(
            EventKind::ResyncFinished,
            &now.name,
            format!("parity or copies of array {} are consistent everywhere", now.name),
        )),
        (false, false) | (true, true) | (true, false) => {}
    }
    notes
}

fn member_notes(now: &Seen, at: usize, was: &MemberSeen, is: &MemberSeen) -> Vec<Note> {
    let note = |kind, what: String| Note::of_array(kind, &now.name, what).member(at);
    let (name, member) = (&now.name, is.named(at));
    let replace = replace(name, Some(at as u32), "");
    // A rebuild may have started and finished between two checks.
    let changed_hands = was.uuid != is.uuid && !(was.copied && is.state == MemberState::InSync);
    let mut notes = Vec::new();
    match is.state {
        MemberState::Faulty if was.state != is.state => notes.push(
            note(EventKind::MemberFailed, format!("{member} of array {name} is out of use"))
                .cause(is.cause.clone())
                .next(replace),
        ),
        MemberState::Missing if was.state != is.state => notes.push(
            note(EventKind::MemberMissing, format!("{member} of array {name} is missing"))
                .cause(is.cause.clone())
                .next(say("return its drive, or: ").run(replace)),
        ),
        MemberState::Rebuilding { .. } if !was.is_rebuilding() || changed_hands => notes.push(
            note(EventKind::RebuildStarted, format!("{member} of array {name} is being rebuilt"))
                .next(await_goal(name, "rebuild")),
        ),
        MemberState::InSync if was.state != is.state || changed_hands => notes.push(note(
            EventKind::RebuildFinished,
            format!("{member} of array {name} is rebuilt and in sync"),
        )),
        MemberState::InSync
        | MemberState::Rebuilding { .. }
        | MemberState::Faulty
        | MemberState::Missing => {}
    }
    notes
}

/// Converts an event of the array, unless [`differences`] reports it anyway.
pub(crate) fn note_of(name: &str, event: ArrayEvent) -> Option<Note> {
    let note = |kind, what: String| {
        let note = Note::of_array(kind, &name, what);
        match event.member {
            Some(member) => note.member(member.at()),
            None => note,
        }
    };
    let member = event.member.map_or_else(String::new, |member| format!("member {member} "));
    let replace: Text = event
        .member
        .map(|member| replace(name, Some(member.0.into()), "").into())
        .unwrap_or_default();
    match event.kind {
        ArrayEventKind::SitOut => Some(
            note(
                EventKind::SitOut,
                format!("reads of array {name} avoid {member}").trim_end().to_owned(),
            )
            .cause("the member answers much more slowly than its peers")
            .next(say("if that continues: ").then(replace)),
        ),
        ArrayEventKind::SitOutEnded => {
            Some(note(EventKind::SitOutEnded, format!("{member}of array {name} is read again")))
        }
        ArrayEventKind::MembersStalled => Some(
            note(
                EventKind::MembersStalled,
                format!("array {name} is stalled: several members are unresponsive"),
            )
            .cause("the members stalled at the same time, which suggests a common cause; no member is put out of use")
            .next("check what the members have in common: controller, backplane, cables, network"),
        ),
        ArrayEventKind::MembersStalledEnded => Some(note(
            EventKind::MembersStalledEnded,
            format!("enough members of array {name} answer again"),
        )),
        ArrayEventKind::ReplaceStarted => Some(note(
            EventKind::ReplaceStarted,
            format!(
                "{member}of array {name} is being copied to its replacement, and continues to serve"
            ),
        )),
        ArrayEventKind::ReplaceFinished => {
            Some(note(EventKind::ReplaceFinished, format!("{member}of array {name} was replaced")))
        }
        ArrayEventKind::ReplaceAbandoned { cause } => {
            let cause = cause.map_or("it was cancelled", |cause| cause.text());
            let what = format!("{member}of array {name} was not replaced: the copy was abandoned");
            Some(note(EventKind::ReplaceAbandoned, what).cause(cause).next(replace))
        }
        ArrayEventKind::ResyncHalted => Some(
            note(EventKind::ResyncHalted, format!("the resync of array {name} stalled"))
                .cause("the bad block list is full")
                .next(show(name)),
        ),
        ArrayEventKind::WritesRedone { count } => Some(note(
            EventKind::WritesRedone,
            format!("{count} writes to array {name} were replayed: a crash had interrupted them"),
        )),
        ArrayEventKind::InDoubt { regions } => Some(
            note(
                EventKind::InDoubt,
                format!(
                    "array {name} is in doubt in {regions} region(s); its next start is refused"
                ),
            )
            .cause("a member went out of use after a crash, before these regions were resynchronized")
            .next(crate::policy::advice::in_doubt_next(name)),
        ),
        ArrayEventKind::BitmapLost { pages, everywhere } => {
            let consequence = match everywhere {
                0 => "other members have these pages, so nothing is lost".to_owned(),
                _ => format!(
                    "no member in sync has {everywhere} of these pages; all bits of these pages count as set, which \
                     can cause a resync or longer rebuilds"
                ),
            };
            let what = format!(
                "{member}of array {name} cannot read {pages} page(s) of its bitmaps; {consequence}"
            );
            let note = note(EventKind::BitmapLost, what);
            let note = note.cause("the pages are unreadable or damaged on its drive");
            Some(note.next(say("check the drive; if that repeats: ").then(replace)))
        }
        ArrayEventKind::BlocksLost { bytes } => Some(
            note(EventKind::BlocksLost, format!("{} of array {name} are lost", ByteSize(bytes)))
                .cause("the blocks are unreadable, and no redundancy is left to reconstruct them")
                .next(lost_blocks_next(name)),
        ),
        ArrayEventKind::Dropped { count } => {
            let what = format!("{count} events of array {name} were too frequent to be recorded");
            Some(note(EventKind::EventsDropped, what))
        }
        ArrayEventKind::ScrubStarted { mode, done_bytes } => {
            Some(scrub::started(name, mode, done_bytes))
        }
        ArrayEventKind::ScrubFound { counts } => Some(scrub::has_found(name, &counts)),
        ArrayEventKind::ScrubEnded { whole, counts } => Some(scrub::ended(name, whole, &counts)),
        ArrayEventKind::MemberFailed { .. }
        | ArrayEventKind::MemberVanished
        | ArrayEventKind::MemberFailedByHand
        | ArrayEventKind::RebuildStarted { .. }
        | ArrayEventKind::RebuildFinished
        | ArrayEventKind::RebuildHalted
        | ArrayEventKind::ResyncStarted
        | ArrayEventKind::ResyncFinished
        | ArrayEventKind::Lost => None,
    }
}

/// Returns the event about a change of redundancy.
fn redundancy_note(before: &Seen, now: &Seen) -> Option<Note> {
    let name = &now.name;
    if (now.lost || now.left.is_none()) && !(before.lost || before.left.is_none()) {
        let what = format!("array {name} failed: more members are absent than its level tolerates");
        return Some(Note::of_array(EventKind::ArrayLost, &now.name, what).next(lost_next(name)));
    }
    let (out, left) = (now.out(), now.left?);
    if now.lost || (out == before.out() && now.left == before.left) {
        return None;
    }
    if out == 0 {
        let what = format!("array {name} has full redundancy again");
        return Some(Note::of_array(EventKind::ArrayRecovered, &now.name, what));
    }
    let members = if out == 1 { "1 member is".to_owned() } else { format!("{out} members are") };
    let next = show(name);
    if left == 0 {
        let what = format!(
            "array {name} has no redundancy left: {members} not in sync; one more failure may lose data"
        );
        // An improvement, or an unchanged state with one more member, is not a new alarm.
        let known = before.left == Some(0);
        let severity = if known { Severity::Warning } else { Severity::Critical };
        return Some(
            Note::of_array(EventKind::ArrayNoRedundancy, &now.name, what)
                .severity(severity)
                .next(next),
        );
    }
    let what =
        format!("array {name} is degraded: {members} not in sync, failures tolerated: {left}");
    Some(Note::of_array(EventKind::ArrayDegraded, &now.name, what).next(next))
}
