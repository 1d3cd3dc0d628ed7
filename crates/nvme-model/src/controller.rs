//! The controller: its states, its queues, and the order of its steps.
//!
//! ```text
//!               CC.EN = 1              ready_time              CC.EN = 0                disable_time
//!   Disabled -------------> Enabling ------------> Enabled ---------------> Disabling ---------------> Disabled
//!                              |                      |                         ^
//!                              +------ CFS ---> Fatal +-- CFS ---> Fatal -------+ CC.EN = 0
//! ```
//! A removal is possible in every state; a function reset leads to `Disabled`. While the controller is `Disabling`, or
//! `Fatal`, it posts nothing, but what it has fetched may still be executed at a random [`Pace`].

mod commands;

use crate::bus::Bus;
use crate::fault::{Fault, Faults};
use crate::maintenance::Maintained;
use crate::medium::Namespace;
use crate::pace::Pace;
use crate::queues::{Answer, Completion, Fetched, Submission};
use crate::register::{capabilities, cc, csts, offset};
use crate::spec::{NamespaceSpec, Spec};
use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use strake_nvme_wire::Status;
use strake_nvme_wire::identify::Page;
use strake_units::Nanos;

/// What the host did against the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breach {
    /// A tail doorbell is beyond the end of its queue, or the queue overflowed.
    Tail(u16),
    /// A head doorbell is beyond the entries that were posted.
    Head(u16),
    /// A command has the identifier of one that is not answered.
    CidInUse(u16, u16),
    /// Memory that is not mapped was named by a command, or by a queue.
    Unmapped(u16),
    /// The configuration is not possible.
    Configuration(u32),
    /// A command has an invalid field.
    Field(u16, u8),
}

/// Where the controller is; see the diagram of the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Disabled,
    Enabling {
        ready_at: Nanos,
    },
    Enabled,
    Fatal,
    Disabling {
        done_at: Nanos,
    },
    /// Its registers cannot be reached, until the function is reset.
    Unreachable,
    Removed,
}

/// What the health log page counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) power_cycles: u64,
    pub(crate) unsafe_shutdowns: u64,
    pub(crate) media_errors: u64,
    pub(crate) errors: u64,
    pub(crate) critical_warning: u8,
}

type Distort = Box<dyn FnMut(u8, &mut Page) + Send>;
type DistortLog = Box<dyn FnMut(u8, &mut Vec<u8>) + Send>;

/// A controller. It does nothing by itself: [`step`](Self::step) does.
pub struct Controller {
    pub(crate) spec: Spec,
    /// By number, from 1.
    pub(crate) namespaces: Vec<Option<Namespace>>,
    pub(crate) life: Life,
    cc: u32,
    csts: u32,
    pub(crate) now: Nanos,
    pub(crate) submissions: Vec<Option<Submission>>,
    pub(crate) completions: Vec<Option<Completion>>,
    pub(crate) fetched: VecDeque<Fetched>,
    pub(crate) answers: VecDeque<Answer>,
    /// Requests for events, by their identifiers.
    pub(crate) event_requests: VecDeque<u16>,
    pub(crate) events: VecDeque<u32>,
    pub(crate) changed: BTreeSet<u32>,
    /// The shadow doorbells and the event indices.
    pub(crate) shadow: Option<(u64, u64)>,
    pub(crate) faults: Faults,
    pub(crate) distort: Option<Distort>,
    pub(crate) distort_log: Option<DistortLog>,
    pub(crate) maintained: Maintained,
    pub(crate) counts: Counts,
    pub(crate) errors: VecDeque<strake_nvme_wire::log::Failure>,
    pub(crate) pieces: Vec<(u64, usize)>,
    pace: Pace,
    /// Half of it was written; nothing else is posted before the other half.
    torn: Option<Answer>,
    breaches: Vec<Breach>,
}

impl fmt::Debug for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller")
            .field("life", &self.life)
            .field("csts", &self.csts)
            .field("fetched", &self.fetched.len())
            .field("breaches", &self.breaches)
            .finish_non_exhaustive()
    }
}

