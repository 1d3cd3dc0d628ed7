//! The keeper of a controller: executes the actions that its lifecycle decides.
//!
//! A thread runs the keeper (`run`); tests call [`Keeper::turn`] with the time. The keeper executes all operations that
//! may wait, so that data cores do not wait.

mod maintenance;
mod preparation;

use crate::admin::{Admin, Answered, DataPage};
use crate::error::Reason;
use crate::facts::{Controller, Facts, Namespace};
use crate::lifecycle::{Action, Event, Lifecycle, Named, Phase, Step};
use crate::limits::{ADMIN_ENTRIES, ADMIN_TIME_MAX, LOG_TIME_MAX, PAGE, SCAN, TURN};
use crate::memory::Registers;
use crate::queue::Estate;
use crate::shared::{Port, REFUSED, Request, Shared, lock};
use crate::transport::Function;
use crate::wire::{
    Capabilities, Csts, Ring, abort, cc, command, delete_completion, delete_submission, offset,
};
use maintenance::Maintenance;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::{Duration, Instant};
use strake_nvme_wire::command::admin;
use strake_nvme_wire::{Cqe, Sqe, feature};
use strake_units::Nanos;

/// The purpose of an admin command.
enum Purpose {
    Step(Step),
    CreateCompletion(Arc<Port>),
    CreateSubmission(Arc<Port>),
    DeleteSubmission(Arc<Port>),
    DeleteCompletion(Arc<Port>),
    Abort,
    Event,
    Log(u32, SyncSender<Result<Vec<u8>, Reason>>),
    /// A log page whose reader no longer waits. The controller owns its page of memory until the answer arrives.
    LateLog,
    /// A maintenance command.
    Maintenance(Box<Maintenance>),
    /// The list of changed namespaces. The keeper reads it so that the controller reports the next change.
    Changed,
    /// The Identify of the namespace, after a change.
    Namespace,
}

impl Purpose {
    /// The time limit of the answer.
    const fn time(&self) -> Option<Nanos> {
        match self {
            // The lifecycle limits a step, and an event may never happen. A log page without an answer says nothing
            // about the medium: a reset, and after some resets a failed drive, would cost more than the page.
            Self::Step(_) | Self::Event | Self::Log(..) | Self::LateLog | Self::Maintenance(_) => {
                None
            }
            Self::CreateCompletion(_)
            | Self::CreateSubmission(_)
            | Self::DeleteSubmission(_)
            | Self::DeleteCompletion(_)
            | Self::Abort => Some(ADMIN_TIME_MAX),
            Self::Changed | Self::Namespace => Some(LOG_TIME_MAX),
        }
    }
}

/// A queue pair.
struct Pair {
    port: Arc<Port>,
    /// The memory that a dropped queue has left.
    estate: Option<Estate>,
}

/// Power cycles and unsafe shutdowns, from the health log page.
type Losses = (u64, u64);

/// The keeper; see the documentation of the module.
pub struct Keeper {
    shared: Arc<Shared>,
    function: Option<Box<dyn Function>>,
    lifecycle: Lifecycle,
    admin: Admin<Purpose>,
    pairs: Vec<Pair>,
    /// Commands that wait for space in the admin queue.
    waiting: Vec<(Sqe, Purpose)>,
    /// The results of the preparation so far.
    controller: Option<Controller>,
    namespace: Option<Namespace>,
    nsid: u32,
    losses: Option<Losses>,
    /// Whether CFS or a reset of the subsystem was seen since the last session.
    was_fatal: bool,
    /// The time of the next read of the registers, if the controller is ready.
    look_at: Nanos,
    /// The time of the current turn.
    now: Nanos,
    cap: Capabilities,
}

impl Keeper {
    /// Takes over a function. The keeper does not access the controller before the first turn.
    ///
    /// # Errors
    /// There is no memory.
    pub(crate) fn new(shared: &Arc<Shared>, function: Box<dyn Function>) -> Result<Self, Reason> {
        let registers = Arc::clone(function.registers());
        let cap = shared.cap;
        let memory = |error: io::Error| Reason::Memory(error.to_string());
        Ok(Self {
            shared: Arc::clone(shared),
            function: Some(function),
            lifecycle: Lifecycle::new(cap.ready_units()),
            admin: Admin::new(&shared.window, &registers, cap).map_err(memory)?,
            pairs: Vec::new(),
            waiting: Vec::new(),
            controller: None,
            namespace: None,
            nsid: 0,
            losses: None,
            was_fatal: false,
            look_at: Nanos(0),
            now: Nanos(0),
            cap,
        })
    }

