//! A state directory that other users may read or change: its secrets were readable by everyone, in silence.

use super::Testbed;
use crate::control::Control;
use crate::manager::Options;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("it can be changed");
}

fn mode_of(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").permissions().mode() & 0o777
}

/// A daemon that has stopped, and recorded array tank.
fn stopped() -> Testbed {
    let (mut bed, _) = Testbed::mirror(2);
    bed.shut_down();
    bed
}

fn access(bed: &Testbed) -> (String, String) {
    let report = bed.doctor().expect("it answers");
    let check = report.checks.into_iter().find(|check| check.name == "daemon state access");
    let check = check.expect("it is looked at");
    (check.state, check.what)
}

#[test]
fn secrets_that_others_may_read_are_taken_from_them_and_reported() {
    let mut bed = stopped();
    set_mode(&bed.path("state"), 0o755);
    let file = bed.path("state/state.json");
    set_mode(&file, 0o644);
    bed.start();
    assert_eq!(mode_of(&file), 0o600);
    let (state, what) = access(&bed);
    assert!(state == "warning" && what.contains("before this start"), "{state}: {what}");
    bed.restart();
    assert_eq!(access(&bed).0, "ok");
    set_mode(&file, 0o640);
    let (state, what) = access(&bed);
    assert!(state == "failed" && what.contains("can read"), "{state}: {what}");
}

#[test]
fn a_state_that_others_may_have_written_is_refused() {
    let bed = stopped();
    let (dir, file) = (bed.path("state"), bed.path("state/state.json"));
    let check = |why: &str| {
        let refused = Control::start(&dir, Options::default()).err().expect("it is refused");
        assert!(refused.what.contains(why), "{refused}");
    };
    set_mode(&dir, 0o777);
    check("chmod 700");
    set_mode(&dir, 0o700);
    set_mode(&file, 0o620);
    check("chmod 600");
    set_mode(&file, 0o600);
    let elsewhere = bed.path("elsewhere.json");
    fs::rename(&file, &elsewhere).expect("it can be moved");
    symlink(&elsewhere, &file).expect("it is linked");
    check("is a symbolic link");
}
