//! Maintenance of drives: files that are written and read, and confirmations.

use crate::fake::{Ran, Script, Served};
use crate::terminal::Terminal;
use std::fs;
use std::os::unix::fs::PermissionsExt;

fn run(served: &Served, line: &str) -> Ran {
    served.run(&line.split(' ').collect::<Vec<_>>())
}

#[test]
fn telemetry_is_written_whole_for_its_owner_and_replaces_nothing() {
    let served = Served::new("telemetry", Script::default());
    let line = "drive telemetry /dev/null --file state.bin";
    let first = run(&served, line);
    assert_eq!(first.code, 0, "{}", first.stderr);
    let file = served.folder.join("state.bin");
    let data = fs::read(&file).expect("it was written");
    assert!(data == [vec![7; 1000], vec![8; 24]].concat());
    let mode = fs::metadata(&file).expect("it exists").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    fs::write(&file, "mine").expect("it is ours");
    let again = run(&served, line);
    assert_eq!(again.code, 3);
    assert!(again.stderr.contains("--force"), "{}", again.stderr);
    assert_eq!(again.heard.len(), first.heard.len(), "the drive is not asked");
    assert_eq!(fs::read(&file).expect("it exists"), b"mine");
    assert_eq!(run(&served, &format!("{line} --force")).code, 0);
    assert_eq!(fs::read(&file).expect("it exists").len(), 1024);
}

#[test]
fn an_image_is_sent_whole() {
    let served = Served::new("firmware", Script::default());
    fs::write(served.folder.join("image.bin"), vec![1; (5 << 20) + 4]).expect("it is written");
    let ran = run(&served, "drive firmware /dev/null --file image.bin --slot 2 --activate now");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let heard = ran.heard.concat();
    assert!(heard.contains("slot: 2, activate: \"now\"") && heard.contains("5242884"), "{heard}");
    let ran = run(&served, "drive firmware /dev/null --file missing.bin");
    assert_eq!(ran.code, 3);
    assert!(ran.stderr.contains("cannot read missing.bin"), "{}", ran.stderr);
}

/// The serial number that was typed is in the request: another drive may have the name by then.
#[test]
fn a_typed_serial_number_confirms_and_is_sent() {
    for line in ["drive format /dev/null", "drive sanitize /dev/null --action block"] {
        let served = Served::new("serial", Script::default());
        let arguments: Vec<&str> = line.split(' ').collect();
        let mut terminal = Terminal::start(served.command(&arguments));
        terminal.until(|text| text.contains("Type S1 to continue: "));
        terminal.type_in("S2\n");
        let (status, printed) = terminal.end();
        assert!(!status.success() && printed.contains("not confirmed"), "{printed}");
        assert_eq!(served.heard().len(), 1, "only the plan was requested");
        let (status, printed) = Terminal::start(served.command(&arguments)).confirm_all();
        assert!(status.success(), "{printed}");
        let heard = served.heard();
        assert!(heard[2].contains("dry_run: false, force: false, serial: \"S1\""), "{heard:?}");
    }
}
