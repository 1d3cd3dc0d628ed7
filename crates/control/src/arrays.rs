//! Creating, unloading and destroying arrays.

use strake_api::v1::{ArrayChange, CreateArrayRequest, DestroyArrayRequest, UnloadArrayRequest};
use strake_dev_uring::control_wait;
use strake_engine::{Array, CreatePlan, CreateSpec, Drive, Ids, Options, create, plan_create};
use strake_ondisk::Foreign;
use strake_raid::LevelRequest;
use strake_units::{BlockSize, ByteSize, Name};

use crate::error::{ControlError, ControlErrorKind};
use crate::label::{inspect, retire};
use crate::manager::{Manager, Running, fresh_uuid};
use crate::store::ArrayRecord;

/// Strip size when none is asked for.
const STRIP_BYTES_DEFAULT: u32 = 128 << 10;

/// Most drives of one request: more than any array takes, so that the level's own limit is what is reported.
const DRIVES_MAX: usize = 256;

impl Manager {
    /// Creates an array. The same request again is "unchanged".
    ///
    /// # Errors
    /// Anything wrong with the request or a drive; nothing has been written then, unless a drive failed midway.
    pub fn create_array(
        &mut self,
        request: &CreateArrayRequest,
    ) -> Result<ArrayChange, ControlError> {
        self.check_open()?;
        let outcome = self.try_create(request);
        self.close_unused_drives();
        outcome
    }

    fn try_create(&mut self, request: &CreateArrayRequest) -> Result<ArrayChange, ControlError> {
        let (spec, level) = parse_create(request)?;
        if let Some(existing) = self.existing(&spec, request)? {
            return Ok(existing);
        }
        let mut drives = Vec::new();
        for path in &request.drives {
            drives.push(self.drives.open(path)?);
        }
        self.refuse_members(&drives)?;
        let plan = plan_create(&spec, &drives)?;
        plan.geometry.check_request(&level).map_err(|e| ControlError::usage(e.to_string()))?;
        if !request.overwrite {
            refuse_occupied(&drives)?;
        }
        let steps = describe(&plan, &drives);
        if request.dry_run {
            let array = planned(&plan, &drives);
            return Ok(ArrayChange {
                result: "planned".into(),
                array: Some(array),
                plan: steps,
                warnings: plan.warnings,
            });
        }
        let at = self.create_now(&plan, drives, request.overwrite)?;
        Ok(ArrayChange {
            result: "created".into(),
            array: Some(self.view(at)),
            plan: steps,
            warnings: plan.warnings,
        })
    }

    fn create_now(
        &mut self,
        plan: &CreatePlan,
        drives: Vec<Drive>,
        overwrite: bool,
    ) -> Result<usize, ControlError> {
        let ids = Ids {
            array: fresh_uuid()?,
            epoch: fresh_uuid()?,
            members: drives.iter().map(|_| fresh_uuid()).collect::<Result<_, _>>()?,
        };
        let mut config = self.config.clone();
        config.arrays.push(ArrayRecord {
            uuid: ids.array.to_string(),
            name: plan.spec.name.to_string(),
            drives: remembered(&drives),
        });
        let prepared = self.store.prepare(&config)?;
        let mut wait = control_wait();
        let assembled = create(plan, drives.clone(), &ids, overwrite, &mut wait)?;
        let array = Array::start(assembled, &self.core_handles(), Options::default())?;
        let drives = drives.into_iter().map(Some).collect();
        self.config = prepared.commit()?;
        tracing::info!(array = %array.name(), uuid = %array.uuid(), "array created");
        self.running.push(Running::new(array, drives, true, 0));
        Ok(self.running.len() - 1)
    }

