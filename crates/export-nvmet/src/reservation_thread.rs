//! Who changes reservations: one thread of a target, one command after another, of each host in turn.
//!
//! ```text
//! recorded durably -> in force -> every open I/O queue applies it -> hosts are notified -> answered
//!                                                                     '-> aborted commands have completed
//! ```
//! The order is the promise. What was answered outlasts a loss of power. Once it is answered, no command is handed to a
//! device that it keeps out; and when other hosts' commands were to be given up, none of those is at a device.

mod line;

pub(crate) use line::Asker;

use crate::controller::Host;
use crate::kept::Kept;
use crate::reservation::{Change, Reservations};
use crate::subsystem::Subsystem;
use line::Line;
use std::collections::VecDeque;
use std::io;
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

/// What is to be done.
pub(crate) enum Wish {
    /// What a host's command says.
    Act(Host, Action, Keys),
    /// To have all this outlast a loss of power, or no more.
    Persist(bool),
    /// To end reservation and registrations, because an operator says so.
    Clear,
}

/// The outcome of a wish.
#[derive(Default)]
pub(crate) struct Answer(OnceLock<Status>);

impl Answer {
    /// The result, after the end.
    pub(crate) fn get(&self) -> Option<Status> {
        self.0.get().copied()
    }

    /// Says how it ended, which is said once.
    fn set(&self, status: Status) {
        let _ = self.0.set(status);
    }

    /// Waits for that; for control threads.
    pub(crate) fn wait(&self) -> Status {
        *self.0.wait()
    }
}

struct Job {
    /// Where it is yet to be done.
    places: VecDeque<Place>,
    wish: Wish,
    answer: Arc<Answer>,
}

/// What waits for the thread; `None` once the target stops.
struct Jobs(Mutex<Option<Line<Job>>>);

impl Jobs {
    /// Nothing panics while holding the lock, so a poisoned one holds a sound list. Only commands about reservations
    /// take it, briefly.
    fn lock(&self) -> MutexGuard<'_, Option<Line<Job>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A way to the thread.
#[derive(Clone)]
pub(crate) struct ReservationThread {
    jobs: Arc<Jobs>,
    thread: Thread,
}

impl ReservationThread {
    /// Starts the thread, which wakes `cores` when there is something for them to see.
    ///
    /// # Errors
    /// When the machine has no thread.
    pub(crate) fn start(cores: Vec<CoreHandle>) -> io::Result<(Self, JoinHandle<()>)> {
        let jobs = Arc::new(Jobs(Mutex::new(Some(Line::new()))));
        let work = Work { jobs: Arc::clone(&jobs), cores, unquiet: Vec::new() };
        let handle = thread::Builder::new()
            .name("strake-nvmet-resv".to_owned())
            .spawn(move || work.run())?;
        let thread = handle.thread().clone();
        Ok((Self { jobs, thread }, handle))
    }

    /// The thread, for those who tell it what they have seen.
    pub(crate) fn thread(&self) -> Thread {
        self.thread.clone()
    }

    /// Has something done at all these places, one after the other.
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

    /// Ends the thread; the requests that wait are not executed.
    pub(crate) fn close(&self) {
        let left = self.jobs.lock().take();
        // No asker waits for ever.
        let left = left.into_iter().flat_map(Line::into_jobs);
        left.for_each(|job| job.answer.set(Status::INTERNAL));
        self.thread.unpark();
    }
}

/// An answer that waits for aborted commands.
struct Unquiet {
    subsystem: Arc<Subsystem>,
    namespace: u32,
    hosts: Vec<HostId>,
    answer: Arc<Answer>,
}

/// What the thread finds when it looks for something to do.
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
    /// A thread that has something for this one stores it, then unparks this one. One unpark may stand for several, and
    /// may be consumed by another wait, so everything is checked before every park.
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

    /// Does something at the next of its places. What is to be done at several lets others go in between.
    fn carry_out(&mut self, asker: &Asker, mut job: Job) {
        let Some(place) = job.places.pop_front() else {
            return self.answer(&job.answer, Status::SUCCESS);
        };
        match self.change(&place, &job.wish) {
            Err(status) => self.answer(&job.answer, status),
            // Only a command to one namespace gives up others.
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

    /// Executes a request at one namespace. Says which hosts' commands are to be over before it is answered.
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
        // `kept` keeps the reason, for the operator to read.
        place.kept.record(&before, &change.next).map_err(|_| Status::INTERNAL)?;
        self.enforce(place, &change)?;
        place.subsystem.notify(place.namespace, &place.kept, &change.reported);
        if !change.reported.is_empty() {
            // The answer may be a long time coming.
            self.wake();
        }
        Ok(change.expelled)
    }

    /// Puts a change in force, and waits until every queue applies it, which takes each a turn.
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

    /// Answers what no longer waits for commands at a device, and drops answers that no queue waits for.
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
