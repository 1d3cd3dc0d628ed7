//! Drives one shard: the work of a turn and its order.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Arc, mpsc};

use strake_block::{IoErrorKind, Op};
use strake_ondisk::Consistency;
use strake_raid::MemberEvent;
use strake_reactor::{Poller, Scheduler, Sleep, Tasks, Turn};
use strake_units::{CoreIndex, MemberIndex, MemberSet, Nanos, RegionIndex};

use super::agreed::AgreedStrips;
use super::build::{Link, Room, ShardBuffers, ShardSpec, build, impaired};
use super::install::Install;
use super::members::{HostRead, Members, Overdue, Whole};
use super::redo::logging;
use super::{
    Job, Shard, band_task, leader_tasks, partial_writes, rebuild, scratch, serve, small, workers,
};
use crate::error::ArrayError;
use crate::events::ArrayEventKind;
use crate::limits::{LATENCY_LOOK, TASKS_CONCLUDING, TASKS_MAX, TASKS_RESERVED, TIMEOUT_CHECK};
use crate::message::{Change, Control, FailReason, Pairing, Peer, SpanDone, ToLeader, View};
use crate::port::{self, Port};
use crate::roll::Roll;

/// Maximum number of tasks polled in one turn before other work.
const TASKS_PER_TURN: usize = TASKS_MAX;

/// Builds the shard on the core (or simulator thread) that drives the shard.
///
/// # Errors
/// If the queue of a member cannot be opened.
pub(crate) fn drive(
    mut spec: ShardSpec,
    buffers: ShardBuffers,
) -> Result<Box<dyn Poller>, ArrayError> {
    let room = Room::of(&spec.options);
    let scheduler = Scheduler::new(room.tasks);
    let shard = build(&mut spec, buffers, &scheduler)?;
    shard.begin(&spec.untrusted);
    let shard = Rc::new(shard);
    port::drives(&shard);
    Ok(Box::new(Driver {
        shard,
        tasks: Tasks::new(scheduler),
        start: workers::work,
        control: spec.control,
        links: spec.links,
        inbox: VecDeque::new(),
        host_reads: VecDeque::with_capacity(room.requests),
        next_timeout_check: Nanos(0),
        next_latency_look: Nanos(0),
        quiesced: Vec::new(),
        drained: Vec::new(),
        installs: Vec::new(),
    }))
}

/// Executes one job.
pub(super) async fn run_job(shard: &Rc<Shard>, job: Job) {
    match job {
        Job::Band(entry) => band_task::run(shard, entry).await,
        Job::Conclude { write } => small::conclude(shard, write).await,
        Job::Record => partial_writes::record(shard).await,
        Job::Flush { request } => serve::flush(shard, request).await,
        Job::Maintain => rebuild::run(Rc::clone(shard)).await,
        Job::Labels => leader_tasks::labels(Rc::clone(shard)).await,
        Job::Bitmap => leader_tasks::bitmap(Rc::clone(shard)).await,
    }
}

struct Driver<F: Future<Output = ()>, S: Fn(Rc<Shard>, Job) -> F> {
    shard: Rc<Shard>,
    tasks: Tasks<F>,
    start: S,
    control: mpsc::Receiver<Control>,
    links: Vec<Option<Link>>,
    /// Messages of the shard to itself.
    inbox: VecDeque<Peer>,
    host_reads: VecDeque<HostRead>,
    next_timeout_check: Nanos,
    next_latency_look: Nanos,
    /// Callers that wait until this shard is quiescent.
    quiesced: Vec<mpsc::Sender<()>>,
    /// Callers that also wait for abandoned I/Os.
    drained: Vec<mpsc::Sender<()>>,
    /// Devices that still have to be opened.
    installs: Vec<Install>,
}

impl<F: Future<Output = ()>, S: Fn(Rc<Shard>, Job) -> F> Poller for Driver<F, S> {
    fn turn(&mut self, now: Nanos) -> Turn {
        self.shard.now.set(now);
        self.shard.pace(now);
        let mut work = self.collect(now);
        work += self.take_control();
        work += self.take_messages();
        let accepted = self.shard.requests.borrow_mut().accept();
        self.shard.publish_counts();
        work += accepted + self.shard.hand_out();
        self.shard.lead_clock();
        work += self.start_jobs();
        work += self.tasks.run(TASKS_PER_TURN);
        self.shard.report_drained();
        self.shard.show_clients(now);
        self.shard.members.borrow_mut().ring(now);
        work += self.send();
        self.report_quiet();
        // The sets do not change between two turns.
        self.shard.sets.set(self.shard.sets());
        Turn::from_count(work)
    }

