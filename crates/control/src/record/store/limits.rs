//! The record of limits of I/O.

use serde::{Deserialize, Serialize};
use strake_qos::{Aspect, Limit, LimitError, LimitSet};

use crate::record::store::{Config, ExportRecord, VolumeRef};

/// What a record limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limited {
    /// All exports of a volume together.
    Volume(VolumeRef),
    /// All clients of the export with this name together.
    Export(String),
    /// All volumes of the pool with this identity together.
    Pool(String),
}

/// The limits of one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitsRecord {
    /// The object.
    pub of: Limited,
    /// Its limits, at least one.
    pub limits: Vec<LimitRecord>,
}

/// One limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "RawLimit", into = "RawLimit")]
pub struct LimitRecord {
    /// What it counts.
    pub aspect: Aspect,
    /// The rate and the burst.
    pub limit: Limit,
}

/// A limit as the file has it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLimit {
    aspect: String,
    rate: u64,
    burst_ms: u32,
}

impl TryFrom<RawLimit> for LimitRecord {
    type Error = String;

    fn try_from(raw: RawLimit) -> Result<Self, String> {
        let aspect = Aspect::ALL.into_iter().find(|aspect| aspect.name() == raw.aspect);
        let aspect = aspect.ok_or_else(|| format!("there is no limit {:?}", raw.aspect))?;
        let limit = Limit::new(raw.rate, raw.burst_ms);
        let limit = limit.map_err(|e: LimitError| format!("limit {}: {e}", raw.aspect))?;
        Ok(Self { aspect, limit })
    }
}

impl From<LimitRecord> for RawLimit {
    fn from(LimitRecord { aspect, limit }: LimitRecord) -> Self {
        let (rate, burst_ms) = (limit.rate(), limit.burst_ms());
        Self { aspect: aspect.name().to_owned(), rate, burst_ms }
    }
}

impl LimitsRecord {
    /// The limits as a set.
    pub(crate) fn set(&self) -> LimitSet {
        let mut set = LimitSet::default();
        self.limits.iter().for_each(|record| set.set(record.aspect, Some(record.limit)));
        set
    }
}

impl Config {
    /// Returns the limits of an object.
    pub(crate) fn limits_of(&self, of: &Limited) -> LimitSet {
        let found = self.limits.iter().find(|record| record.of == *of);
        found.map_or_else(LimitSet::default, LimitsRecord::set)
    }

    /// Replaces the limits of an object. An empty set leaves no record.
    pub(crate) fn put_limits(&mut self, of: Limited, set: LimitSet) {
        self.limits.retain(|record| record.of != of);
        let limits: Vec<_> =
            set.iter().map(|(aspect, limit)| LimitRecord { aspect, limit }).collect();
        if !limits.is_empty() {
            self.limits.push(LimitsRecord { of, limits });
        }
    }

    /// Removes the limits of exports that do not exist.
    pub(crate) fn without_stale_limits(mut self) -> Self {
        let Self { limits, exports, .. } = &mut self;
        limits.retain(|record| match &record.of {
            Limited::Export(name) => exports.iter().any(|export| export.name == *name),
            Limited::Volume(_) | Limited::Pool(_) => true,
        });
        self
    }

    /// Removes the limits of a pool and of its volumes.
    pub(crate) fn forget_pool_limits(&mut self, pool: &str) {
        self.limits.retain(|record| match &record.of {
            Limited::Volume(volume) => volume.pool != pool,
            Limited::Pool(uuid) => uuid != pool,
            Limited::Export(_) => true,
        });
    }
}

impl ExportRecord {
    /// Returns the objects whose limits hold for the export, the narrowest first.
    pub(crate) fn limited_by(&self) -> Vec<Limited> {
        let own = Limited::Export(self.name.clone());
        match &self.volume {
            None => vec![own],
            Some(volume) => {
                vec![own, Limited::Volume(volume.clone()), Limited::Pool(volume.pool.clone())]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LimitRecord, Limited, LimitsRecord};
    use crate::record::store::{Config, VolumeRef};
    use strake_qos::{Aspect, Limit};

    fn record(of: Limited, rate: u64) -> LimitsRecord {
        let limit = Limit::new(rate, 0).expect("a valid limit");
        LimitsRecord { of, limits: vec![LimitRecord { aspect: Aspect::ALL[0], limit }] }
    }

    #[test]
    fn a_record_reads_back_and_a_damaged_one_is_refused() {
        let one = record(Limited::Volume(VolumeRef { pool: "p".into(), id: 7 }), 10_001);
        let text = serde_json::to_string(&one).expect("it has a JSON form");
        assert_eq!(serde_json::from_str::<LimitsRecord>(&text).expect("it reads back"), one);
        for (old, new) in [("10001", "0"), ("\"iops\"", "\"ios\""), ("100}", "5}")] {
            let damaged = text.replace(old, new);
            assert_ne!(damaged, text);
            assert!(serde_json::from_str::<LimitsRecord>(&damaged).is_err(), "{damaged}");
        }
    }

    #[test]
    fn limits_end_with_their_objects() {
        let volume = |pool: &str, id| Limited::Volume(VolumeRef { pool: pool.into(), id });
        let limits = vec![
            record(Limited::Export("e".into()), 1),
            record(volume("p", 1), 2),
            record(Limited::Pool("p".into()), 3),
            record(volume("q", 1), 4),
        ];
        let mut config = Config { limits, ..Config::default() }.without_stale_limits();
        assert_eq!(config.limits.len(), 3, "there is no export e");
        config.forget_pool_limits("p");
        assert_eq!(config.limits, [record(volume("q", 1), 4)]);
    }
}
