//! The data cores, and the CPUs that they run on.

use rustix::thread::{CpuSet, sched_getaffinity};
use strake_reactor::{CoreConfig, CoreThread};
use strake_units::CoreIndex;

use crate::error::{ControlError, ControlErrorKind};

/// Maximum number of data cores. With more cores, the shards of an array have more mailboxes than stripes in progress.
const CORES_MAX: usize = 64;

/// The CPUs of data cores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoreChoice {
    /// Half of the CPUs of this process, at least one. The other half serves clients and other work.
    Auto,
    /// These CPUs, by kernel number.
    Cpus(Vec<usize>),
}

impl std::str::FromStr for CoreChoice {
    type Err = String;

    /// Parses `auto`, or CPU numbers with commas and ranges: `0,2,4-7`.
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let mut cpus = Vec::new();
        for part in text.split(',') {
            let bad = || {
                format!(
                    "{part:?} is not a CPU number; write numbers and ranges, such as 0,2,4-7, or auto"
                )
            };
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first: usize = first.trim().parse().map_err(|_| bad())?;
            let last: usize = last.trim().parse().map_err(|_| bad())?;
            if first > last || last >= CpuSet::MAX_CPU {
                return Err(bad());
            }
            cpus.extend(first..=last);
            if cpus.len() > CORES_MAX {
                return Err(format!("at most {CORES_MAX} data cores"));
            }
        }
        let mut sorted = cpus.clone();
        sorted.sort_unstable();
        sorted.dedup();
        if sorted.len() != cpus.len() {
            return Err("a CPU is named twice; every data core needs its own CPU".to_owned());
        }
        Ok(Self::Cpus(cpus))
    }
}

pub(crate) fn start_cores(choice: &CoreChoice) -> Result<Vec<CoreThread>, ControlError> {
    let cpus = match choice {
        CoreChoice::Cpus(cpus) => cpus.clone(),
        CoreChoice::Auto => {
            let allowed = sched_getaffinity(None).unwrap_or_default();
            let all: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
            let take = (all.len() / 2).clamp(1, CORES_MAX);
            all.iter().rev().take(take).rev().copied().collect()
        }
    };
    // Without a known CPU, the core runs on any CPU.
    let cpus: Vec<Option<usize>> =
        if cpus.is_empty() { vec![None] } else { cpus.into_iter().map(Some).collect() };
    let start = |(index, cpu): (usize, Option<usize>)| {
        let config = CoreConfig { cpu, ..CoreConfig::new(CoreIndex(index as u16)) };
        CoreThread::start(config).map_err(|e| {
            let what = format!(
                "cannot start data core {index}: {e}; check the limits on threads and open files"
            );
            ControlError::new(ControlErrorKind::Device, what)
        })
    };
    cpus.into_iter().enumerate().map(start).collect()
}
