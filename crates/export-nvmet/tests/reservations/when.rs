//! The time from which a reservation applies: after the command completes, no excluded command is executed.

use crate::common::{BLOCK, Host, Machine, SUBSYSTEM, code, h2c, until};
use crate::gated::Gated;
use crate::{CONFLICT, act, ask_of, controller, core_of, queues_until, register, registrants};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use strake_dev_mem::{Effect, FaultPlan, Ops, RamDevice, Rule, RuleId};
use strake_export_nvmet::TargetConfig;
use strake_nvme_wire::nvm::{SourceRange, opcode as nvm};
use strake_nvme_wire::reservation::{Acquire, Action, ReservationType as T};
use strake_nvme_wire::{Sgl, Status};
use strake_units::BlockSize;

/// A write that is accepted before an Acquire, and whose data arrives after the completion of the Acquire, has no
/// effect: a check only at the arrival of the command would execute it.
#[test]
fn a_write_whose_data_comes_after_the_answer_is_not_carried_out() {
    let machine = Machine::start();
    let (_admin, mut holder) = controller(&machine, 1);
    let (_other, mut late) = controller(&machine, 2);
    register(&mut holder, 1);
    let (cid, tag) = late.announce(0, 4);
    let take = Action::Acquire(Acquire::Free, T::WriteExclusive);
    assert_eq!(act(&mut holder, take, 1, 0), 0);
    let length = 4 * BLOCK as u32;
    late.put(&h2c(cid, tag, 0, length, 4, &vec![0xee; length as usize]));
    assert_eq!(late.finish().2, CONFLICT);
    assert_eq!(holder.read(0, 4), (vec![0; 4 * BLOCK], 0));
}

/// The completion waits for a queue on another core that has checked a write and not submitted it yet: otherwise the
/// write would be executed after the completion.
#[test]
fn the_answer_waits_for_a_core_that_has_not_seen_it() {
    let device = Gated::new();
    let (gate, knocks) = (Arc::clone(&device.gate), Arc::clone(&device.knocks));
    let machine = Machine::with(Arc::new(device));
    let (_admin, mut slow) = controller(&machine, 2);
    let slow_core = core_of(&machine, &slow);
    let (_others, mut holder) = queues_until(&machine, 1, |core| core != slow_core);
    register(&mut holder, 1);
    let held = gate.lock().expect("no panic");
    let sgl = Sgl::InCapsule { offset: 0, length: BLOCK as u32 };
    slow.send(nvm::WRITE, sgl, &[(1, 1)], &[0xee; BLOCK]);
    until("the write was checked", || knocks.load(Ordering::SeqCst) == 1);
    ask_of(&mut holder, 1, Action::Acquire(Acquire::Free, T::WriteExclusive), 1, 0);
    let is_held = || {
        let known = machine.target.reservations(SUBSYSTEM, 1);
        known.is_some_and(|known| known.held.is_some())
    };
    until("it is in force", is_held);
    // This report completes first, so the Acquire has not completed yet.
    assert_eq!(registrants(&mut holder, 1), (1, vec![(1, 1, 1)]));
    drop(held);
    assert_eq!(slow.finish().2, 0, "it was before");
    assert_eq!(holder.finish().2, 0, "now it is answered");
}

/// Many repetitions on queues of different cores: a write that is sent after the completion always fails.
#[test]
fn nothing_that_is_sent_after_the_answer_is_carried_out() {
    let machine = Machine::start();
    let (_admin, mut holder) = controller(&machine, 1);
    let others: Vec<_> = (2..=5).map(|id| controller(&machine, id)).collect();
    let (_admins, mut others): (Vec<_>, Vec<_>) = others.into_iter().unzip();
    register(&mut holder, 1);
    for round in 0..100 {
        let take = Action::Acquire(Acquire::Free, T::WriteExclusiveRegistrants);
        assert_eq!(act(&mut holder, take, 1, 0), 0);
        for other in &mut others {
            assert_eq!(other.write(0, &[0xee; BLOCK]), CONFLICT, "round {round}");
        }
        let release = Action::Release(T::WriteExclusiveRegistrants);
        assert_eq!(act(&mut holder, release, 1, 0), 0);
        assert_eq!(others[round % 4].write(1, &[0x11; BLOCK]), 0, "round {round}");
    }
    assert_eq!(holder.read(0, 1), (vec![0; BLOCK], 0));
}

