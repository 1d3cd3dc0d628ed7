//! Bugs of other implementations, each with its history and a script that would detect it here.

use strake_raid::{Level, MemberState};
use strake_sim::drive::Crash;
use strake_sim::stage::{ACCEPT_LOSS, Cast, Clearing, Stage, refused};
use strake_units::{BlockSize, Lba, LbaRange, MemberSet};

use crate::{check, check_levels};

/// In 2015 md split a trim into one request per member that shared one page of payload. Each part patched the page
/// separately, and the drives trimmed other sectors than requested: live data of several levels was lost.
#[test]
fn b03_the_parts_of_a_trim_reach_their_own_blocks() {
    let mut casts = vec![Cast::new(Level::Raid0, 3)];
    casts.extend(crate::redundant());
    for cast in casts {
        check(&cast, |stage| {
            let stripe = stage.geometry().stripe_data_blocks();
            let all = stage.geometry().capacity_blocks().min(24 * stripe);
            for start in (0..all).step_by(64) {
                let range = LbaRange::new(Lba(start), 64.min(all - start));
                stage.write(range)?.map_err(|e| e.to_string())?;
            }
            for round in 0..12 {
                let start = stage.below(all - 1);
                let blocks = 1 + stage.below((6 * stripe).min(all - start));
                let how = [Clearing::Deallocation, Clearing::Zeroes][round % 2];
                stage.clear(LbaRange::new(Lba(start), blocks), how)?;
                stage.read_back()?;
            }
            stage.all_is_well()
        });
    }
}

/// A RAID 10 of md copied a member to its replacement; a write that arrived at the moment of the promotion went only to
/// the old drive (`e7c0c3fa2928`). The copy was trusted and the write was lost.
#[test]
fn b04_no_write_is_lost_as_a_replacement_completes() {
    for (level, members) in [(Level::Raid1, 2), (Level::Raid10, 4), (Level::Raid5, 3)] {
        check(&Cast::new(level, members), |stage| {
            stage.work(40)?;
            for slot in 0..members {
                stage.fail(slot)?;
                stage.work(10)?;
                // Writes at every step until the rebuild is complete, and a little longer.
                stage.load(u64::MAX);
                stage.replace(slot)?;
                stage.wait("the replacement to be in sync", |s| {
                    s.members[slot].state == MemberState::InSync
                })?;
                let turns = stage.below(60);
                stage.turns(turns)?;
                stage.load(0);
                stage.settle()?;
                // The replacement must return the data of its mirror.
                let neighbour = slot ^ 1;
                if neighbour < members {
                    stage.fail(neighbour)?;
                    stage.read_back()?;
                    stage.readd(neighbour)?;
                    stage.wait_maintenance()?;
                }
            }
            stage.all_is_well()
        });
    }
}

/// A recovery of md that started during a write skipped the block that the write, planned for a degraded array, did not
/// put on the new member: neither wrote it there (2014, "flush writes before starting a recovery").
#[test]
fn b05_a_rebuild_may_begin_at_any_moment_of_a_write() {
    for (level, members) in [(Level::Raid1, 2), (Level::Raid5, 4), (Level::Raid6, 5)] {
        check(&Cast::new(level, members), |stage| {
            stage.work(30)?;
            for step in 0..24 {
                let slot = stage.below(members as u64) as usize;
                stage.fail(slot)?;
                stage.load(12);
                stage.turns(step)?;
                let order = if step % 2 == 0 {
                    stage.begin_replace(slot)?
                } else {
                    let drive = stage.drive(slot);
                    stage.begin_readd(slot, &drive)?
                };
                stage.settle()?;
                stage.finish(order)?;
                stage.wait_maintenance()?;
            }
            stage.all_is_well()
        });
    }
}

/// md re-added a partially recovered drive, accepted its event count, and marked it as in sync (`1a855a060665`). Reads
/// of the other part returned the earlier content of the drive.
#[test]
fn b06_a_partly_recovered_member_that_is_re_added_is_not_in_sync() {
    for level in [Level::Raid1, Level::Raid5, Level::Raid6] {
        check(&Cast::new(level, 4).with_regions(), |stage| {
            stage.work(150)?;
            let slot = stage.below(4) as usize;
            let whole =
                stage.geometry().member_blocks_used() << stage.geometry().block_size().shift();
            stage.fail(slot)?;
            stage.replace(slot)?;
            for _ in 0..3 {
                let turns = stage.below(2_500);
                stage.turns(turns)?;
                if stage.states()[slot] == MemberState::InSync {
                    break;
                }
                let lacked = stage.status().members[slot].stale_bytes;
                stage.fail(slot)?;
                if stage.below(2) == 0 {
                    stage.stop()?;
                    stage.restart()?;
                }
                // It still lacks the previous regions, and the current writes as well.
                let lacks = stage.status().members[slot].stale_bytes;
                if lacked == whole && lacks < whole {
                    return Err(format!("it lacked everything, and {lacks} bytes once it was out"));
                }
                stage.readd(slot)?;
                stage.read_back()?;
            }
            stage.all_is_well()
        });
    }
}

