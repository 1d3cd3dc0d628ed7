//! Commands on limits of I/O: set, list, show and clear.

use strake_api::v1::{
    ClearQosRequest, GetQosRequest, ListQosResponse, Qos, QosChange, SetQosRequest,
};
use strake_qos::{Aspect, Counts, Limit, LimitSet, Measure};
use strake_units::ByteSize;

use crate::commands::pools::{Pools, find_pool, no_such_pool};
use crate::commands::volumes::split;
use crate::control::Control;
use crate::error::ControlError;
use crate::events::{EventKind, Note};
use crate::manager::Manager;
use crate::record::store::Limited;

/// The commands of limits.
pub struct Limits<'a> {
    control: &'a Control,
}

/// An object with its name for operators.
#[derive(Clone)]
struct Object {
    of: Limited,
    name: String,
}

impl<'a> Limits<'a> {
    /// The limits of a daemon.
    #[must_use]
    pub const fn of(control: &'a Control) -> Self {
        Self { control }
    }

    /// Sets limits of an object. They apply at once, also to connected clients.
    ///
    /// # Errors
    /// If there is no such object, a value is invalid, or the change cannot be recorded. Then nothing has changed.
    pub fn set(&self, request: &SetQosRequest) -> Result<QosChange, ControlError> {
        let object = self.object(&request.kind, &request.name)?;
        self.change(object, request.dry_run, |set| changed(set, request))
    }

    /// Removes all limits of an object.
    ///
    /// # Errors
    /// If there is no such object, or the change cannot be recorded.
    pub fn clear(&self, request: &ClearQosRequest) -> Result<QosChange, ControlError> {
        let object = self.object(&request.kind, &request.name)?;
        self.change(object, request.dry_run, |_| Ok(LimitSet::default()))
    }

    /// Returns the limits of an object; none for an object without limits.
    ///
    /// # Errors
    /// If there is no such object.
    pub fn get(&self, request: &GetQosRequest) -> Result<Qos, ControlError> {
        let object = self.object(&request.kind, &request.name)?;
        self.control.with(|m| message(m, &object))
    }

    /// Returns the objects with limits.
    ///
    /// # Errors
    /// If the daemon has failed.
    pub fn list(&self) -> Result<ListQosResponse, ControlError> {
        self.control.with(|m| ListQosResponse { objects: m.limits() })
    }

    fn change(
        &self,
        object: Object,
        dry_run: bool,
        next: impl FnOnce(LimitSet) -> Result<LimitSet, ControlError>,
    ) -> Result<QosChange, ControlError> {
        self.control.run(|m| {
            m.check_open()?;
            let before = m.records.limits_of(&object.of);
            let after = next(before)?;
            let plan = plan(before, after);
            let answer = |m: &Manager, result: &str| QosChange {
                result: result.to_owned(),
                qos: Some(message(m, &object)),
                plan: plan.clone(),
                warnings: warnings(after),
            };
            if before == after {
                return Ok(answer(m, "unchanged"));
            }
            if dry_run {
                return Ok(answer(m, "planned"));
            }
            m.records.change(|config| config.put_limits(object.of.clone(), after))?;
            m.exports.limits.follow(&m.records);
            let (kind, name) = (word_of(&object.of), &object.name);
            let what = format!("limits of {kind} {name} were changed: {}", plan.join(", "));
            m.record(Note::new(EventKind::LimitsChanged, format!("{kind}/{name}"), what));
            Ok(answer(m, "changed"))
        })
    }

    /// Finds the object that a client names.
    fn object(&self, kind: &str, name: &str) -> Result<Object, ControlError> {
        match kind {
            "volume" => self.volume(name),
            "export" => self.control.run(|m| {
                let name = m.records.export_record(name)?.name.clone();
                Ok(Object { of: Limited::Export(name.clone()), name })
            }),
            "pool" => self.control.run(|m| {
                let known = m.running[find_pool(m, name)?].pool.known();
                let (known, uuid) = known.ok_or_else(|| no_such_pool(m, name))?;
                Ok(Object { of: Limited::Pool(uuid.to_owned()), name: known.to_owned() })
            }),
            other => {
                let what = format!("unknown kind of object {other:?}; use volume, export or pool");
                Err(ControlError::usage(what))
            }
        }
    }