impl Controller {
    /// A controller that was just powered on. [`connect`](Self::connect) shows its registers.
    #[must_use]
    pub fn new(spec: Spec, pace: Pace) -> Self {
        let queues = usize::from(spec.queues_max) + 1;
        Self {
            namespaces: spec.namespaces.iter().map(|ns| Some(Namespace::new(*ns))).collect(),
            spec,
            life: Life::Disabled,
            cc: 0,
            csts: 0,
            now: Nanos(0),
            submissions: vec![None; queues],
            completions: vec![None; queues],
            fetched: VecDeque::new(),
            answers: VecDeque::new(),
            event_requests: VecDeque::new(),
            events: VecDeque::new(),
            changed: BTreeSet::new(),
            shadow: None,
            faults: Faults::default(),
            distort: None,
            distort_log: None,
            maintained: Maintained::default(),
            counts: Counts { power_cycles: 1, ..Counts::default() },
            errors: VecDeque::new(),
            pieces: Vec::new(),
            pace,
            torn: None,
            breaches: Vec::new(),
        }
    }

    /// Shows the registers on a bus, as after power-on.
    pub fn connect(&mut self, bus: &dyn Bus) {
        let cap = capabilities(&self.spec);
        bus.set_register(offset::CAP, cap as u32);
        bus.set_register(offset::CAP + 4, (cap >> 32) as u32);
        bus.set_register(offset::VS, 0x0002_0000);
        for at in
            [offset::CC, offset::AQA, offset::ASQ, offset::ASQ + 4, offset::ACQ, offset::ACQ + 4]
        {
            bus.set_register(at, 0);
        }
        (self.cc, self.life) = (0, Life::Disabled);
        self.forget(bus);
        self.set_status(bus, self.csts & csts::NSSRO);
    }

    /// Arms a fault for so many occasions; 0 disarms it.
    pub fn arm(&mut self, fault: Fault, occasions: u32) {
        self.faults.arm(fault, occasions);
    }

    /// Changes answers of Identify: the function gets the CNS and the page.
    pub fn distort(&mut self, change: impl FnMut(u8, &mut Page) + Send + 'static) {
        self.distort = Some(Box::new(change));
    }

    /// Changes log pages: the function gets the identifier and the page.
    pub fn distort_log(&mut self, change: impl FnMut(u8, &mut Vec<u8>) + Send + 'static) {
        self.distort_log = Some(Box::new(change));
    }

    /// Another pace from now on.
    pub fn set_pace(&mut self, pace: Pace) {
        self.pace = pace;
    }

    /// What the host did against the specification so far.
    #[must_use]
    pub fn breaches(&self) -> &[Breach] {
        &self.breaches
    }

    /// The content of a block. Namespaces are numbered from 1.
    ///
    /// # Panics
    /// When there is no such block.
    #[must_use]
    pub fn block(&self, namespace: u32, block: u64) -> &[u8] {
        let namespace = self.namespaces[namespace as usize - 1].as_ref();
        namespace.expect("the namespace exists").block(block)
    }

    /// Commands that touch the block end with `status` from now on; `None` for success.
    pub fn set_bad(&mut self, namespace: u32, block: u64, status: Option<Status>) {
        if let Some(Some(namespace)) = self.namespaces.get_mut(namespace as usize - 1) {
            match status {
                Some(status) => _ = namespace.bad.insert(block, status),
                None => _ = namespace.bad.remove(&block),
            }
        }
    }

    /// Damages the content of a block behind its protection information.
    pub fn damage(&mut self, namespace: u32, block: u64) {
        if let Some(Some(namespace)) = self.namespaces.get_mut(namespace as usize - 1) {
            namespace.damage(block);
        }
    }

    /// The critical warning of the health log page.
    pub fn set_critical_warning(&mut self, warning: u8) {
        self.counts.critical_warning = warning;
        self.report_event(0x02_00_01);
    }

    /// The namespace has so many blocks from now on, or with `None` no longer exists.
    pub fn resize(&mut self, namespace: u32, blocks: Option<u64>) {
        let place = &mut self.namespaces[namespace as usize - 1];
        match (blocks, place.as_mut()) {
            (Some(blocks), Some(namespace)) => namespace.resize(blocks),
            (Some(_), None) => {}
            (None, _) => *place = None,
        }
        self.changed.insert(namespace);
        self.report_event(0x04_00_02);
    }

    /// The namespace is formatted behind the host's back.
    pub fn format(&mut self, namespace: u32, spec: NamespaceSpec) {
        if let Some(Some(place)) = self.namespaces.get_mut(namespace as usize - 1) {
            place.format(spec);
        }
        self.changed.insert(namespace);
        self.report_event(0x04_00_02);
    }