/// Two spares of a ZFS dRAID were active at once; clearing the errors of a drive afterwards left blocks of other spares
/// wrong, because data that was rebuilt during its absence was not recorded as missing there (`b403040c4c`). Here a
/// member goes out and is re-added during the rebuild of another slot.
#[test]
fn b11_a_member_that_comes_back_among_rebuilds_lacks_nothing() {
    for (level, members) in [(Level::Raid6, 5), (Level::Raid73, 6), (Level::Raid1, 3)] {
        check(&Cast::new(level, members).with_regions(), |stage| {
            stage.work(80)?;
            for _ in 0..3 {
                let first = stage.below(members as u64) as usize;
                let second = (first + 1 + stage.below(members as u64 - 1) as usize) % members;
                stage.fail(first)?;
                stage.work(10)?;
                let order = stage.begin_replace(first)?;
                let turns = stage.below(400);
                stage.turns(turns)?;
                // It is present for a part of the rebuild, absent for a part, and present for the rest.
                stage.fail(second)?;
                stage.load(30);
                let turns = stage.below(400);
                stage.turns(turns)?;
                stage.settle()?;
                stage.readd(second)?;
                stage.finish(order)?;
                stage.wait_maintenance()?;
                stage.check_parity()?;
            }
            stage.all_is_well()
        });
    }
}

/// A rebuild of ZFS did not write to a drive that was degraded itself, and took a part for rebuilt too early: the
/// "rebuilt" data had checksum errors (`2abf469be5`, `b8d9596403`). Here two members are rebuilt at once, and clients
/// write; then all data must be readable with these two and as few others as possible.
#[test]
fn b12_a_rebuild_writes_every_member_that_lacks_something() {
    for (level, members) in [(Level::Raid6, 5), (Level::Raid73, 6), (Level::Raid1, 4)] {
        check(&Cast::new(level, members).with_regions(), |stage| {
            stage.work(80)?;
            let (one, other) = (0, members - 1);
            stage.fail(one)?;
            stage.fail(other)?;
            let first = stage.begin_replace(one)?;
            let turns = stage.below(300);
            stage.turns(turns)?;
            let second = stage.begin_replace(other)?;
            stage.load(60);
            stage.finish(first)?;
            stage.finish(second)?;
            stage.settle()?;
            stage.wait_maintenance()?;
            stage.check_parity()?;
            // As many other members leave as the array tolerates: both rebuilt members must return their data.
            for slot in 1..members - 1 {
                let out: MemberSet = stage.out().iter().collect();
                if stage.geometry().tolerates(out.with(slot)) {
                    stage.fail(slot)?;
                }
            }
            stage.read_back()?;
            for slot in stage.out() {
                stage.readd(slot)?;
            }
            stage.wait_maintenance()?;
            stage.all_is_well()
        });
    }
}

/// Two drives of a ZFS pool failed at the same time; the restart of the rebuild for the second was requested during the
/// setup of the first, and was missed (`2be0a124af`). The vdev stayed degraded permanently.
#[test]
fn b19_two_drives_that_fail_at_once_are_both_rebuilt() {
    for (level, members, pair) in [(Level::Raid6, 5, [0, 3]), (Level::Raid10, 4, [1, 2])] {
        check(&Cast::new(level, members), |stage| {
            stage.work(60)?;
            stage.load(60);
            pair.iter().for_each(|slot| stage.pull(*slot));
            stage.settle()?;
            stage.wait("both to be out", |status| {
                pair.iter().all(|slot| status.members[*slot].state != MemberState::InSync)
            })?;
            // Both replacements at the same time, one of them during the start of the other rebuild.
            let first = stage.begin_replace(pair[0])?;
            let turns = stage.below(120);
            stage.turns(turns)?;
            let second = stage.begin_replace(pair[1])?;
            stage.finish(first)?;
            stage.finish(second)?;
            stage.wait_maintenance()?;
            if !stage.out().is_empty() {
                return Err(format!("somebody was forgotten: {:?}", stage.states()));
            }
            stage.all_is_well()
        });
    }
}