    /// The array of that name, when there is one: the same is "unchanged", another is an error.
    fn existing(
        &mut self,
        spec: &CreateSpec,
        request: &CreateArrayRequest,
    ) -> Result<Option<ArrayChange>, ControlError> {
        let name = spec.name.as_str();
        let taken = |why: &str| {
            let what = format!(
                "there is an array {name} already, {why}; choose another name, or destroy that one first"
            );
            ControlError::new(ControlErrorKind::Exists, what)
        };
        let Some(at) = self.running.iter().position(|r| r.array.name() == &spec.name) else {
            if self.config.arrays.iter().any(|a| a.name == name) {
                return Err(taken("which is not running"));
            }
            return Ok(None);
        };
        let status = self.running[at].array.status();
        let geometry = &status.geometry;
        let group = geometry.level().is_grouped().then(|| geometry.width());
        let same_shape = geometry.level() == spec.level
            && geometry.strip_bytes() == spec.strip_bytes
            && (group.is_none() || group == spec.group_size)
            && spec.block_size.is_none_or(|b| b == geometry.block_size());
        let paths = status.members.iter().map(|m| m.path.as_str());
        let same_drives = request.drives.iter().map(String::as_str).eq(paths);
        if !(same_shape && same_drives) {
            return Err(taken("of another shape or on other drives"));
        }
        Ok(Some(ArrayChange {
            result: "unchanged".into(),
            array: Some(self.view(at)),
            ..ArrayChange::default()
        }))
    }

    /// Refuses drives that belong to a running array.
    pub(crate) fn refuse_members(&self, drives: &[Drive]) -> Result<(), ControlError> {
        for drive in drives {
            let identity = drive.device.info().identity;
            for running in &self.running {
                let slot = running
                    .drives
                    .iter()
                    .position(|d| d.as_ref().is_some_and(|d| d.device.info().identity == identity));
                if let Some(slot) = slot {
                    return Err(ControlError::refused(format!(
                        "{} is member {slot} of array {}; use another drive",
                        drive.path,
                        running.array.name()
                    )));
                }
            }
        }
        Ok(())
    }

    /// Stops an array and forgets it; its drives keep everything.
    ///
    /// # Errors
    /// When there is no such array, it has exports (unless forced), or the state cannot be recorded.
    pub fn unload_array(
        &mut self,
        request: &UnloadArrayRequest,
    ) -> Result<ArrayChange, ControlError> {
        self.check_open()?;
        let view = self.array(&request.name)?;
        refuse_exported(&view.name, &view.exports, request.force)?;
        let mut steps = removal_steps(&view.exports);
        steps.push(format!(
            "stop array {} and mark it clean; its data stays on its drives",
            view.name
        ));
        steps.push(format!(
            "forget it; it comes back with: strake array import {}",
            import_hint(&view)
        ));
        if request.dry_run {
            return Ok(ArrayChange {
                result: "planned".into(),
                array: Some(view),
                plan: steps,
                warnings: Vec::new(),
            });
        }
        let warnings = self.retire_array(&view.uuid)?.1;
        self.close_unused_drives();
        tracing::info!(array = %view.name, "array unloaded");
        Ok(ArrayChange { result: "changed".into(), array: Some(view), plan: steps, warnings })
    }

    /// Stops an array and marks its labels destroyed.
    ///
    /// # Errors
    /// As [`unload_array`](Self::unload_array); drives whose label could not be written are warned about.
    pub fn destroy_array(
        &mut self,
        request: &DestroyArrayRequest,
    ) -> Result<ArrayChange, ControlError> {
        self.check_open()?;
        let at = self.find_running(&request.name)?;
        let view = self.view(at);
        refuse_exported(&view.name, &view.exports, request.force)?;
        let mut steps = removal_steps(&view.exports);
        steps.push(format!("stop array {}", view.name));
        let here = view.members.iter().filter(|m| !m.path.is_empty());
        steps.extend(
            here.map(|m| format!("mark the label on {} (member {}) destroyed", m.path, m.position)),
        );
        if request.dry_run {
            return Ok(ArrayChange {
                result: "planned".into(),
                array: Some(view),
                plan: steps,
                warnings: Vec::new(),
            });
        }
        let (drives, mut warnings) = self.retire_array(&view.uuid)?;
        for drive in &drives {
            warnings.extend(retire(drive, &view.uuid).err().map(|e| e.what));
        }
        drop(drives);
        self.close_unused_drives();
        tracing::info!(array = %view.name, "array destroyed");
        Ok(ArrayChange { result: "changed".into(), array: Some(view), plan: steps, warnings })
    }

