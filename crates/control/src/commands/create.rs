//! Creation of arrays.

use strake_api::v1::{ArrayChange, CleanDriveRequest, CreateArrayRequest};
use strake_dev_uring::control_wait;
use strake_engine::{
    Array, Assembled, Consistency, CreatePlan, CreateSpec, Drive, Ids, Recovery, create,
    plan_create,
};
use strake_raid::{
    GeometryError, LevelRequest, STRIP_BYTES_MAX, STRIP_BYTES_MIN, nearest_strip_bytes,
};
use strake_units::{BlockSize, ByteSize, MemberSet};
use strake_wording::{Amendment, say};

use crate::commands::claims::refuse_members;
use crate::commands::remote::connect_named;
use crate::control::Control;
use crate::drives::address::remembered;
use crate::drives::label::retire;
use crate::drives::occupied::{overwritten, refuse_occupied};
use crate::error::{ControlError, ControlErrorKind};
use crate::events::{EventKind, Note};
use crate::manager::Manager;
use crate::names::{array_key, array_name, fresh_uuid};
use crate::record::store::{ArrayRecord, ScrubRecord, Settings};
use crate::state::offline::geometry_message;
use crate::state::pool::PoolSlot;
use crate::state::running::Running;

/// Default strip size.
const STRIP_BYTES_DEFAULT: u32 = 128 << 10;

/// Maximum number of drives in a request. It exceeds the limits of all levels, so that errors name the limit of the
/// level.
const DRIVES_MAX: usize = 256;

impl Control {
    /// Creates an array. For a repeated request, the result is "unchanged".
    ///
    /// # Errors
    /// If the request or a drive is invalid; then nothing was written. If a drive fails during the creation, the error
    /// names the drives that keep labels.
    pub fn create_array(&self, request: &CreateArrayRequest) -> Result<ArrayChange, ControlError> {
        let (spec, level) = parse_create(request)?;
        let (existing, mut reserved) = self.reserve(|m| {
            m.check_open()?;
            let existing = existing_array(m, &spec, request)?;
            if existing.is_none() {
                m.records.check_array_count()?;
            }
            Ok((existing, vec![array_key(spec.name.as_str())]))
        })?;
        if let Some(existing) = existing {
            return Ok(existing);
        }
        connect_named(self, &request.drives, request.dry_run)?;
        let mut drives = Vec::new();
        for path in &request.drives {
            drives.push(reserved.open(path)?);
        }
        self.run(|m| refuse_members(m, &drives))?;
        let plan = plan_create(&spec, &drives)?;
        plan.geometry.check_request(&level).map_err(|e| ControlError::usage(e.to_string()))?;
        if !request.overwrite {
            refuse_occupied(&drives)?;
        }
        let mut steps = if request.overwrite { overwritten(&drives)? } else { Vec::new() };
        steps.extend(describe(&plan, &drives));
        steps.extend(crate::drives::undo::ended_by(&drives)?);
        let (result, array) = if request.dry_run {
            ("planned", planned(&plan, &drives))
        } else {
            ("created", create_now(self, &plan, drives, request.overwrite)?)
        };
        Ok(ArrayChange {
            result: result.into(),
            array: Some(array),
            plan: steps,
            warnings: plan.warnings,
            ..ArrayChange::default()
        })
    }
}

fn create_now(
    control: &Control,
    plan: &CreatePlan,
    drives: Vec<Drive>,
    overwrite: bool,
) -> Result<strake_api::v1::Array, ControlError> {
    let ids = Ids {
        array: fresh_uuid()?,
        epoch: fresh_uuid()?,
        members: drives.iter().map(|_| fresh_uuid()).collect::<Result<_, _>>()?,
    };
    let record = ArrayRecord {
        uuid: ids.array.to_string(),
        name: plan.spec.name.to_string(),
        drives: remembered(&drives),
        settings: Settings::default(),
        scrub: ScrubRecord::default(),
        kept_exports: Vec::new(),
        kept_hosts: Vec::new(),
        copies: Vec::new(),
        silent: Vec::new(),
        left_alone: Vec::new(),
    };
    // The creation does not start if it could not be recorded.
    control.run(|m| m.records.check_recordable(&record))?;
    control.with(|m| m.past.note_first_activation(&drives, &ids))?;
    let made = create(plan, drives.clone(), &ids, overwrite, &mut control_wait());
    let started = made
        .map_err(ControlError::from)
        .and_then(|assembled| control.run(|m| adopt_new(m, assembled, record, &drives)));
    started.map_err(|error| left_behind(error, &drives, &ids.array.to_string()))
}

