//! Growing: an array uses all additional space of its members.
//!
//! While the array serves, the new area of its members is zeroed. Then the array is stopped, as by a restart of the
//! daemon: NVMe/TCP hosts keep their connections and wait. Its labels get the new size (`strake-engine` explains why an
//! interruption is safe), and the array is started from its drives, because a new size takes effect only at a start.
//! After any failure, the array is started again with the size in its labels.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread;

use strake_api::v1::{
    AddSpareRequest, Array, ArrayChange, GrowArrayRequest, ListJobsRequest, UpgradeFormatRequest,
};
use strake_dev_fabrics::LinkState;
use strake_dev_uring::control_wait;
use strake_engine::{
    AssemblePolicy, Change, Drive, GrowPlan, MemberIo, ScrubState, grow, plan_change,
};
use strake_raid::MemberState;
use strake_units::{ByteSize, MemberIndex};
use strake_wording::{Amendment, Text, command, replace, say, show};

use crate::commands::pools::refuse_pool;
use crate::control::{Control, Planned, Reserved};
use crate::drives::DriveKind;
use crate::drives::label::{Labelled, overwritten, written_over};
use crate::error::ControlError;
use crate::events::{EventKind, Note};
use crate::limits::{GROWTH_DRAIN, GROWTH_STEP_BYTES};
use crate::manager::Manager;
use crate::names::array_key;
use crate::policy::spares::fits;
use crate::record::store::ArrayRecord;
use crate::state::growth::Growth;
use crate::state::offline::Offline;
use crate::state::running::Running;
use crate::upkeep::adopt::note_offline;
use crate::upkeep::member_config::record_before_leaving;
use crate::upkeep::replacement::settle_replacements;
use crate::upkeep::scrubs::keep_scrub;
use crate::upkeep::starting::{assemble_recorded, start_one};

/// The plan of a growth.
pub(crate) struct Intended {
    pub(crate) uuid: String,
    pub(crate) name: String,
    pub(crate) plan: GrowPlan,
    /// The drives by slot, all of which are present.
    pub(crate) drives: Vec<Drive>,
    /// The identities of the media of the drives.
    identities: Vec<String>,
    /// Bytes of each drive when it became a member.
    sizes: Vec<u64>,
    /// Ranges on each drive to which labels are written while the array runs.
    tails: Vec<Vec<(u64, u64)>>,
    /// Warnings for the operator.
    pub(crate) warnings: Vec<String>,
    pub(crate) view: Array,
}

/// The state from which a stopped array is started.
struct Stopped {
    record: ArrayRecord,
    identities: BTreeSet<String>,
    running: Running,
}

impl Control {
    /// Grows an array to use all space of its members. If it already uses all space, the result is "unchanged".
    ///
    /// # Errors
    /// If a member is not in sync, another operation on the array is in progress, clients would be disconnected without
    /// acceptance, or a drive fails. The array then keeps its size.
    pub fn grow_array(&self, request: &GrowArrayRequest) -> Result<ArrayChange, ControlError> {
        let (mut intended, mut reserved) =
            self.reserve(|m| plan_growth(m, request, Change::Grow))?;
        let limit = limit_of(&intended);
        if intended.plan.is_nothing() {
            let Intended { name, view, .. } = intended;
            return Ok(ArrayChange {
                result: "unchanged".into(),
                warnings: vec![format!(
                    "array {name} already uses all space of its members; {limit}: to grow the array, replace that \
                        drive by a larger drive, or enlarge that drive"
                )],
                array: Some(view),
                ..ArrayChange::default()
            });
        }
        check_ends(&intended)?;
        let plan = describe(&intended, &limit);
        if request.dry_run {
            let Intended { warnings, view, .. } = intended;
            let result = "planned".into();
            let array = Some(view);
            return Ok(ArrayChange { result, array, plan, warnings, ..ArrayChange::default() });
        }
        make_room(self, &intended)?;
        let mut warnings = std::mem::take(&mut intended.warnings);
        warnings.extend(switch(self, &mut intended, request, &mut reserved)?);
        let uuid = &intended.uuid;
        let view = self.run(|m| {
            let what = format!("array {} has grown {}", intended.name, intended.plan);
            let note = Note::of_array(EventKind::ArrayGrown, &intended.name, what);
            m.record(note);
            m.array(uuid)
        })?;
        let (result, array) = ("changed".into(), Some(view));
        Ok(ArrayChange { result, array, plan, warnings, ..ArrayChange::default() })
    }
}