    fn sleep(&self, sleep: &mut Sleep) {
        let shard = &self.shard;
        let unsent = shard.outbox.borrow().iter().any(|messages| !messages.is_empty());
        if unsent || self.tasks.scheduler().has_ready() || !self.inbox.is_empty() {
            sleep.never();
        }
        shard.members.borrow().sleep(shard.now.get(), sleep);
        if shard.counters().standing.load(std::sync::atomic::Ordering::Relaxed) != 0 {
            // Other cores use the published state, so the core must clear it soon after a stalled member answers.
            sleep.until(self.next_timeout_check);
        }
        let deadlines = [shard.lead_deadline(), shard.window.borrow().look_at()];
        deadlines.into_iter().flatten().for_each(|deadline| sleep.until(deadline));
    }
}

impl<F: Future<Output = ()>, S: Fn(Rc<Shard>, Job) -> F> Driver<F, S> {
    /// Collects completions from the members.
    fn collect(&mut self, now: Nanos) -> usize {
        let shard = Rc::clone(&self.shard);
        let mut work = shard.collect(now, &mut self.host_reads);
        if now >= self.next_timeout_check {
            self.next_timeout_check = now.plus(TIMEOUT_CHECK);
            work += self.look_for_overdue(now);
        }
        while let Some(read) = self.host_reads.pop_front() {
            shard.host_read_back(read);
        }
        work += shard.go_on_with_small();
        work += shard.continue_degraded_reads();
        shard.requests.borrow_mut().count_alike();
        for op in shard.members.borrow_mut().take_orphans() {
            match op {
                Op::Read { data, .. } => scratch::give_back(&shard.scratch, data.into_parts()),
                Op::Write { data, .. } => {
                    let mut redo = shard.redo.borrow_mut();
                    let others = data.into_parts().filter_map(|buf| redo.take_late_page(buf));
                    scratch::give_back_frozen(&shard.scratch, others);
                }
                Op::Flush | Op::Deallocate { .. } | Op::WriteZeroes { .. } => {}
            }
        }
        work
    }

    /// Checks for slow I/Os and, about once a second, for slow members.
    fn look_for_overdue(&mut self, now: Nanos) -> usize {
        let shard = Rc::clone(&self.shard);
        shard.promote_direct(now);
        shard.promote_parts(now);
        shard.promote_degraded_reads(now);
        let mut members = shard.members.borrow_mut();
        let out = members.viewed(View::Absent) | members.viewed(View::Rebuilding);
        // Members that are stalled for other cores count as well, and so do failed members that are not yet recorded as
        // out.
        let own = shard.geometry.all_members();
        let unseen = shard.failed_unseen(&members);
        let covered = |late: MemberSet| {
            let standing = shard.shared.standing() | unseen;
            shard.geometry.tolerates(out | ((late | standing | shard.shared.failing()) & own))
        };
        let overdue =
            members.look_for_overdue(now, &shard.scheduler, &mut self.host_reads, covered);
        for (io, failed) in members.take_given_up() {
            match io.whole {
                Whole::Write => shard.smalls.borrow_mut().back(io, None, Some(failed)),
                Whole::Read => shard.degraded_reads.borrow_mut().passed(io),
            }
        }
        drop(members);
        shard.scratch.borrow_mut().replace_kept(overdue.kept);
        shard.show_overdue(overdue, out, unseen);
        if now >= self.next_latency_look {
            self.next_latency_look = now.plus(LATENCY_LOOK);
            shard.look_at_latencies();
        }
        overdue.failed.len()
    }

    fn take_control(&mut self) -> usize {
        let mut work = 0;
        while let Ok(control) = self.control.try_recv() {
            work += 1;
            self.obey(control);
        }
        if !self.installs.is_empty() {
            work += self.shard.install_waiting(&mut self.installs);
        }
        work
    }

