//! Scenarios of mdadm's test suite, with its names: create, integrity, assembly, re-add.

use strake_raid::{Level, MemberState};
use strake_sim::drive::Crash;
use strake_sim::stage::{ACCEPT_LOSS, Cast, DEGRADED, Stage, refused};
use strake_units::Nanos;

use crate::{check, check_levels};

/// Creates an array with every relevant strip size, uses it and starts it again.
fn create(level: Level, widths: &[usize]) {
    for members in widths {
        for strip_kib in [4u32, 16, 128] {
            let rows = (2u64 << 20).div_ceil(u64::from(strip_kib) << 10);
            let strip_bytes = strip_kib << 10;
            check(&Cast { strip_bytes, rows, ..Cast::new(level, *members) }, |stage| {
                stage.work(60)?;
                stage.all_is_well()
            });
        }
    }
}

#[test]
fn md_00raid0() {
    create(Level::Raid0, &[2, 3, 5]);
}

#[test]
fn md_00raid1() {
    create(Level::Raid1, &[2, 3]);
}

#[test]
fn md_00raid5() {
    create(Level::Raid5, &[3, 5]);
}

#[test]
fn md_00raid6() {
    create(Level::Raid6, &[4, 6]);
}

#[test]
fn md_00raid10() {
    create(Level::Raid10, &[4, 6]);
}

/// mdadm takes drives of zeroes as consistent and skips the initialization; so does Strake, which zeroes drives that
/// guarantee zeroes. Other drives are initialized, and data is right during the initialization.
#[test]
fn md_00raid5_zero() {
    check(&Cast::new(Level::Raid5, 4), |stage| {
        if stage.status().resync.is_some() {
            return Err("zeroes are being initialized".to_owned());
        }
        stage.check_parity()?;
        stage.work(30)?;
        stage.all_is_well()
    });
    let deallocate = strake_block::DeallocateReads::Unspecified;
    check(&Cast { deallocate, ..Cast::new(Level::Raid5, 4) }, |stage| {
        stage.work(60)?;
        stage.all_is_well()
    });
}

/// Fails each member in turn, under load, and replaces it.
fn fail_each(level: Level, members: usize) {
    check(&Cast::new(level, members), |stage| {
        stage.work(60)?;
        for slot in 0..members {
            stage.load(60);
            stage.fail(slot)?;
            stage.settle()?;
            stage.read_back()?;
            stage.load(60);
            stage.replace(slot)?;
            stage.settle()?;
            stage.wait_maintenance()?;
        }
        stage.all_is_well()
    });
}

#[test]
fn md_01r1fail() {
    fail_each(Level::Raid1, 2);
    fail_each(Level::Raid1, 4);
}

#[test]
fn md_01r5fail() {
    fail_each(Level::Raid5, 4);
}

/// Fails every set of `count` members, compares everything, re-adds them and compares parity. mdadm does this for each
/// layout; Strake has one, the left-symmetric one.
fn integrity(level: Level, members: usize, count: u32) {
    check(&Cast::new(level, members), |stage| {
        stage.work(100)?;
        for set in (0..1u32 << members).filter(|set| set.count_ones() == count) {
            let slots: Vec<usize> = (0..members).filter(|slot| set & 1 << slot != 0).collect();
            for slot in &slots {
                stage.fail(*slot)?;
            }
            stage.read_back()?;
            stage.work(10)?;
            for slot in &slots {
                if stage.below(2) == 0 { stage.readd(*slot)? } else { stage.replace(*slot)? }
            }
            stage.wait_maintenance()?;
            stage.read_back()?;
        }
        stage.all_is_well()
    });
}

#[test]
fn md_01r5integ() {
    integrity(Level::Raid5, 5, 1);
}

#[test]
fn md_01raid6integ() {
    integrity(Level::Raid6, 6, 2);
}

/// Members appear one after the other: too few members wait, all members start, in any order.
#[test]
fn md_03assem_incr() {
    let all = [Level::Raid0, Level::Raid1, Level::Raid5, Level::Raid6, Level::Raid10];
    for level in all {
        check(&Cast::new(level, 4), |stage| {
            stage.work(40)?;
            stage.stop()?;
            let order = stage.shuffled(stage.drives());
            for here in 1..4 {
                refused(stage.start(&order[..here], Default::default()), "waits for member")?;
            }
            stage.start(&order, Default::default())?;
            stage.all_is_well()
        });
    }
}

