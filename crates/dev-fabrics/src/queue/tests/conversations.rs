//! Targets that respond correctly at first: then the responses are reordered, cut, repeated and damaged. The queue must
//! keep to the protocol, no read may succeed with a byte that was not sent, and over the next, correct association
//! every request completes.
//!
//! A failure prints its seed, which `STRAKE_FUZZ_SEED` runs again, and the responses of the target, for the corpus of
//! `strake-fuzz`; `cargo xtask nightly` sets `STRAKE_FUZZ_RUNS`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read, Write};

use strake_block::{BufMut, Completion, Durability, IoQueue, Op, Readiness, Sg, SgMut};
use strake_fuzz::{Case, Chance, Shown, corpus, damage, disorder, runs};
use strake_nvme_tcp::pdu::{self, COMMON_BYTES, Common, PduKind, Transfer, Use, flag};
use strake_nvme_tcp::{Digests, digest, framing};
use strake_nvme_wire::{Cqe, Sqe, Status, nvm};
use strake_units::{Lba, LbaRange};

use super::{BLOCK, BOTH, NONE, Rig, SETTLE, facts};
use crate::limits::{RETRY_AFTER, TRIES_MAX};
use crate::path_manager::Request;

/// The initial content of a read buffer.
const POISON: u8 = 0xee;
/// Blocks that only one request uses.
const SHARE: u64 = 8;
const CAPSULE: u32 = 8192;

/// The content of an unwritten block.
const fn content(block: u64) -> u8 {
    (block % 200) as u8
}

/// A write whose data is being transferred to a target.
struct Announced {
    at: u64,
    total: u32,
    got: Vec<u8>,
}

/// A correct target.
struct Honest {
    digests: Digests,
    heard: Vec<u8>,
    announced: BTreeMap<u16, Announced>,
    /// Written blocks.
    medium: BTreeMap<u64, u8>,
}

impl Honest {
    fn new(digests: Digests) -> Self {
        let (heard, announced, medium) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        Self { digests, heard, announced, medium }
    }

