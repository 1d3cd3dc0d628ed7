//! Start and stop of the thread of a core.

use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{Builder, ThreadId};

use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use strake_units::{CoreIndex, Nanos};

use crate::core::Core;
use crate::handle::{CoreHandle, Pinning, Shared};

/// Default time for which a core polls without work before it sleeps.
pub const IDLE_AFTER: Nanos = Nanos(200 * Nanos::MICRO.0);

thread_local! {
    static ON_DATA_CORE: Cell<bool> = const { Cell::new(false) };
}

/// True on the thread of a core.
pub(crate) fn on_data_core() -> bool {
    ON_DATA_CORE.get()
}

/// Returns the time in nanoseconds of `CLOCK_MONOTONIC`. Cores read it once per turn. Control threads that compare
/// times with a core use the same clock.
#[must_use]
pub fn monotonic() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    Nanos(time.tv_sec as u64 * Nanos::SECOND.0 + time.tv_nsec as u64)
}

/// The configuration of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreConfig {
    /// Index among the data cores.
    pub index: CoreIndex,
    /// The kernel's CPU number; `None` for any CPU.
    pub cpu: Option<usize>,
    /// Time for which the core polls without work before it sleeps.
    pub idle_after: Nanos,
}

impl CoreConfig {
    /// Returns a configuration for core `index` on any CPU, with a sleep after [`IDLE_AFTER`].
    #[must_use]
    pub const fn new(index: CoreIndex) -> Self {
        Self { index, cpu: None, idle_after: IDLE_AFTER }
    }
}

/// A running core. The drop of this value stops the core like [`stop`](Self::stop).
///
/// A panic on the thread of the core (in a poller, a task or a closure) means that an invariant of the data path is
/// broken. Afterwards, this core and cores that rely on it must not serve or write data, so the process prints the
/// reason and aborts: unavailability is better than corruption. The core and its pollers are not dropped, so no
/// destructor acts on the broken state.
#[derive(Debug)]
pub struct CoreThread {
    handle: CoreHandle,
    thread: ThreadId,
    /// Disconnected when the core has ended. The thread may stay in the kernel for longer: if it gave the kernel's
    /// workers a request to an unresponsive drive, the thread exits when this drive answers. The lock is never taken.
    /// It only makes the type `Sync`; `drop` has exclusive access.
    over: Mutex<mpsc::Receiver<Never>>,
}

/// A message that is never sent.
#[derive(Debug)]
enum Never {}

impl CoreThread {
    /// Starts a core on a thread named `strake-core-N`. If the kernel refuses the CPU, the core runs on any CPU, and
    /// [`pinning`](Self::pinning) shows this. This is not an error.
    ///
    /// # Errors
    /// If the kernel has no free thread or event descriptor.
    pub fn start(config: CoreConfig) -> io::Result<Self> {
        let shared = Arc::new(Shared::new(config.index)?);
        let handle = CoreHandle::new(Arc::clone(&shared));
        let (ready, started) = mpsc::sync_channel(1);
        let (running, over) = mpsc::channel();
        let thread =
            Builder::new().name(format!("strake-core-{}", config.index)).spawn(move || {
                ON_DATA_CORE.set(true);
                shared.set_pinning(pin(config.cpu));
                // The receiver waits below.
                let _ = ready.send(());
                run_or_abort(&mut Core::new(shared, config.idle_after));
                drop(running);
            })?;
        // The receive fails only if the thread ended before it sent, and then the process aborts.
        let _ = started.recv();
        Ok(Self { handle, thread: thread.thread().id(), over: Mutex::new(over) })
    }

    /// Returns a handle to the core.
    #[must_use]
    pub fn handle(&self) -> CoreHandle {
        self.handle.clone()
    }

    /// Returns the CPU of the core.
    #[must_use]
    pub fn pinning(&self) -> Pinning {
        self.handle.stats().pinning
    }

    /// Requests a stop of the core and waits for it. Closures that were accepted before are run. Then the pollers are
    /// dropped on the thread of the core, regardless of their work in progress, so the caller must stop the pollers
    /// first.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for CoreThread {
    fn drop(&mut self) {
        // An error means that the core has already stopped.
        let _ = self.handle.run(Core::stop);
        // A core cannot wait for its own end. It stops after the turn that dropped this value.
        if self.thread != std::thread::current().id() {
            let over = self.over.get_mut().unwrap_or_else(PoisonError::into_inner);
            let Err(mpsc::RecvError) = over.recv();
        }
    }
}

/// Pins the calling thread.
fn pin(cpu: Option<usize>) -> Pinning {
    let Some(cpu) = cpu else { return Pinning::Any };
    if cpu >= CpuSet::MAX_CPU {
        return Pinning::Refused { cpu, os: rustix::io::Errno::INVAL.raw_os_error() };
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    match sched_setaffinity(None, &set) {
        Ok(()) => Pinning::Pinned { cpu },
        Err(error) => Pinning::Refused { cpu, os: error.raw_os_error() },
    }
}

// `clippy.toml` bans `abort` in favour of panicking; such a panic reaches this function, after its reason was printed.
#[allow(clippy::disallowed_methods)]
fn run_or_abort(core: &mut Core) {
    // Unwind safety does not matter, because no code uses the core after a panic.
    if catch_unwind(AssertUnwindSafe(|| core.run())).is_err() {
        // The panic hook has printed the message and the location.
        eprintln!(
            "strake: data core {} panicked, so its state cannot be trusted; aborting to keep stored data intact. \
             Restart the daemon: arrays resynchronize what was being written",
            core.index()
        );
        std::process::abort();
    }
}

#[cfg(test)]
mod tests {
    use super::{CoreConfig, CoreThread};
    use std::cell::RefCell;
    use std::sync::mpsc;
    use std::time::Duration;
    use strake_units::CoreIndex;

    /// Delays the exit of its thread until its release, as the kernel does.
    struct Held(mpsc::Receiver<()>);

    impl Drop for Held {
        fn drop(&mut self) {
            let _ = self.0.recv();
        }
    }

    thread_local! {
        static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
    }

    /// The history of the bug: a daemon with an unresponsive drive did not stop cleanly, because the thread of its data
    /// core could not exit.
    #[test]
    fn a_core_has_stopped_though_its_thread_cannot_exit() {
        let core = CoreThread::start(CoreConfig::new(CoreIndex(0))).expect("it starts");
        let (go, gate) = mpsc::channel();
        let hold = move |_: &mut crate::Core| HELD.set(Some(Held(gate)));
        core.handle().run(hold).expect("it runs");
        let (stopped, seen) = mpsc::channel();
        std::thread::spawn(move || {
            core.stop();
            stopped.send(()).expect("the test waits");
        });
        seen.recv_timeout(Duration::from_secs(60)).expect("it has stopped");
        drop(go);
    }
}
