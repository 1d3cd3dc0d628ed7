//! Starting and stopping the thread a core lives on.

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

/// How long a core polls without finding work before it sleeps, unless configured otherwise.
pub const IDLE_AFTER: Nanos = Nanos(200 * Nanos::MICRO.0);

thread_local! {
    static ON_DATA_CORE: Cell<bool> = const { Cell::new(false) };
}

/// True on the thread of a core.
pub(crate) fn on_data_core() -> bool {
    ON_DATA_CORE.get()
}

/// The time: nanoseconds of `CLOCK_MONOTONIC`. Cores read it once per turn; control threads that compare
/// times with a core's read the same clock.
#[must_use]
pub fn monotonic() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    Nanos(time.tv_sec as u64 * Nanos::SECOND.0 + time.tv_nsec as u64)
}

/// How to start a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreConfig {
    /// Its place among the data cores.
    pub index: CoreIndex,
    /// The kernel's number of the CPU to run on, `None` for any.
    pub cpu: Option<usize>,
    /// How long it polls without finding work before it sleeps.
    pub idle_after: Nanos,
}

impl CoreConfig {
    /// Core `index`, on any CPU, sleeping after [`IDLE_AFTER`].
    #[must_use]
    pub const fn new(index: CoreIndex) -> Self {
        Self { index, cpu: None, idle_after: IDLE_AFTER }
    }
}

/// A running core. Dropping it stops the core like [`stop`](Self::stop).
///
/// A panic on the core's thread (in a poller, a task or a closure) means that an invariant of the data path
/// is broken. No data may be served or written after that, by this core or by those that rely on it, so the
/// process aborts after saying why: corruption has to become unavailability. The core and its pollers are not
/// dropped, so no destructor of theirs acts on the broken state either.
#[derive(Debug)]
pub struct CoreThread {
    handle: CoreHandle,
    thread: ThreadId,
    /// Hangs up when the core has ended. The thread itself may stay in the kernel for longer: one that has given the
    /// kernel's workers a request to a drive that does not respond exits when that drive answers.
    /// The lock is never taken: it makes the type `Sync`, and `drop` has exclusive access.
    over: Mutex<mpsc::Receiver<Never>>,
}

/// What is never sent.
#[derive(Debug)]
enum Never {}

impl CoreThread {
    /// Starts a core on a thread named `strake-core-N`. A CPU that it cannot be pinned to is not an error: it
    /// then runs on any, and [`pinning`](Self::pinning) says so.
    ///
    /// # Errors
    /// When the kernel has no thread or event descriptor left.
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
        // Fails only if the thread ended before it sent, which is an abort of the process.
        let _ = started.recv();
        Ok(Self { handle, thread: thread.thread().id(), over: Mutex::new(over) })
    }

    /// A handle to the core.
    #[must_use]
    pub fn handle(&self) -> CoreHandle {
        self.handle.clone()
    }

    /// Which CPU it runs on.
    #[must_use]
    pub fn pinning(&self) -> Pinning {
        self.handle.stats().pinning
    }

    /// Asks the core to stop and waits until it has. Closures accepted before are run; then the pollers are
    /// dropped on the core's thread, whatever they have in flight: stop them first.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for CoreThread {
    fn drop(&mut self) {
        // An error means that it has stopped already.
        let _ = self.handle.run(Core::stop);
        // A core cannot wait for its own end; it stops after the turn that dropped this.
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

// `clippy.toml` bans `abort` in favour of panicking; this is where such a panic ends up, its reason printed.
#[allow(clippy::disallowed_methods)]
fn run_or_abort(core: &mut Core) {
    // Unwind safety does not matter: nothing looks at the core after a panic.
    if catch_unwind(AssertUnwindSafe(|| core.run())).is_err() {
        // The panic hook has printed the message and the place.
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

    /// Holds up the exit of its thread until it is let go, as the kernel does.
    struct Held(mpsc::Receiver<()>);

    impl Drop for Held {
        fn drop(&mut self) {
            let _ = self.0.recv();
        }
    }

    thread_local! {
        static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
    }

    /// A daemon with a drive that hung was not stopped in order: the thread of its data core could not exit.
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