/// Zeroes the new area on every member, except the ranges of labels.
fn make_room(control: &Control, intended: &Intended) -> Result<(), ControlError> {
    let areas = intended.tails.iter().map(|tails| intended.plan.new_area_without(tails));
    let areas: Vec<Vec<(u64, u64)>> = areas.collect();
    let total = areas.iter().flatten().map(|(_, bytes)| bytes).sum();
    make_room_in(control, intended, &areas, &Arc::new(Growth::of(total)))
}

/// Zeroes `areas` of each member. `growth` shows the progress, and can cancel the operation.
pub(crate) fn make_room_in(
    control: &Control,
    intended: &Intended,
    areas: &[Vec<(u64, u64)>],
    growth: &Arc<Growth>,
) -> Result<(), ControlError> {
    control.run(|m| {
        let at = m.find_running(&intended.uuid)?;
        m.running[at].growth = Some(Arc::clone(growth));
        Ok(())
    })?;
    // Each thread sends its result. A thread with requests to an unresponsive drive cannot exit, so a join would wait
    // for this drive.
    let (send, made) = mpsc::channel();
    thread::scope(|scope| {
        for (drive, areas) in intended.drives.iter().zip(areas) {
            let send = send.clone();
            scope.spawn(move || {
                let make = || make_zeroes(control, intended, drive, areas, growth);
                let panicked = |_| Err(ControlError::state("preparing the new space panicked"));
                send.send(catch_unwind(AssertUnwindSafe(make)).unwrap_or_else(panicked))
            });
        }
    });
    drop(send);
    // All results are collected, because the first result may be from a cancelled thread.
    let made: Vec<Result<(), ControlError>> = made.iter().collect();
    let made: Result<(), ControlError> = made.into_iter().collect();
    control.with(|m| {
        if let Some(at) = m.position_of(&intended.uuid) {
            m.running[at].growth = None;
        }
    })?;
    made?;
    if growth.is_cancelled() {
        let what = format!("growing array {} was abandoned; the array is unchanged", intended.name);
        return Err(ControlError::state(what));
    }
    Ok(())
}

/// Zeroes `areas` of a member, stably, unless the growth is cancelled meanwhile.
fn make_zeroes(
    control: &Control,
    intended: &Intended,
    drive: &Drive,
    areas: &[(u64, u64)],
    growth: &Growth,
) -> Result<(), ControlError> {
    let made: Result<(), ControlError> = areas.iter().try_for_each(|&(start, bytes)| {
        for at in (start..start + bytes).step_by(GROWTH_STEP_BYTES as usize) {
            if growth.is_cancelled() {
                return Ok(());
            }
            control.run(|m| check_rest(m, &intended.uuid))?;
            let bytes = GROWTH_STEP_BYTES.min(start + bytes - at);
            MemberIo::open(drive, &mut control_wait())?.zero(at, bytes)?;
            growth.done.fetch_add(bytes, Ordering::Relaxed);
        }
        Ok(())
    });
    if made.is_err() {
        // The other threads need not continue.
        growth.cancel();
    }
    made?;
    Ok(MemberIo::open(drive, &mut control_wait())?.settle()?)
}

