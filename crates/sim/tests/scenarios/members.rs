//! The failure matrix, rows about members: unreadable blocks, failing drives, one after the other, during other
//! operations, and too many of them.

use strake_raid::{Level, MemberState};
use strake_sim::drive::Crash;
use strake_sim::stage::{ACCEPT_LOSS, Cast, Clearing, DEGRADED, Stage, refused};
use strake_units::{Lba, LbaRange, Nanos};

use crate::{check, check_levels};

/// Writes some blocks and makes one of them unreadable. Returns the block and its slot.
fn spoiled(stage: &mut Stage) -> Result<(Lba, usize), String> {
    let blocks = 4 * stage.geometry().stripe_data_blocks();
    stage.write(LbaRange::new(Lba(0), blocks))?.map_err(|e| e.to_string())?;
    let lba = Lba(stage.below(blocks));
    let (slot, at) = stage.where_is(lba, 0);
    stage.drive(slot).spoil(at);
    Ok((lba, slot))
}

#[test]
fn f08_an_unreadable_block_is_made_up_and_written_back() {
    check_levels(|stage| {
        let (lba, slot) = spoiled(stage)?;
        // Reads may use other copies; many reads use every copy.
        for _ in 0..40 {
            stage.read(LbaRange::new(lba, 1))?.map_err(|e| e.to_string())?;
            if !stage.drive(slot).has_bad_blocks() {
                break;
            }
        }
        if stage.drive(slot).has_bad_blocks() {
            return Err("the block was not written back".to_owned());
        }
        let counters = stage.status().counters;
        if (counters.medium_errors, counters.repairs) != (1, 1) {
            return Err(format!("counted {counters:?}"));
        }
        stage.work(60)?;
        stage.all_is_well()
    });
}

#[test]
fn f10_an_unreadable_block_during_a_rebuild_costs_nothing_while_parity_is_left() {
    for level in [Level::Raid6, Level::Raid73] {
        check(&Cast::new(level, 6), |stage| {
            let (_, slot) = spoiled(stage)?;
            let other = (slot + 1 + stage.below(5) as usize) % 6;
            stage.fail(other)?;
            stage.work(40)?;
            stage.replace(other)?;
            stage.wait_maintenance()?;
            if stage.drive(slot).has_bad_blocks() {
                return Err("the rebuild did not mend what it could not read".to_owned());
            }
            stage.all_is_well()
        });
    }
}

#[test]
fn f11_a_second_drive_fails_during_a_rebuild() {
    for by_hand in [true, false] {
        let cast = Cast::new(Level::Raid6, 5).with_regions();
        check(&cast, |stage| {
            stage.work(120)?;
            stage.fail(1)?;
            stage.work(40)?;
            stage.replace(1)?;
            stage.load(200);
            let turns = stage.below(4_000);
            stage.turns(turns)?;
            let second = [0, 2, 3, 4][stage.below(4) as usize];
            if by_hand {
                stage.fail(second)?
            } else {
                stage.vanish(second)?
            }
            stage.settle()?;
            stage.replace(second)?;
            stage.work(60)?;
            stage.all_is_well()
        });
    }
}

#[test]
fn f12_one_failure_too_many_stops_the_array_and_keeps_the_last_good_labels() {
    for (level, members, too_many) in
        [(Level::Raid5, 4, 2), (Level::Raid6, 5, 3), (Level::Raid1, 2, 2), (Level::Raid0, 3, 1)]
    {
        check(&Cast::new(level, members), |stage| {
            stage.work(80)?;
            stage.pass(Nanos(60 * Nanos::SECOND.0))?;
            let before = stage.status().generation;
            // All of them fail at once: no label can record the first failure in time.
            let slots = stage.shuffled((0..members).collect());
            slots[..too_many].iter().for_each(|slot| stage.pull(*slot));
            stage.expect_loss();
            stage.work(40)?;
            if !stage.status().lost {
                return Err(format!("the array goes on: {:?}", stage.states()));
            }
            if stage.status().generation != before {
                return Err("labels were written for an array that is lost".to_owned());
            }
            stage.crash(Crash::Kill);
            stage.drives().iter().for_each(|drive| drive.come_back());
            // Every drive has returned, so nothing is missing, and all acknowledged data is present.
            stage.restart()?;
            stage.all_is_well()
        });
    }
}