    /// Processes the PDUs of the queue, which are always correct, and returns the responses.
    fn answer(&mut self, rig: &mut Rig, chance: &mut Chance) -> Vec<Vec<u8>> {
        let mut more = [0; 64 << 10];
        loop {
            match rig.target.read(&mut more) {
                Ok(0) => break,
                Ok(count) => self.heard.extend_from_slice(&more[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // The queue has disconnected with unread responses.
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
                Err(error) => panic!("{error}"),
            }
        }
        let mut answers = Vec::new();
        while let Some(first) = self.heard.first_chunk::<COMMON_BYTES>() {
            let common = Common::parse(first).expect("the queue sends PDUs");
            let frame = common.frame(self.digests).expect("that can be cut");
            if self.heard.len() < common.bytes as usize {
                break;
            }
            let rest = self.heard.split_off(common.bytes as usize);
            let pdu = std::mem::replace(&mut self.heard, rest);
            let data = pdu[frame.lead..][..frame.data as usize].to_vec();
            if frame.header_digest == Use::On {
                assert_eq!(pdu[frame.header..][..4], digest::of(&pdu[..frame.header]));
            }
            if frame.data_digest == Use::On {
                assert_eq!(pdu[pdu.len() - 4..], digest::of(&data));
            }
            match common.kind {
                PduKind::CapsuleCmd => {
                    let sqe = pdu::command_of(pdu.first_chunk().expect("a whole header"));
                    answers.extend(self.command(rig, &sqe, &data, chance));
                }
                PduKind::H2cData => {
                    let transfer = Transfer::parse(pdu.first_chunk().expect("a whole header"));
                    let last = common.flags & flag::LAST != 0;
                    answers.extend(self.data(&transfer, &data, last));
                }
                kind => panic!("{kind:?} is not for targets"),
            }
        }
        answers
    }

    fn sealed(&self, header: &[u8]) -> Vec<u8> {
        framing::whole(header, self.digests, 0, &[])
    }

    fn completion(&self, cid: u16) -> Vec<u8> {
        let cqe = Cqe { result: 0, head: 0, cid, status: Status::SUCCESS };
        self.sealed(&pdu::capsule_resp(&cqe, self.digests))
    }

    fn command(&mut self, rig: &Rig, sqe: &Sqe, data: &[u8], chance: &mut Chance) -> Vec<Vec<u8>> {
        let (cid, blocks) = (sqe.cid(), nvm::Blocks::parse(sqe));
        match sqe.opcode() {
            nvm::opcode::READ => self.read(rig, cid, blocks, chance),
            nvm::opcode::WRITE if data.is_empty() => {
                let total = blocks.count * BLOCK as u32;
                let announced = Announced { at: blocks.start, total, got: Vec::new() };
                self.announced.insert(cid, announced);
                let parts = if chance.one_in(2) {
                    vec![total]
                } else {
                    vec![BLOCK as u32; blocks.count as usize]
                };
                self.ask(cid, parts[0])
            }
            nvm::opcode::WRITE => {
                self.write(blocks.start, data);
                vec![self.completion(cid)]
            }
            _ => vec![self.completion(cid)],
        }
    }

    /// Requests the next bytes of a write.
    fn ask(&self, cid: u16, length: u32) -> Vec<Vec<u8>> {
        let offset = self.announced[&cid].got.len() as u32;
        let asked = Transfer { cid, tag: cid ^ 0x5555, offset, length };
        vec![self.sealed(&asked.r2t(self.digests))]
    }

    fn read(&self, rig: &Rig, cid: u16, blocks: nvm::Blocks, chance: &mut Chance) -> Vec<Vec<u8>> {
        let mut parts = Vec::new();
        let silent = chance.one_in(2);
        for nth in 0..blocks.count {
            let block = blocks.start + u64::from(nth);
            let byte = self.medium.get(&block).copied().unwrap_or(content(block));
            let flags = match (nth + 1 == blocks.count, silent) {
                (true, true) => flag::LAST | flag::SUCCESS,
                (true, false) => flag::LAST,
                (false, _) => 0,
            };
            parts.push(rig.data_pdu(cid, nth * BLOCK as u32, flags, &[byte; BLOCK]));
        }
        if !silent {
            parts.push(self.completion(cid));
        }
        parts
    }

    fn data(&mut self, transfer: &Transfer, data: &[u8], last: bool) -> Vec<Vec<u8>> {
        // A damaged R2T may have requested any bytes of an existing write.
        let Some(write) = self.announced.get_mut(&transfer.cid) else { return Vec::new() };
        assert!(data.len() <= 8192, "no more than the target takes at a time");
        if transfer.offset as usize == write.got.len() {
            write.got.extend_from_slice(data);
        }
        let left = write.total.saturating_sub(write.got.len() as u32);
        if !last {
            return Vec::new();
        }
        if left > 0 {
            return self.ask(transfer.cid, left.min(BLOCK as u32));
        }
        let Some(write) = self.announced.remove(&transfer.cid) else { return Vec::new() };
        self.write(write.at, &write.got);
        vec![self.completion(transfer.cid)]
    }

    fn write(&mut self, at: u64, data: &[u8]) {
        for (block, bytes) in (at..).zip(data.chunks(BLOCK)) {
            assert!(bytes.iter().all(|byte| *byte == bytes[0]), "a block is sent whole");
            self.medium.insert(block, bytes[0]);
        }
    }
}

/// A PDU of the same kind with other parameters: well-formed, with the right digests, and wrong.
fn lie(part: &[u8], rig: &Rig, honest: &Honest, chance: &mut Chance) -> Vec<u8> {
    let Some(common) = part.first_chunk().and_then(|first| Common::parse(first).ok()) else {
        return part.to_vec();
    };
    let frame = common.frame(honest.digests).expect("an honest target's");
    let header = part.first_chunk().expect("a whole header");
    if common.kind == PduKind::CapsuleResp {
        let mut cqe = pdu::completion_of(header);
        match chance.below(2) {
            0 => cqe.cid ^= 1,
            _ => cqe.status = chance.pick(&[Status::SUCCESS, Status::NOT_READY, Status::INTERNAL]),
        }
        return honest.sealed(&pdu::capsule_resp(&cqe, honest.digests));
    }
    let mut data = part[frame.lead..][..frame.data as usize].to_vec();
    let mut transfer = Transfer::parse(header);
    let mut flags = common.flags & (flag::LAST | flag::SUCCESS);
    let other = chance.pick(&[0, 4, 512, 4096, 8192, 12_288, 65_536]);
    match chance.below(4) {
        0 => transfer.cid ^= 1,
        1 => transfer.offset = other,
        2 => {
            transfer.length = other;
            data.resize(other.max(4) as usize, 1);
        }
        _ => flags ^= chance.pick(&[flag::LAST, flag::SUCCESS, flag::LAST | flag::SUCCESS]),
    }
    match common.kind {
        PduKind::C2hData => rig.data_pdu(transfer.cid, transfer.offset, flags, &data),
        _ => honest.sealed(&transfer.r2t(honest.digests)),
    }
}

/// The assumption about the results of requests.
#[derive(Clone, Copy)]
enum Belief<'a> {
    /// The target sent wrong PDUs: only received data is certain.
    Liar,
    /// Bytes were damaged in transit, which digests detect.
    Damaged(Digests),
    /// The result must match this target.
    Honest(&'a Honest),
}

impl Belief<'_> {
    /// Whether reads must have the right bytes.
    fn is_exact(self) -> bool {
        match self {
            Self::Liar => false,
            Self::Damaged(digests) => digests == BOTH,
            Self::Honest(_) => true,
        }
    }
}

/// Requests on a queue, and their state.
struct Host {
    rig: Rig,
    submitted: u64,
    ended: BTreeSet<u64>,
}

impl Host {
    fn new(digests: Digests) -> Self {
        Self { rig: Rig::with(facts(), digests, CAPSULE), submitted: 0, ended: BTreeSet::new() }
    }

