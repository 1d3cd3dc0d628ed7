//! A namespace whose device is detached and attached again, as the same instance, while hosts have all kinds of
//! commands in flight: each completes once, with success or with a retryable status, and the queue stays open.

mod common;

use common::{BLOCK, Host, Machine, SUBSYSTEM, capsule, code, export, h2c, u32_of};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use strake_block::BlockDevice;
use strake_dev_mem::{Effect, FaultPlan, Faulty, Ops, RamDevice, Rule, When};
use strake_export_nvmet::Export;
use strake_fuzz::{Chance, runs};
use strake_nvme_wire::nvm::{Range, SourceRange};
use strake_nvme_wire::{Cqe, Sgl, Status};
use strake_units::{BlockSize, Nanos};

/// Commands in flight at once.
const COMMANDS_MAX: usize = 60;
/// The number of rounds.
const ROUNDS: usize = 20;

/// A second namespace with this device, some of whose I/Os take longer.
fn second(ram: &RamDevice, plan: &FaultPlan) -> Export {
    let device: Arc<dyn BlockDevice> = Arc::new(Faulty::new(ram.clone(), plan.clone()));
    Export { namespace: 2, uuid: [2; 16], ..export(device) }
}

/// Detaches and attaches the device until it is `done`.
fn switch(machine: &Machine, next: &dyn Fn() -> Export, chance: &mut Chance, done: &AtomicBool) {
    while !done.load(Ordering::Relaxed) {
        (0..chance.below(300)).for_each(|_| thread::yield_now());
        let leaving = machine.target.detach_device(SUBSYSTEM, 2);
        if chance.below(2) == 0 {
            assert!(leaving.is_over(Duration::from_secs(60)), "what is in flight ends");
        }
        machine.target.keep_instance(SUBSYSTEM, 2);
        machine.target.add_export(&next()).expect("it is the same");
    }
}

/// A command or a fused pair for either namespace; the first has this CID.
fn command(chance: &mut Chance, cid: u16) -> Vec<Vec<u8>> {
    let namespace = (1, chance.pick(&[1, 2, 2, 2]));
    let start = chance.below(2000) as u32;
    let blocks = chance.pick(&[1, 2, 3, 4, 100, 200]);
    let many = Sgl::Transport { length: blocks * BLOCK as u32 };
    let here = |length: usize| Sgl::InCapsule { offset: 0, length: length as u32 };
    let words = [namespace, (10, start)];
    let stable = chance.pick(&[0, 1 << 30]);
    let large = [namespace, (10, start), (12, (blocks - 1) | stable)];
    let one = match chance.below(7) {
        0 | 1 => capsule(2, cid, many, &large, &[]),
        2 => capsule(1, cid, many, &large, &[]),
        3 => capsule(1, cid, here(BLOCK), &words, &[1; BLOCK]),
        4 => {
            let range = Range { start: start.into(), count: 100 }.bytes();
            capsule(9, cid, here(range.len()), &[namespace, (11, 4)], &range)
        }
        5 => {
            let source = SourceRange { start: start.into(), count: 64 }.bytes();
            capsule(0x19, cid, here(source.len()), &[namespace, (10, 3000)], &source)
        }
        _ => {
            let pair = [(5, cid, 1), (1, cid + 1, 2)].map(|(opcode, cid, half)| {
                let mut bytes = capsule(opcode, cid, here(BLOCK), &words, &[0; BLOCK]);
                bytes[9] |= half;
                bytes
            });
            return pair.into();
        }
    };
    vec![one]
}

/// Sends many commands in pieces, and the requested data; fails unless each completes once.
fn round(io: &mut Host, chance: &mut Chance) {
    let mut sent = Vec::new();
    while sent.len() < COMMANDS_MAX {
        sent.extend(command(chance, sent.len() as u16));
    }
    let bytes = sent.concat();
    let mut at = 0;
    while at < bytes.len() {
        let end = bytes.len().min(at + 1 + chance.below(6000));
        io.put(&bytes[at..end]);
        at = end;
    }
    let expected = [Status::SUCCESS, Status::INACCESSIBLE, Status::FAILED_FUSED];
    let expected = expected.map(code).into_iter().chain([code(Status::COMPARE_FAILURE)]);
    let expected: Vec<_> = expected.collect();
    let mut ended = BTreeMap::new();
    while ended.len() < sent.len() {
        let pdu = io.pdu().expect("the queue stays");
        let number = |at: usize| u16::from_le_bytes([pdu.header[at], pdu.header[at + 1]]);
        match pdu.kind {
            5 => {
                let cqe = Cqe::parse(&pdu.header[..].try_into().expect("a completion"));
                assert!(expected.contains(&code(cqe.status)), "{:?}", cqe.status);
                assert_eq!(ended.insert(cqe.cid, cqe.status), None, "it was answered");
            }
            7 => assert!(!ended.contains_key(&number(0)), "data behind its completion"),
            9 => {
                let data = vec![1; u32_of(&pdu.header[8..]) as usize];
                for (part, piece) in data.chunks(128 << 10).enumerate() {
                    let offset = part * (128 << 10);
                    let flags = if offset + piece.len() == data.len() { 4 } else { 0 };
                    let (offset, length) = (offset as u32, piece.len() as u32);
                    io.put(&h2c(number(0), number(2), offset, length, flags, piece));
                }
            }
            other => panic!("PDU {other} is not expected"),
        }
    }
}

#[test]
fn commands_in_flight_are_answered_once_while_their_device_is_switched() {
    runs(4, |seed| {
        let machine = Machine::start();
        let (ram, plan) = (RamDevice::new(4096, BlockSize::B4096), FaultPlan::new(seed));
        for us in [20, 200, 1000] {
            let slowly = Effect::Delay(Nanos(us * Nanos::MICRO.0));
            plan.add(Rule::new(Ops::ANY, slowly).when(When::PerMillion(150_000)));
        }
        let next = || second(&ram, &plan);
        machine.target.add_export(&next()).expect("a second namespace");
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| switch(&machine, &next, &mut Chance::new(seed), &done));
            let hosts = [1, 2].map(|number| {
                let (machine, mut chance) = (&machine, Chance::new(seed ^ number));
                scope.spawn(move || {
                    let (_admin, mut io) = machine.controller();
                    (0..ROUNDS).for_each(|_| round(&mut io, &mut chance));
                })
            });
            let ended = hosts.map(thread::ScopedJoinHandle::join);
            done.store(true, Ordering::Relaxed);
            assert!(ended.iter().all(Result::is_ok), "seed {seed}");
        });
    });
}
