//! Scenarios of mdadm's DDF tests about failures: stale members first, members that disappear without a report, and
//! their recorded states.

use strake_raid::{Level, MemberState};
use strake_sim::drive::{Crash, SimDrive};
use strake_sim::stage::{Cast, DEGRADED, Stage, refused};

use crate::check;

/// The levels of mdadm's DDF tests, with minimal arrays.
fn levels(script: impl Fn(&mut Stage) -> Result<(), String>) {
    for (level, members) in
        [(Level::Raid1, 2), (Level::Raid10, 4), (Level::Raid5, 3), (Level::Raid6, 5)]
    {
        check(&Cast::new(level, members), &script);
    }
}

fn some_slot(stage: &mut Stage) -> usize {
    let members = stage.geometry().members() as u64;
    stage.below(members) as usize
}

fn expect_out(stage: &Stage, slots: &[usize]) -> Result<(), String> {
    if stage.out() == slots {
        return Ok(());
    }
    Err(format!("expected {slots:?} to be out: {:?}", stage.states()))
}

#[test]
fn md_10ddf_create_fail_rebuild() {
    levels(|stage| {
        stage.work(60)?;
        let slot = some_slot(stage);
        stage.fail(slot)?;
        expect_out(stage, &[slot])?;
        stage.work(40)?;
        stage.replace(slot)?;
        stage.wait_maintenance()?;
        expect_out(stage, &[])?;
        stage.all_is_well()
    });
}

#[test]
fn md_10ddf_fail_readd() {
    levels(|stage| {
        stage.work(60)?;
        let slot = some_slot(stage);
        stage.fail(slot)?;
        stage.work(40)?;
        stage.load(60);
        stage.readd(slot)?;
        stage.all_is_well()
    });
}

#[test]
fn md_10ddf_fail_readd_readonly() {
    levels(|stage| {
        stage.work(60)?;
        stage.pass(strake_units::Nanos(60 * strake_units::Nanos::SECOND.0))?;
        let slot = some_slot(stage);
        stage.fail(slot)?;
        // Nothing was written, so no data needs to be copied.
        stage.read_back()?;
        let stale = stage.status().members[slot].stale_bytes;
        if stale != 0 {
            return Err(format!("{stale} bytes are to be copied and none were written"));
        }
        stage.readd(slot)?;
        stage.all_is_well()
    });
}

#[test]
fn md_10ddf_fail_stop_readd() {
    levels(|stage| {
        stage.work(60)?;
        let slot = some_slot(stage);
        stage.fail(slot)?;
        stage.work(40)?;
        stage.stop()?;
        let order = stage.shuffled(stage.drives());
        stage.start(&order, Default::default())?;
        // The member failed, and a restart does not change this.
        expect_out(stage, &[slot])?;
        stage.read_back()?;
        stage.readd(slot)?;
        stage.all_is_well()
    });
}

#[test]
fn md_10ddf_fail_twice() {
    for (level, members, pairs) in
        [(Level::Raid6, 5, [[0, 1], [4, 2]]), (Level::Raid10, 4, [[0, 2], [3, 1]])]
    {
        check(&Cast::new(level, members), |stage| {
            for pair in pairs {
                stage.work(40)?;
                stage.fail(pair[0])?;
                stage.work(20)?;
                stage.fail(pair[1])?;
                stage.work(20)?;
                stage.replace(pair[0])?;
                stage.work(20)?;
                stage.replace(pair[1])?;
                stage.wait_maintenance()?;
            }
            stage.all_is_well()
        });
    }
}

/// Of two failed members, one was forgotten until the first was rebuilt, and one spare was used twice.
#[test]
fn md_10ddf_fail_two_spares() {
    for (level, members, pair) in [(Level::Raid6, 5, [1, 3]), (Level::Raid10, 4, [0, 3])] {
        check(&Cast::new(level, members), |stage| {
            stage.work(60)?;
            let orders = [stage.begin_fail(pair[0])?, stage.begin_fail(pair[1])?];
            for order in orders {
                stage.finish(order)?;
            }
            stage.load(80);
            let spares = [stage.new_drive(pair[0]), stage.new_drive(pair[1])];
            let orders = [
                stage.begin_replace_with(pair[0], &spares[0])?,
                stage.begin_replace_with(pair[1], &spares[1])?,
            ];
            for order in orders {
                stage.finish(order)?;
            }
            stage.all_is_well()
        });
    }
}

#[test]
fn md_10ddf_incremental_wrong_order() {
    levels(|stage| {
        stage.work(60)?;
        let slot = some_slot(stage);
        stage.vanish(slot)?;
        stage.work(60)?;
        stage.stop()?;
        stage.drive(slot).return_cold();
        // The stale member appears first, then the others, one by one.
        let stale = stage.drive(slot);
        let others: Vec<SimDrive> =
            stage.drives().into_iter().filter(|drive| drive.name() != stale.name()).collect();
        let mut here = vec![stale];
        for other in stage.shuffled(others.clone()) {
            if here.len() < others.len() {
                refused(stage.start(&here, Default::default()), "waits for member")?;
            }
            here.push(other);
        }
        stage.start(&here, Default::default())?;
        expect_out(stage, &[slot])?;
        stage.read_back()?;
        stage.readd(slot)?;
        stage.all_is_well()
    });
}

#[test]
fn md_10ddf_sudden_degraded() {
    levels(|stage| {
        stage.work(60)?;
        let slot = some_slot(stage);
        // The array is not notified, and detects this at its next I/O to the drive.
        stage.pull(slot);
        stage.work(120)?;
        stage.wait("the loss to be noticed", |s| s.members[slot].state != MemberState::InSync)?;
        stage.crash(Crash::Kill);
        stage.drive(slot).return_cold();
        let survivors: Vec<SimDrive> =
            (0..stage.drives().len()).filter(|at| *at != slot).map(|at| stage.drive(at)).collect();
        // The survivors record it as missing: they do not wait for it, and do not trust it when it is present.
        stage.start(&survivors, strake_sim::stage::ACCEPT_LOSS)?;
        stage.stop()?;
        stage.restart()?;
        expect_out(stage, &[slot])?;
        stage.read_back()?;
        stage.readd(slot)?;
        stage.all_is_well()
    });
}

#[test]
fn md_10ddf_assemble_missing() {
    levels(|stage| {
        stage.work(60)?;
        stage.stop()?;
        let slot = some_slot(stage);
        let survivors: Vec<SimDrive> =
            (0..stage.drives().len()).filter(|at| *at != slot).map(|at| stage.drive(at)).collect();
        refused(stage.start(&survivors, Default::default()), &format!("waits for member {slot}"))?;
        stage.start(&survivors, DEGRADED)?;
        // The state is recorded at once, before any write.
        for drive in &survivors {
            let label = stage.label_of(drive)?.ok_or("a member without a label")?;
            let state = label.members[slot].state;
            if state != strake_ondisk::RecordedState::Missing {
                return Err(format!("the missing drive is recorded as {state:?}"));
            }
        }
        stage.work(40)?;
        stage.crash(Crash::Kill);
        stage.start(&stage.drives(), strake_sim::stage::ACCEPT_LOSS)?;
        expect_out(stage, &[slot])?;
        stage.readd(slot)?;
        stage.all_is_well()
    });
}
