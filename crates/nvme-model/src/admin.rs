//! Commands of the admin queue.

use crate::bus::Bus;
use crate::controller::{Breach, Controller};
use crate::fault::Fault;
use crate::identify::FORMATS;
use crate::io::{give, prps};
use crate::maintenance::{commit, download, sanitize};
use crate::queues::{Completion, Fetched, Submission};
use crate::spec::{NamespaceSpec, Protection, Spec};
use crate::status::{
    ABORT_LIMIT, INVALID_FORMAT, NO_COMPLETION_QUEUE, QUEUE_DELETION, QUEUE_NUMBER, QUEUE_SIZE,
};
use strake_nvme_wire::command::admin;
use strake_nvme_wire::log::Request;
use strake_nvme_wire::nvm::ALL_NAMESPACES;
use strake_nvme_wire::{Sqe, Status, feature};

/// Opcodes of memory-based transports (Base, Figure 138).
mod opcode {
    pub(super) const DELETE_SUBMISSION: u8 = 0x00;
    pub(super) const CREATE_SUBMISSION: u8 = 0x01;
    pub(super) const DELETE_COMPLETION: u8 = 0x04;
    pub(super) const CREATE_COMPLETION: u8 = 0x05;
    pub(super) const DOORBELL_BUFFERS: u8 = 0x7c;
}

/// Entries of the error log.
pub(crate) const ERRORS_KEPT: usize = 16;
/// Requests for events that are kept.
const EVENT_REQUESTS_MAX: usize = 4;
/// Bytes of a page of memory.
const PAGE: u64 = 4096;

type Outcome = Result<u32, Status>;

impl Controller {
    /// Executes a command: its status and its result, or `None` for one that is answered later.
    pub(crate) fn admin(&mut self, bus: &dyn Bus, fetched: &Fetched) -> Option<(Status, u32)> {
        let sqe = fetched.sqe;
        let outcome = match sqe.opcode() {
            opcode::DELETE_SUBMISSION => self.delete_submission(&sqe),
            opcode::CREATE_SUBMISSION => self.create_submission(bus, &sqe),
            opcode::DELETE_COMPLETION => self.delete_completion(&sqe),
            opcode::CREATE_COMPLETION => self.create_completion(bus, &sqe),
            opcode::DOORBELL_BUFFERS => self.set_shadow(&sqe),
            admin::FORMAT => self.format_nvm(&sqe),
            admin::SANITIZE => sanitize(self, &sqe),
            admin::DOWNLOAD => download(self, bus, &sqe),
            admin::COMMIT => commit(self, &sqe),
            admin::IDENTIFY => self
                .identify(sqe.dword(10) as u8, sqe.nsid())
                .and_then(|page| give(bus, &sqe, &page))
                .map(|()| 0),
            admin::GET_LOG_PAGE => self.get_log_page(bus, &sqe),
            admin::ABORT => self.abort(&sqe),
            admin::SET_FEATURES => self.set_features(&sqe),
            admin::GET_FEATURES => get_features(&self.spec, &sqe),
            admin::ASYNC_EVENT if self.event_requests.len() >= EVENT_REQUESTS_MAX => {
                Err(Status::TOO_MANY_EVENT_REQUESTS)
            }
            admin::ASYNC_EVENT => {
                self.event_requests.push_back(sqe.cid());
                return None;
            }
            _ => Err(Status::INVALID_OPCODE),
        };
        if let Err(Status::INVALID_FIELD | Status::INVALID_OPCODE) = outcome {
            self.breach(Breach::Field(0, sqe.opcode()));
        }
        Some(match outcome {
            Ok(result) => (Status::SUCCESS, result),
            Err(status) => (status, 0),
        })
    }

    /// Number, entries and address of a queue to be created.
    fn queue_of(&mut self, sqe: &Sqe) -> Result<(usize, u16, u64), Status> {
        let (number, less_one) = (sqe.dword(10) as u16, (sqe.dword(10) >> 16) as u16);
        if number == 0 || usize::from(number) >= self.submissions.len() {
            return Err(QUEUE_NUMBER);
        }
        if less_one == 0 || less_one >= self.spec.entries_max {
            return Err(QUEUE_SIZE);
        }
        let (address, _) = prps(sqe);
        // PC: the queue is contiguous, as CAP.CQR demands.
        if address % PAGE != 0 || sqe.dword(11) & 1 == 0 {
            return Err(Status::INVALID_FIELD);
        }
        if self.faults.take(Fault::NoQueueCreated) {
            return Err(Status::INTERNAL);
        }
        Ok((number.into(), less_one + 1, address))
    }

    fn create_completion(&mut self, bus: &dyn Bus, sqe: &Sqe) -> Outcome {
        let (number, entries, address) = self.queue_of(sqe)?;
        if self.completions[number].is_some() {
            return Err(QUEUE_NUMBER);
        }
        let interrupts = sqe.dword(11) & 1 << 1 != 0;
        let vector = interrupts.then_some((sqe.dword(11) >> 16) as u16);
        self.completions[number] = Some(Completion::new(address, entries, vector));
        // As for a submission queue.
        bus.set_register(self.spec.doorbell(2 * number + 1), 0);
        Ok(0)
    }

