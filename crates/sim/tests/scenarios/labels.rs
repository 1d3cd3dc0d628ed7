//! The failure matrix, rows about labels: the members, and their arrays.

use strake_raid::{Level, MemberState};
use strake_sim::drive::Crash;
use strake_sim::stage::{Cast, DEGRADED, refused};
use strake_units::BlockSize;

use crate::{check, check_levels};

#[test]
fn f15_a_member_that_was_away_gets_what_it_missed_and_nothing_else() {
    for level in [Level::Raid1, Level::Raid5, Level::Raid6] {
        let cast = Cast { rows: 2_000, ..Cast::new(level, 4).with_regions() };
        check(&cast, |stage| {
            stage.work(60)?;
            let slot = stage.below(4) as usize;
            stage.vanish(slot)?;
            stage.work(20)?;
            stage.drive(slot).come_back();
            let whole =
                stage.geometry().member_blocks_used() << stage.geometry().block_size().shift();
            let stale = stage.status().members[slot].stale_bytes;
            if stale == 0 || stale >= whole {
                return Err(format!("{stale} of {whole} bytes are to be copied"));
            }
            stage.load(60);
            stage.readd(slot)?;
            stage.all_is_well()
        });
    }
}

#[test]
fn f16_a_partly_rebuilt_member_is_never_taken_for_a_whole_one() {
    for level in [Level::Raid10, Level::Raid5, Level::Raid6] {
        check(&Cast::new(level, 4).with_regions(), |stage| {
            stage.work(100)?;
            let slot = stage.below(4) as usize;
            stage.fail(slot)?;
            stage.replace(slot)?;
            let turns = stage.below(6_000);
            stage.turns(turns)?;
            if stage.states()[slot] == MemberState::InSync {
                return Ok(());
            }
            // Removed during its rebuild, and re-added with its content.
            stage.vanish(slot)?;
            stage.work(30)?;
            stage.drive(slot).come_back();
            stage.readd(slot)?;
            if stage.states()[slot] == MemberState::InSync && stage.status().rebuild.is_some() {
                return Err("a member in sync is being rebuilt".to_owned());
            }
            stage.work(30)?;
            // The same over a restart: only the content recorded in the label is trusted.
            let turns = stage.below(3_000);
            stage.turns(turns)?;
            stage.crash(Crash::Kill);
            stage.start(&stage.drives(), strake_sim::stage::ACCEPT_LOSS)?;
            stage.all_is_well()
        });
    }
}

#[test]
fn f17_the_stale_half_waits_and_the_newer_half_wins() {
    check(&Cast::new(Level::Raid6, 4), |stage| {
        stage.work(60)?;
        stage.vanish(2)?;
        stage.vanish(3)?;
        stage.work(60)?;
        stage.stop()?;
        let drives = stage.drives();
        drives.iter().for_each(|drive| drive.return_cold());
        refused(stage.start(&drives[2..], Default::default()), "waits for members 0, 1")?;
        let orders = [[2, 3, 0, 1], [3, 1, 0, 2]];
        let order = orders[stage.below(2) as usize].map(|at: usize| drives[at].clone());
        stage.start(&order, Default::default())?;
        if stage.out() != [2, 3] {
            return Err(format!("the stale half is in use: {:?}", stage.states()));
        }
        stage.read_back()?;
        stage.readd(2)?;
        stage.readd(3)?;
        stage.all_is_well()
    });
}

#[test]
fn f18_halves_that_ran_alone_are_refused_together_and_whole_apart() {
    for (level, members) in [(Level::Raid1, 2), (Level::Raid6, 4), (Level::Raid10, 4)] {
        check(&Cast::new(level, members), |stage| {
            stage.work(60)?;
            stage.stop()?;
            let drives = stage.drives();
            // The copies of a block are on adjacent members, so every other member together form a whole array.
            let side =
                |odd: usize| -> Vec<_> { drives.iter().skip(odd).step_by(2).cloned().collect() };
            let fork = stage.memory();
            stage.start(&side(0), DEGRADED)?;
            stage.work(40)?;
            stage.stop()?;
            let left = stage.memory();
            stage.recall(&fork);
            stage.start(&side(1), DEGRADED)?;
            let work = 1 + stage.below(80);
            stage.work(work)?;
            stage.stop()?;
            let right = stage.memory();
            for policy in [Default::default(), DEGRADED, strake_sim::stage::ACCEPT_LOSS] {
                let order = stage.shuffled(drives.clone());
                refused(stage.start(&order, policy), "started apart from each other")?;
            }
            // Each side alone is unchanged; and neither side can re-add a member of the other.
            stage.recall(&right);
            stage.start(&side(1), DEGRADED)?;
            stage.read_back()?;
            stage.stop()?;
            stage.recall(&left);
            stage.start(&side(0), DEGRADED)?;
            stage.read_back()?;
            for slot in (1..members).step_by(2) {
                let other = drives[slot].clone();
                refused(stage.readd_as(slot, &other), "was used without the array")?;
                let order = stage.begin_replace_with(slot, &other)?;
                stage.finish(order)?;
            }
            stage.all_is_well()
        });
    }
}

#[test]
fn f20_the_order_of_drives_says_nothing() {
    check_levels(|stage| {
        stage.work(60)?;
        for _ in 0..4 {
            stage.stop()?;
            let order = stage.shuffled(stage.drives());
            stage.start(&order, Default::default())?;
            stage.work(20)?;
        }
        stage.all_is_well()
    });
}

