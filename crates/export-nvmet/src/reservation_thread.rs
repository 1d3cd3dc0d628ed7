//! The thread of a target that changes reservations. It executes one command at a time, and serves hosts in turn.
//!
//! ```text
//! recorded durably -> in force -> every open I/O queue applies it -> hosts are notified -> completed
//!                                                                     '-> aborted commands have completed
//! ```
//! This order gives two guarantees. A completed change persists through a power loss. After the completion, no excluded
//! command is submitted to a device, and no aborted command of another host is in flight.

mod line;

pub(crate) use line::Asker;

use crate::controller::Host;
use crate::kept::Kept;
use crate::reservation::{Change, Reservations};
use crate::subsystem::Subsystem;
use line::Line;
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use strake_nvme_wire::Status;
use strake_nvme_wire::reservation::{Action, HostId, Keys};
use strake_reactor::CoreHandle;

/// A namespace whose reservations are to change.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) subsystem: Arc<Subsystem>,
    pub(crate) namespace: u32,
    pub(crate) kept: Arc<Kept>,
}

/// A request.
pub(crate) enum Wish {
    /// Execute the command of a host.
    Act(Host, Action, Keys),
    /// Make reservations persist through a power loss, or stop this.
    Persist(bool),
    /// Clear the reservation and the registrations for an operator.
    Clear,
}

/// The outcome of a request.
#[derive(Default)]
pub(crate) struct Answer(OnceLock<Status>);

impl Answer {
    /// The status, if the request has completed.
    pub(crate) fn get(&self) -> Option<Status> {
        self.0.get().copied()
    }

    /// Completes the request; only the first call has an effect.
    fn set(&self, status: Status) {
        let _ = self.0.set(status);
    }

    /// Waits for the completion; for control threads.
    pub(crate) fn wait(&self) -> Status {
        *self.0.wait()
    }
}

struct Job {
    /// The remaining namespaces.
    places: VecDeque<Place>,
    wish: Wish,
    answer: Arc<Answer>,
}

/// The waiting requests; `None` after the target was stopped.
struct Jobs(Mutex<Option<Line<Job>>>);

impl Jobs {
    /// No code panics while it holds the lock, so the list of a poisoned lock is consistent. Only reservation commands
    /// take the lock, briefly.
    fn lock(&self) -> MutexGuard<'_, Option<Line<Job>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A handle of the thread.
#[derive(Clone)]
pub(crate) struct ReservationThread {
    jobs: Arc<Jobs>,
    thread: Thread,
}

impl ReservationThread {
    /// Starts the thread, which wakes `cores` after changes.
    ///
    /// # Errors
    /// Returns an error if the operating system cannot create a thread.
    pub(crate) fn start(cores: Vec<CoreHandle>) -> io::Result<(Self, JoinHandle<()>)> {
        let jobs = Arc::new(Jobs(Mutex::new(Some(Line::new()))));
        let work = Work { jobs: Arc::clone(&jobs), cores, unquiet: Vec::new() };
        let handle = thread::Builder::new()
            .name("strake-nvmet-resv".to_owned())
            .spawn(move || run_or_abort(work))?;
        let thread = handle.thread().clone();
        Ok((Self { jobs, thread }, handle))
    }

    /// The thread, for queues that unpark it.
    pub(crate) fn thread(&self) -> Thread {
        self.thread.clone()
    }

    /// Executes a request for all these namespaces, one after the other.
    pub(crate) fn ask(&self, asker: &Asker, places: Vec<Place>, wish: Wish) -> Arc<Answer> {
        let answer = Arc::new(Answer::default());
        let job = Job { places: places.into(), wish, answer: Arc::clone(&answer) };
        match &mut *self.jobs.lock() {
            Some(line) => {
                if let Err(job) = line.push(asker, job) {
                    job.answer.set(Status::INTERRUPTED);
                }
            }
            None => answer.set(Status::INTERNAL),
        }
        self.thread.unpark();
        answer
    }