    /// Runs until the device is released or removed and no queue remains.
    pub(crate) fn run(mut self) {
        let start = Instant::now();
        self.shared.set_keeper(thread::current());
        loop {
            let now = Nanos(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
            if self.turn(now) == Turn::Over {
                return;
            }
            let wait = if self.is_busy() { TURN } else { SCAN };
            thread::park_timeout(Duration::from_nanos(wait.0));
        }
    }

    fn is_busy(&self) -> bool {
        let is_waiting = |purpose: &Purpose| match purpose {
            Purpose::Event | Purpose::LateLog => false,
            Purpose::Maintenance(maintenance) => maintenance.is_quick(),
            _ => true,
        };
        self.lifecycle.is_changing() || !self.waiting.is_empty() || self.admin.any(is_waiting)
    }

    /// Executes all work that is due at `now`, without waiting for the controller.
    pub fn turn(&mut self, now: Nanos) -> Turn {
        self.now = now;
        if self.lifecycle.state == crate::lifecycle::State::New {
            self.happens(now, Event::Open);
        }
        for request in self.shared.requests() {
            self.serve(now, request);
        }
        self.look(now);
        // A controller that answers without end must not keep the keeper from its other work.
        for _ in 0..ADMIN_ENTRIES {
            let Some(answered) = self.admin.next() else { break };
            match answered {
                Answered::To(purpose, cqe) => self.answered(now, purpose, cqe),
                Answered::Unknown(cid) => {
                    self.happens(now, Event::Broken(Reason::UnknownCommand(cid)))
                }
            }
        }
        self.give_up_log(now);
        if self.give_up_maintenance(now) {
            self.happens(now, Event::Broken(Reason::NoAnswer));
        }
        if self.lifecycle.is_ready() && self.admin.is_late(now, Purpose::time) {
            self.happens(now, Event::Broken(Reason::NoAnswer));
        }
        self.send_waiting();
        let is_over = self.lifecycle.is_over() && self.function.is_none() && self.pairs.is_empty();
        if is_over { Turn::Over } else { Turn::More }
    }

    /// The reason of the last reset or failure of the controller.
    #[must_use]
    pub fn reason(&self) -> Option<&Reason> {
        self.lifecycle.reason.as_ref()
    }

    /// Checks the registers and the signals of the platform.
    fn look(&mut self, now: Nanos) {
        let Some(function) = &self.function else { return };
        let signals = function.signals();
        let is_urgent = signals.has_failed || function.registers().was_cut();
        if signals.is_requested {
            self.happens(now, Event::Stop);
        }
        let is_due = now >= self.look_at || !self.lifecycle.is_ready() || is_urgent;
        let Some(function) = self.function.as_ref().filter(|_| is_due) else { return };
        self.look_at = now.plus(SCAN);
        let csts = status(function.registers());
        if !csts.is_all_ones() {
            self.was_fatal |= csts.is_fatal();
            if csts.was_subsystem_reset() && csts.is_ready() {
                self.was_fatal = true;
                function.registers().write(offset::CSTS, Csts::NSSRO);
            }
        }
        let is_parking = matches!(self.lifecycle.state, crate::lifecycle::State::Parking { .. });
        if is_parking && self.shared.is_parked(self.pairs.iter().map(|pair| &pair.port)) {
            self.happens(now, Event::Parked);
        }
        self.happens(now, Event::Status(csts));
    }

    /// Passes an event to the lifecycle, and executes the resulting actions.
    fn happens(&mut self, now: Nanos, event: Event) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            let (next, actions) = self.lifecycle.clone().next(now, event);
            self.lifecycle = next;
            lock(&self.shared.known).reason.clone_from(&self.lifecycle.reason);
            for action in actions {
                events.extend(self.carry_out(action));
            }
        }
    }

    /// Executes an action, and returns the event that it causes immediately.
    fn carry_out(&mut self, action: Action) -> Option<Event> {
        if let Action::Publish(phase) = action {
            self.publish(phase);
            return None;
        }
        let function = self.function.as_ref()?;
        let registers = Arc::clone(function.registers());
        match action {
            Action::Publish(_) | Action::Park => {}
            Action::Disable => registers.write(offset::CC, 0),
            Action::Enable => {
                self.abandon();
                self.admin.enable();
            }
            Action::ResetFunction => {
                // If the function cannot be reset, its registers show it.
                let _ = function.reset();
                return Some(Event::FunctionReset);
            }
            Action::Ask(step) => return self.ask(step),
            Action::Look => {
                return Some(if function.is_present() { Event::Present } else { Event::Absent });
            }
            Action::Abort(named) => self.abort(named),
            Action::ShutDown => registers.write(offset::CC, cc::ENABLED | cc::SHUTDOWN),
            Action::Close => {
                self.abandon();
                // A mapping that cannot be replaced stays until the last queue is dropped.
                let _ = registers.let_go();
                self.function = None;
            }
            // A remaining mapping would keep the device open, so that nothing is proven.
            Action::Cut if registers.let_go().is_ok() => {
                self.abandon();
                self.function = None;
                return Some(Event::Cut);
            }
            Action::Cut => {}
        }
        None
    }

    fn publish(&mut self, phase: Phase) {
        match phase {
            Phase::Live => self.begin(),
            Phase::Parked if self.lifecycle.is_stopping() => {}
            Phase::Parked => {
                // The counter is informative; no memory depends on its order.
                self.shared.counters.resets.fetch_add(1, Ordering::Relaxed);
            }
            Phase::Fenced | Phase::Gone => {
                // The controller no longer uses the memory that queues have left.
                let (left, kept): (Vec<Pair>, Vec<Pair>) = std::mem::take(&mut self.pairs)
                    .into_iter()
                    .partition(|pair| pair.estate.is_some());
                self.pairs = kept;
                lock(&self.shared.known).numbers.extend(left.iter().map(|pair| pair.port.number));
                if phase == Phase::Gone {
                    self.abandon();
                }
            }
            Phase::Unfenced => {}
        }
        self.shared.publish(phase);
    }

    /// Starts a session: publishes the facts about the drive.
    fn begin(&mut self) {
        self.was_fatal = false;
        if let (Some(controller), Some(namespace)) = (&self.controller, &self.namespace) {
            let (controller, namespace) = (controller.clone(), namespace.clone());
            lock(&self.shared.known).facts = Some(Facts { controller, namespace });
        }
    }

    /// No pending command will be answered. Notifies the readers that wait for log pages.
    fn abandon(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        let pending: Vec<Purpose> = self.admin.abandon().collect();
        for purpose in pending.into_iter().chain(waiting.into_iter().map(|(_, purpose)| purpose)) {
            let reason = || self.lifecycle.reason.clone().unwrap_or(Reason::NoAnswer);
            match purpose {
                Purpose::Log(_, reply) => _ = reply.try_send(Err(reason())),
                Purpose::Maintenance(mut maintenance) => {
                    maintenance.fail(Reason::Interrupted(reason().to_string()));
                }
                _ => {}
            }
        }
    }

    fn serve(&mut self, now: Nanos, request: Request) {
        match request {
            Request::Attach(port) => self.attach(port),
            Request::AbortDue(named) => self.happens(now, Event::AbortDue(named)),
            Request::Broken(session, reason) => {
                let word = self.shared.word();
                if word.session() == session && word.phase() == Phase::Live {
                    self.happens(now, Event::Broken(reason));
                }
            }
            Request::Closed(port, estate) => self.close(port, estate),
            Request::Log(number, bytes, reply) => self.read_log(number, bytes, reply),
            Request::Maintain(command, reply) => self.maintain(command, reply),
            Request::Stop => self.happens(now, Event::Stop),
        }
    }

    /// Creates the queue pair of a port, if a session is active.
    fn attach(&mut self, port: Arc<Port>) {
        if !self.lifecycle.is_ready() {
            // The queue repeats its request in the next session.
            return;
        }
        if !self.pairs.iter().any(|pair| Arc::ptr_eq(&pair.port, &port)) {
            self.pairs.push(Pair { port: Arc::clone(&port), estate: None });
        }
        let Port { number, entries, completion, .. } = *port;
        self.shared.clear_shadow(number);
        let ring = Ring { number, entries, address: completion };
        self.send(ring.create_completion(), Purpose::CreateCompletion(port));
    }

    /// Handles a queue that is no longer used.
    fn close(&mut self, port: Arc<Port>, estate: Estate) {
        let word = self.shared.word();
        let is_attached = port.attached.load(Ordering::Acquire) == word.session();
        let pending = |purpose: &Purpose| match purpose {
            Purpose::CreateSubmission(of) | Purpose::CreateCompletion(of) => Arc::ptr_eq(of, &port),
            _ => false,
        };
        let is_coming =
            self.admin.any(pending) || self.waiting.iter().any(|(_, purpose)| pending(purpose));
        let is_used =
            (is_attached || is_coming) && !matches!(word.phase(), Phase::Fenced | Phase::Gone);
        if !is_used {
            self.pairs.retain(|pair| !Arc::ptr_eq(&pair.port, &port));
            lock(&self.shared.known).numbers.push(port.number);
            return drop(estate);
        }
        let pair = self.pairs.iter_mut().find(|pair| Arc::ptr_eq(&pair.port, &port));
        match pair {
            Some(pair) => pair.estate = Some(estate),
            None => self.pairs.push(Pair { port: Arc::clone(&port), estate: Some(estate) }),
        }
        if is_attached && word.phase() == Phase::Live {
            self.send(delete_submission(port.number), Purpose::DeleteSubmission(port));
        }
    }

    /// Frees the number of a port whose queue pair the controller no longer has.
    fn forget(&mut self, port: &Arc<Port>) {
        self.pairs.retain(|pair| !(Arc::ptr_eq(&pair.port, port) && pair.estate.is_some()));
        lock(&self.shared.known).numbers.push(port.number);
    }

    fn abort(&mut self, named: Named) {
        if self.admin.any(|purpose| matches!(purpose, Purpose::Abort)) {
            // The keeper sends one Abort at a time: a controller that does not answer is reset soon.
            return;
        }
        // The counter is informative; no memory depends on its order.
        self.shared.counters.aborts.fetch_add(1, Ordering::Relaxed);
        self.send(abort(named.queue, named.cid), Purpose::Abort);
    }

    fn read_log(&mut self, number: u8, bytes: u32, reply: SyncSender<Result<Vec<u8>, Reason>>) {
        let bytes = bytes.clamp(4, PAGE as u32) & !3;
        if !self.lifecycle.is_ready() {
            let reason = self.lifecycle.reason.clone().unwrap_or(Reason::NotReady);
            let _ = reply.try_send(Err(reason));
            return;
        }
        let sqe = self.log_page(number, bytes, DataPage::Logs);
        if self.admin.any(|purpose| matches!(purpose, Purpose::LateLog)) {
            let _ = reply.try_send(Err(Reason::NoAnswer));
            return;
        }
        if self.admin.any(|purpose| matches!(purpose, Purpose::Log(..))) {
            // Log pages share one page for their data.
            return self.waiting.push((sqe, Purpose::Log(bytes, reply)));
        }
        self.send(sqe, Purpose::Log(bytes, reply));
    }

    /// Fails a late log page, and the log pages that wait for it. The session continues.
    fn give_up_log(&mut self, now: Nanos) {
        let mut is_late = false;
        for purpose in self.admin.late(now, LOG_TIME_MAX) {
            let Purpose::Log(_, reply) = purpose else { continue };
            let _ = reply.try_send(Err(Reason::NoAnswer));
            *purpose = Purpose::LateLog;
            is_late = true;
        }
        if is_late {
            let is_log = |(_, purpose): &mut (Sqe, Purpose)| matches!(purpose, Purpose::Log(..));
            for (_, purpose) in self.waiting.extract_if(.., is_log) {
                let Purpose::Log(_, reply) = purpose else { continue };
                let _ = reply.try_send(Err(Reason::NoAnswer));
            }
        }
    }

    fn log_page(&self, number: u8, bytes: u32, data: DataPage) -> Sqe {
        let (dwords, address) = (bytes / 4 - 1, self.admin.page_address(data));
        let sqe = command(admin::GET_LOG_PAGE, u32::MAX, (address, 0));
        sqe.with(10, (dwords & 0xffff) << 16 | u32::from(number)).with(11, dwords >> 16)
    }

    /// Sends a command now, or once there is space.
    fn send(&mut self, sqe: Sqe, purpose: Purpose) {
        if let Err(purpose) = self.admin.send(self.now, sqe, purpose) {
            self.waiting.push((sqe, purpose));
        }
    }

    fn send_waiting(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        for (sqe, purpose) in std::mem::take(&mut self.waiting) {
            let is_log = matches!(purpose, Purpose::Log(..));
            if is_log && self.admin.any(|other| matches!(other, Purpose::Log(..))) {
                self.waiting.push((sqe, purpose));
            } else {
                self.send(sqe, purpose);
            }
        }
    }

    fn answered(&mut self, now: Nanos, purpose: Purpose, cqe: Cqe) {
        let is_good = cqe.status.is_success();
        match purpose {
            Purpose::Step(step) => {
                let judged = self.judge(step, cqe);
                self.happens(now, Event::Answered(judged));
            }
            Purpose::CreateCompletion(port) if is_good => {
                let Port { number, entries, submission, .. } = *port;
                let ring = Ring { number, entries, address: submission };
                self.send(ring.create_submission(), Purpose::CreateSubmission(port));
            }
            Purpose::CreateCompletion(port) => self.refuse(&port),
            Purpose::CreateSubmission(port) if is_good => self.attached(port),
            Purpose::CreateSubmission(port) => {
                self.send(delete_completion(port.number), Purpose::Abort);
                self.refuse(&port);
            }
            Purpose::DeleteSubmission(port) if is_good => {
                self.send(delete_completion(port.number), Purpose::DeleteCompletion(port));
            }
            Purpose::DeleteCompletion(port) if is_good => self.forget(&port),
            Purpose::DeleteSubmission(_) | Purpose::DeleteCompletion(_) => {
                // Only a reset can release the memory of the queue.
                let reason = Reason::Admin("the deletion of a queue", cqe.status);
                self.happens(now, Event::Broken(reason));
            }
            Purpose::Event if is_good => self.event(cqe.result),
            Purpose::Log(bytes, reply) => {
                let page = self.admin.page(DataPage::Logs);
                let failed = Err(Reason::Admin("Get Log Page", cqe.status));
                let _ = reply.try_send(if is_good {
                    Ok(page[..bytes as usize].to_vec())
                } else {
                    failed
                });
            }
            Purpose::Maintenance(maintenance) => self.maintained(*maintenance, cqe),
            Purpose::Namespace => self.namespace_changed(now, is_good),
            Purpose::Abort | Purpose::Event | Purpose::Changed | Purpose::LateLog => {}
        }
    }

    fn refuse(&mut self, port: &Arc<Port>) {
        // Partner: `NvmeQueue::attach`.
        port.attached.store(REFUSED, Ordering::Release);
    }

    /// Handles the creation of the queue pair of a port.
    fn attached(&mut self, port: Arc<Port>) {
        // Partner: `NvmeQueue::attach`.
        port.attached.store(self.shared.word().session(), Ordering::Release);
        let is_left =
            self.pairs.iter().any(|pair| Arc::ptr_eq(&pair.port, &port) && pair.estate.is_some());
        if is_left {
            self.send(delete_submission(port.number), Purpose::DeleteSubmission(port));
        }
    }

    /// Handles an asynchronous event: reads its log page, so that the next is reported, and requests the next event.
    fn event(&mut self, result: u64) {
        let log = (result >> 16) as u8;
        let sqe = self.log_page(log, PAGE as u32, DataPage::Steps);
        self.send(sqe, Purpose::Changed);
        if result & feature::event::RESULT_MASK == feature::event::NAMESPACES_CHANGED_RESULT {
            self.look_at_namespace();
        }
        self.send(command(admin::ASYNC_EVENT, 0, (0, 0)), Purpose::Event);
    }

    /// Handles a possible change of the namespace. A larger namespace is published; any other change ends the session,
    /// and the next preparation finds the reason.
    fn namespace_changed(&mut self, now: Nanos, is_good: bool) {
        let page = self.admin.page(DataPage::Namespace);
        let mut known = lock(&self.shared.known);
        let Some(facts) = &mut known.facts else { return };
        let changed = Namespace::of(&page, self.nsid, &facts.controller);
        let changed = changed.ok().filter(|_| is_good).map(|namespace| facts.with(namespace));
        match changed.filter(|changed| changed.continues(facts)) {
            Some(changed) => *facts = changed,
            None => {
                drop(known);
                self.happens(now, Event::Broken(Reason::AnotherDrive));
            }
        }
    }
}

/// Returns the status of the controller. Some platforms answer with zeroes instead of ones for a device that was
/// removed or whose memory is not decoded, which would mean that the controller is stopped. The capabilities (CAP) of a
/// controller are constant, and their lower half is never zero: CAP.MQES is at least 1.
fn status(registers: &Registers) -> Csts {
    let read = || (registers.read(offset::CSTS), registers.read(offset::CAP));
    let (csts, cap) = match read() {
        // Memory decoding may have been turned on only after the read of CSTS.
        (0, cap) if cap != 0 => read(),
        seen => seen,
    };
    if (csts, cap) == (0, 0) { Csts(u32::MAX) } else { Csts(csts) }
}

/// Whether a keeper has more work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The keeper has more work.
    More,
    /// The device is released or removed, and no queue remains.
    Over,
}