    /// Submits a request for blocks of its own.
    fn ask(&mut self, chance: &mut Chance) {
        let token = self.submitted;
        self.submitted += 1;
        let (at, blocks) = (token * SHARE, 1 + chance.below(SHARE as usize));
        let op = match chance.below(5) {
            0 | 1 => read(at, blocks),
            2 => write(at, blocks),
            3 => Op::Flush,
            _ => {
                let range = LbaRange::new(Lba(at), blocks as u64);
                Op::WriteZeroes { range, durability: Durability::Normal }
            }
        };
        self.rig.submit(token, op);
    }

    /// Sends bytes to the queue, which may have disconnected.
    fn hear(&mut self, bytes: &[u8]) {
        let _ = self.rig.target.write_all(bytes);
        self.rig.poll();
    }

    /// Checks completed requests; results from a correct target must match it.
    fn look(&mut self, belief: Belief<'_>) {
        for Completion { token, op, result } in std::mem::take(&mut self.rig.done) {
            assert!(self.ended.insert(token.0), "request {} ends once", token.0);
            if result.is_err() {
                continue;
            }
            let at = token.0 * SHARE;
            match op {
                Op::Read { data, .. } => {
                    for (block, bytes) in (at..).zip(data.parts()[0].as_slice().chunks(BLOCK)) {
                        assert!(!bytes.contains(&POISON), "block {block} did not come");
                        if belief.is_exact() {
                            assert!(bytes.iter().all(|byte| *byte == content(block)), "{block}");
                        }
                    }
                }
                Op::Write { data, .. } => {
                    let blocks = data.len() / BLOCK;
                    if let Belief::Honest(honest) = belief {
                        let is = |block| honest.medium.get(&block) == Some(&mark(at));
                        assert!((at..at + blocks as u64).all(is), "blocks from {at} on");
                    }
                    assert!(
                        data.into_single().is_some_and(|buf| buf.reclaim().is_ok()),
                        "ours alone"
                    );
                }
                Op::Flush | Op::Deallocate { .. } | Op::WriteZeroes { .. } => {}
            }
        }
    }