/// Removes the labels after a failed creation, and reports the drives on which this failed.
fn left_behind(error: ControlError, drives: &[Drive], array: &str) -> ControlError {
    let labelled: Vec<&str> = drives
        .iter()
        .filter(|drive| retire(drive, array).is_err())
        .map(|drive| drive.path.as_str())
        .collect();
    let kind = error.kind;
    let text = error.text().say("; no array was created; ");
    let Some(first) = labelled.first() else {
        let free = "the drives are free, and their former content may be lost";
        return ControlError::new(kind, text.say(free));
    };
    let labelled = labelled.join(", ");
    let text = text
        .say(format!("{labelled} may contain a label of this array; to use such a drive again: "))
        .run(CleanDriveRequest { path: (*first).to_owned(), ..Default::default() });
    ControlError::new(kind, text).unless(Amendment::Overwrite, ", or: ")
}

/// Starts a newly labelled array, and records it.
fn adopt_new(
    manager: &mut Manager,
    assembled: Assembled,
    record: ArrayRecord,
    drives: &[Drive],
) -> Result<strake_api::v1::Array, ControlError> {
    manager.check_open()?;
    let mut config = manager.records.config.clone();
    let options = manager.options.of_array(&record.settings);
    config.arrays.push(record);
    let prepared = manager.records.store.prepare(&config)?;
    let array = Array::start(assembled, &manager.core_handles(), options)?;
    manager.records.config = prepared.commit()?;
    let what = format!("array {} was created on {} drives", array.name(), drives.len());
    manager.record(Note::of_array(EventKind::ArrayCreated, &array.name(), what));
    let drives = drives.iter().cloned().map(Some).collect();
    let mut running = Running::new(array, drives, true, (0, Recovery::default()));
    running.pool = PoolSlot::Nothing;
    manager.running.push(running);
    Ok(manager.view(manager.running.len() - 1))
}

/// Returns the array with the requested name, if any. An equal array is "unchanged"; a different array is an error.
fn existing_array(
    manager: &mut Manager,
    spec: &CreateSpec,
    request: &CreateArrayRequest,
) -> Result<Option<ArrayChange>, ControlError> {
    let name = spec.name.as_str();
    let taken = |why: &str| {
        let what = format!(
            "array {name} already exists, {why}; choose another name, or destroy that array first"
        );
        ControlError::new(ControlErrorKind::Exists, what)
    };
    let Some(at) = manager.running.iter().position(|r| r.array.name() == spec.name) else {
        if manager.records.arrays.iter().any(|a| a.name == name) {
            return Err(taken("which is not running"));
        }
        return Ok(None);
    };
    let status = manager.running[at].array.status();
    let geometry = &status.geometry;
    let group = geometry.level().is_grouped().then(|| geometry.width());
    let same_shape = geometry.level() == spec.level
        && geometry.strip_bytes() == spec.strip_bytes
        && (group.is_none() || group == spec.group_size)
        && spec.block_size.is_none_or(|b| b == geometry.block_size());
    let paths = status.members.iter().map(|m| m.path.as_str());
    let same_drives = request.drives.iter().map(String::as_str).eq(paths);
    if !(same_shape && same_drives) {
        return Err(taken("with another geometry or other drives"));
    }
    Ok(Some(ArrayChange {
        result: "unchanged".into(),
        array: Some(manager.view(at)),
        ..ArrayChange::default()
    }))
}