#[test]
fn md_03r0assem() {
    check(&Cast::new(Level::Raid0, 3), |stage| {
        stage.work(40)?;
        stage.stop()?;
        for absent in 0..3 {
            let mut drives = stage.shuffled((0..3).filter(|slot| *slot != absent).collect());
            let drives: Vec<_> = drives.drain(..).map(|slot: usize| stage.drive(slot)).collect();
            refused(stage.start(&drives, Default::default()), "waits for member")?;
            for policy in [DEGRADED, ACCEPT_LOSS] {
                refused(stage.start(&drives, policy), "lost too many members")?;
            }
        }
        let order = stage.shuffled(stage.drives());
        stage.start(&order, Default::default())?;
        stage.all_is_well()
    });
}

#[test]
fn md_03r5assem() {
    check(&Cast::new(Level::Raid5, 4), |stage| {
        for absent in 0..4 {
            stage.work(40)?;
            stage.stop()?;
            let rest: Vec<_> =
                (0..4).filter(|slot| *slot != absent).map(|slot| stage.drive(slot)).collect();
            let rest = stage.shuffled(rest);
            refused(stage.start(&rest[..2], DEGRADED), "lost too many members")?;
            let words = format!("waits for member {absent}");
            refused(stage.start(&rest, Default::default()), &words)?;
            stage.start(&rest, DEGRADED)?;
            stage.work(20)?;
            stage.stop()?;
            // The absent member has returned, and is known to lack writes.
            let order = stage.shuffled(stage.drives());
            stage.start(&order, Default::default())?;
            if stage.out() != [absent] {
                return Err(format!("started as {:?}", stage.states()));
            }
            stage.readd(absent)?;
            stage.all_is_well()?;
        }
        Ok(())
    });
}

/// Re-adding a member that lacks nothing is instant; otherwise the member receives only the missing regions.
fn re_add(level: Level) {
    let cast = Cast { rows: 2_000, ..Cast::new(level, 4).with_regions() };
    check(&cast, |stage| {
        stage.work(40)?;
        stage.pass(Nanos(60 * Nanos::SECOND.0))?;
        stage.vanish(1)?;
        let missed = stage.status().members[1].stale_bytes;
        if missed != 0 {
            return Err(format!("an idle array's member missed {missed} bytes"));
        }
        stage.drive(1).return_cold();
        stage.readd(1)?;
        stage.wait("the member to be in sync", |s| s.members[1].state == MemberState::InSync)?;
        stage.vanish(1)?;
        stage.work(10)?;
        let whole = stage.geometry().member_blocks_used() << stage.geometry().block_size().shift();
        let missed = stage.status().members[1].stale_bytes;
        if missed == 0 || missed >= whole {
            return Err(format!("the member missed {missed} of {whole} bytes"));
        }
        // The other members remember the missing regions over a restart.
        stage.stop()?;
        stage.drive(1).return_cold();
        stage.restart()?;
        if stage.status().members[1].stale_bytes != missed {
            let now = stage.status().members[1].stale_bytes;
            return Err(format!("before the restart it lacked {missed} bytes, now {now}"));
        }
        stage.readd(1)?;
        stage.all_is_well()
    });
}

#[test]
fn md_05r1_re_add() {
    re_add(Level::Raid1);
}

#[test]
fn md_05r5_internalbitmap() {
    re_add(Level::Raid5);
    // After a crash, only regions with writes in flight are resynchronized.
    let cast = Cast { rows: 2_000, ..Cast::new(Level::Raid5, 4).with_regions() };
    check(&cast, |stage| {
        stage.work(20)?;
        stage.pass(Nanos(60 * Nanos::SECOND.0))?;
        stage.begin_work(10)?;
        stage.crash(Crash::Power);
        let drives = stage.drives();
        let assembled = stage.assemble(&drives, Default::default())?;
        let (_, bytes) = assembled.resync_regions();
        let all = stage.geometry().capacity_blocks() << stage.geometry().block_size().shift();
        if bytes >= all {
            return Err(format!("{bytes} of {all} bytes are to be resynchronized"));
        }
        stage.run(&drives, assembled, Default::default())?;
        stage.all_is_well()
    });
}