    /// Ends the association, and establishes another with a correct target: every request completes.
    fn recover(mut self, belief: Belief<'_>, digests: Digests, chance: &mut Chance) {
        let reported = std::iter::from_fn(|| self.rig.requests.next().ok())
            .filter(|reported| matches!(reported, Request::Lost(..)));
        assert!(reported.count() <= 1, "a loss is told once");
        self.rig.lose();
        self.rig.poll();
        self.look(belief);
        let mut honest = Honest::new(digests);
        self.rig.connect(2, CAPSULE);
        self.rig.pass(SETTLE);
        // Temporary rejections happened only over the first association: one attempt is enough, with several steps for
        // a write.
        for _ in 0..u64::from(TRIES_MAX) * 2 * SHARE {
            for part in honest.answer(&mut self.rig, chance) {
                self.hear(&part);
            }
            self.rig.pass(RETRY_AFTER);
            self.look(Belief::Honest(&honest));
        }
        assert_eq!(self.ended.len() as u64, self.submitted, "everything ends");
        assert_eq!(self.rig.queue.readiness(), Readiness::Idle);
        assert!(self.rig.requests.next().is_err(), "an honest target is kept");
    }
}

const fn mark(at: u64) -> u8 {
    200 + (at / SHARE % 30) as u8
}

fn read(at: u64, blocks: usize) -> Op {
    let mut buf = BufMut::alone(blocks * BLOCK);
    buf.as_mut_slice().fill(POISON);
    Op::Read { at: Lba(at), data: SgMut::from(buf) }
}

fn write(at: u64, blocks: usize) -> Op {
    let mut buf = BufMut::alone(blocks * BLOCK);
    buf.as_mut_slice().fill(mark(at));
    Op::Write { at: Lba(at), data: Sg::from(buf.freeze()), durability: Durability::Normal }
}

#[test]
fn conversations_that_are_kept_end_well() {
    for case in corpus("to-host") {
        let shown = Shown::new(&case);
        let mut chance = Chance::new(0);
        let mut host = Host::new(NONE);
        host.rig.submit(0, read(0, 2));
        host.rig.submit(1, write(SHARE, 4));
        host.submitted = 2;
        for part in &case.parts {
            host.hear(part);
            host.look(Belief::Liar);
        }
        host.recover(Belief::Liar, NONE, &mut chance);
        drop(shown);
    }
}

#[test]
fn random_conversations_end_well() {
    runs(1000, |seed| {
        let mut chance = Chance::new(seed);
        let digests = if chance.one_in(2) { BOTH } else { NONE };
        let mut host = Host::new(digests);
        let mut honest = Honest::new(digests);
        let mut said = Case::of("io", Vec::new());
        let lies = chance.one_in(3);
        let belief = if lies { Belief::Liar } else { Belief::Damaged(digests) };
        for _ in 0..1 + chance.below(6) {
            for _ in 0..chance.below(4).min(8 - (host.submitted as usize).min(8)) {
                host.ask(&mut chance);
            }
            let mut parts = honest.answer(&mut host.rig, &mut chance);
            if chance.one_in(3) && !lies {
                disorder(&mut parts, &mut chance);
            }
            if chance.one_in(3) && !parts.is_empty() {
                let at = chance.below(parts.len());
                if lies {
                    parts[at] = lie(&parts[at], &host.rig, &honest, &mut chance);
                } else {
                    damage(&mut parts[at], &mut chance);
                    // Without digests, damaged bytes may arrive as data, but never as the byte that marks missing data.
                    parts[at]
                        .iter_mut()
                        .filter(|byte| **byte == POISON)
                        .for_each(|byte| *byte ^= 1);
                }
            }
            if chance.one_in(4) && !said.parts.is_empty() {
                let old = said.parts[chance.below(said.parts.len())].clone();
                parts.insert(chance.below(parts.len() + 1), old);
            }
            said.parts.extend(parts.iter().cloned());
            let shown = Shown::new(&said);
            parts.iter().for_each(|part| host.hear(part));
            host.look(belief);
            drop(shown);
        }
        let shown = Shown::new(&said);
        host.recover(belief, digests, &mut chance);
        drop(shown);
    });
}
