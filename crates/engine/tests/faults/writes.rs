//! Writes that fail on a member: they are acknowledged only after the label records the member.

use strake_block::IoErrorKind;
use strake_dev_mem::{Effect, Ops, Rule};
use strake_engine::{AssemblePolicy, Consistency, MemberCause, Outcome};
use strake_raid::{Level, MemberState};

use crate::stage::{DATA, LOSSY, STRICTLY, Seen, Set, Stage};

/// Fails a write of `blocks` at `at` on `victim` (data area only), restarts, and verifies all data.
fn check(level: Level, members: usize, at: u64, blocks: u64, victim: usize) {
    let set = Set { consistency: Consistency::Resync, ..Set::new(level, members) };
    let mut stage = set.filled(2000, 170, 7);
    let area = stage.on_disk(DATA, 8000);
    stage.disks[victim].plan.add(
        Rule::new(Ops::WRITE.and(Ops::ZEROES), Effect::Fail(IoErrorKind::Device)).within(area),
    );
    stage.watch();
    assert_eq!(stage.write(at, blocks, 99), Ok(()));
    let seen = stage.seen();
    assert_eq!(stage.state(victim), MemberState::Faulty);
    let label = |seen: &Seen| seen.op == 'w' && seen.byte < 1 << 20 && seen.done;
    assert!(
        seen.iter().filter(|s| label(s)).count() >= members - 1,
        "labels were written before the answer"
    );
    stage.verify(2000);
    let regions = stage.again(AssemblePolicy { accept_loss: true, ..STRICTLY });
    assert!(regions > 0, "the crash left the region dirty");
    assert_ne!(stage.state(victim), MemberState::InSync);
    stage.verify(2000);
    // The drive works again; a spare replaces it.
    stage.disks[victim].plan.clear();
    stage.replace(victim as u8).expect("replaceable");
    stage.verify_rebuilt(2000);
    stage.check_parity(20);
}

#[test]
fn a_data_strip_fails_during_read_modify_write() {
    let stage = Set::new(Level::Raid6, 8).build().expect("sound");
    let (victim, _) = stage.home(3);
    check(Level::Raid6, 8, 3, 2, victim);
}

#[test]
fn a_parity_strip_fails_during_read_modify_write() {
    let stage = Set::new(Level::Raid6, 8).build().expect("sound");
    let data: Vec<usize> = (0..6).map(|strip| stage.home(strip * 32).0).collect();
    let parity = (0..8).find(|m| !data.contains(m)).expect("two are parity");
    check(Level::Raid6, 8, 3, 2, parity);
}

#[test]
fn a_member_fails_during_reconstruct_and_full_stripe_writes() {
    check(Level::Raid6, 8, 0, 32 * 5, 2);
    check(Level::Raid5, 5, 0, 128, 1);
    check(Level::Raid1, 3, 5, 9, 1);
    check(Level::Raid10, 4, 5, 9, 1);
}

#[test]
fn two_members_failing_in_one_turn_are_both_recorded() {
    let mut stage = Set::new(Level::Raid6, 6).filled(1000, 100, 3);
    for victim in [1, 4] {
        stage.disks[victim].plan.add(Rule::new(Ops::WRITE, Effect::Vanish));
    }
    assert_eq!(stage.write(0, 128, 4), Ok(()));
    assert_eq!(stage.state(1), MemberState::Missing);
    assert_eq!(stage.state(4), MemberState::Missing);
    stage.verify(1000);
}

/// One member more than allowed fails: the array serves nothing, labels stay, and the drives can be assembled again.
#[test]
fn one_failure_too_many_stops_everything_and_records_nothing() {
    let set = Set { consistency: Consistency::Resync, ..Set::new(Level::Raid5, 4) };
    let mut stage = set.filled(1000, 100, 3);
    stage.fail(0).expect("one is allowed");
    let generation = stage.status().generation;
    stage.disks[1].plan.add(Rule::new(Ops::WRITE, Effect::Fail(IoErrorKind::Device)));
    assert_eq!(stage.write(0, 96, 5), Err(IoErrorKind::Lost));
    stage.watch();
    assert!(stage.status().lost);
    assert_eq!(stage.write(200, 1, 6), Err(IoErrorKind::Lost));
    assert_eq!(stage.read(0, 300, 20).err(), Some(IoErrorKind::Lost));
    assert_eq!(stage.run(0, strake_block::Op::Flush), Err(IoErrorKind::Lost));
    stage.pass(10);
    assert_eq!(stage.status().generation, generation);
    assert_eq!(stage.seen().iter().filter(|s| s.op == 'w').count(), 0, "nothing is recorded");
    assert!(stage.stop().is_err());
    stage.disks[1].plan.clear();
    assert!(matches!(stage.find(STRICTLY), Outcome::Refused { .. }), "it was dirty and degraded");
    stage.again(AssemblePolicy { accept_loss: true, ..STRICTLY });
    for at in (96..1000).step_by(8) {
        let bytes = stage.read(0, at, 8).expect("readable");
        let from = (at as usize) << 9;
        assert_eq!(
            bytes,
            stage.model[from..from + bytes.len()],
            "block {at} was not being written"
        );
    }
}

