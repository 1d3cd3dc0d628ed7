//! Commands on their way: fetched, executed in any order, answered, and posted, with the faults of each.

use super::{Breach, Controller};
use crate::bus::Bus;
use crate::fault::Fault;
use crate::queues::{Answer, Completion, Fetched, Written};
use strake_nvme_wire::command::admin;
use strake_nvme_wire::{Cqe, Status};

impl Controller {
    pub(super) fn fetch(&mut self, bus: &dyn Bus) {
        if self.faults.is_armed(Fault::Silent) && !self.pace.is_random() {
            return;
        }
        for at in 0..self.submissions.len() {
            let Some(mut queue) = self.submissions[at] else { continue };
            for _ in 0..self.pace.fetches(usize::from(queue.len())) {
                match queue.fetch(bus) {
                    Ok(Some(sqe)) => {
                        let number = at as u16;
                        let is_same = |f: &Fetched| f.queue == number && f.sqe.cid() == sqe.cid();
                        if self.fetched.iter().any(is_same) {
                            self.breach(Breach::CidInUse(number, sqe.cid()));
                        }
                        let fetched = Fetched { queue: number, sqe, since: self.now, blocks: 0 };
                        self.fetched.push_back(fetched);
                    }
                    Ok(None) => break,
                    Err(_) => self.breach(Breach::Unmapped(at as u16)),
                }
            }
            self.submissions[at] = Some(queue);
        }
    }

    /// Whether a command of this queue is not executed in time.
    fn is_silent(&self, queue: u16) -> bool {
        let fault = if queue == 0 { Fault::SilentAdmin } else { Fault::SilentIo };
        self.faults.is_armed(Fault::Silent) || self.faults.is_armed(fault)
    }

    pub(super) fn execute(&mut self, bus: &dyn Bus) {
        let mut skipped = 0;
        while let Some(at) = self.pace.next_of(self.fetched.len() - skipped) {
            let at = at + if self.pace.is_random() { 0 } else { skipped };
            let mut fetched = self.fetched[at];
            let is_early = fetched.queue > 0 && self.now < fetched.since.plus(self.spec.latency);
            let is_slow = fetched.queue == 0
                && fetched.sqe.opcode() == admin::FORMAT
                && self.faults.is_armed(Fault::SlowFormat);
            if self.is_silent(fetched.queue) || is_early || is_slow {
                // It is not answered; what it changes may be changed nevertheless.
                if self.pace.is_random() && fetched.queue > 0 {
                    self.execute_part(bus, at);
                }
                skipped += 1;
                continue;
            }
            if fetched.queue == 0 {
                self.fetched.remove(at);
                if let Some((status, result)) = self.admin(bus, &fetched) {
                    self.answer(&fetched, status, result);
                }
                // It may have taken others away.
                skipped = 0;
                continue;
            }
            let most = self.pace.blocks(fetched.blocks_left().max(1));
            let done = self.io(bus, &mut fetched, most);
            self.fetched[at] = fetched;
            if let Some(status) = done {
                self.fetched.remove(at);
                self.answer(&fetched, status, 0);
            }
        }
    }

    /// Executes a random part of a command without answering it. Once all is done, doing the last block again changes
    /// nothing.
    fn execute_part(&mut self, bus: &dyn Bus, at: usize) {
        let mut fetched = self.fetched[at];
        let left = fetched.blocks_left();
        if left > 1 {
            let most = self.pace.blocks(left - 1);
            let _ = self.io(bus, &mut fetched, most);
            self.fetched[at] = fetched;
        } else {
            let _ = self.io(bus, &mut fetched, 1);
        }
    }

    /// Executes some of what was fetched, although it will not be answered.
    pub(super) fn execute_late(&mut self, bus: &dyn Bus) {
        if let Some(at) = self.pace.next_of(self.fetched.len())
            && self.fetched[at].queue > 0
        {
            self.execute_part(bus, at);
        }
    }

