//! How the daemon ends: what it records then, and what it does not.

use super::{Folder, array, raid6, stop};
use crate::ControlErrorKind;

/// Whether the daemon before the one on this state directory was stopped in order.
fn was_unclean(control: &crate::Control) -> bool {
    control.run(|m| Ok(m.store.was_unclean())).expect("it answers")
}

#[test]
fn a_stop_in_the_middle_of_a_start_is_not_called_an_orderly_one() {
    let folder = Folder::new();
    let control = folder.control();
    control.create_array(&raid6(folder.drives(4))).expect("it is created");
    stop(&control);
    drop(control);
    let control = folder.control();
    assert!(!was_unclean(&control), "it was stopped in order");
    // A start had changed labels, and was refused when the array was to run.
    let cut_short = |m: &mut crate::Manager| {
        m.cut_short.push("other".to_owned());
        Ok(())
    };
    control.run(cut_short).expect("it answers");
    let errors = control.stop();
    assert!(errors.iter().any(|e| e.what.contains("other was being started")), "{errors:?}");
    drop(control);
    assert!(was_unclean(&folder.control()), "labels say that an array runs");
}

#[test]
fn nothing_is_written_once_the_directory_is_given_up() {
    let folder = Folder::new();
    let control = folder.control();
    stop(&control);
    let late = control.run(|m| m.store.prepare(&m.config).map(drop));
    let late = late.expect_err("the directory may be another daemon's");
    assert_eq!(late.kind, ControlErrorKind::Stopped);
    // It is: what stays of the first process keeps nobody out.
    let next = folder.control();
    assert!(control.run(|m| m.store.mark_clean()).is_err(), "it is for the next one to say");
    stop(&next);
}

/// Usability defect 7, the half of it that is about an orderly stop.
#[test]
fn what_a_command_acknowledged_is_on_the_members_when_a_stop_ends() {
    let folder = Folder::new();
    let drives = folder.drives(4);
    let control = folder.control();
    control.create_array(&raid6(drives.clone())).expect("it is created");
    let listen = format!("unix:{}", folder.path("nbd.sock").display());
    let request = strake_api::v1::CreateExportRequest {
        array: "tank".into(),
        name: "gone".into(),
        listen,
        ..Default::default()
    };
    control.run(|m| m.create_export(&request)).expect("it is offered");
    control.tick().expect("it answers");
    let remove = strake_api::v1::RemoveExportRequest { name: "gone".into(), force: true };
    control.run(|m| m.remove_export(&remove)).expect("it is removed");
    // No round of upkeep in between.
    stop(&control);
    drop(control);
    std::fs::remove_dir_all(folder.path("state")).expect("it can be removed");
    let control = folder.control();
    let import = strake_api::v1::ImportArraysRequest { drives, ..Default::default() };
    control.import_arrays(&import).expect("its drives are here");
    assert!(array(&control, "tank").expect("it is there").exports.is_empty(), "it was removed");
    stop(&control);
}