    fn volume(&self, full: &str) -> Result<Object, ControlError> {
        let (pool, name) = split(full)?;
        let pool = Pools::of(self.control).in_pool(pool)?;
        let row = pool.row(&name)?;
        let of = Limited::Volume(pool.handle.reference(row.id));
        Ok(Object { of, name: pool.handle.full(row) })
    }
}

impl Manager {
    /// Returns the objects with limits and their counters.
    #[must_use]
    pub fn limits(&self) -> Vec<Qos> {
        let object = |of: &Limited| Object { of: of.clone(), name: name_of(self, of) };
        let records = self.records.limits.iter();
        let mut objects: Vec<Qos> =
            records.map(|record| message(self, &object(&record.of))).collect();
        objects.sort_by(|a, b| (&a.kind, &a.name).cmp(&(&b.kind, &b.name)));
        objects
    }
}

/// The name of a limited object; its identity while its pool is not open.
fn name_of(manager: &Manager, of: &Limited) -> String {
    let online = |uuid: &str| {
        let mut pools = manager.running.iter().filter_map(|running| running.pool.online());
        pools.find(|online| online.handle.uuid == uuid)
    };
    match of {
        Limited::Export(name) => name.clone(),
        Limited::Pool(uuid) => {
            online(uuid).map_or_else(|| uuid.clone(), |online| online.handle.name.clone())
        }
        Limited::Volume(volume) => {
            let named = online(&volume.pool)
                .and_then(|online| Some(online.handle.full(online.row(volume.id)?)));
            named.unwrap_or_else(|| format!("{}/{}", volume.pool, volume.id))
        }
    }
}

const fn word_of(of: &Limited) -> &'static str {
    match of {
        Limited::Volume(_) => "volume",
        Limited::Export(_) => "export",
        Limited::Pool(_) => "pool",
    }
}

fn message(manager: &Manager, object: &Object) -> Qos {
    Qos {
        kind: word_of(&object.of).to_owned(),
        name: object.name.clone(),
        limits: manager.exports.limits.messages(&object.of, &manager.records),
    }
}

/// The limits after a request.
fn changed(before: LimitSet, request: &SetQosRequest) -> Result<LimitSet, ControlError> {
    let wanted = [
        (Measure::Ios, Counts::Total, request.iops),
        (Measure::Ios, Counts::Reads, request.read_iops),
        (Measure::Ios, Counts::Writes, request.write_iops),
        (Measure::Bytes, Counts::Total, request.bandwidth_bytes),
        (Measure::Bytes, Counts::Reads, request.read_bandwidth_bytes),
        (Measure::Bytes, Counts::Writes, request.write_bandwidth_bytes),
    ];
    let names_rate = wanted.iter().any(|(.., rate)| rate.is_some());
    if !names_rate && request.burst_ms == 0 {
        return Err(ControlError::usage("name a rate or a burst to change"));
    }
    if !names_rate && before.is_empty() {
        return Err(ControlError::usage("the object has no limits; name a rate"));
    }
    let burst_of = |limit: Option<Limit>| match (request.burst_ms, limit) {
        (0, Some(limit)) => limit.burst_ms(),
        (burst_ms, _) => burst_ms,
    };
    let mut after = before;
    for (measure, counts, rate) in wanted {
        let aspect = Aspect::new(measure, counts);
        let known = before.get(aspect);
        let Some(rate) = rate.or_else(|| known.map(Limit::rate)) else { continue };
        let limit = match rate {
            0 => None,
            rate => Some(Limit::new(rate, burst_of(known)).map_err(|error| {
                ControlError::usage(format!("limit {}: {error}", aspect.name()))
            })?),
        };
        after.set(aspect, limit);
    }
    Ok(after)
}