fn parse_create(request: &CreateArrayRequest) -> Result<(CreateSpec, LevelRequest), ControlError> {
    let name = array_name(&request.name)?;
    let level: LevelRequest = request
        .level
        .parse()
        .map_err(|e| ControlError::usage(format!("level {:?}: {e}", request.level)))?;
    if request.drives.is_empty() {
        let named = CreateArrayRequest { drives: vec!["...".to_owned()], ..request.clone() };
        return Err(ControlError::usage(say("an array needs drives; name them: ").run(named)));
    }
    if request.drives.len() > DRIVES_MAX {
        let what = format!("{} drives are too many for one array", request.drives.len());
        return Err(ControlError::usage(what));
    }
    let group_size =
        match request.group_size {
            None => None,
            Some(size) => Some(u8::try_from(size).map_err(|_| {
                ControlError::usage(format!("a group of {size} members is too large"))
            })?),
        };
    let block_size = match request.block_bytes {
        None => None,
        Some(bytes) => Some(BlockSize::from_bytes(bytes).ok_or_else(|| {
            ControlError::usage(format!(
                "blocks of {bytes} bytes are not supported; use 512 or 4096"
            ))
        })?),
    };
    let strip_bytes =
        if request.strip_bytes == 0 { STRIP_BYTES_DEFAULT } else { request.strip_bytes };
    let nearest = nearest_strip_bytes(strip_bytes);
    if nearest != strip_bytes {
        let refused = GeometryError::StripSize { strip_bytes };
        return Err(ControlError::usage(format!(
            "{refused} ({}); the nearest valid size is {}KiB",
            strips().join(", "),
            nearest >> 10
        )));
    }
    let consistency = consistency_of(&request.consistency)?;
    let spec =
        CreateSpec { name, level: level.level, group_size, strip_bytes, block_size, consistency };
    Ok((spec, level))
}

/// Returns all valid strip sizes.
fn strips() -> Vec<String> {
    let sizes = std::iter::successors(Some(STRIP_BYTES_MIN), |bytes| bytes.checked_mul(2));
    let sizes = sizes.take_while(|bytes| *bytes <= STRIP_BYTES_MAX);
    sizes.map(|bytes| ByteSize(u64::from(bytes)).to_string().replace(' ', "")).collect()
}

/// Returns the consistency mode with the name `word`. An empty word means the default mode.
pub(crate) fn consistency_of(word: &str) -> Result<Consistency, ControlError> {
    if word.is_empty() {
        return Ok(Consistency::default());
    }
    word.parse().map_err(ControlError::usage)
}

fn describe(plan: &CreatePlan, drives: &[Drive]) -> Vec<String> {
    let geometry = &plan.geometry;
    let mut steps: Vec<String> = drives
        .iter()
        .enumerate()
        .map(|(at, d)| {
            format!("label {} as member {at} ({})", d.path, ByteSize(d.device.info().bytes()))
        })
        .collect();
    steps.push(format!(
        "array {}: level {}, {} of data in strips of {}, member failures tolerated: {}",
        plan.spec.name,
        geometry.level(),
        ByteSize(geometry.capacity_blocks() << geometry.block_size().shift()),
        ByteSize(u64::from(geometry.strip_bytes())),
        geometry.redundancy(MemberSet::EMPTY).unwrap_or(0)
    ));
    steps
}

/// Returns the array that a real run would create.
fn planned(plan: &CreatePlan, drives: &[Drive]) -> strake_api::v1::Array {
    let geometry = &plan.geometry;
    let member = |(at, drive): (usize, &Drive)| strake_api::v1::Member {
        position: at as u32,
        path: drive.path.clone(),
        ..strake_api::v1::Member::default()
    };
    strake_api::v1::Array {
        name: plan.spec.name.to_string(),
        members: drives.iter().enumerate().map(member).collect(),
        redundancy_left: geometry.redundancy(MemberSet::EMPTY).map_or(0, u32::from),
        ..geometry_message(geometry)
    }
}
