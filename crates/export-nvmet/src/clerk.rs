//! Who changes reservations: one thread of a target, one command after another.
//!
//! ```text
//! recorded durably -> in force -> every open I/O queue obeys it -> hosts are told -> answered
//!                                                                     '-> commands that were given up are over
//! ```
//! The order is the promise. What was answered outlasts a loss of power. Once it is answered, no command is handed to a
//! device that it keeps out; and when other hosts' commands were to be given up, none of those is at a device.

use crate::controller::Host;
use crate::kept::Kept;
use crate::reservation::{Change, Reservations};
use crate::subsystem::Subsystem;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, OnceLock};
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

/// What becomes of a wish.
#[derive(Default)]
pub(crate) struct Answer(OnceLock<Status>);

impl Answer {
    /// How it ended, once it has.
    pub(crate) fn get(&self) -> Option<Status> {
        self.0.get().copied()
    }

    /// Waits for that; for control threads.
    pub(crate) fn wait(&self) -> Status {
        *self.0.wait()
    }
}

struct Job {
    places: Vec<Place>,
    wish: Wish,
    answer: Arc<Answer>,
}

/// A way to the thread.
#[derive(Clone)]
pub(crate) struct Clerk {
    jobs: Sender<Job>,
    closed: Arc<AtomicBool>,
    thread: Thread,
}

impl Clerk {
    /// Starts the thread, which wakes `cores` when there is something for them to see.
    ///
    /// # Errors
    /// When the machine has no thread.
    pub(crate) fn start(cores: Vec<CoreHandle>) -> io::Result<(Self, JoinHandle<()>)> {
        let (jobs, taken) = mpsc::channel();
        let closed = Arc::new(AtomicBool::new(false));
        let desk = Work { jobs: taken, closed: Arc::clone(&closed), cores, unquiet: Vec::new() };
        let handle = thread::Builder::new()
            .name("strake-nvmet-resv".to_owned())
            .spawn(move || desk.run())?;
        let thread = handle.thread().clone();
        Ok((Self { jobs, closed, thread }, handle))
    }

    /// The thread, for those who tell it what they have seen.
    pub(crate) fn thread(&self) -> Thread {
        self.thread.clone()
    }

    /// Has something done at all these places, one after the other.
    pub(crate) fn ask(&self, places: Vec<Place>, wish: Wish) -> Arc<Answer> {
        let answer = Arc::new(Answer::default());
        let job = Job { places, wish, answer: Arc::clone(&answer) };
        if let Err(mpsc::SendError(job)) = self.jobs.send(job) {
            // The target stops.
            let _ = job.answer.0.set(Status::INTERNAL);
        }
        self.thread.unpark();
        answer
    }

    /// Ends the thread; what it has not done is not done. Release: pairs with its look.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// An answer that waits for commands that were given up.
struct Unquiet {
    subsystem: Arc<Subsystem>,
    hosts: Vec<HostId>,
    number: u64,
    answer: Arc<Answer>,
}

struct Work {
    jobs: Receiver<Job>,
    closed: Arc<AtomicBool>,
    cores: Vec<CoreHandle>,
    unquiet: Vec<Unquiet>,
}

impl Work {
    /// Whoever has something for this thread unparks it after having put it down.
    fn run(mut self) {
        while !self.is_closed() {
            while let Ok(job) = self.jobs.try_recv() {
                self.carry_out(job);
            }
            self.answer_quiet();
            thread::park();
        }
        // Nobody waits for ever.
        let waiting = self.unquiet.iter().map(|known| Arc::clone(&known.answer));
        let left = self.jobs.try_iter().map(|job| job.answer);
        waiting.chain(left).for_each(|answer| self.answer(&answer, Status::INTERNAL));
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn wake(&self) {
        self.cores.iter().for_each(CoreHandle::wake);
    }

    fn answer(&self, answer: &Answer, status: Status) {
        let _ = answer.0.set(status);
        self.wake();
    }

    fn carry_out(&mut self, job: Job) {
        let Job { places, wish, answer } = job;
        let mut last = Ok(None);
        for place in places {
            last = self.change(&place, &wish).map(|unquiet| unquiet.map(|known| (place, known)));
            if last.is_err() {
                break;
            }
        }
        match last {
            Err(status) => self.answer(&answer, status),
            Ok(None) => self.answer(&answer, Status::SUCCESS),
            Ok(Some((Place { subsystem, .. }, (hosts, number)))) => {
                self.unquiet.push(Unquiet { subsystem, hosts, number, answer });
            }
        }
    }

    /// Carries a wish out at one place. Says which hosts' commands are to be over before it is answered, and by which
    /// change.
    fn change(&self, place: &Place, wish: &Wish) -> Result<Option<(Vec<HostId>, u64)>, Status> {
        let before = place.kept.reservations();
        let change = match wish {
            Wish::Act(host, action, keys) => before.after((&host.id, &host.nqn), *action, *keys)?,
            Wish::Persist(persists) => {
                let next = Reservations { persists: *persists, ..before.clone() };
                Change { next, told: Vec::new(), expelled: Vec::new() }
            }
            Wish::Clear => {
                let mut change = before.cleared(None);
                change.next.persists = false;
                change
            }
        };
        if change.next == before {
            return Ok(None);
        }
        if change.next.persists && !place.kept.can_persist() {
            return Err(Status::INVALID_FIELD);
        }
        // Whoever keeps the ledger tells people.
        place.kept.record(&before, &change.next).map_err(|_| Status::INTERNAL)?;
        let number = self.enforce(place, &change)?;
        place.subsystem.notify(place.namespace, &place.kept, &change.told);
        let Change { expelled, .. } = change;
        Ok((!expelled.is_empty()).then_some((expelled, number)))
    }

    /// Puts a change in force, and waits until every queue obeys it, which takes each a turn.
    fn enforce(&self, place: &Place, change: &Change) -> Result<u64, Status> {
        let watches = &place.subsystem.watches;
        let number = watches.changes() + 1;
        place.kept.enforce(change, number);
        watches.publish(number);
        self.wake();
        while !watches.obey(number) {
            if self.is_closed() {
                return Err(Status::INTERNAL);
            }
            thread::park();
        }
        Ok(number)
    }

    fn answer_quiet(&mut self) {
        let is_quiet =
            |known: &mut Unquiet| known.subsystem.watches.are_quiet(&known.hosts, known.number);
        let over: Vec<Unquiet> = self.unquiet.extract_if(.., is_quiet).collect();
        over.iter().for_each(|known| self.answer(&known.answer, Status::SUCCESS));
    }
}