/// Stops the array, gives its labels the new size, and starts it. Returns warnings.
pub(crate) fn switch(
    control: &Control,
    intended: &mut Intended,
    request: &GrowArrayRequest,
    reserved: &mut Reserved,
) -> Result<Vec<String>, ControlError> {
    let uuid = &intended.uuid.clone();
    record_before_leaving(control, uuid)?;
    let (stopped, leaving) = control.run(|m| {
        let stopped = stop_to_grow(m, intended, request)?;
        Ok((stopped, m.exports.pause(uuid, &m.records)))
    })?;
    let Stopped { record, identities, running } = stopped;
    let calm = leaving.iter().all(|leaving| leaving.is_over(GROWTH_DRAIN));
    drop(leaving);
    control.with(|m| m.exports.disconnect_clients(uuid, &m.records))?;
    let Running { array, drives, replacement, .. } = running;
    let in_order = array.stop().map_err(ControlError::from);
    // All handles are dropped, because the drives are opened again.
    drop((drives, replacement, std::mem::take(&mut intended.drives)));
    control.with(|m| {
        if calm && in_order.is_ok() {
            m.exports.keep_instances(uuid, &m.records);
        }
        reopen(m, &identities);
    })?;
    let relabelled = in_order.and_then(|()| relabel(control, intended, &record, reserved));
    let trouble = relabelled.err();
    let why = trouble.as_ref().map(|e| format!("{}; ", e.what)).unwrap_or_default();
    let started = start_grown(control, &record, reserved);
    // Instances of the stopped array must not apply to an array that the operator starts later, with an accepted loss
    // or after use on another host.
    control.with(|m| m.exports.forget_instances(uuid, &m.records))?;
    let mut warnings = started.map_err(|error| {
        let what = format!("array {} is stopped: {why}{}", intended.name, error.what);
        ControlError::new(error.kind, what)
    })?;
    // A label that one drive did not store is effective if another drive has it.
    let label = control.run(|m| Ok(m.running[m.find_running(uuid)?].array.newest_label()))?;
    match trouble {
        Some(error) if !intended.plan.is_done(&label) => {
            let had = match intended.plan.change() {
                Change::Grow => "size",
                Change::UpgradeFormat => "format",
            };
            let what =
                format!("array {} runs with its former {had}: {}", intended.name, error.what);
            Err(ControlError::new(error.kind, what))
        }
        Some(error) => {
            warnings.push(error.what);
            Ok(warnings)
        }
        None => Ok(warnings),
    }
}

fn relabel(
    control: &Control,
    intended: &Intended,
    record: &ArrayRecord,
    reserved: &mut Reserved,
) -> Result<(), ControlError> {
    let mut here = Vec::new();
    let whole = AssemblePolicy::default();
    let assembled = assemble_recorded(control, reserved, record, whole, &mut here)?;
    let drives = assembled.drives();
    if !drives.iter().flatten().map(identity).eq(intended.identities.iter().cloned()) {
        return Err(ControlError::state("the drive of a member has changed; try again"));
    }
    drop(drives);
    Ok(grow(assembled, &intended.plan, &intended.tails, &mut control_wait())?)
}

/// Starts an array that this daemon has just stopped cleanly, also without a member whose drive has failed since.
/// Returns warnings.
fn start_grown(
    control: &Control,
    record: &ArrayRecord,
    reserved: &mut Reserved,
) -> Result<Vec<String>, ControlError> {
    let mut here: Vec<Labelled> = Vec::new();
    let strictly = AssemblePolicy::default();
    let Err(first) = start_one(control, reserved, record, strictly, &mut here) else {
        return Ok(Vec::new());
    };
    here.clear();
    let policy = AssemblePolicy { allow_degraded: true, accept_loss: false };
    let Err(error) = start_one(control, reserved, record, policy, &mut here) else {
        return Ok(vec![format!("the array was started without a member: {}", first.what)]);
    };
    let offline = Offline::new(record, &error, &here);
    control.with(|m| note_offline(m, record, offline))?;
    Err(error)
}

fn identity(drive: &Drive) -> String {
    drive.device.identity()
}

/// Describes the member with the least space for the operator.
fn limit_of(intended: &Intended) -> String {
    let slot = intended.plan.limit();
    let drive = &intended.drives[slot.at()];
    let size = ByteSize(drive.device.info().bytes());
    format!("member {slot} ({}, {size}) is the smallest", drive.path)
}

fn describe(intended: &Intended, limit: &str) -> Vec<String> {
    let Intended { name, plan, drives, view, .. } = intended;
    let (_, bytes) = plan.new_area();
    let mut steps = vec![format!(
        "write zeroes to {} of each of {} members, which the array does not use yet",
        ByteSize(bytes),
        drives.len()
    )];
    steps.push(format!("stop array {name} briefly; I/O of NVMe/TCP hosts waits during this time"));
    let disconnect =
        |e: &String| format!("disconnect the clients of export {e} if it is an NBD export");
    steps.extend(view.exports.iter().map(disconnect));
    steps.push(format!("label its members with the new size: {plan}; {limit}"));
    steps.push("start the array again".to_owned());
    steps
}