    pub(crate) fn answer(&mut self, fetched: &Fetched, status: Status, result: u32) {
        if !status.is_success() {
            self.counts.errors += 1;
            if status.code_type() == 2 {
                self.counts.media_errors += 1;
            }
            let failure = strake_nvme_wire::log::Failure {
                number: self.counts.errors,
                queue: fetched.queue,
                cid: fetched.sqe.cid(),
                status,
                block: if fetched.queue > 0 { fetched.sqe.qword(10) } else { 0 },
                namespace: fetched.sqe.nsid(),
            };
            self.errors.push_front(failure);
            self.errors.truncate(crate::admin::ERRORS_KEPT);
        }
        let cqe = Cqe { result: result.into(), head: 0, cid: fetched.sqe.cid(), status };
        self.answers.push_back(Answer { queue: fetched.queue, cqe });
    }

    pub(super) fn post(&mut self, bus: &dyn Bus) {
        while let (Some(_), Some(cid)) = (self.events.front(), self.event_requests.front()) {
            let cqe =
                Cqe { result: self.events[0].into(), head: 0, cid: *cid, status: Status::SUCCESS };
            self.answers.push_back(Answer { queue: 0, cqe });
            self.events.pop_front();
            self.event_requests.pop_front();
        }
        if let Some(answer) = self.torn.take() {
            let number = self.submissions[usize::from(answer.queue)].map(|queue| queue.completion);
            let queue = number.and_then(|number| self.completions[usize::from(number)]);
            return queue.map_or((), |queue| self.finish(bus, answer, queue));
        }
        let mut skipped = 0;
        while let Some(at) = self.pace.next_of(self.answers.len() - skipped) {
            let at = at + if self.pace.is_random() { 0 } else { skipped };
            let mut answer = self.answers[at];
            let Some(submission) = &self.submissions[usize::from(answer.queue)] else {
                self.answers.remove(at);
                continue;
            };
            answer.cqe.head = submission.head;
            let Some(queue) = self.completions[usize::from(submission.completion)] else { break };
            if queue.is_full() {
                skipped += 1;
                continue;
            }
            self.answers.remove(at);
            let posted =
                if answer.queue == 0 { Some(answer) } else { self.spoil(bus, answer, queue) };
            if let Some(answer) = posted {
                self.finish(bus, answer, queue);
            }
            if self.torn.is_some() {
                break;
            }
        }
    }

    /// Applies the faults of completions of I/O queues. What is left to be posted.
    fn spoil(&mut self, bus: &dyn Bus, answer: Answer, queue: Completion) -> Option<Answer> {
        let mut spoilt = answer;
        if self.faults.take(Fault::LostCompletion) {
            return None;
        }
        if self.faults.take(Fault::TornCompletion) {
            let _ = queue.write(bus, answer.cqe, answer.queue, Written::FirstHalf);
            self.torn = Some(answer);
            return None;
        }
        if self.faults.take(Fault::StalePhase) {
            spoilt.cqe.cid ^= 1;
            let _ = queue.write(bus, spoilt.cqe, answer.queue, Written::Stale);
            self.torn = Some(answer);
            return None;
        }
        if self.faults.take(Fault::RepeatedCompletion) {
            self.answers.push_front(answer);
        }
        if self.faults.take(Fault::UnknownCid) {
            spoilt.cqe.cid ^= 0x3ff;
        }
        if self.faults.take(Fault::WrongTurn) {
            spoilt.cqe.cid ^= 0x400;
        }
        Some(spoilt)
    }

    fn finish(&mut self, bus: &dyn Bus, answer: Answer, mut queue: Completion) {
        if queue.write(bus, answer.cqe, answer.queue, Written::Whole).is_err() {
            self.breach(Breach::Unmapped(answer.queue));
            return self.fail(bus);
        }
        queue.advance();
        let submission = self.submissions[usize::from(answer.queue)];
        let number = submission.map_or(0, |submission| submission.completion);
        self.completions[usize::from(number)] = Some(queue);
        if let Some(vector) = queue.vector {
            bus.interrupt(vector);
        }
    }
}