    /// Stops the thread; waiting requests fail.
    pub(crate) fn close(&self) {
        let left = self.jobs.lock().take();
        // No asker waits forever.
        let left = left.into_iter().flat_map(Line::into_jobs);
        left.for_each(|job| job.answer.set(Status::INTERNAL));
        self.thread.unpark();
    }
}

/// Executes requests until the thread is stopped. A panic ends the process: its cores may already obey a change that
/// was not recorded, or the reverse, and no host could take over a namespace any more. After a restart, the recorded
/// reservations are in force, and hosts reconnect.
// `clippy.toml` bans `abort` in favour of panicking; such a panic reaches this function, after its reason was printed.
#[allow(clippy::disallowed_methods)]
fn run_or_abort(work: Work) {
    // Unwind safety does not matter, because no code uses the state after a panic.
    if catch_unwind(AssertUnwindSafe(|| work.run())).is_err() {
        eprintln!(
            "strake: the reservation thread panicked, so the access rights of hosts cannot be trusted; aborting to \
             keep reservations intact. Restart the daemon: the recorded reservations are then in force"
        );
        std::process::abort();
    }
}

/// A completion that waits for aborted commands.
struct Unquiet {
    subsystem: Arc<Subsystem>,
    namespace: u32,
    hosts: Vec<HostId>,
    answer: Arc<Answer>,
}

/// The next work item of the thread.
enum Next {
    Job(Asker, Job),
    Nothing,
    Closed,
}

struct Work {
    jobs: Arc<Jobs>,
    cores: Vec<CoreHandle>,
    unquiet: Vec<Unquiet>,
}

impl Work {
    /// Another thread stores its request and then unparks this thread. One unpark may stand for several, and another
    /// wait may consume it, so everything is checked before every park.
    fn run(mut self) {
        loop {
            self.answer_quiet();
            match self.next() {
                Next::Job(asker, job) => self.carry_out(&asker, job),
                Next::Nothing => thread::park(),
                Next::Closed => break,
            }
        }
        self.unquiet.iter().for_each(|known| known.answer.set(Status::INTERNAL));
        self.wake();
    }

    fn next(&self) -> Next {
        match &mut *self.jobs.lock() {
            None => Next::Closed,
            Some(line) => line.next().map_or(Next::Nothing, |(asker, job)| Next::Job(asker, job)),
        }
    }

    fn is_closed(&self) -> bool {
        self.jobs.lock().is_none()
    }

    fn wake(&self) {
        self.cores.iter().for_each(CoreHandle::wake);
    }

    fn answer(&self, answer: &Answer, status: Status) {
        answer.set(status);
        self.wake();
    }

    /// Executes a request at the next of its namespaces. Between the namespaces of one request, other requests are
    /// executed.
    fn carry_out(&mut self, asker: &Asker, mut job: Job) {
        let Some(place) = job.places.pop_front() else {
            return self.answer(&job.answer, Status::SUCCESS);
        };
        match self.change(&place, &job.wish) {
            Err(status) => self.answer(&job.answer, status),
            // Only a command for one namespace aborts commands.
            Ok(hosts) if !hosts.is_empty() => {
                let Place { subsystem, namespace, .. } = place;
                self.unquiet.push(Unquiet { subsystem, namespace, hosts, answer: job.answer });
            }
            Ok(_) if job.places.is_empty() => self.answer(&job.answer, Status::SUCCESS),
            Ok(_) => match &mut *self.jobs.lock() {
                Some(line) => line.put_back(asker, job),
                None => job.answer.set(Status::INTERNAL),
            },
        }
    }

    /// Executes a request for one namespace. Returns the hosts whose commands must complete before the request
    /// completes.
    fn change(&self, place: &Place, wish: &Wish) -> Result<Vec<HostId>, Status> {
        let before = place.kept.reservations();
        let change = match wish {
            Wish::Act(host, action, keys) => before.after((&host.id, &host.nqn), *action, *keys)?,
            Wish::Persist(persists) => {
                let next = Reservations { persists: *persists, ..before.clone() };
                Change { next, reported: Vec::new(), expelled: Vec::new() }
            }
            Wish::Clear => {
                let mut change = before.cleared(None);
                change.next.persists = false;
                change
            }
        };
        if change.next == before {
            return Ok(Vec::new());
        }
        if change.next.persists && !place.kept.can_persist() {
            return Err(Status::INVALID_FIELD);
        }
        // `kept` keeps the reason for the operator.
        place.kept.record(&before, &change.next).map_err(|_| Status::INTERNAL)?;
        self.enforce(place, &change)?;
        place.subsystem.notify(place.namespace, &place.kept, &change.reported);
        if !change.reported.is_empty() {
            // The completion of the request may take long.
            self.wake();
        }
        Ok(change.expelled)
    }

    /// Applies a change, and waits until every queue has applied it, which takes each queue one turn.
    fn enforce(&self, place: &Place, change: &Change) -> Result<(), Status> {
        let watches = &place.subsystem.watches;
        let number = watches.changes() + 1;
        place.kept.enforce(change, number);
        watches.publish(number);
        self.wake();
        while !watches.have_applied(number) {
            if self.is_closed() {
                return Err(Status::INTERNAL);
            }
            thread::park();
        }
        Ok(())
    }

    /// Completes requests whose aborted commands have completed, and drops requests whose queue is closed.
    fn answer_quiet(&mut self) {
        let is_over = |known: &mut Unquiet| {
            let watches = &known.subsystem.watches;
            Arc::strong_count(&known.answer) == 1
                || watches.are_quiet(&known.hosts, known.namespace)
        };
        let over: Vec<Unquiet> = self.unquiet.extract_if(.., is_over).collect();
        over.iter().for_each(|known| self.answer(&known.answer, Status::SUCCESS));
    }
}

#[cfg(test)]
mod tests;
