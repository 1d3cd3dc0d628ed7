//! The counters of a queue.

use super::{BLOCK, NONE, Rig, SETTLE, facts};
use crate::limits::RETRY_AFTER;
use crate::stats::{LinkFacts, QueueStats};
use strake_block::Op;
use strake_nvme_tcp::QueueCounts;
use strake_nvme_tcp::pdu::flag;
use strake_nvme_wire::Status;
use strake_units::{CoreIndex, Nanos};

fn stats(rig: &Rig) -> QueueStats {
    let [queue] = rig.shared.stats().try_into().ok().expect("one queue is open");
    queue.read()
}

#[test]
fn commands_data_failures_and_retries_are_counted() {
    let mut rig = Rig::with(facts(), NONE, 8192);
    rig.read(1, 5, 2);
    let cid = rig.command().cid();
    rig.data(cid, 0, flag::LAST | flag::SUCCESS, &[1; 2 * BLOCK]);
    rig.ended_well(1);
    rig.write(2, 0, &[2; BLOCK]);
    let cid = rig.pdu().command().cid();
    rig.answer(cid, Status::SUCCESS);
    rig.ended_well(2);
    rig.write(3, 0, &[3; 4 * BLOCK]);
    let cid = rig.command().cid();
    rig.ask(cid, 0, 4 * BLOCK as u32);
    let asked = (0..2).map(|_| rig.pdu().data.len()).sum::<usize>();
    assert_eq!(asked, 4 * BLOCK, "in two pieces");
    rig.answer(cid, Status::SUCCESS);
    rig.ended_well(3);
    rig.submit(4, Op::Flush);
    let cid = rig.command().cid();
    rig.answer(cid, Status::NOT_READY);
    assert_eq!(stats(&rig).held, 1, "it is sent again a little later");
    rig.pass(RETRY_AFTER);
    rig.pass(RETRY_AFTER);
    let cid = rig.command().cid();
    rig.answer(cid, Status::SUCCESS);
    rig.ended_well(4);

    let blocks = |count: u64| count * BLOCK as u64;
    let is = stats(&rig);
    let (bytes_in, bytes_out) = (blocks(2), blocks(5));
    let counts = QueueCounts { reads: 1, writes: 2, others: 2, bytes_in, bytes_out, failures: 1 };
    assert_eq!(is.counts, counts);
    assert_eq!((is.retries, is.held, is.connects), (1, 0, 1));
}

#[test]
fn stats_say_how_a_queue_is_connected_and_what_waits_for_that() {
    let mut rig = Rig::new();
    rig.poll();
    let facts = |association, since| {
        Some(LinkFacts { association, number: 3, is_secure: false, digests: NONE, since })
    };
    assert_eq!(stats(&rig).link, facts(1, Nanos::SECOND));
    assert_eq!(stats(&rig).core, CoreIndex(0));
    rig.read(1, 0, 1);
    assert_eq!(stats(&rig).held, 0, "it was sent");
    rig.lose();
    rig.poll();
    let is = stats(&rig);
    assert_eq!((is.link, is.held, is.retries), (None, 1, 1));
    rig.connect(2, 8192);
    rig.pass(SETTLE);
    let is = stats(&rig);
    assert_eq!((is.link.map(|link| link.association), is.connects), (Some(2), 2));
    let cid = rig.command().cid();
    rig.data(cid, 0, flag::LAST | flag::SUCCESS, &[1; BLOCK]);
    assert_eq!((stats(&rig).counts.reads, stats(&rig).held), (2, 0));
    drop(rig.queue);
    assert!(rig.shared.stats().is_empty(), "they go with their queue");
}