/// A machine on whose drive these operations hang, and two registrants; the second holds the reservation of all
/// registrants.
pub fn contested(ops: Ops) -> (Machine, FaultPlan, RuleId, [(Host, Host); 2]) {
    contested_with(ops, Machine::patient())
}

/// As [`contested`], with a configuration.
pub fn contested_with(
    ops: Ops,
    config: TargetConfig,
) -> (Machine, FaultPlan, RuleId, [(Host, Host); 2]) {
    let drive = RamDevice::new(1 << 20, BlockSize::B4096);
    let (machine, plan) = Machine::planned_with(drive, config);
    let rule = plan.add(Rule::new(ops, Effect::Hang));
    let mut hosts = [controller(&machine, 1), controller(&machine, 2)];
    register(&mut hosts[0].1, 1);
    register(&mut hosts[1].1, 2);
    (machine, plan, rule, hosts)
}

/// Preempt and Abort: commands in flight at a device complete, and commands that are not submitted fail with a status
/// of their own.
#[test]
fn a_preemption_with_abort_is_answered_when_commands_of_the_other_are_over() {
    let (_machine, plan, rule, [(_admin, mut taker), (_other, mut victim)]) = contested(Ops::WRITE);
    let take = Action::Acquire(Acquire::Free, T::WriteExclusive);
    assert_eq!(act(&mut victim, take, 2, 0), 0, "it is the other's until then");
    let (late, tag) = victim.announce(8, 4);
    let sgl = Sgl::InCapsule { offset: 0, length: BLOCK as u32 };
    let stuck = victim.send(1, sgl, &[(1, 1)], &[7; BLOCK]);
    until("the write is at the device", || plan.struck(rule) == Some(1));

    ask_of(&mut taker, 1, Action::Acquire(Acquire::PreemptAndAbort, T::WriteExclusive), 1, 2);
    until("the other one is shut out", || {
        victim.send(nvm::FLUSH, Sgl::Transport { length: 0 }, &[(1, 1)], &[]);
        victim.finish().2 == CONFLICT
    });
    // This report completes first, so the preemption has not completed yet.
    assert_eq!(registrants(&mut taker, 1), (1, vec![(1, 1, 1)]));
    let length = 4 * BLOCK as u32;
    victim.put(&h2c(late, tag, 0, length, 4, &vec![0xee; length as usize]));
    assert_eq!(victim.finish().2, code(Status::PREEMPTED), "it had not reached the device");

    plan.release();
    let (_, _, status) = taker.finish();
    assert_eq!(status, 0, "now it is answered");
    assert_eq!(victim.finish().2, 0, "command {stuck} could not be called back");
    assert_eq!(taker.read(8, 4), (vec![0; 4 * BLOCK], 0));
}

/// A deallocation and a Copy take many I/Os, and a Compare with FUA writes after its read: the next I/O is not started.
#[test]
fn a_command_of_many_parts_does_not_go_on_after_it_was_shut_out() {
    let mut range = [0; 16];
    range[4..8].copy_from_slice(&(1_u32 << 20).to_le_bytes());
    let source = |start| SourceRange { start, count: 1 }.bytes();
    let sources = [source(0), source(1)].concat();
    let conflict = (Acquire::Preempt, CONFLICT);
    let preempted = (Acquire::PreemptAndAbort, code(Status::PREEMPTED));
    let stable = 1 << 30;
    for (ops, opcode, word, data) in [
        (Ops::DEALLOCATE, nvm::DATASET_MANAGEMENT, [(1, 1), (11, 4), (12, 0)], &range[..]),
        (Ops::READ, nvm::COPY, [(1, 1), (10, 8), (12, 1)], &sources),
        (Ops::READ, nvm::COMPARE, [(1, 1), (10, 0), (12, stable)], &[0; BLOCK]),
    ] {
        for (how, status) in [conflict, preempted] {
            let (machine, plan, rule, [(_admin, mut taker), (_other, mut victim)]) = contested(ops);
            let sgl = Sgl::InCapsule { offset: 0, length: data.len() as u32 };
            victim.send(opcode, sgl, &word, data);
            until("its first part is at the device", || plan.struck(rule) == Some(1));
            let take = Action::Acquire(Acquire::Free, T::ExclusiveAccess);
            assert_eq!(act(&mut taker, take, 1, 0), 0);
            ask_of(&mut taker, 1, Action::Acquire(how, T::ExclusiveAccess), 1, 2);
            until("the other one is no registrant", || {
                act(&mut victim, Action::Release(T::ExclusiveAccess), 2, 0) == CONFLICT
            });
            plan.release();
            assert_eq!(taker.finish().2, 0);
            assert_eq!(victim.finish().2, status, "{how:?} of {opcode:#x}");
            assert_eq!(plan.struck(rule), Some(1), "no other part was begun");
            assert_eq!(machine.target.exports()[0].effects, 0, "nothing was done");
        }
    }
}