    /// What it is like, to be changed: such as the serial number, as of another drive in the slot.
    pub fn spec_mut(&mut self) -> &mut Spec {
        &mut self.spec
    }

    /// The controller fails (CSTS.CFS).
    pub fn fail(&mut self, bus: &dyn Bus) {
        self.life = Life::Fatal;
        self.set_status(bus, self.csts | csts::CFS);
    }

    /// The drive is pulled: its registers read as ones, and it does nothing.
    pub fn remove(&mut self, bus: &dyn Bus) {
        self.life = Life::Removed;
        for at in (0..offset::ACQ + 8).step_by(4) {
            bus.set_register(at, u32::MAX);
        }
    }

    /// The registers can no longer be reached, and read as ones, until the function is reset.
    pub fn stop_decoding(&mut self, bus: &dyn Bus) {
        self.remove(bus);
        self.life = Life::Unreachable;
    }

    /// Whether the drive was pulled.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        self.life == Life::Removed
    }

    /// The controller is reset by its function. An error when it refuses.
    ///
    /// # Errors
    /// With [`Fault::ResetRefused`], and when the drive was pulled.
    pub fn function_reset(&mut self, bus: &dyn Bus) -> Result<(), Status> {
        if self.is_removed() || self.faults.take(Fault::ResetRefused) {
            return Err(Status::INTERNAL);
        }
        if !self.faults.take(Fault::ResetIgnored) {
            self.connect(bus);
        }
        Ok(())
    }

    /// Power is lost and returns: what only the cache had is lost, too.
    pub fn lose_power(&mut self, bus: &dyn Bus) {
        self.namespaces.iter_mut().flatten().for_each(Namespace::lose_cache);
        self.counts.power_cycles += 1;
        self.counts.unsafe_shutdowns += 1;
        self.connect(bus);
    }

    /// The subsystem is reset behind the host's back (CSTS.NSSRO); what only the cache had is lost.
    pub fn reset_subsystem(&mut self, bus: &dyn Bus) {
        self.namespaces.iter_mut().flatten().for_each(Namespace::lose_cache);
        self.csts |= csts::NSSRO;
        self.connect(bus);
    }

    /// Drops everything that a reset drops.
    fn forget(&mut self, bus: &dyn Bus) {
        self.submissions.fill(None);
        self.completions.fill(None);
        self.fetched.clear();
        self.answers.clear();
        self.event_requests.clear();
        (self.shadow, self.torn) = (None, None);
        let doorbells = 2 * self.submissions.len();
        (0..doorbells).for_each(|at| bus.set_register(self.spec.doorbell(at), 0));
    }

    fn set_status(&mut self, bus: &dyn Bus, status: u32) {
        self.csts = status;
        bus.set_register(offset::CSTS, status);
    }

    pub(crate) fn breach(&mut self, breach: Breach) {
        self.breaches.push(breach);
    }

    /// Does what there is to be done at `now`: as much as the [`Pace`] says.
    pub fn step(&mut self, bus: &dyn Bus, now: Nanos) {
        self.now = now;
        match self.life {
            Life::Removed => return,
            Life::Unreachable if self.pace.is_random() => return self.execute_late(bus),
            Life::Unreachable => return,
            _ => self.look_at_registers(bus),
        }
        match self.life {
            Life::Enabling { ready_at } if now >= ready_at => self.become_ready(bus),
            Life::Enabled => {
                self.look_at_doorbells(bus);
                self.fetch(bus);
                self.execute(bus);
                self.post(bus);
            }
            Life::Fatal if self.pace.is_random() => self.execute_late(bus),
            Life::Disabling { done_at } => {
                if self.pace.is_random() {
                    self.execute_late(bus);
                }
                if now >= done_at && !self.faults.is_armed(Fault::NeverDisabled) {
                    self.life = Life::Disabled;
                    self.forget(bus);
                    self.set_status(bus, self.csts & csts::NSSRO);
                }
            }
            Life::Enabling { .. }
            | Life::Fatal
            | Life::Disabled
            | Life::Unreachable
            | Life::Removed => {}
        }
    }

    fn look_at_registers(&mut self, bus: &dyn Bus) {
        let status = bus.register(offset::CSTS);
        if status != self.csts {
            // The only bit of it that a host writes clears itself.
            self.set_status(bus, self.csts & !(status & csts::NSSRO));
        }
        let (was, is) = (self.cc, bus.register(offset::CC));
        self.cc = is;
        if is & cc::EN != 0 && was & cc::EN == 0 && self.life == Life::Disabled {
            if is & cc::FORMAT_MASK != cc::FORMAT {
                self.breach(Breach::Configuration(is));
            }
            self.life = Life::Enabling { ready_at: self.now.plus(self.spec.ready_time) };
        }
        if is & cc::EN == 0 && was & cc::EN != 0 && self.life != Life::Disabled {
            let done_at = self.now.plus(self.spec.disable_time);
            self.life = Life::Disabling { done_at };
            if self.faults.take(Fault::FatalInReset) {
                self.fail(bus);
            }
        }
        if is & cc::SHN != 0 && was & cc::SHN == 0 {
            self.namespaces.iter_mut().flatten().for_each(Namespace::flush);
            self.set_status(bus, self.csts | csts::SHUTDOWN_COMPLETE);
        }
    }

    fn become_ready(&mut self, bus: &dyn Bus) {
        if self.faults.take(Fault::FatalOnEnable) {
            return self.fail(bus);
        }
        if self.faults.is_armed(Fault::NeverReady) {
            return;
        }
        let long = |at| u64::from(bus.register(at)) | u64::from(bus.register(at + 4)) << 32;
        let (attributes, asq, acq) =
            (bus.register(offset::AQA), long(offset::ASQ), long(offset::ACQ));
        let entries = |bits: u32| (bits & 0xfff) as u16 + 1;
        if asq % 4096 != 0 || acq % 4096 != 0 || asq == 0 || acq == 0 {
            self.breach(Breach::Configuration(attributes));
            return self.fail(bus);
        }
        crate::maintenance::activate_firmware(self);
        self.submissions[0] = Some(Submission::new(asq, entries(attributes), 0));
        self.completions[0] = Some(Completion::new(acq, entries(attributes >> 16), Some(0)));
        self.life = Life::Enabled;
        self.set_status(bus, self.csts | csts::RDY);
    }

    fn look_at_doorbells(&mut self, bus: &dyn Bus) {
        for at in 0..self.submissions.len() {
            let number = at as u16;
            let shadow = self.shadow.filter(|_| at > 0);
            if let Some(tail) = self.tail(bus, at, shadow)
                && let Some(queue) = &mut self.submissions[at]
                && !queue.ring(tail)
            {
                self.breach(Breach::Tail(number));
                return self.fail(bus);
            }
            let head = match shadow {
                Some((shadow, _)) => self.shadow_at(bus, shadow, 2 * at + 1),
                None => bus.register(self.spec.doorbell(2 * at + 1)),
            };
            if let Some(queue) = &mut self.completions[at]
                && !queue.ring(head)
            {
                self.breach(Breach::Head(number));
                return self.fail(bus);
            }
        }
    }

    /// The tail of a submission queue; with shadow doorbells only if the host has to expect that it is looked at.
    fn tail(&mut self, bus: &dyn Bus, at: usize, shadow: Option<(u64, u64)>) -> Option<u32> {
        let doorbell = bus.register(self.spec.doorbell(2 * at));
        let Some((shadow, event)) = shadow else { return Some(doorbell) };
        let queue = self.submissions[at]?;
        if queue.asleep == Some(doorbell) {
            return None;
        }
        let tail = self.shadow_at(bus, shadow, 2 * at);
        let is_empty = tail == u32::from(queue.tail) && queue.len() == 0;
        if is_empty {
            // Looked at once more after this: the host may have passed the index before it was written.
            let event = event + self.spec.doorbell_offset(2 * at);
            if bus.write(event, &tail.to_le_bytes()).is_err() {
                self.breach(Breach::Unmapped(at as u16));
            }
        }
        let again = self.shadow_at(bus, shadow, 2 * at);
        if let Some(queue) = &mut self.submissions[at] {
            queue.asleep = (is_empty && again == tail).then_some(doorbell);
        }
        Some(again)
    }

    fn shadow_at(&mut self, bus: &dyn Bus, shadow: u64, index: usize) -> u32 {
        let mut bytes = [0; 4];
        if bus.read(shadow + self.spec.doorbell_offset(index), &mut bytes).is_err() {
            self.breach(Breach::Unmapped(0));
        }
        u32::from_le_bytes(bytes)
    }

    /// Reports an event when the host asks for one.
    pub(crate) fn report_event(&mut self, result: u32) {
        if !self.events.contains(&result) {
            self.events.push_back(result);
        }
    }
}