    /// Takes an array out of service and out of the records; returns its drives, and what went wrong meanwhile.
    fn retire_array(&mut self, uuid: &str) -> Result<(Vec<Drive>, Vec<String>), ControlError> {
        let mut config = self.config.clone();
        config.arrays.retain(|a| a.uuid != uuid);
        config.exports.retain(|e| e.array != uuid);
        let prepared = self.store.prepare(&config)?;
        self.withdraw_exports_of(uuid)?;
        let mut warnings = Vec::new();
        let mut drives = Vec::new();
        if let Some(at) = self.running.iter().position(|r| r.uuid() == uuid) {
            let running = self.running.remove(at);
            warnings.extend(running.array.stop().err().map(|e| e.what));
            drives = running.drives.into_iter().flatten().collect();
        }
        self.offline.remove(uuid);
        self.config = prepared.commit()?;
        Ok((drives, warnings))
    }
}

fn refuse_exported(name: &str, exports: &[String], force: bool) -> Result<(), ControlError> {
    match exports.first() {
        Some(first) if !force => Err(ControlError::refused(format!(
            "array {name} is exported as {}; remove that first (strake export remove {first}), or use --force to \
             disconnect its clients",
            exports.join(", ")
        ))),
        Some(_) | None => Ok(()),
    }
}

fn removal_steps(exports: &[String]) -> Vec<String> {
    exports.iter().map(|e| format!("withdraw export {e}, disconnecting its clients")).collect()
}

fn import_hint(view: &strake_api::v1::Array) -> String {
    let paths: Vec<&str> =
        view.members.iter().map(|m| m.path.as_str()).filter(|p| !p.is_empty()).collect();
    format!("{} --drives {}", view.name, paths.join(","))
}

/// Paths worth looking at after a restart: drives in memory are gone then.
pub(crate) fn remembered(drives: &[Drive]) -> Vec<String> {
    drives.iter().map(|d| d.path.clone()).filter(|path| path.starts_with('/')).collect()
}

fn parse_create(request: &CreateArrayRequest) -> Result<(CreateSpec, LevelRequest), ControlError> {
    let name: Name =
        request.name.parse().map_err(|e| ControlError::usage(format!("array name: {e}")))?;
    let level: LevelRequest = request
        .level
        .parse()
        .map_err(|e| ControlError::usage(format!("level {:?}: {e}", request.level)))?;
    if request.drives.is_empty() {
        return Err(ControlError::usage("an array is made of drives; name them with --drives"));
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
    Ok((CreateSpec { name, level: level.level, group_size, strip_bytes, block_size }, level))
}

/// Refuses drives that hold something, naming it.
pub(crate) fn refuse_occupied(drives: &[Drive]) -> Result<(), ControlError> {
    for drive in drives {
        let found = inspect(drive)?;
        let label = found
            .label
            .filter(|l| !l.destroyed)
            .map(|l| format!("a member of array {} ({})", l.name, l.array));
        let foreign = found.foreign.filter(Foreign::is_obstacle);
        if let Some(what) = label.or_else(|| foreign.map(|f| f.to_string())) {
            return Err(ControlError::refused(format!(
                "{} holds {what}; use another drive, or --overwrite if nobody needs what is on it",
                drive.path
            )));
        }
    }
    Ok(())
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
        "array {}: level {}, {} of data in strips of {}, {} drive(s) may be lost",
        plan.spec.name,
        geometry.level(),
        ByteSize(geometry.capacity_blocks() << geometry.block_size().shift()),
        ByteSize(u64::from(geometry.strip_bytes())),
        geometry.redundancy(0).unwrap_or(0)
    ));
    steps
}

/// The array a dry run would have made.
fn planned(plan: &CreatePlan, drives: &[Drive]) -> strake_api::v1::Array {
    let geometry = &plan.geometry;
    let shift = geometry.block_size().shift();
    let member = |(at, drive): (usize, &Drive)| strake_api::v1::Member {
        position: at as u32,
        path: drive.path.clone(),
        ..strake_api::v1::Member::default()
    };
    strake_api::v1::Array {
        name: plan.spec.name.to_string(),
        level: geometry.level().to_string(),
        group_size: if geometry.level().is_grouped() { u32::from(geometry.width()) } else { 0 },
        size_bytes: geometry.capacity_blocks() << shift,
        strip_bytes: geometry.strip_bytes(),
        block_bytes: geometry.block_size().bytes(),
        stripe_data_bytes: geometry.stripe_data_blocks() << shift,
        members: drives.iter().enumerate().map(member).collect(),
        redundancy_left: geometry.redundancy(0).map_or(0, u32::from),
        ..strake_api::v1::Array::default()
    }
}
