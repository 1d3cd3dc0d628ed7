//! Attempts from inside of a contained process. Each attempt also runs without containment, where it must succeed:
//! otherwise its failure would prove nothing.
//!
//! A test starts its own program two times. The environment variable [`INSIDE`] selects the test and the containment of
//! the new process, which prints the result of the attempt.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::process::{
    Resource, Rlimit, Signal, geteuid, getpid, getrlimit, kill_process, setrlimit,
};
use rustix::thread::gettid;

use super::{Choices, CoreDumps, Folders, Places, Writes, enter};

/// The environment variable of a process that makes an attempt.
const INSIDE: &str = "STRAKE_TEST_INSIDE";

/// The environment variable with the folder of an attempt.
const FOLDER: &str = "STRAKE_TEST_FOLDER";

/// A user that owns no file of these tests.
const STRANGER: u32 = 65_534;

/// The line with which a process reports that its attempt succeeded.
const DONE: &str = "attempt: done";

/// The start of the line about an attempt that failed.
const FAILED: &str = "attempt: failed";

/// Whether the process of an attempt is contained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inside {
    Free,
    Contained,
}

impl Inside {
    const fn word(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Contained => "contained",
        }
    }
}

/// The user of the process of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum User {
    /// The user of the tests.
    Own,
    /// An unprivileged user, if the tests run as root.
    Unprivileged,
}

/// Makes `attempt` in a new process, and returns its output.
fn run(inside: Inside, user: User, folder: &Path) -> Output {
    let test = std::thread::current().name().expect("tests have names").to_owned();
    let mut command = Command::new(std::env::current_exe().expect("we run from a file"));
    command.args([&test, "--exact", "--nocapture", "--test-threads=1"]);
    command.env(INSIDE, inside.word()).env(FOLDER, folder);
    command.stdin(Stdio::null()).current_dir(folder);
    if user == User::Unprivileged && geteuid().is_root() {
        command.uid(STRANGER).gid(STRANGER);
    }
    command.output().expect("it starts")
}

/// In the process of an attempt: makes `attempt` and returns true. In other processes, returns false.
fn attempts(choices: &Choices, attempt: impl FnOnce(&Path) -> Result<(), String>) -> bool {
    let Ok(inside) = std::env::var(INSIDE) else { return false };
    let folder = std::env::var_os(FOLDER).expect("it is set with the other variable");
    if inside == Inside::Contained.word() {
        enter(choices).expect("this host supports it");
    }
    match attempt(Path::new(&folder)) {
        Ok(()) => println!("{DONE}"),
        Err(why) => println!("{FAILED}: {why}"),
    }
    true
}

/// Checks that `attempt` succeeds in a free process and fails in a contained one.
fn check(user: User, choices: &Choices, attempt: impl FnOnce(&Path) -> Result<(), String>) {
    if attempts(choices, attempt) {
        return;
    }
    let folder = Beside::new();
    let said = |inside| {
        let Output { stdout, stderr, .. } = run(inside, user, &folder.0);
        format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr))
    };
    let (free, contained) = (said(Inside::Free), said(Inside::Contained));
    assert!(free.contains(DONE), "the attempt must succeed without containment: {free}");
    assert!(contained.contains(FAILED), "the attempt must fail: {contained}");
}

/// A folder that every user may use, beside the program of the tests: a daemon may always write to the folder for
/// temporary files. It contains the folder [`OWN`] and the program `id`. Dropping it removes the folder.
struct Beside(PathBuf);

impl Beside {
    fn new() -> Self {
        let test = std::thread::current().name().expect("tests have names").replace(':', "-");
        let program = std::env::current_exe().expect("we run from a file");
        let folder = program.with_file_name(format!("{test}-{}", std::process::id()));
        fs::create_dir_all(folder.join(OWN)).expect("it can be written");
        // Another program copies it: a test that starts a program meanwhile would inherit a file that is open for
        // writing.
        succeeds(Command::new("cp").arg("/usr/bin/id").arg(&folder)).expect("it can be copied");
        for path in [folder.clone(), folder.join(OWN)] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("it is ours");
        }
        Self(folder)
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // The build removes what remains.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The folder that a contained process may write, in the folder of its attempt.
const OWN: &str = "own";

fn own() -> PathBuf {
    std::env::current_dir().expect("there is one").join(OWN)
}

/// The choices of a daemon that may write only to [`OWN`].
fn choices() -> Choices {
    let writes = Writes::Only(Folders::default());
    let places = Places { own: vec![own()], writes, hooks: Folders::default() };
    Choices { core_dumps: CoreDumps::Forbid, places }
}

/// Runs a program, whose exit code is the result.
fn succeeds(command: &mut Command) -> Result<(), String> {
    let Output { status, stderr, .. } = command.output().map_err(|error| error.to_string())?;
    if status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&stderr).into_owned()) }
}

/// Another process reads the environment of this thread. The kernel permits this to those that may read its memory
/// (proc_pid_environ(5)).
fn read_memory(_: &Path) -> Result<(), String> {
    let thread = gettid().as_raw_nonzero();
    succeeds(Command::new("cat").arg(format!("/proc/{thread}/environ")))
}

#[test]
fn another_process_of_the_same_user_cannot_read_the_memory() {
    check(User::Unprivileged, &choices(), read_memory);
}