    fn obey(&mut self, control: Control) {
        let shard = &self.shard;
        match control {
            Control::Connect { requests, replies } => {
                shard.requests.borrow_mut().connect(Port::Far { requests, replies });
            }
            Control::Install { member, device, reply } => {
                self.installs.push(Install::new(member, device, reply, shard.now.get()));
            }
            Control::Release { member } => {
                self.installs.retain(|install| install.member != member);
                shard.members.borrow_mut().release(member);
            }
            Control::Change { change, reply } => {
                if let Change::Fail { member, reason: FailReason::Request(MemberEvent::Vanished) } =
                    change
                {
                    shard.shared.note_failing(member);
                }
                let mut leader = shard.leader_mut();
                shard.enqueue(&mut leader, change, Some(reply));
            }
            Control::Resume { reply } => {
                shard.broadcast(|| Peer::Resume);
                // The control plane may have stopped waiting.
                let _ = reply.send(Ok(()));
            }
            Control::Pace => shard.pace_changed(),
            Control::Scrub => shard.scrub_changed(),
            Control::Quiesce { reply } => {
                shard.quiesce();
                self.quiesced.push(reply);
            }
            Control::Drain { reply } => {
                shard.quiesce();
                self.drained.push(reply);
            }
        }
    }

    fn take_messages(&mut self) -> usize {
        let mut work = 0;
        while let Some(message) = self.inbox.pop_front() {
            work += 1;
            self.shard.receive(self.shard.core, message);
        }
        for (from, link) in self.links.iter_mut().enumerate() {
            let Some(link) = link else { continue };
            while let Some(message) = link.receive.recv() {
                work += 1;
                self.shard.receive(from as u16, message);
            }
        }
        work
    }

    fn start_jobs(&mut self) -> usize {
        let mut work = 0;
        while self.busy() < self.tasks.capacity() {
            let Some(job) = self.next_job() else { break };
            let assigned = self.shard.workers.borrow_mut().assign(job);
            if let Err(job) = assigned {
                let worker = (self.start)(Rc::clone(&self.shard), job);
                assert!(self.tasks.spawn(worker).is_ok(), "there was room a moment ago");
            }
            work += 1;
        }
        work
    }

    /// Number of workers that have a job.
    fn busy(&self) -> usize {
        self.tasks.live() - self.shard.workers.borrow().idle()
    }

    fn next_job(&self) -> Option<Job> {
        let shard = &self.shard;
        if let Some(job) = shard.urgent.borrow_mut().pop_front() {
            return Some(job);
        }
        let kept = TASKS_RESERVED + self.busy();
        if kept < self.tasks.capacity()
            && let Some(write) = shard.concluding.borrow_mut().pop_front()
        {
            return Some(Job::Conclude { write });
        }
        if kept + TASKS_CONCLUDING >= self.tasks.capacity() {
            return None;
        }
        let flush = shard.jobs.borrow_mut().pop_front();
        flush.or_else(|| {
            loop {
                let entry = shard.bands.borrow_mut().next_ready()?;
                if shard.begin_degraded_read(entry) || shard.begin_small(entry) {
                    continue;
                }
                // The holders list the entry again when they release their columns.
                if !shard.bands.borrow().is_held(entry) {
                    return Some(Job::Band(entry));
                }
            }
        })
    }

    /// Sends the messages of this turn. Messages that do not fit wait for the next turn.
    fn send(&mut self) -> usize {
        let mut outbox = self.shard.outbox.borrow_mut();
        let mut work = 0;
        for (to, messages) in outbox.iter_mut().enumerate() {
            let Some(link) = &mut self.links[to] else {
                work += messages.len();
                self.inbox.append(messages);
                continue;
            };
            let before = messages.len();
            while let Some(message) = messages.pop_front() {
                if let Err(back) = link.send.send(message) {
                    messages.push_front(back);
                    break;
                }
            }
            if messages.len() < before {
                work += before - messages.len();
                link.wake.wake();
            }
        }
        work
    }