/// Refuses drives with foreign signatures or overwritten labels, because the array could not be started from them after
/// its stop.
pub(crate) fn check_ends(intended: &Intended) -> Result<(), ControlError> {
    for drive in &intended.drives {
        let (path, name) = (&drive.path, &intended.name);
        let found = match (written_over(drive)?, overwritten(drive)?) {
            (Some(found), _) => format!("{found} on it"),
            (None, Some(_)) => "overwritten labels".to_owned(),
            (None, None) => continue,
        };
        return Err(ControlError::refused(format!(
            "{path} has {found}, so array {name} could not be started again with this drive; replace the member. If \
                the drive was enlarged, erase the space behind its former end instead"
        )));
    }
    for (slot, (drive, before)) in intended.drives.iter().zip(&intended.sizes).enumerate() {
        if MemberIo::open(drive, &mut control_wait())?.was_cut(*before)? {
            let (path, name) = (&drive.path, &intended.name);
            let what = format!(
                "{path} was truncated before it was enlarged, so part of member {slot} is lost; replace the drive of \
                    this member first: "
            );
            return Err(ControlError::refused(say(what).run(replace(name, Some(slot as u32), ""))));
        }
    }
    Ok(())
}

/// Returns the plan of a growth, if it is allowed, and the keys to reserve.
pub(crate) fn plan_growth(
    manager: &mut Manager,
    request: &GrowArrayRequest,
    change: Change,
) -> Planned<Intended> {
    manager.check_open()?;
    // A replacement that has just been swapped in is the drive of the member.
    settle_replacements(manager)?;
    let at = manager.find_running(&request.name)?;
    let uuid = manager.running[at].uuid();
    check_rest(manager, &uuid)?;
    let mut warnings = Vec::new();
    match check_clients(manager, &uuid, request.force) {
        Err(error) if request.dry_run => warnings.push(format!("refused now: {}", error.what)),
        checked => checked?,
    }
    let view = manager.view(at);
    let running = &manager.running[at];
    let label = running.array.newest_label();
    let plan = plan_change(change, &label, &running.drives)?;
    warnings.extend(spares_left_behind(manager, running, &plan));
    warnings.extend(plan.lacks_for_format_2().map(|lacks| {
        let (name, lacks) = (view.name.clone(), ByteSize(lacks));
        format!(
            "array {name} has format 1. Growing uses the space that a conversion to format 2 needs; afterwards, the \
                conversion needs {lacks} more on each drive. Convert the array before growing: {}",
            command(&UpgradeFormatRequest { name: name.clone(), ..Default::default() })
        )
    }));
    let sizes = label.members.iter().map(|row| row.bytes).collect();
    let tails = |slot| running.array.tails(MemberIndex(slot as u8));
    let tails = (0..running.drives.len()).map(tails).collect();
    let drives: Vec<Drive> = running.drives.iter().flatten().cloned().collect();
    let identities = drives.iter().map(identity).collect();
    let mut keys = vec![array_key(&view.name), array_key(&uuid)];
    keys.extend(running.drive_keys());
    let name = view.name.clone();
    let intended = Intended { uuid, name, plan, drives, identities, sizes, tails, warnings, view };
    Ok((intended, keys))
}

/// Describes the spares that fit the array now, but not after `plan`.
fn spares_left_behind(manager: &Manager, running: &Running, plan: &GrowPlan) -> Vec<String> {
    let status = running.array.status();
    let (_, least) = plan.least_drive_bytes();
    let behind =
        |drive: &&Drive| drive.device.info().bytes() < least && fits(&status, drive).is_ok();
    let uuid = running.uuid();
    let own = manager.records.spares.iter().filter(|s| s.array.is_empty() || s.array == uuid);
    let drives = own.filter_map(|spare| manager.spares.ready(spare)).filter(behind);
    let tell = |drive: &Drive| {
        let (path, name) = (&drive.path, status.name.to_string());
        let add = command(&AddSpareRequest { array: name.clone(), ..Default::default() });
        format!(
            "spare {path} is too small for array {name} after growing; add a larger spare: {add}"
        )
    };
    drives.map(tell).collect()
}