/// A channel that SPDK opened before or during a rebuild treated the target as a member in sync: reads through it
/// returned the old content of the new drive, and it crashed when the rebuild finished (`a67085538b`, `51978c16f1`,
/// #3343).
#[test]
fn b21_a_client_that_connects_during_a_rebuild_never_reads_what_is_not_there() {
    check_levels(|stage| {
        stage.work(60)?;
        let members = stage.geometry().members() as u64;
        let slot = stage.below(members) as usize;
        stage.fail(slot)?;
        stage.reconnect()?;
        let order = stage.begin_replace(slot)?;
        for _ in 0..40 {
            stage.reconnect()?;
            let blocks = stage.geometry().stripe_data_blocks();
            let start = stage.below(stage.geometry().capacity_blocks() - blocks);
            stage.read(LbaRange::new(Lba(start), blocks))?.map_err(|e| e.to_string())?;
            stage.write(LbaRange::new(Lba(start), 1))?.map_err(|e| e.to_string())?;
            stage.turns(20)?;
        }
        stage.finish(order)?;
        stage.reconnect()?;
        stage.all_is_well()
    });
}

/// Removing a second base device of an SPDK RAID during the rebuild of the first crashed the target (#3305,
/// `1a58750482`).
#[test]
fn b22_any_member_may_be_removed_at_any_step_of_a_rebuild() {
    check_levels(|stage| {
        let members = stage.geometry().members();
        stage.work(40)?;
        for step in 0..8 {
            let slot = stage.below(members as u64) as usize;
            stage.fail(slot)?;
            let order = stage.begin_replace(slot)?;
            stage.load(30);
            let turns = stage.below(40 * step + 1);
            stage.turns(turns)?;
            // Any member: also the target itself, and also one that the data needs, which is rejected.
            let second = stage.below(members as u64) as usize;
            let survives = stage.geometry().tolerates(MemberSet::of(slot).with(second));
            let removed = stage.fail(second);
            stage.finish(order).or_else(|what| excused(second == slot, what))?;
            if survives && second != slot {
                removed?;
            } else if !survives && stage.states()[slot] != MemberState::InSync {
                refused(removed, "")?;
            }
            stage.settle()?;
            for out in stage.out() {
                if !matches!(stage.states()[out], MemberState::Rebuilding { .. }) {
                    stage.replace(out)?;
                }
            }
            stage.wait_maintenance()?;
        }
        stage.all_is_well()
    });
}

fn excused(excuse: bool, what: String) -> Result<(), String> {
    if excuse { Ok(()) } else { Err(what) }
}

/// SPDK freed its state of a base device while failed requests to it waited for a retry (#3703, `607f67020d`): use
/// after free. Here unreadable blocks cause retries, and the drive is removed meanwhile.
#[test]
fn b23_a_member_removed_among_retries_leaves_nothing_behind() {
    check_levels(|stage| {
        let blocks = 6 * stage.geometry().stripe_data_blocks();
        for _ in 0..4 {
            stage.write(LbaRange::new(Lba(0), blocks))?.map_err(|e| e.to_string())?;
            let members = stage.geometry().members();
            let slot = stage.below(members as u64) as usize;
            for lba in 0..blocks {
                let (at, offset) = stage.where_is(Lba(lba), 0);
                if at == slot && stage.below(2) == 0 {
                    stage.drive(slot).spoil(offset);
                }
            }
            stage.load(60);
            let turns = stage.below(120);
            stage.turns(turns)?;
            stage.pull(slot);
            stage.settle()?;
            stage
                .wait("the loss to be noticed", |s| s.members[slot].state != MemberState::InSync)
                .or_else(|_| stage.vanish(slot))?;
            stage.replace(slot)?;
            stage.wait_maintenance()?;
        }
        stage.all_is_well()
    });
}