    fn create_submission(&mut self, bus: &dyn Bus, sqe: &Sqe) -> Outcome {
        let (number, entries, address) = self.queue_of(sqe)?;
        let completion = (sqe.dword(11) >> 16) as u16;
        if self.submissions[number].is_some() {
            return Err(QUEUE_NUMBER);
        }
        if completion == 0
            || !self.completions.get(usize::from(completion)).is_some_and(Option::is_some)
        {
            return Err(NO_COMPLETION_QUEUE);
        }
        self.submissions[number] = Some(Submission::new(address, entries, completion));
        // A doorbell is a write, not a register: a write for an earlier queue of this number is none for the new one
        // (Base, section 3.1.3.1).
        bus.set_register(self.spec.doorbell(2 * number), 0);
        Ok(0)
    }

    fn delete_submission(&mut self, sqe: &Sqe) -> Outcome {
        let number = sqe.dword(10) as u16;
        let place = self.submissions.get_mut(usize::from(number)).filter(|place| place.is_some());
        if number == 0 || place.is_none() {
            return Err(QUEUE_NUMBER);
        }
        // What is not answered is completed by the deletion (Base, section 5.6).
        self.fetched.retain(|fetched| fetched.queue != number);
        self.answers.retain(|answer| answer.queue != number);
        self.submissions[usize::from(number)] = None;
        Ok(0)
    }

    fn delete_completion(&mut self, sqe: &Sqe) -> Outcome {
        let number = sqe.dword(10) as u16;
        let exists = self.completions.get(usize::from(number)).is_some_and(Option::is_some);
        if number == 0 || !exists {
            return Err(QUEUE_NUMBER);
        }
        if self.submissions.iter().flatten().any(|queue| queue.completion == number) {
            return Err(QUEUE_DELETION);
        }
        self.completions[usize::from(number)] = None;
        Ok(0)
    }

    fn set_shadow(&mut self, sqe: &Sqe) -> Outcome {
        let (shadow, events) = prps(sqe);
        if !self.spec.shadow_doorbells || shadow % PAGE != 0 || events % PAGE != 0 {
            return Err(Status::INVALID_FIELD);
        }
        self.shadow = Some((shadow, events));
        Ok(0)
    }

    /// Bit 0 of the result says that the command was not aborted.
    fn abort(&mut self, sqe: &Sqe) -> Outcome {
        let (queue, cid) = (sqe.dword(10) as u16, (sqe.dword(10) >> 16) as u16);
        if self.faults.take(Fault::AbortRefused) {
            return Err(ABORT_LIMIT);
        }
        if self.faults.take(Fault::AbortMissed) {
            return Ok(1);
        }
        let is = |fetched: &Fetched| fetched.queue == queue && fetched.sqe.cid() == cid;
        let Some(at) = self.fetched.iter().position(is) else { return Ok(1) };
        let Some(fetched) = self.fetched.remove(at) else { return Ok(1) };
        self.answer(&fetched, Status::ABORTED, 0);
        Ok(0)
    }

    fn set_features(&mut self, sqe: &Sqe) -> Outcome {
        match sqe.dword(10) as u8 {
            feature::QUEUES if self.faults.is_armed(Fault::NoQueues) => Err(Status::INTERNAL),
            feature::QUEUES => feature::queues_granted(sqe.dword(11), self.spec.queues_max)
                .ok_or(Status::INVALID_FIELD),
            feature::ASYNC_EVENTS => Ok(0),
            feature::WRITE_CACHE if self.spec.write_cache => Ok(0),
            // Autonomous Power State Transition.
            0x0c => Ok(0),
            _ => Err(Status::INVALID_FIELD),
        }
    }

    fn get_log_page(&mut self, bus: &dyn Bus, sqe: &Sqe) -> Outcome {
        let request = Request::parse(sqe);
        let mut page = self.log_page(&request)?;
        if let Some(distort) = &mut self.distort_log {
            distort(request.page, &mut page);
        }
        let from = usize::try_from(request.offset).unwrap_or(usize::MAX);
        let rest = page.get(from..).ok_or(Status::INVALID_FIELD)?;
        let mut out = vec![0; request.length.min(1 << 20) as usize];
        let bytes = rest.len().min(out.len());
        out[..bytes].copy_from_slice(&rest[..bytes]);
        if self.faults.take(Fault::ShortLog) {
            out.truncate(bytes);
        }
        give(bus, sqe, &out).map(|()| 0)
    }

    fn format_nvm(&mut self, sqe: &Sqe) -> Outcome {
        let (format, protection) = (sqe.dword(10) & 0xf, sqe.dword(10) >> 5 & 0b111);
        let (metadata, block_log2) = *FORMATS.get(format as usize).ok_or(INVALID_FORMAT)?;
        let protection = match (protection, metadata) {
            (0, 0) => Protection::None,
            (1, 8) => Protection::Type1,
            _ => return Err(INVALID_FORMAT),
        };
        let (nsid, all) = (sqe.nsid(), sqe.nsid() == ALL_NAMESPACES);
        let numbered = self.namespaces.iter_mut().zip(1..);
        for namespace in
            numbered.filter(|(_, n)| all || *n == nsid).filter_map(|(place, _)| place.as_mut())
        {
            let spec = namespace.spec;
            let blocks = spec.blocks << spec.block_log2 >> block_log2;
            namespace.format(NamespaceSpec { blocks, block_log2, protection, ..spec });
        }
        Ok(0)
    }
}

fn get_features(spec: &Spec, sqe: &Sqe) -> Outcome {
    match sqe.dword(10) as u8 {
        feature::QUEUES => {
            let less_one = u32::from(spec.queues_max) - 1;
            Ok(less_one | less_one << 16)
        }
        feature::WRITE_CACHE if spec.write_cache => Ok(1),
        feature::TEMPERATURE => Ok(343),
        _ => Err(Status::INVALID_FIELD),
    }
}