/// mdadm once re-added a drive whose superblock had been wiped, by its position alone. This must be rejected: the
/// content of such a drive is unknown.
#[test]
fn md_05r1_re_add_nosuper() {
    check(&Cast::new(Level::Raid1, 2), |stage| {
        stage.work(40)?;
        stage.fail(1)?;
        wipe(stage, 1)?;
        refused(stage.readd(1), "the drive has no label")?;
        // Another drive of the same size is rejected too, and so is one that was wiped and belongs to another array
        // now.
        let other = stage.new_drive(1);
        refused(stage.readd_as(1, &other), "the drive has no label")?;
        stage.replace(1)?;
        stage.all_is_well()
    });
}

fn wipe(stage: &mut Stage, slot: usize) -> Result<(), String> {
    let drive = stage.drive(slot);
    let layout = strake_ondisk::AreaLayout::of(drive.bytes()).ok_or("too small")?;
    for copy in [strake_ondisk::Copy::Head, strake_ondisk::Copy::Tail] {
        let (at, bytes) = layout.ring_range(copy);
        drive.overwrite(at, &vec![0; bytes as usize]);
    }
    Ok(())
}

/// A drive is removed while a caller reads its description from the array. In the kernel the description was freed
/// during the read.
#[test]
fn md_23rdev_lifetime() {
    check(&Cast::new(Level::Raid1, 3), |stage| {
        stage.work(20)?;
        for _ in 0..4 {
            stage.load(60);
            let slot = stage.below(3) as usize;
            stage.pull(slot);
            for _ in 0..200 {
                stage.turns(1)?;
                let status = stage.status();
                if status.members.len() != 3 {
                    return Err(format!("{} members", status.members.len()));
                }
            }
            stage.settle()?;
            stage.drive(slot).return_cold();
            if stage.out() == [slot] {
                stage.readd(slot)?;
            }
            stage.wait_maintenance()?;
        }
        stage.all_is_well()
    });
}

/// Members hang, fail and return under load; tasks that wait for them must not wait for each other. Two simulated
/// minutes without a completion count as a deadlock.
fn no_deadlock(level: Level, members: usize) {
    check(&Cast::new(level, members), |stage| {
        for _ in 0..4 {
            let slot = stage.below(members as u64) as usize;
            stage.load(150);
            let turns = stage.below(300);
            stage.turns(turns)?;
            stage.drive(slot).hang(true);
            let order = stage.begin_fail((slot + 1 + members / 2) % members);
            stage.turns(100)?;
            stage.drive(slot).hang(false);
            drop(order);
            stage.settle()?;
            for out in stage.out() {
                stage.readd(out)?;
            }
            stage.load(60);
            stage.wait_maintenance()?;
            stage.settle()?;
        }
        stage.all_is_well()
    });
}

#[test]
fn md_24raid10deadlock() {
    no_deadlock(Level::Raid10, 6);
}

#[test]
fn md_24raid456deadlock() {
    no_deadlock(Level::Raid5, 4);
    no_deadlock(Level::Raid6, 6);
}

/// mdadm's problem was an endian-swapped label; here drives move between hosts in any order and combination.
#[test]
fn md_07autoassemble() {
    check_levels(|stage| {
        stage.work(40)?;
        for _ in 0..3 {
            stage.crash(Crash::Power);
            let stranger = stage.new_drive(0);
            let mut drives = stage.drives();
            drives.push(stranger);
            let order = stage.shuffled(drives);
            stage.start(&order, Default::default())?;
            stage.wait_maintenance()?;
            stage.work(30)?;
        }
        stage.all_is_well()
    });
}

#[test]
fn md_01replace() {
    for (level, members) in
        [(Level::Raid1, 2), (Level::Raid10, 4), (Level::Raid5, 4), (Level::Raid6, 5)]
    {
        check(&Cast::new(level, members), |stage| {
            stage.work(60)?;
            let slot = stage.below(members as u64) as usize;
            stage.load(u64::MAX);
            stage.exchange(slot)?;
            stage.load(0);
            stage.settle()?;
            if !stage.out().is_empty() {
                return Err(format!("copying cost redundancy: {:?}", stage.states()));
            }
            // The new drive must return the data of another member.
            let other = (slot + 1) % members;
            stage.fail(other)?;
            stage.read_back()?;
            stage.replace(other)?;
            stage.wait_maintenance()?;
            // Another member fails during a copy.
            stage.fail(other)?;
            stage.load(80);
            stage.exchange(slot)?;
            stage.replace(other)?;
            stage.wait_maintenance()?;
            stage.all_is_well()
        });
    }
}
