//! The worker of an acceptor: a thread that executes the costly steps of negotiations. Accepting, and the cheap steps
//! of other peers, do not wait for them.

use crate::fair_queue::{FairQueue, Next};
use crate::protocol::{Protocol, Step};
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use strake_reactor::monotonic;
use strake_units::Nanos;

/// The end of the name of the thread.
pub(crate) const WORKER_SUFFIX: &str = "-st";

/// A step to execute.
pub(crate) struct StepJob<P: Protocol> {
    /// The candidate. It dangles when the candidate was closed; its step is then not executed.
    pub(crate) candidate: Weak<()>,
    /// The address of the candidate, as in [`FairQueue`].
    pub(crate) place: Option<IpAddr>,
    pub(crate) handshake: P::Handshake,
    pub(crate) input: Vec<u8>,
}

/// An executed step.
pub(crate) struct Stepped<P: Protocol> {
    pub(crate) candidate: Weak<()>,
    /// `None` if the step panicked.
    pub(crate) result: Option<StepResult<P>>,
}

/// The handshake after a step, its output, and what to do next.
pub(crate) struct StepResult<P: Protocol> {
    pub(crate) handshake: P::Handshake,
    pub(crate) out: Vec<u8>,
    pub(crate) step: Step<P::Admission>,
}

/// The thread, which starts with its first job.
pub(crate) struct StepWorker<P: Protocol> {
    /// The name of the acceptor's thread; that of this thread is derived from it.
    acceptor: &'static str,
    protocol: Arc<P>,
    /// Counts executed steps that were not taken.
    executed: Arc<OwnedFd>,
    running: Option<Running<P>>,
}

struct Running<P: Protocol> {
    jobs: mpsc::Sender<StepJob<P>>,
    stepped: mpsc::Receiver<Stepped<P>>,
    thread: JoinHandle<()>,
}

impl<P: Protocol> StepWorker<P> {
    pub(crate) fn new(acceptor: &'static str, protocol: Arc<P>) -> io::Result<Self> {
        let executed = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        Ok(Self { acceptor, protocol, executed, running: None })
    }

    /// The descriptor that is readable when a step was executed.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.executed.as_fd()
    }

    /// Submits a job. Returns false if the operating system has no thread for it.
    pub(crate) fn submit(&mut self, job: StepJob<P>) -> bool {
        if self.running.is_none() {
            self.running = self.start().ok();
        }
        self.running.as_ref().is_some_and(|running| running.jobs.send(job).is_ok())
    }

    fn start(&self) -> io::Result<Running<P>> {
        let (jobs, waiting) = mpsc::channel();
        let (results, stepped) = mpsc::channel();
        let (protocol, executed) = (Arc::clone(&self.protocol), Arc::clone(&self.executed));
        let worker = Worker { protocol, waiting, results, executed, queue: FairQueue::default() };
        // The kernel keeps 15 characters of a name.
        let name = format!("{}{WORKER_SUFFIX}", self.acceptor);
        let thread = Builder::new().name(name).spawn(move || worker.run())?;
        Ok(Running { jobs, stepped, thread })
    }

    /// The steps that were executed since the last call.
    pub(crate) fn take(&self) -> impl Iterator<Item = Stepped<P>> + use<'_, P> {
        // A counter of zero is not readable. It is read first, so that a later step makes it readable again.
        let _ = rustix::io::read(&self.executed, &mut [0; 8]);
        self.running.iter().flat_map(|running| running.stepped.try_iter())
    }
}

impl<P: Protocol> Drop for StepWorker<P> {
    fn drop(&mut self) {
        if let Some(Running { jobs, stepped, thread }) = self.running.take() {
            drop((jobs, stepped));
            // Steps that panic are caught.
            let _ = thread.join();
        }
    }
}

/// The side of the thread.
struct Worker<P: Protocol> {
    protocol: Arc<P>,
    waiting: mpsc::Receiver<StepJob<P>>,
    results: mpsc::Sender<Stepped<P>>,
    executed: Arc<OwnedFd>,
    queue: FairQueue<StepJob<P>>,
}

impl<P: Protocol> Worker<P> {
    /// Executes jobs until the acceptor ends. A peer that connects again and again leaves jobs of closed candidates
    /// behind, which are removed.
    fn run(mut self) {
        loop {
            for job in self.waiting.try_iter() {
                self.queue.push(job.place, job);
            }
            self.queue.retain(|job| job.candidate.strong_count() > 0);
            let now = monotonic();
            let waited = match self.queue.next(now) {
                Next::Item(place, job) => {
                    self.execute(place, job, now);
                    continue;
                }
                Next::At(time) => {
                    self.waiting.recv_timeout(Duration::from_nanos(time.since(now).0))
                }
                Next::Nothing => self.waiting.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match waited {
                Ok(job) => self.queue.push(job.place, job),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn execute(&mut self, place: Option<IpAddr>, job: StepJob<P>, began: Nanos) {
        let StepJob { candidate, mut handshake, input, .. } = job;
        // The panic hook reports a panic. The handshake is then dropped, and the candidate is closed.
        let result = catch_unwind(AssertUnwindSafe(|| {
            let mut out = Vec::new();
            let step = self.protocol.step(&mut handshake, &input, &mut out);
            StepResult { handshake, out, step }
        }));
        self.queue.count(place, monotonic().since(began));
        // If the acceptor has ended, the next receive shows it.
        let _ = self.results.send(Stepped { candidate, result: result.ok() });
        // The write fails only if the counter is full, and then it is readable.
        let _ = rustix::io::write(&self.executed, &1_u64.to_ne_bytes());
    }
}