#[test]
fn a_process_that_aborts_leaves_no_core_dump() {
    let raise = || {
        // Root may raise the limit again, and other users may not.
        let most = Rlimit { current: None, maximum: None };
        let own = getrlimit(Resource::Core).maximum;
        let _ = setrlimit(Resource::Core, most)
            .or_else(|_| setrlimit(Resource::Core, Rlimit { current: own, maximum: own }));
    };
    let abort = |_: &Path| -> Result<(), String> {
        raise();
        kill_process(getpid(), Signal::ABORT).expect("a process may end itself");
        // Another thread may receive the signal.
        loop {
            std::thread::park();
        }
    };
    if attempts(&choices(), abort) {
        return;
    }
    let folder = Beside::new();
    let status = |inside| run(inside, User::Own, &folder.0).status;
    let [free, contained] = [Inside::Free, Inside::Contained].map(status);
    assert!(free.signal().is_some() && contained.signal().is_some(), "{free} {contained}");
    assert!(!contained.core_dumped(), "a contained process");
    if getrlimit(Resource::Core).maximum == Some(0) && !geteuid().is_root() {
        eprintln!("skipped in part: this host permits no core dumps");
        return;
    }
    assert!(free.core_dumped(), "a free process");
}

#[test]
fn a_program_of_root_gives_a_contained_process_no_rights() {
    let own_id = |folder: &Path| {
        let Output { stdout, .. } =
            Command::new(folder.join("id")).arg("-u").output().map_err(|e| e.to_string())?;
        match String::from_utf8_lossy(&stdout).trim() {
            "0" => Ok(()),
            other => Err(format!("user {other}")),
        }
    };
    let here = std::env::current_dir().expect("there is one");
    let places = Places { hooks: Folders(vec![here]), ..choices().places };
    if attempts(&Choices { places, ..choices() }, own_id) {
        return;
    }
    if !geteuid().is_root() {
        eprintln!("skipped: only root can create a program with the rights of root");
        return;
    }
    let folder = Beside::new();
    let program = folder.0.join("id");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).expect("it is ours");
    let said = |inside| {
        String::from_utf8_lossy(&run(inside, User::Unprivileged, &folder.0).stdout).into_owned()
    };
    assert!(said(Inside::Free).contains(DONE), "without containment, the program has its rights");
    assert!(said(Inside::Contained).contains(&format!("{FAILED}: user {STRANGER}")));
}

#[test]
fn a_contained_process_cannot_create_a_namespace() {
    let unshare = |_: &Path| {
        let namespace = if geteuid().is_root() { "--uts" } else { "--user" };
        succeeds(Command::new("unshare").args([namespace, "true"]))
    };
    let may = |path: &str| fs::read_to_string(path).map_or(true, |text| text.trim() != "0");
    if !geteuid().is_root() && !may("/proc/sys/kernel/unprivileged_userns_clone") {
        eprintln!("skipped: this host permits no namespaces");
        return;
    }
    check(User::Own, &choices(), unshare);
}

#[test]
fn permitted_core_dumps_change_nothing() {
    let choices = Choices { core_dumps: CoreDumps::Permit, ..choices() };
    if attempts(&choices, read_memory) {
        return;
    }
    let folder = Beside::new();
    let Output { stdout, .. } = run(Inside::Contained, User::Unprivileged, &folder.0);
    assert!(String::from_utf8_lossy(&stdout).contains(DONE));
}

/// Whether the kernel has the rules of files.
fn has_rules() -> bool {
    let list = fs::read_to_string("/sys/kernel/security/lsm");
    let active = list.map_or(true, |list| list.contains("landlock"));
    if !active {
        eprintln!("skipped: this kernel has no Landlock");
    }
    active
}

fn done(result: std::io::Result<()>) -> Result<(), String> {
    result.map_err(|error| error.to_string())
}

#[test]
fn a_contained_process_cannot_create_a_file_elsewhere() {
    if has_rules() {
        check(User::Own, &choices(), |folder| done(fs::write(folder.join("new"), "x")));
    }
}

#[test]
fn a_contained_process_cannot_write_a_file_elsewhere() {
    let write = |folder: &Path| done(File::options().write(true).open(folder.join("id")).map(drop));
    if has_rules() {
        check(User::Own, &choices(), write);
    }
}

#[test]
fn a_contained_process_cannot_move_a_file_elsewhere() {
    let rename = |folder: &Path| {
        done(fs::write(folder.join(OWN).join("file"), "x"))?;
        done(fs::rename(folder.join(OWN).join("file"), folder.join("file")))
    };
    if has_rules() {
        check(User::Own, &choices(), rename);
    }
}

#[test]
fn a_contained_process_cannot_execute_what_it_may_write() {
    let run = |folder: &Path| {
        let program = folder.join(OWN).join("id");
        succeeds(Command::new("cp").arg("/usr/bin/id").arg(&program)).expect("it may be written");
        succeeds(&mut Command::new(program))
    };
    if has_rules() {
        check(User::Own, &choices(), run);
    }
}

#[test]
fn a_contained_process_executes_programs_of_a_named_folder() {
    let named =
        Choices { places: Places { hooks: Folders(vec![own()]), ..choices().places }, ..choices() };
    let run = |folder: &Path| succeeds(&mut Command::new(folder.join(OWN).join("id")));
    if attempts(&named, run) {
        return;
    }
    let folder = Beside::new();
    let program = folder.0.join(OWN).join("id");
    succeeds(Command::new("cp").arg("/usr/bin/id").arg(&program)).expect("it can be copied");
    let Output { stdout, .. } = self::run(Inside::Contained, User::Own, &folder.0);
    assert!(String::from_utf8_lossy(&stdout).contains(DONE));
}
