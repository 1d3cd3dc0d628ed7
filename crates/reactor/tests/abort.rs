//! Tests that a panic on a data core aborts the process with a message. The child process is this test binary with an
//! environment variable.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use strake_reactor::{CoreConfig, CoreThread, Poller, Sleep, Turn};
use strake_units::{CoreIndex, Nanos};

const CHILD: &str = "STRAKE_TEST_PANIC_IN";

/// Panics in its turn, and would print a text if it were dropped.
struct Broken;

impl Poller for Broken {
    fn turn(&mut self, _: Nanos) -> Turn {
        panic!("a stripe was locked twice")
    }

    fn sleep(&self, _: &mut Sleep) {}
}

impl Drop for Broken {
    fn drop(&mut self) {
        eprintln!("a destructor ran");
    }
}

/// The child: a core that panics, and a control thread that would otherwise continue.
#[test]
fn child() {
    let Ok(place) = std::env::var(CHILD) else { return };
    let core = CoreThread::start(CoreConfig::new(CoreIndex(5))).unwrap();
    let in_poller = place == "poller";
    let outcome = core.handle().call(move |core| {
        assert!(in_poller, "a stripe was locked twice");
        core.add(Box::new(Broken));
    });
    eprintln!("the call returned {outcome:?}");
    core.stop();
    eprintln!("the process went on");
}

/// Runs the child with a panic in `place` and checks how it ended.
fn check(place: &str) {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env(CHILD, place)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stderr);
    assert_eq!(child.status.signal(), Some(6), "not aborted but {}: {said}", child.status);
    for part in ["a stripe was locked twice", "data core 5 panicked", "aborting"] {
        assert!(said.contains(part), "'{part}' is missing: {said}");
    }
    for part in ["a destructor ran", "the process went on"] {
        assert!(!said.contains(part), "'{part}' must not happen: {said}");
    }
}

#[test]
fn a_panic_in_a_poller_aborts_the_process_and_says_why() {
    check("poller");
}

#[test]
fn a_panic_in_a_closure_aborts_the_process_and_says_why() {
    check("closure");
}