#[test]
fn f21_a_clone_beside_its_original_is_refused_until_one_is_chosen() {
    check_levels(|stage| {
        stage.work(60)?;
        stage.stop()?;
        let mut drives = stage.drives();
        let slot = stage.below(drives.len() as u64) as usize;
        let clone = stage.clone_drive(slot);
        drives.push(clone.clone());
        for policy in [Default::default(), DEGRADED] {
            let order = stage.shuffled(drives.clone());
            refused(stage.start(&order, policy), "one member is on")?;
        }
        // The operator keeps the clone.
        drives.remove(slot);
        let original = stage.drive(slot);
        stage.start(&drives, Default::default())?;
        stage.work(60)?;
        stage.stop()?;
        let both: Vec<_> = drives.iter().chain([&original]).cloned().collect();
        refused(stage.start(&both, DEGRADED), "one member is on")?;
        stage.start(&drives, Default::default())?;
        stage.all_is_well()
    });
}

#[test]
fn f22_a_drive_that_shrank_takes_no_part_and_a_small_one_is_no_replacement() {
    check_levels(|stage| {
        stage.work(60)?;
        stage.stop()?;
        let drives = stage.drives();
        let slot = stage.below(drives.len() as u64) as usize;
        let bytes = drives[slot].bytes();
        drives[slot].resize(bytes - 4096);
        refused(stage.start(&drives, Default::default()), &format!("waits for member {slot}"))?;
        stage.start(&drives, DEGRADED)?;
        stage.work(40)?;
        // The content beyond its end is lost, regardless of its current size.
        refused(stage.readd_as(slot, &drives[slot].clone()), "")?;
        let small = stage.new_drive(slot);
        let strip = u64::from(stage.geometry().strip_bytes());
        small.resize(bytes - strip);
        refused(stage.begin_replace_with(slot, &small).map(drop), "too small for member")?;
        let large = stage.new_drive(slot);
        large.resize(bytes + (1 << 20));
        let order = stage.begin_replace_with(slot, &large)?;
        stage.finish(order)?;
        stage.all_is_well()
    });
}

#[test]
fn f23_blocks_of_512_bytes_and_4_kib_mix_and_larger_ones_come_never() {
    let mixed = vec![BlockSize::B512, BlockSize::B4096, BlockSize::B512];
    for level in [Level::Raid1, Level::Raid5, Level::Raid6] {
        check(&Cast { blocks: mixed.clone(), ..Cast::new(level, 4) }, |stage| {
            if stage.geometry().block_size() != BlockSize::B4096 {
                return Err("an array's block is the largest of its drives'".to_owned());
            }
            stage.work(80)?;
            stage.fail(1)?;
            let small_blocks = stage.new_drive(0);
            let order = stage.begin_replace_with(1, &small_blocks)?;
            stage.finish(order)?;
            stage.all_is_well()
        });
        let small = vec![BlockSize::B512];
        check(&Cast { blocks: small, ..Cast::new(level, 4) }, |stage| {
            stage.work(40)?;
            stage.fail(2)?;
            let large_blocks = stage.new_drive(2);
            large_blocks.set_block_size(BlockSize::B4096);
            let order = stage.begin_replace_with(2, &large_blocks);
            refused(order.map(drop), "use a drive with smaller blocks")?;
            stage.replace(2)?;
            stage.all_is_well()
        });
    }
}

#[test]
fn f24_a_drive_whose_labels_are_gone_is_foreign_and_rebuilt_never_guessed() {
    check_levels(|stage| {
        stage.work(60)?;
        stage.stop()?;
        let drives = stage.drives();
        let slot = stage.below(drives.len() as u64) as usize;
        let layout = strake_ondisk::AreaLayout::of(drives[slot].bytes()).ok_or("too small")?;
        for copy in [strake_ondisk::Copy::Head, strake_ondisk::Copy::Tail] {
            let (at, bytes) = layout.ring_range(copy);
            drives[slot].overwrite(at, &vec![0x5a; bytes as usize]);
        }
        refused(stage.start(&drives, Default::default()), &format!("waits for member {slot}"))?;
        stage.start(&drives, DEGRADED)?;
        stage.work(40)?;
        refused(stage.readd(slot), "the drive has no label")?;
        let order = stage.begin_replace_with(slot, &drives[slot].clone())?;
        stage.finish(order)?;
        stage.all_is_well()
    });
}

#[test]
fn f25_a_label_update_cut_short_at_any_moment_costs_nothing() {
    for crash in [Crash::Kill, Crash::Power] {
        for level in [Level::Raid1, Level::Raid6] {
            check(&Cast::new(level, 4), |stage| {
                stage.work(60)?;
                for slot in 0..4 {
                    // No write is in flight, so every tolerated set of members has all data.
                    stage.pass(strake_units::Nanos(60 * strake_units::Nanos::SECOND.0))?;
                    let order = stage.begin_fail(slot)?;
                    let turns = stage.below(120);
                    stage.turns(turns)?;
                    drop(order);
                    stage.crash(crash);
                    stage.restart()?;
                    stage.read_back()?;
                    if stage.out() == [slot] {
                        stage.readd(slot)?;
                    }
                    stage.work(30)?;
                    stage.wait_maintenance()?;
                }
                stage.all_is_well()
            });
        }
    }
}