/// Refuses an array with absent members, or with an operation in progress.
fn check_rest(manager: &Manager, uuid: &str) -> Result<(), ControlError> {
    manager.check_open()?;
    let running = &manager.running[manager.find_running(uuid)?];
    refuse_pool(running, "cannot be grown or upgraded")?;
    let status = running.array.status();
    let name = &status.name;
    let refuse = |why: Text| {
        let text = say(format!("array {name} cannot change now: ")).then(why);
        Err(ControlError::state(text.say("; the array is unchanged")))
    };
    let out = status.members.iter().position(|m| m.state != MemberState::InSync);
    if let Some(slot) = out {
        let what = format!(
            "member {slot} is not in sync; wait until the member is rebuilt, or replace the member: "
        );
        return refuse(say(what).run(show(name)));
    }
    let scrubbing = status.scrub.as_ref().is_some_and(|scrub| match scrub.state {
        ScrubState::Running | ScrubState::Paused => true,
        ScrubState::Finished | ScrubState::Stopped => false,
    });
    let jobs = [
        (status.rebuild.is_some(), "rebuilt"),
        (status.replace.is_some() || running.replacement.is_some(), "copied to another drive"),
        (status.resync.is_some(), "resynchronized"),
        (scrubbing, "scrubbed"),
    ];
    if let Some((_, job)) = jobs.into_iter().find(|(is, _)| *is) {
        let what = format!("it is being {job}; wait until that is finished: ");
        return refuse(say(what).run(ListJobsRequest {}));
    }
    if status.consistency_wanted.is_some() {
        return refuse(say("its consistency mode is being changed; wait until that is finished"));
    }
    if status.lost || running.array.has_bad_blocks() {
        let what = "blocks of its members are unreadable; list them, and replace the drives: ";
        return refuse(say(what).run(show(name)));
    }
    let down = |drive: &Drive| match manager.drives.remote(&drive.path).map(|d| d.state()) {
        Some(LinkState::Down(..)) => Some(drive.path.clone()),
        Some(LinkState::Up) | None => None,
    };
    match running.drives.iter().flatten().find_map(down) {
        Some(path) => {
            refuse(format!("the connection to {path} is lost; wait until it is restored").into())
        }
        None => Ok(()),
    }
}

/// Refuses if clients would be disconnected that cannot be paused.
fn check_clients(manager: &Manager, uuid: &str, force: bool) -> Result<(), ControlError> {
    for (record, server) in
        manager.exports.of_array(uuid, &manager.records).filter(|(record, _)| record.nvme.is_none())
    {
        let connections = server.done(record).map_or(0, |done| done.connections);
        if connections > 0 && !force {
            let what = format!(
                "export {} has {connections} NBD clients, which cannot be paused while the array restarts; disconnect \
                    these clients",
                record.name
            );
            return Err(ControlError::refused(what).unless(Amendment::Force, ", or: "));
        }
    }
    Ok(())
}

/// Removes an array that is about to be stopped from the running arrays, if nothing has changed since its check.
fn stop_to_grow(
    manager: &mut Manager,
    intended: &Intended,
    request: &GrowArrayRequest,
) -> Result<Stopped, ControlError> {
    let uuid = &intended.uuid;
    manager.observe();
    check_rest(manager, uuid)?;
    check_clients(manager, uuid, request.force)?;
    let at = manager.find_running(uuid)?;
    let running = &manager.running[at];
    let now = intended.plan.again(&running.array.newest_label(), &running.drives)?;
    let here = running.drives.iter().flatten().map(identity);
    if now != intended.plan || !here.eq(intended.identities.iter().cloned()) {
        return Err(ControlError::state(format!(
            "the drives of array {} changed while they were prepared; the array is unchanged, try again",
            intended.name
        )));
    }
    let record = manager.records.record_of(uuid).cloned();
    let record = record.ok_or_else(|| manager.no_such_array(uuid))?;
    keep_scrub(manager, at, true);
    let running = manager.running.remove(at);
    let identities = running.all_drives().map(identity).collect();
    let entry = manager.entries.of(uuid);
    entry.forget_run();
    entry.offline = Some(Offline::growing());
    Ok(Stopped { record, identities, running })
}

/// Closes local files and devices among `identities`, so that the next open sees their present state.
fn reopen(manager: &mut Manager, identities: &BTreeSet<String>) {
    let opened_again = |kind: DriveKind| match kind {
        DriveKind::Block | DriveKind::File => true,
        DriveKind::Ram | DriveKind::Null | DriveKind::Remote | DriveKind::Pci => false,
    };
    let open = manager.drives.all().iter().filter(|open| opened_again(open.kind));
    let mut close: BTreeSet<String> = open.map(|open| open.drive.device.identity()).collect();
    close.retain(|identity| identities.contains(identity));
    manager.drives.close_unless(|identity| !close.contains(identity));
}