/// A scrub of ZFS read one of several copies and reported all of them as good (`ad8b9f940c`). Tests of scrubs show that
/// Strake reads them all. After a crash, the resync makes copies agree, and it must not skip one. A copy that is
/// neither the first nor the last is made to differ in regions that the crash left in doubt.
#[test]
fn b15_a_resync_makes_every_copy_agree() {
    for (level, members, copies) in
        [(Level::Raid1, 3, 3), (Level::Raid1, 4, 4), (Level::Raid10, 4, 2)]
    {
        check(&Cast::new(level, members), |stage| {
            stage.work(40)?;
            stage.begin_work(10)?;
            stage.crash(Crash::Power);
            let drives = stage.drives();
            let assembled = stage.assemble(&drives, Default::default())?;
            if assembled.resync_regions().0 == 0 {
                // No write was in flight in this world.
                stage.run(&drives, assembled, Default::default())?;
                return stage.all_is_well();
            }
            drop(assembled);
            // The whole array is one region, so all of it is in doubt.
            let capacity = stage.geometry().capacity_blocks();
            for copy in 1..copies {
                let at = stage.below(capacity);
                let (slot, offset) = stage.where_is(Lba(at), copy);
                stage.drive(slot).overwrite(offset, &[0xa5; 4096]);
            }
            stage.start(&drives, Default::default())?;
            stage.wait_maintenance()?;
            stage.check_parity()?;
            stage.all_is_well()
        });
    }
}

/// A slot of an SPDK RAID that was empty during a resize of the array kept the old size, and a later rebuild stopped
/// before the end or went beyond it (`d005e023bd`). Here replacements are larger, then just large enough.
#[test]
fn b24_the_length_of_a_rebuild_is_the_arrays_and_not_the_drives() {
    check_levels(|stage| {
        let capacity = stage.geometry().capacity_blocks();
        stage.work(60)?;
        let members = stage.geometry().members();
        for (slot, more) in [(0, 4 << 20), (members - 1, 0), (0, 0)] {
            stage.fail(slot)?;
            stage.work(10)?;
            let bytes = stage.new_drive(slot).bytes();
            let drive = stage.new_drive(slot);
            drive.resize(bytes + more);
            // A wrong length affects the last blocks.
            stage.write(LbaRange::new(Lba(capacity - 8), 8))?.map_err(|e| e.to_string())?;
            let order = stage.begin_replace_with(slot, &drive)?;
            stage.finish(order)?;
            stage.wait_maintenance()?;
            stage.write(LbaRange::new(Lba(capacity - 5), 5))?.map_err(|e| e.to_string())?;
            if stage.geometry().capacity_blocks() != capacity {
                return Err("the array has another size".to_owned());
            }
        }
        stage.all_is_well()
    });
}

/// SPDK forgot a resize at the next start, crashed when an array was created over an older superblock, and failed to
/// rebuild a raid5f whose drives required aligned requests (#3311, #3565, #3620). Here a restart follows every command,
/// for several block and strip sizes; then an array is created over the labels of another one.
#[test]
fn b25_every_command_outlasts_a_restart_at_any_alignment() {
    for blocks in [BlockSize::B512, BlockSize::B4096] {
        for strip_kib in [4u32, 8, 64] {
            let strip_bytes = strip_kib << 10;
            let rows = (1u64 << 20).div_ceil(u64::from(strip_bytes)) + 3;
            let cast =
                Cast { strip_bytes, rows, blocks: vec![blocks], ..Cast::new(Level::Raid5, 3) };
            check(&cast, |stage| {
                stage.work(30)?;
                let slot = stage.below(3) as usize;
                stage.fail(slot)?;
                again(stage, &[slot])?;
                stage.replace(slot)?;
                again(stage, &[])?;
                stage.fail(slot)?;
                stage.readd(slot)?;
                again(stage, &[])?;
                recreate(stage)
            });
        }
    }
}

/// Stops, cleanly or not, starts again, and expects exactly these members to be out after all rebuilds.
fn again(stage: &mut Stage, out: &[usize]) -> Result<(), String> {
    if stage.below(2) == 0 {
        stage.stop()?;
    } else {
        stage.crash(Crash::Kill);
    }
    stage.start(&stage.drives(), ACCEPT_LOSS)?;
    stage.work(20)?;
    stage.wait_maintenance()?;
    if stage.out() == out {
        return Ok(());
    }
    Err(format!("expected {out:?} to be out: {:?}", stage.states()))
}

/// Creates an array on the same drives again, which is rejected unless forced.
fn recreate(stage: &mut Stage) -> Result<(), String> {
    stage.stop()?;
    refused(stage.create_again(false), "member of array")?;
    stage.create_again(true)?;
    stage.work(30)?;
    stage.all_is_well()
}