    fn report_quiet(&mut self) {
        let quiet = !(self.quiesced.is_empty() && self.drained.is_empty())
            && self.shard.is_quiet()
            && self.shard.outbox.borrow().iter().all(VecDeque::is_empty)
            && self.inbox.is_empty();
        if quiet {
            let members = self.shard.members.borrow();
            let idle = members.outstanding() == 0 && members.has_no_orphans();
            // The number is smaller if buffers returned that had been replaced.
            debug_assert!(
                !idle
                    || self.shard.scratch.borrow().lent()
                        <= self.shard.parity_cache.borrow().bufs(),
                "a band task leaked scratch memory"
            );
            debug_assert!(!idle || self.shard.redo.borrow().is_idle(), "a write left its record");
            let drained = if idle { self.drained.len() } else { 0 };
            for reply in self.quiesced.drain(..).chain(self.drained.drain(..drained)) {
                // The control plane may have stopped waiting.
                let _ = reply.send(());
            }
        }
    }
}

impl<F: Future<Output = ()>, S: Fn(Rc<Shard>, Job) -> F> Drop for Driver<F, S> {
    fn drop(&mut self) {
        let mut members = self.shard.members.borrow_mut();
        let mut smalls = self.shard.smalls.borrow_mut();
        let mut requests = self.shard.requests.borrow_mut();
        let mut degraded_reads = self.shard.degraded_reads.borrow_mut();
        let reads = members.abandon_direct().chain(degraded_reads.abandon());
        requests.abandon(reads, smalls.abandon());
    }
}

impl Shard {
    /// Members that failed an I/O whose task waits for other outstanding I/Os and has not yet seen the failure.
    fn failed_unseen(&self, members: &Members) -> MemberSet {
        let (smalls, degraded_reads) = (self.smalls.borrow(), self.degraded_reads.borrow());
        members.failed_unseen(smalls.failed().chain(degraded_reads.failed()))
    }

    /// Publishes the members that are stalled or have failed `unseen`, in addition to the members that are `out`, and
    /// reports members that exceeded their limit.
    fn show_overdue(&self, overdue: Overdue, out: MemberSet, unseen: MemberSet) {
        let covered = |standing: MemberSet| {
            standing.is_empty() || self.geometry.tolerates(out | standing | self.shared.failing())
        };
        let standing = overdue.standing | unseen;
        self.shared.show_standing(usize::from(self.core), standing, covered);
        if overdue.hopeless {
            // The cause is not a single drive, and no member is recorded as failed.
            self.post(0, Peer::Lead(ToLeader::Hopeless));
            return;
        }
        for member in overdue.failed {
            self.report(member, IoErrorKind::Timeout);
            self.members.borrow().show_hung(member);
        }
    }

    /// Publishes the latencies of the members, and decides which members reads avoid.
    fn look_at_latencies(&self) {
        let mut seen = [None; 64];
        let mut members = self.members.borrow_mut();
        members.look_at_latencies(&mut seen);
        let mut p99 = [None; 64];
        let count = self.geometry.members();
        for at in (0..count).filter(|at| members.view(MemberIndex(*at as u8)) == View::InSync) {
            p99[at] = seen[at].map(|percentiles| percentiles.p99);
        }
        let out = members.viewed(View::Absent) | members.viewed(View::Rebuilding);
        let covered =
            |around: MemberSet| around.is_empty() || self.geometry.tolerates(out | around);
        if !self.steer {
            p99 = [None; 64];
        }
        let changed = self.sits.borrow_mut().judge(self.now.get(), &p99[..count], covered);
        let relaxed = std::sync::atomic::Ordering::Relaxed;
        for (at, counters) in self.counters().members.iter().enumerate() {
            let (slow, timeouts) = members.slow_and_timeouts(at);
            counters.slow.store(slow, relaxed);
            counters.timeouts.store(timeouts, relaxed);
            if let Some(percentiles) = seen[at] {
                counters.read_p50.store(percentiles.p50.0, relaxed);
                counters.read_p99.store(percentiles.p99.0, relaxed);
            }
            if changed.began.contains(at) {
                counters.sit_outs.fetch_add(1, relaxed);
                // From now on, only the probes of the member count.
                members.forget_latency(at);
            }
            let member = Some(MemberIndex(at as u8));
            if changed.began.contains(at) {
                self.shared.tell(member, ArrayEventKind::SitOut);
            }
            if changed.ended.contains(at) {
                self.shared.tell(member, ArrayEventKind::SitOutEnded);
            }
            let sits = self.sits.borrow().members().contains(at);
            counters.sitting_out.store(sits, relaxed);
        }
    }

