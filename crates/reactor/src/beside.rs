//! Work for cores that other threads do, so that no core stops serving meanwhile: the allocation of memory.

use std::io;
use std::thread::{Builder, ScopedJoinHandle};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::handle::{CoreHandle, Pinning};
use crate::node::prefer_node_of;

/// The name of the threads.
pub const BESIDE_THREAD: &str = "strake-beside";

/// Runs `work` once for each core, on a thread for each, and returns the results in the order of `cores`. The threads
/// stay off the CPUs of `cores` if this process may use others. Memory that `work` writes first is in the NUMA node of
/// its core, if the kernel has free pages there. If a thread cannot be started or panics, the caller runs `work`.
pub fn beside<T: Send>(cores: &[CoreHandle], work: impl Fn() -> T + Sync) -> Vec<T> {
    let work = &work;
    let cpus: Vec<Option<usize>> = cores.iter().map(cpu_of).collect();
    let others = others(&sched_getaffinity(None).unwrap_or_default(), &cpus);
    std::thread::scope(|scope| {
        let spawn = |cpu: &Option<usize>| {
            let cpu = *cpu;
            Builder::new().name(BESIDE_THREAD.to_owned()).spawn_scoped(scope, move || {
                if let Some(others) = others {
                    // A thread that may run anywhere delays the cores, and nothing else changes.
                    let _ = sched_setaffinity(None, &others);
                }
                cpu.into_iter().for_each(prefer_node_of);
                work()
            })
        };
        let threads: Vec<_> = cpus.iter().map(spawn).collect();
        let join = |thread: io::Result<ScopedJoinHandle<'_, T>>| {
            thread.ok().and_then(|thread| thread.join().ok()).unwrap_or_else(work)
        };
        threads.into_iter().map(join).collect()
    })
}

fn cpu_of(core: &CoreHandle) -> Option<usize> {
    match core.stats().pinning {
        Pinning::Pinned { cpu } => Some(cpu),
        Pinning::Any | Pinning::Refused { .. } => None,
    }
}

/// The allowed CPUs without those of cores; `None` if there are no others.
fn others(allowed: &CpuSet, cores: &[Option<usize>]) -> Option<CpuSet> {
    let mut others = *allowed;
    cores.iter().flatten().for_each(|cpu| others.unset(*cpu));
    (others.count() > 0).then_some(others)
}

#[cfg(test)]
mod tests {
    use super::{BESIDE_THREAD, beside, others};
    use crate::{CoreConfig, CoreThread};
    use rustix::thread::{CpuSet, sched_getaffinity};
    use std::thread;
    use strake_units::CoreIndex;

    fn set(cpus: &[usize]) -> CpuSet {
        let mut set = CpuSet::new();
        cpus.iter().for_each(|cpu| set.set(*cpu));
        set
    }

    #[test]
    fn the_cpus_of_cores_are_left_alone_if_there_are_others() {
        let allowed = set(&[0, 1, 5]);
        assert_eq!(others(&allowed, &[Some(1), None, Some(9)]), Some(set(&[0, 5])));
        assert_eq!(others(&allowed, &[Some(5), Some(0), Some(1)]), None);
        assert_eq!(others(&CpuSet::new(), &[]), None);
    }

    /// The cores have the first CPUs of this process, or fewer if it has fewer.
    #[test]
    fn the_work_of_each_core_is_done_on_a_thread_off_all_cores() {
        let allowed = sched_getaffinity(None).expect("the kernel tells");
        let cpus = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).take(2);
        let start = |(index, cpu)| {
            let config = CoreConfig { cpu: Some(cpu), ..CoreConfig::new(CoreIndex(index)) };
            CoreThread::start(config).expect("it starts")
        };
        let cores: Vec<CoreThread> = (0..).zip(cpus).map(start).collect();
        // With two CPUs, a second core leaves none.
        for cores in [&cores[..1], &cores[..]] {
            let handles: Vec<_> = cores.iter().map(CoreThread::handle).collect();
            let seen = beside(&handles, || {
                let name = thread::current().name().map(str::to_owned);
                (name, sched_getaffinity(None).expect("the kernel tells"))
            });
            assert_eq!(seen.len(), cores.len());
            let cpus: Vec<_> = handles.iter().map(super::cpu_of).collect();
            let expected = others(&allowed, &cpus).unwrap_or(allowed);
            for (name, affinity) in seen {
                assert_eq!((name.as_deref(), affinity), (Some(BESIDE_THREAD), expected));
            }
        }
    }

    #[test]
    fn the_caller_does_the_work_of_a_thread_that_panics() {
        let core = CoreThread::start(CoreConfig::new(CoreIndex(0))).expect("it starts");
        let work = || {
            let is_beside = thread::current().name() == Some(BESIDE_THREAD);
            assert!(!is_beside, "a panic of this test");
            7
        };
        assert_eq!(beside(&[core.handle()], work), [7]);
    }
}
