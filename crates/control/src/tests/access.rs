//! A state directory that other users may read or change. History: every user could read its secrets, and no event
//! reported this.

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

/// A daemon that recorded array tank and has stopped.
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

/// History: such a state directory was refused, and after the next restart no array was served.
#[test]
fn the_right_to_change_the_state_is_taken_from_others_and_reported() {
    let mut bed = stopped();
    let (dir, file) = (bed.path("state"), bed.path("state/state.json"));
    let mut starts_with = |folder, bits| {
        set_mode(&dir, folder);
        set_mode(&file, bits);
        bed.start();
        let modes = (mode_of(&dir), mode_of(&file));
        let (state, what) = access(&bed);
        bed.shut_down();
        (modes, state, what)
    };
    let (modes, state, what) = starts_with(0o777, 0o600);
    assert_eq!((modes, state.as_str()), ((0o755, 0o600), "warning"), "{what}");
    assert!(what.contains("could change the state"), "{what}");
    let (modes, state, what) = starts_with(0o711, 0o660);
    assert_eq!((modes, state.as_str()), ((0o711, 0o600), "warning"), "{what}");
    assert!(what.contains("could read the recorded secrets and change the state"), "{what}");
    // No other user could access the file.
    let (modes, state, what) = starts_with(0o700, 0o664);
    assert_eq!((modes, state.as_str()), ((0o700, 0o600), "ok"), "{what}");
}

#[test]
fn a_configuration_behind_a_symbolic_link_is_refused() {
    let bed = stopped();
    let (dir, file) = (bed.path("state"), bed.path("state/state.json"));
    let elsewhere = bed.path("elsewhere.json");
    fs::rename(&file, &elsewhere).expect("it can be moved");
    symlink(&elsewhere, &file).expect("it is linked");
    let refused = Control::start(&dir, Options::default()).err().expect("it is refused");
    assert!(refused.what.contains("is a symbolic link"), "{refused}");
}