    /// Starts the shard: reports to the leader, and starts resync and rebuild.
    fn begin(&self, untrusted: &[RegionIndex]) {
        let counters = self.counters();
        let relaxed = std::sync::atomic::Ordering::Relaxed;
        counters.resync_regions_left.store(self.untrusted.borrow().len() as u64, relaxed);
        let (scratch, redo, records) =
            (self.scratch.borrow(), self.redo.borrow(), self.records.borrow());
        let bytes = scratch.bytes() + redo.page_bytes() + records.bytes();
        counters.scratch_bytes.store(bytes as u64, relaxed);
        let huge = scratch.huge_bytes() + redo.huge_page_bytes();
        counters.scratch_huge_bytes.store(huge as u64, relaxed);
        drop((scratch, redo, records));
        let owners = (0..self.cores).filter(|core| {
            untrusted
                .iter()
                .any(|region| self.regions.owner(*region, self.cores) == CoreIndex(*core))
        });
        self.lead_start(owners.count() as u16);
        self.show_rebuild();
        self.start_maintenance();
    }

    fn receive(&self, from: u16, message: Peer) {
        match message {
            Peer::Span(span) => self.bands.borrow_mut().enqueue(span, self.now.get()),
            Peer::Small(span) => self.receive_small(span),
            Peer::Done(done) => {
                self.remote_spans.borrow_mut()[usize::from(from)] -= 1;
                let SpanDone { request, result, data, stages } = done;
                self.requests.borrow_mut().span_back(request, result, data, &stages);
            }
            Peer::Intended { region, result } => {
                self.region_table.borrow_mut().intended(region, result)
            }
            Peer::Views { version, views, pairing, bad, roll } => {
                self.bad.borrow_mut().replace(bad);
                self.apply_views(version, &views, pairing, roll);
            }
            Peer::BadNoted { ticket, result } => {
                self.bad.borrow_mut().answered(ticket, result);
            }
            Peer::Lacks { member, bitmap } => {
                self.rebuild.borrow_mut().keep_only(member, &bitmap);
                self.show_rebuild();
                self.start_maintenance();
            }
            Peer::Settled => {
                self.members.borrow_mut().settle_views();
                self.views_waiting.borrow_mut().wake_all();
            }
            Peer::Sweep { urgent } => {
                let idle = self.region_table.borrow_mut().sweep();
                self.post(0, Peer::Lead(ToLeader::Swept { urgent, idle }));
            }
            Peer::Resume => self.start_maintenance(),
            Peer::CopiesAgree => {
                self.copies_may_differ.set(false);
                self.agreed.replace(AgreedStrips::none());
            }
            Peer::Lost => {
                self.requests.borrow_mut().refuse(IoErrorKind::Lost);
                self.region_table.borrow_mut().stop(IoErrorKind::Lost);
                self.window.borrow_mut().look_again();
                self.views_waiting.borrow_mut().wake_all();
                self.scratch.borrow_mut().wake_all();
                self.redo.borrow_mut().wake_all();
            }
            Peer::Lead(message) => self.lead(message),
        }
    }

    fn apply_views(&self, version: u64, views: &[View], pairing: Pairing, roll: Arc<Roll>) {
        {
            let mut members = self.members.borrow_mut();
            for (at, view) in views.iter().enumerate() {
                let member = MemberIndex(at as u8);
                if *view == View::Rebuilding && members.view(member) == View::Absent {
                    self.rebuild.borrow_mut().start(member);
                }
            }
            if matches!(pairing, Pairing::Copying(_)) && members.paired.copied().is_none() {
                self.rebuild.borrow_mut().start(members.paired.place());
            }
            members.set_views(views);
            members.pair(pairing);
            let logging = logging(&self.geometry, roll.consistency, impaired(views));
            let careless = roll.consistency == Consistency::None;
            self.region_table.borrow_mut().be_careless(careless);
            self.redo.borrow_mut().adopt(roll, logging, version, members.membership_epoch());
        }
        self.show_rebuild();
        self.post(0, Peer::Lead(ToLeader::Applied { from: self.core, version }));
        self.start_maintenance();
    }
}
