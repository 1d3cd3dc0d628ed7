//! The leader's writes of the bitmaps: the write-intent bitmap and the dirty bitmaps of absent members.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use strake_block::IoErrorKind;
use strake_ondisk::Bitmap;
use strake_units::{MemberIndex, MemberSet};

use super::records::write_metadata;
use crate::message::Peer;
use crate::shard::Shard;
use crate::shard::leader::{Leader, Sweep};
use crate::shard::members::Group;
use crate::shard::serve::{FailedMembers, flush_members};

/// Writes bitmap changes until there are none, and answers the shards that waited for them.
pub(crate) async fn bitmap(shard: Rc<Shard>) {
    let group = shard.open_group();
    loop {
        clear_swept(&shard, group).await;
        let asked = std::mem::take(&mut shard.leader_mut().asked);
        if asked.is_empty() && !shard.leader_mut().state.bitmaps.is_dirty() {
            break;
        }
        for (_, region) in &asked {
            shard.shared.written.mark(*region);
        }
        let failed = write_pages(&shard, group).await;
        // A member whose bitmap lacks a bit must go out of use. If too few members remain, the answer below is an
        // error.
        let _ = shard.expel(failed).await;
        let result = if shard.shared.is_lost() { Err(IoErrorKind::Lost) } else { Ok(()) };
        for (from, region) in asked {
            shard.post(from, Peer::Intended { region, result });
        }
    }
    shard.leader_mut().bitmap_running = false;
    shard.members.borrow_mut().groups.close(group);
}

/// Clears the bits of regions that a finished sweep found idle, once their data is stable.
async fn clear_swept(shard: &Shard, group: Group) {
    if !matches!(&shard.leader_mut().sweep, Some(Sweep { awaiting: 0, .. })) {
        return;
    }
    let failed = flush_members(shard, group).await;
    let flushed = shard.expel(failed).await.is_ok();
    let mut leader = shard.leader_mut();
    // A region that was requested again meanwhile is no longer on the list.
    let Some(sweep) = leader.sweep.take() else { return };
    for region in sweep.idle.into_iter().filter(|_| flushed) {
        leader.forget(region);
    }
}

/// Writes every changed page to every live member. Returns the members that failed, in this write or in a write of
/// another task whose failures are not yet recorded.
///
/// One task writes pages at a time: a page has two copies, and while one copy is written, the other copy must be
/// intact. The task waits only for I/O, so the wait for another task is short.
pub(in crate::shard) async fn write_pages(shard: &Shard, group: Group) -> FailedMembers {
    poll_fn(|_| {
        let mut leader = shard.leader_mut();
        if !leader.writing_pages {
            leader.writing_pages = true;
            return Poll::Ready(());
        }
        leader.pages_waiting.register();
        Poll::Pending
    })
    .await;
    let (given, records) = {
        let mut leader = shard.leader_mut();
        let pages = leader.state.bitmaps.take_dirty();
        let records =
            pages.into_iter().flat_map(|(bitmap, page)| page_records(&leader, bitmap, page));
        (live_devices(&leader), records.collect())
    };
    let failed = write_metadata(shard, group, records).await;
    let mut leader = shard.leader_mut();
    leader.writing_pages = false;
    leader.pages_waiting.wake_all();
    let states = &leader.state.states;
    for slot in (0..states.len() as u8).map(MemberIndex) {
        let regions = leader.state.bitmaps.stale(slot).count_ones();
        shard.shared.set_stale_regions(slot, u64::from(regions));
    }
    for (member, failure) in failed {
        if leader.unpaged.iter().all(|(known, _)| *known != member) {
            leader.unpaged.push((member, failure));
        }
    }
    let live = live_devices(&leader);
    leader.unpaged.retain(|(member, _)| live.contains(*member));
    let missed: MemberSet = leader.unpaged.iter().map(|(member, _)| member).collect();
    leader.state.bitmaps.hold((given & live) - missed);
    leader.unpaged.clone()
}

/// Returns the devices to which labels and pages are written.
fn live_devices(leader: &Leader) -> MemberSet {
    leader.homes().into_iter().map(|(device, _)| device).collect()
}

/// Returns the record of a page for every live member.
fn page_records(leader: &Leader, bitmap: Bitmap, page: u32) -> Vec<(MemberIndex, u64, [u8; 4096])> {
    let (sequence, record) =
        leader.state.bitmaps.record(leader.state.superblock.array, bitmap, page);
    let homes = leader.homes().into_iter();
    homes
        .map(|(at, layout)| (at, layout.bitmap_page_offset(bitmap, page, sequence), record))
        .collect()
}