fn spelled(aspect: Aspect, limit: Option<Limit>) -> String {
    let Some(limit) = limit else { return "no limit".to_owned() };
    let rate = match aspect.measure {
        Measure::Ios => format!("{}/s", limit.rate()),
        Measure::Bytes => format!("{}/s", ByteSize(limit.rate())),
    };
    format!("{rate} with a burst of {} ms", limit.burst_ms())
}

fn plan(before: LimitSet, after: LimitSet) -> Vec<String> {
    let changes =
        Aspect::ALL.into_iter().filter(|aspect| before.get(*aspect) != after.get(*aspect));
    let spell =
        |aspect: Aspect| format!("{}: {}", aspect.name(), spelled(aspect, after.get(aspect)));
    changes.map(spell).collect()
}

/// Limits that another limit of the object makes ineffective.
fn warnings(set: LimitSet) -> Vec<String> {
    let mut warnings = Vec::new();
    for (aspect, limit) in set.iter() {
        let total = Aspect::new(aspect.measure, Counts::Total);
        let Some(over) = set.get(total).filter(|_| aspect != total) else { continue };
        if limit.rate() >= over.rate() {
            let (part, total) = (aspect.name(), total.name());
            warnings.push(format!("{part} has no effect: {total} is not above it"));
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::{changed, plan, warnings};
    use strake_api::v1::SetQosRequest;
    use strake_qos::LimitSet;

    fn request() -> SetQosRequest {
        SetQosRequest { kind: "volume".into(), name: "p/v".into(), ..Default::default() }
    }

    fn after(before: LimitSet, request: &SetQosRequest) -> LimitSet {
        changed(before, request).expect("a valid request")
    }

    #[test]
    fn a_request_changes_what_it_names() {
        let one = SetQosRequest { iops: Some(10_001), ..request() };
        let first = after(LimitSet::default(), &one);
        assert_eq!(plan(LimitSet::default(), first), ["iops: 10001/s with a burst of 100 ms"]);
        let two =
            SetQosRequest { write_bandwidth_bytes: Some(1 << 20), burst_ms: 500, ..request() };
        let second = after(first, &two);
        assert_eq!(
            plan(first, second),
            [
                "iops: 10001/s with a burst of 500 ms",
                "write-bandwidth: 1 MiB/s with a burst of 500 ms"
            ]
        );
        let kept = after(second, &SetQosRequest { iops: Some(7), ..request() });
        assert_eq!(plan(second, kept), ["iops: 7/s with a burst of 500 ms"]);
        let nothing = SetQosRequest { iops: Some(0), ..request() };
        assert!(after(LimitSet::default(), &nothing).is_empty(), "a repeated removal is fine");
        let none = SetQosRequest { iops: Some(0), write_bandwidth_bytes: Some(0), ..request() };
        assert!(after(second, &none).is_empty());
    }

    #[test]
    fn requests_without_effect_or_beyond_the_bounds_are_refused() {
        let refused = [
            request(),
            SetQosRequest { burst_ms: 500, ..request() },
            SetQosRequest { iops: Some(u64::MAX), ..request() },
            SetQosRequest { iops: Some(1), burst_ms: 9, ..request() },
        ];
        for request in refused {
            assert!(changed(LimitSet::default(), &request).is_err(), "{request:?}");
        }
    }

    #[test]
    fn a_limit_without_effect_is_reported() {
        let both = SetQosRequest { iops: Some(100), read_iops: Some(100), ..request() };
        assert_eq!(warnings(after(LimitSet::default(), &both)).len(), 1);
        let useful = SetQosRequest { iops: Some(100), read_iops: Some(99), ..request() };
        assert!(warnings(after(LimitSet::default(), &useful)).is_empty());
    }
}
