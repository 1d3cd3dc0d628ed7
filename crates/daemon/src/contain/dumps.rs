//! Core dumps, and access of other processes to the memory of this process. Both would disclose secrets.

use clap::ValueEnum;
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit,
};
use strake_control::Measure;

/// The name of the measure.
const NAME: &str = "core dumps";

/// Whether the kernel may write core dumps of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CoreDumps {
    /// No core dumps. Other processes of the same user cannot read the memory of the daemon.
    Forbid,
    /// Core dumps and debuggers, as the limits of the host permit.
    Permit,
}

/// Forbids core dumps (`RLIMIT_CORE`, getrlimit(2)). Also forbids them where a limit of 0 does not count, such as
/// programs in `core_pattern` (core(5)), and access by ptrace(2) and `/proc/PID/mem` (`PR_SET_DUMPABLE`).
///
/// # Errors
/// The kernel refuses.
pub fn enter(choice: CoreDumps) -> Result<Measure, String> {
    if choice == CoreDumps::Forbid {
        let none = Rlimit { current: Some(0), maximum: Some(0) };
        setrlimit(Resource::Core, none).map_err(|e| format!("cannot forbid core dumps: {e}"))?;
        set_dumpable_behavior(DumpableBehavior::NotDumpable)
            .map_err(|e| format!("cannot forbid access to the memory of this process: {e}"))?;
    }
    Ok(judge(choice, getrlimit(Resource::Core).current))
}

/// Judges the measure. `limit` is the limit of core dumps, `None` without a limit.
fn judge(choice: CoreDumps, limit: Option<u64>) -> Measure {
    match (choice, limit) {
        (CoreDumps::Forbid, _) => {
            Measure::in_force(NAME, "forbidden, as is access to the memory of the daemon")
        }
        (CoreDumps::Permit, Some(0)) => Measure::absent(
            NAME,
            "debuggers of the same user may read keys, secrets and client data in memory; core dumps are permitted, \
             but the limit of the host forbids them",
            "remove the option core-dumps after the search for the error; for core dumps, raise ulimit -c or \
             LimitCORE=",
        ),
        (CoreDumps::Permit, _) => Measure::absent(
            NAME,
            "permitted: a core dump contains keys, secrets of hosts, credentials of hooks and client data",
            "remove the option core-dumps after the search for the error, and delete the core dumps",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::{CoreDumps, judge};

    #[test]
    fn permitted_core_dumps_are_reported_with_their_content() {
        assert_eq!(judge(CoreDumps::Forbid, Some(0)).remedy, None);
        for limit in [None, Some(0), Some(1 << 30)] {
            let measure = judge(CoreDumps::Permit, limit);
            assert!(measure.remedy.is_some_and(|remedy| remedy.contains("option core-dumps")));
            assert!(measure.what.contains("keys, secrets"), "{}", measure.what);
        }
    }
}
