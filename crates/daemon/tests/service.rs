//! Tests of `straked` with a service manager: options from a file, and messages about its state.

use std::fs;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use strake_testkit::Folder;

/// The time limit of a test for a message.
const PATIENCE: Duration = Duration::from_secs(60);

/// The exit code of wrong options.
const REFUSED: i32 = 3;

fn straked() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_straked"));
    for variable in ["STRAKE_STATE_DIR", "STRAKE_SOCKET", "STRAKE_METRICS", "STRAKE_KERNEL"] {
        command.env_remove(variable);
    }
    command.env_remove("STRAKE_CONFIG").env_remove("NOTIFY_SOCKET").stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("it is text")
}

#[test]
fn the_environment_is_over_the_file_and_the_command_line_over_both() {
    let folder = Folder::new("straked-service");
    let file = folder.join("straked.toml");
    let lines = "metrics = \"unix:/file\"\nstate-dir = \"/file\"\nparity-kernel = \"portable\"\n";
    fs::write(&file, lines).expect("it can be written");
    let mut command = straked();
    command.arg("--check-config").env("STRAKE_CONFIG", &file);
    command.env("STRAKE_METRICS", "unix:/environment").env("STRAKE_STATE_DIR", "/environment");
    command.env("STATE_DIRECTORY", "/service").env("RUNTIME_DIRECTORY", "/service");
    let Output { status, stdout, .. } =
        command.args(["--state-dir", "/line"]).output().expect("it runs");
    assert!(status.success());
    let said = text(&stdout);
    let check = |line: &str| assert!(said.lines().any(|l| l == line), "{line}: {said}");
    check("state-dir = \"/line\"  # command line");
    check("metrics = \"unix:/environment\"  # environment, STRAKE_METRICS");
    check(&format!("parity-kernel = \"portable\"  # {}, line 3", file.display()));
    check("socket = \"/service/straked.sock\"  # default");
}

#[test]
fn the_options_in_effect_are_printed_as_json_too() {
    let mut command = straked();
    command.args(["--check-config", "--json", "--state-dir", "/line"]);
    command.env("RUNTIME_DIRECTORY", "/service");
    let said = text(&command.output().expect("it runs").stdout);
    let document: serde_json::Value = serde_json::from_str(&said).expect("one document");
    let options = document["options"].as_array().expect("a list");
    let of = |name: &str| {
        let option = options.iter().find(|option| option["name"] == name);
        option.unwrap_or_else(|| panic!("{name} is not in {said}"))
    };
    assert_eq!(of("state-dir")["value"], "/line");
    assert_eq!(of("state-dir")["origin"], "command line");
    assert_eq!(of("socket")["value"], "/service/straked.sock");
    assert!(of("metrics")["value"].is_null() && of("metrics")["reason"] == "off", "{said}");
}

#[test]
fn a_wrong_file_is_refused_before_anything_is_started() {
    let folder = Folder::new("straked-service");
    let file = folder.join("straked.toml");
    let state = folder.join("state");
    fs::write(&file, "state_dir = \"/x\"\n").expect("it can be written");
    let mut command = straked();
    command.arg("--config").arg(&file).arg("--state-dir").arg(&state);
    let Output { status, stderr, .. } = command.output().expect("it runs");
    assert_eq!(status.code(), Some(REFUSED));
    let said = text(&stderr);
    let want = format!("straked: {}: line 1: unknown key state_dir; the keys are", file.display());
    assert!(said.starts_with(&want), "{said}");
    assert!(!state.exists(), "nothing was started");
}

/// A daemon that ends with the test.
struct Daemon(Child);

impl Daemon {
    fn stop(&self) {
        let pid = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("it has a number"), Signal::TERM).expect("it is our child");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // The daemon may already have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_service_manager_is_notified_of_start_health_and_stop() {
    let folder = Folder::new("straked-service");
    let path = folder.join("notify");
    let manager = UnixDatagram::bind(&path).expect("the path is free");
    manager.set_read_timeout(Some(PATIENCE)).expect("a time can be set");
    let next = || {
        let mut bytes = [0; 512];
        let length = manager.recv(&mut bytes).expect("a message arrives");
        text(&bytes[..length])
    };
    let socket = folder.join("socket");
    let mut command = straked();
    command.arg("--state-dir").arg(folder.join("state")).arg("--socket").arg(&socket);
    // The time between rounds of upkeep is longer than a quarter of this period, so each round sends a message.
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "400000");
    let child = command.stderr(Stdio::null()).spawn().expect("it starts");
    let mut daemon = Daemon(child);
    assert_eq!(next(), "READY=1\nSTATUS=Serving\n", "the first message");
    UnixStream::connect(&socket).expect("a daemon that is ready has its socket");
    for _ in 0..2 {
        assert_eq!(next(), "WATCHDOG=1\nSTATUS=Serving, no arrays\n");
    }
    daemon.stop();
    let mut last = next();
    while last.starts_with("WATCHDOG=1\n") {
        last = next();
    }
    assert_eq!(last, "STOPPING=1\nSTATUS=Stopping arrays\n");
    assert!(daemon.0.wait().expect("it ends").success());
}
