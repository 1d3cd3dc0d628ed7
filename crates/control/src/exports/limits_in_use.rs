//! The limits in use: one for each recorded rate, shared by all exports for which it holds.

use std::collections::BTreeMap;
use std::sync::Arc;

use strake_api::v1 as api;
use strake_export_net::{LimitGate, LimitHomes, SharedLimit};
use strake_qos::{Aspect, Limit};
use strake_reactor::CoreHandle;

use crate::record::store::{Config, ExportRecord, Limited};

/// A limit in use.
struct Used {
    limit: Limit,
    shared: Arc<SharedLimit>,
}

/// The limits in use, and the gates of the exports.
#[derive(Default)]
pub(crate) struct LimitsInUse {
    /// `None` before the data cores have started.
    homes: Option<LimitHomes>,
    objects: Vec<(Limited, BTreeMap<Aspect, Used>)>,
    gates: BTreeMap<String, Arc<LimitGate>>,
}

impl LimitsInUse {
    /// Starts the recorded limits on the data cores.
    pub(crate) fn start(cores: Vec<CoreHandle>, config: &Config) -> Self {
        let homes = Some(LimitHomes::new(cores));
        let mut limits = Self { homes, ..Self::default() };
        limits.follow(config);
        limits
    }

    /// Has the recorded limits hold, also for clients that are connected.
    pub(crate) fn follow(&mut self, config: &Config) {
        let Some(homes) = &self.homes else { return };
        let mut before = std::mem::take(&mut self.objects);
        for record in &config.limits {
            let known = before.iter_mut().find(|(of, _)| *of == record.of);
            let mut known = known.map(|(_, used)| std::mem::take(used)).unwrap_or_default();
            let set = record.set();
            let used = set.iter().filter_map(|(aspect, limit)| {
                let used = match known.remove(&aspect) {
                    Some(used) if used.limit == limit => used,
                    Some(Used { shared, .. }) => {
                        homes.change(&shared, limit);
                        Used { limit, shared }
                    }
                    None => Used { limit, shared: homes.start(aspect, limit)? },
                };
                Some((aspect, used))
            });
            self.objects.push((record.of.clone(), used.collect()));
        }
        self.gates.retain(|name, _| config.exports.iter().any(|export| export.name == *name));
        for record in &config.exports {
            if let Some(gate) = self.gates.get(&record.name) {
                gate.set(self.shared_by(record));
            }
        }
    }

    /// Returns the gate of an export that is about to be offered.
    pub(crate) fn gate_of(&mut self, record: &ExportRecord, config: &Config) -> Arc<LimitGate> {
        self.follow(config);
        let limits = self.shared_by(record);
        let gate = self.gates.entry(record.name.clone()).or_default();
        gate.set(limits);
        Arc::clone(gate)
    }

    /// The limits that hold for an export, the narrowest first.
    fn shared_by(&self, record: &ExportRecord) -> Vec<Arc<SharedLimit>> {
        let of = record.limited_by();
        let used = of.iter().filter_map(|of| self.used(of)).flat_map(BTreeMap::values);
        used.map(|used| Arc::clone(&used.shared)).collect()
    }

    fn used(&self, of: &Limited) -> Option<&BTreeMap<Aspect, Used>> {
        self.objects.iter().find(|(object, _)| object == of).map(|(_, used)| used)
    }

    /// Returns the limits of an object with their counters.
    pub(crate) fn messages(&self, of: &Limited, config: &Config) -> Vec<api::QosLimit> {
        let used = self.used(of);
        let counted = |mut message: api::QosLimit, aspect: Aspect| {
            if let Some(used) = used.and_then(|used| used.get(&aspect)) {
                let throttled = used.shared.throttled();
                message.throttled = throttled.requests;
                message.throttled_ns = throttled.wait_ns;
                message.used = throttled.used;
            }
            message
        };
        let set = config.limits_of(of);
        set.iter().map(|(aspect, limit)| counted(limit_message(aspect, limit), aspect)).collect()
    }
}

/// Returns the recorded limits of an object as messages without counters.
pub(crate) fn limits_message(config: &Config, of: &Limited) -> Vec<api::QosLimit> {
    config.limits_of(of).iter().map(|(aspect, limit)| limit_message(aspect, limit)).collect()
}

/// Returns a limit as a message without counters.
fn limit_message(aspect: Aspect, limit: Limit) -> api::QosLimit {
    api::QosLimit {
        aspect: aspect.name().to_owned(),
        rate: limit.rate(),
        burst_ms: limit.burst_ms(),
        ..api::QosLimit::default()
    }
}