/// Commands that a host starts after its exclusion are not aborted by a later change.
#[test]
fn what_is_begun_after_it_was_shut_out_is_not_given_up() {
    let machine = Machine::start();
    let (_admin, mut taker) = controller(&machine, 1);
    let (_other, mut again) = controller(&machine, 2);
    register(&mut taker, 1);
    register(&mut again, 2);
    let how = Action::Acquire(Acquire::PreemptAndAbort, T::WriteExclusive);
    assert_eq!(act(&mut taker, how, 1, 2), 0, "nobody held anything, and nobody does");
    let (cid, tag) = again.announce(0, 4);
    register(&mut taker, 1);
    let length = 4 * BLOCK as u32;
    again.put(&h2c(cid, tag, 0, length, 4, &vec![0xee; length as usize]));
    assert_eq!(again.finish().2, 0);
    assert_eq!(taker.read(0, 4), (vec![0xee; 4 * BLOCK], 0));
}

/// A command that waits for a range lock has not reached the device either, and neither has the second half of a pair
/// during its compare.
#[test]
fn what_waits_for_a_comparison_is_not_carried_out_after_it_was_shut_out() {
    let (machine, plan, rule, [(_admin, mut taker), (_other, mut victim)]) = contested(Ops::READ);
    let (first, second) = victim.send_pair(0, &[0; BLOCK], &[1; BLOCK]);
    until("it is compared", || plan.struck(rule) == Some(1));
    let in_capsule = |length: usize| Sgl::InCapsule { offset: 0, length: length as u32 };
    let write = victim.send(nvm::WRITE, in_capsule(BLOCK), &[(1, 1)], &[2; BLOCK]);
    let mut range = [0; 16];
    range[4] = 1;
    let words = [(1, 1), (11, 4)];
    let deallocation = victim.send(nvm::DATASET_MANAGEMENT, in_capsule(16), &words, &range);
    let zeroes = victim.send(nvm::WRITE_ZEROES, Sgl::Transport { length: 0 }, &[(1, 1)], &[]);
    let take = Action::Acquire(Acquire::Free, T::WriteExclusive);
    assert_eq!(act(&mut taker, take, 1, 0), 0);
    let (ended, all) = (victim.endings(4), [second, write, deallocation, zeroes]);
    assert_eq!(all.map(|cid| ended[&cid]), [CONFLICT; 4]);
    plan.clear();
    plan.release();
    assert_eq!(victim.endings(1)[&first], code(Status::FAILED_FUSED));
    assert_eq!(taker.read(0, 1), (vec![0; BLOCK], 0));
    assert_eq!(taker.compare_and_write(0, &[0; BLOCK], &[3; BLOCK]), (0, 0));
    assert_eq!(machine.target.exports()[0].effects, 0, "nothing was done");
}

/// A host that is excluded while it waits for the range lock of another host's pair gets its completion at once,
/// because the wait may be long.
#[test]
fn what_waits_for_the_range_lock_of_another_host_ends_when_it_is_shut_out() {
    let (_machine, plan, rule, [(_admin, mut taker), (_other, mut victim)]) = contested(Ops::READ);
    let pair = taker.send_pair(0, &[0; BLOCK], &[1; BLOCK]);
    until("it is compared", || plan.struck(rule) == Some(1));
    let sgl = Sgl::InCapsule { offset: 0, length: BLOCK as u32 };
    victim.send(nvm::WRITE, sgl, &[(1, 1)], &[2; BLOCK]);
    assert_eq!(registrants(&mut victim, 1).1.len(), 2, "the write is taken in");
    let take = Action::Acquire(Acquire::Free, T::WriteExclusive);
    assert_eq!(act(&mut taker, take, 1, 0), 0);
    assert_eq!(victim.finish().2, CONFLICT);
    plan.release();
    let ended = taker.endings(2);
    assert_eq!((ended[&pair.0], ended[&pair.1]), (0, 0));
}