#[test]
fn f13_the_failure_of_the_last_copy_is_never_recorded() {
    for (level, members) in [(Level::Raid1, 2), (Level::Raid1, 3), (Level::Raid5, 3)] {
        check(&Cast::new(level, members), |stage| {
            stage.work(60)?;
            let slots = stage.shuffled((0..members).collect());
            let spare = if level == Level::Raid5 { 1 } else { members - 1 };
            for slot in &slots[..spare] {
                stage.vanish(*slot)?;
                stage.work(30)?;
            }
            stage.pass(Nanos(60 * Nanos::SECOND.0))?;
            let last = slots[spare];
            stage.expect_loss();
            stage.pull(last);
            stage.work(20)?;
            stage.crash(Crash::Kill);
            stage.drives().iter().for_each(|drive| drive.come_back());
            let label = stage.label_of(&stage.drive(last))?.ok_or("a member without a label")?;
            let own = label.own_record().ok_or("a label without its own row")?;
            if own.state != strake_ondisk::RecordedState::InSync {
                return Err(format!("the last good member {last} is recorded as {:?}", own.state));
            }
            // Members that went out earlier are out of date, and only this one has all data.
            stage.start(&stage.drives(), ACCEPT_LOSS)?;
            if stage.states()[last] != MemberState::InSync || stage.out().len() != spare {
                return Err(format!("started as {:?}", stage.states()));
            }
            stage.read_back()?;
            for slot in &slots[..spare] {
                stage.readd(*slot)?;
            }
            stage.all_is_well()
        });
    }
}

#[test]
fn f14_a_drive_pulled_in_the_middle_of_io_costs_no_request() {
    check_levels(|stage| {
        let members = stage.geometry().members();
        for _ in 0..3 {
            stage.work(20)?;
            stage.load(120);
            let turns = stage.below(200);
            stage.turns(turns)?;
            let slot = stage.below(members as u64) as usize;
            stage.pull(slot);
            stage.settle()?;
            stage.drive(slot).return_cold();
            if stage.out() == [slot] {
                stage.replace(slot)?;
            }
            stage.wait_maintenance()?;
        }
        stage.all_is_well()
    });
}

#[test]
fn f29_a_member_that_never_answers_is_given_up_and_no_client_sees_an_error() {
    check_levels(|stage| {
        stage.work(40)?;
        let slot = stage.below(stage.geometry().members() as u64) as usize;
        stage.drive(slot).hang(true);
        stage.work(80)?;
        stage
            .wait("the member to be given up", |s| s.members[slot].state != MemberState::InSync)?;
        stage.work(40)?;
        stage.drive(slot).hang(false);
        stage.replace(slot)?;
        stage.all_is_well()
    });
}

/// The first write to a region marks it on two pages, as dirty and as written. A power cut preserved the first mark and
/// not the second. The region was resynchronized, and written again, which needs no new mark; so it still counted as
/// never written, and zeroing in it was acknowledged and skipped. Found by `--operators`, seed 1027.
#[test]
fn f01_a_region_whose_first_mark_a_crash_cut_in_two_is_a_written_one() {
    for crash in [Crash::Kill, Crash::Power] {
        check(&Cast::new(Level::Raid5, 4), |stage| {
            stage.stop()?;
            for turns in 0..40 {
                stage.create_again(true)?;
                stage.load(4);
                stage.turns(turns)?;
                stage.crash(crash);
                stage.restart()?;
                let blocks = 2 * stage.geometry().stripe_data_blocks();
                stage.write(LbaRange::new(Lba(0), blocks))?.map_err(|e| e.to_string())?;
                stage.wait_maintenance()?;
                stage.clear(LbaRange::new(Lba(1), blocks - 2), Clearing::Zeroes)?;
                stage.read_back()?;
                stage.stop()?;
            }
            Ok(())
        });
    }
}

#[test]
fn f12_what_is_left_of_too_few_members_does_not_start() {
    check(&Cast::new(Level::Raid6, 5), |stage| {
        stage.work(60)?;
        stage.stop()?;
        let drives = stage.drives();
        refused(stage.start(&drives[..2], DEGRADED), "lost too many members")?;
        stage.start(&drives[..3], DEGRADED)?;
        stage.read_back()
    });
}