/// B19 at the limit: two members of RAID 5 fail in one turn.
#[test]
fn two_failures_in_one_turn_where_one_is_allowed_lose_the_array() {
    let mut stage = Set::new(Level::Raid5, 4).filled(1000, 100, 3);
    let ids: Vec<usize> = vec![0, 2];
    for victim in &ids {
        stage.disks[*victim].plan.add(Rule::new(Ops::WRITE, Effect::Vanish));
    }
    assert_eq!(stage.write(0, 96, 5), Err(IoErrorKind::Lost));
    for victim in ids {
        stage.disks[victim].plan.clear();
        stage.disks[victim].plan.return_device();
    }
    stage.again(LOSSY);
    let bytes = stage.read(0, 500, 8).expect("readable");
    assert_eq!(bytes, stage.model[500 << 9..508 << 9]);
}

/// After an acknowledged write, no core reads old data, on whichever core the member was last live.
#[test]
fn what_a_failed_member_missed_is_not_read_from_it_elsewhere() {
    let set = Set { cores: 3, queues: vec![0, 1, 2], ..Set::new(Level::Raid5, 4) };
    let mut stage = set.filled(300, 100, 3);
    let (victim, _) = stage.home(0);
    let mut pending =
        stage.array().begin_fail(strake_units::MemberIndex(victim as u8)).expect("a member");
    let (mut seed, mut tick) = (1000, 0);
    // Writes the same block repeatedly while the failure reaches the shards one at a time.
    while pending.poll().is_none() {
        seed += 1;
        let id = stage.submit_write(0, 0, 1, seed);
        while !stage.answers.contains_key(&id) {
            tick += 1;
            for at in 0..stage.pollers.len() {
                stage.now = stage.now.plus(stage.step);
                // The other shards run ten turns for each turn of the last one.
                let turns = if at == 2 && tick % 10 != 0 { 0 } else { 1 };
                for _ in 0..turns {
                    stage.pollers[at].turn(stage.now);
                }
            }
            collect(&mut stage);
        }
        assert_eq!(stage.result(id), Ok(()));
        stage.expect(0, 1, seed);
        for queue in [1, 2] {
            let bytes = stage.read(queue, 0, 1).expect("readable");
            assert_eq!(bytes, stage.model[..512], "queue {queue}");
        }
    }
}

/// A write that was planned without a member does not wait for the drive that fills its slot during the write.
#[test]
fn a_degraded_write_ends_although_the_member_is_replaced_under_it() {
    for victim in 0..6 {
        let mut stage = Set::new(Level::Raid6, 6).filled(500, 50, 3);
        stage.fail(victim).expect("allowed");
        for disk in &stage.disks {
            let slow = Effect::Delay(strake_units::Nanos(3_000_000));
            let area = stage.on_disk(DATA, 200);
            disk.plan.add(Rule::new(Ops::ANY, slow).within(area));
        }
        let id = stage.submit_write(0, 3, 2, 9);
        stage.rounds(3);
        stage.replace(victim).expect("replaceable");
        assert!(!stage.answers.contains_key(&id), "the write is still under way");
        assert_eq!(stage.result(id), Ok(()));
        stage.expect(3, 2, 9);
        stage.verify_rebuilt(500);
        stage.check_parity(6);
    }
}

fn collect(stage: &mut Stage) {
    let mut batch = strake_block::CompletionBatch::new(64);
    for queue in &mut stage.queues {
        queue.poll(stage.now, &mut batch);
        for done in batch.drain() {
            stage.answers.insert(done.token.0, done);
        }
    }
}

/// The operator pulls drives: their paths disappear although they still answer. A drive that redundancy covers is
/// recorded as missing; a drive that the data depend on stays in use.
#[test]
fn a_pulled_drive_is_missing_and_the_last_one_is_kept() {
    let mut stage = Set::new(Level::Raid5, 4).filled(2000, 170, 7);
    stage.vanish(2).expect("covered");
    assert_eq!(stage.state(2), MemberState::Missing);
    assert_eq!(stage.status().members[2].cause, Some(MemberCause::Error(IoErrorKind::Gone)));
    let refusal = stage.vanish(0).expect_err("the data depends on it");
    assert!(refusal.what.contains("would lose data"), "{refusal}");
    assert_eq!(stage.state(0), MemberState::InSync);
    stage.fill(2000, 90, 8);
    stage.verify(2000);
}
