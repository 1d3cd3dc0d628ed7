//! Delivery to programs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use super::{Bench, PATIENCE, event, limits};
use crate::TRY_AGAIN;
use crate::error::AlertErrorKind;
use crate::program::{Owner, Programs};
use crate::spec::HookSpec;
use strake_testkit::Folder;

/// A separate directory for each test.
struct Dir(Folder);

impl Dir {
    fn new() -> Self {
        Self(Folder::new("strake-alerts"))
    }

    /// Returns an executable script. A shell writes it: if this process had the file open for writing, a program that
    /// another test starts could inherit it, and the script could not be executed ("text file busy").
    fn script(&self, text: &str) -> PathBuf {
        let path = self.0.join("notify");
        let write = "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$2\" && chmod 755 \"$2\"";
        let status = Command::new("sh").args(["-c", write, "sh", text]).arg(&path).status();
        assert!(status.unwrap().success());
        path
    }

    /// Returns the output of a script in `name`, once it is complete, which means that it ends with a line break.
    fn read(&self, name: &str) -> String {
        let start = Instant::now();
        loop {
            match fs::read_to_string(self.0.join(name)) {
                Ok(text) if text.ends_with('\n') => return text,
                _ => std::thread::yield_now(),
            }
            assert!(start.elapsed() < PATIENCE, "no script wrote {name}");
        }
    }
}

fn exec(path: &Path) -> HookSpec {
    HookSpec {
        name: "ops".into(),
        kind: "exec".into(),
        target: path.to_str().unwrap().into(),
        severity: "info".into(),
        ..HookSpec::default()
    }
}

/// Waits until the process has ended, or is a zombie that another process must reap.
fn gone(id: &str) {
    let start = Instant::now();
    let stat = PathBuf::from(format!("/proc/{}/stat", id.trim()));
    while fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
        assert!(start.elapsed() < PATIENCE, "process {id} still runs");
        std::thread::yield_now();
    }
}

/// Returns the descriptors that every program of this process inherits: those that this process itself inherited.
fn passed_on() -> BTreeSet<String> {
    let mut passed = BTreeSet::new();
    for entry in fs::read_dir("/proc/self/fdinfo").unwrap() {
        let Ok(info) = fs::read_to_string(entry.as_ref().unwrap().path()) else { continue };
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap().trim();
        // O_CLOEXEC, in octal.
        if u32::from_str_radix(flags, 8).unwrap() & 0o2_000_000 == 0 {
            passed.insert(entry.unwrap().file_name().into_string().unwrap());
        }
    }
    passed
}

#[test]
fn a_program_gets_the_event_and_nothing_of_ours() {
    let dir = Dir::new();
    let script = dir.script(&format!(
        "cd {}; cat > in; echo >> in; pwd -P > /dev/null; tr '\\0' '\\n' < /proc/$$/environ > env; \
         echo \"$#\" > args; readlink /proc/$$/cwd > cwd; cut -d' ' -f5 /proc/$$/stat > group; echo $$ > pid; \
         ls -l /proc/$$/fd > fds",
        dir.0.display()
    ));
    // A descriptor of this process that must not be inherited.
    let _open = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let bench = Bench::new();
    bench.alerts.add(exec(&script)).unwrap();
    let mut happened = event(7, "critical");
    happened.object = "array/$(touch x);\n`id`".into();
    bench.alerts.offer(&happened);
    bench.hook_when(|hook| hook.delivered == 1);
    let mut expected = serde_json::to_value(&happened).unwrap();
    expected["version"] = 1.into();
    expected["host"] = "node1".into();
    assert_eq!(serde_json::from_str::<serde_json::Value>(&dir.read("in")).unwrap(), expected);
    let env = dir.read("env");
    let env: BTreeSet<&str> = env.lines().collect();
    let expected = [
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "STRAKE_EVENT_KIND=member_failed",
        "STRAKE_EVENT_OBJECT=array/$(touch x); `id`",
        "STRAKE_EVENT_SEVERITY=critical",
    ];
    assert_eq!(env, expected.into());
    assert_eq!((dir.read("args").as_str(), dir.read("group")), ("0\n", dir.read("pid")));
    // Besides its three it has the inherited descriptors, and those of the shell: the script, and its output again.
    let passed = passed_on();
    let fds = dir.read("fds");
    let open = |line: &str| line.split_once(" -> ").map(|(left, to)| (word(left), to.to_string()));
    let fds: BTreeMap<String, String> = fds.lines().filter_map(open).collect();
    let of_shell = |to: &str| *to == fds["2"] || *to == *script.to_string_lossy();
    // While another test connects, OpenSSL reads this public file, which it opens without `O_CLOEXEC`.
    let of_openssl = |to: &str| to.ends_with("/ca-certificates.crt");
    for (fd, to) in fds.iter().filter(|(fd, _)| !matches!(fd.as_str(), "0" | "1" | "2")) {
        let is_known = passed.contains(fd) || of_shell(to) || of_openssl(to);
        assert!(is_known, "{fd} -> {to} of {fds:?}");
    }
}

fn word(text: &str) -> String {
    text.rsplit(' ').next().unwrap().to_string()
}

#[test]
fn a_program_that_hangs_is_killed_with_what_it_started() {
    let dir = Dir::new();
    let script = dir.script(&format!(
        "cd {}; trap '' TERM INT HUP; sleep 100000 & echo $! > child; (sleep 100000; :) & echo $$ > self; wait",
        dir.0.display()
    ));
    let bench = Bench::new();
    bench.alerts.add(exec(&script)).unwrap();
    bench.alerts.offer(&event(1, "info"));
    let (child, own) = (dir.read("child"), dir.read("self"));
    bench.hand.pass(limits().total);
    // The delivery is not repeated, because the program ran.
    let hook = bench.hook_when(|hook| hook.failed == 1);
    assert!(hook.last_error.contains("longer than 30 s"), "{hook:?}");
    gone(&child);
    gone(&own);
    // The process must be reaped, so that its identifier is free.
    let start = Instant::now();
    while Path::new("/proc").join(own.trim()).exists() {
        assert!(start.elapsed() < PATIENCE, "{own} stays a zombie");
        std::thread::yield_now();
    }
}

/// The launcher of the daemon uses this code if the file of the program is busy.
#[test]
fn a_program_that_asks_for_another_attempt_is_repeated() {
    let dir = Dir::new();
    let script = dir.script(&format!(
        "cd {}; [ -e tried ] && exit 0; echo busy; touch tried; exit {TRY_AGAIN}",
        dir.0.display()
    ));
    let bench = Bench::new();
    bench.alerts.add(exec(&script)).unwrap();
    bench.alerts.offer(&event(1, "info"));
    bench.hand.pass(limits().backoff[0]);
    let hook = bench.hook_when(|hook| hook.delivered == 1);
    assert!(hook.last_error.contains("status 75: busy"), "{hook:?}");
}

#[test]
fn what_a_program_leaves_behind_ends_with_it() {
    let dir = Dir::new();
    // The child holds the output open, which must not delay the delivery.
    let script =
        dir.script(&format!("cd {}; sleep 100000 & echo $! > child; exit 0", dir.0.display()));
    let bench = Bench::new();
    bench.alerts.add(exec(&script)).unwrap();
    bench.alerts.offer(&event(1, "info"));
    bench.hook_when(|hook| hook.delivered == 1);
    gone(&dir.read("child"));
}

#[test]
fn removing_a_hook_ends_its_program() {
    let dir = Dir::new();
    let script = dir.script(&format!("cd {}; echo $$ > self; exec sleep 100000", dir.0.display()));
    let bench = Bench::new();
    bench.alerts.add(exec(&script)).unwrap();
    bench.alerts.offer(&event(1, "info"));
    let own = dir.read("self");
    bench.alerts.remove("ops").unwrap();
    gone(&own);
}

#[test]
fn stopping_ends_a_program_that_hangs() {
    let dir = Dir::new();
    let script = dir.script(&format!("cd {}; echo $$ > self; exec sleep 100000", dir.0.display()));
    let bench = Bench::new();
    bench.alerts.add(exec(&script)).unwrap();
    bench.alerts.offer(&event(1, "info"));
    let own = dir.read("self");
    assert_eq!(bench.alerts.stop(std::time::Duration::from_millis(1)).broken_off, 1);
    gone(&own);
}

/// Checks that a failing script counts as failed, and that the error is `why`.
fn check_failing(text: &str, why: &str) {
    let dir = Dir::new();
    let bench = Bench::new();
    bench.alerts.add(exec(&dir.script(text))).unwrap();
    bench.alerts.offer(&event(1, "info"));
    let hook = bench.hook_when(|hook| hook.failed == 1);
    assert_eq!((hook.delivered, hook.last_error.as_str()), (0, why));
}

#[test]
fn how_a_program_failed_is_reported() {
    check_failing("exit 3", "the program ended with status 3");
    check_failing("echo no route >&2; exit 1", "the program ended with status 1: no route");
    check_failing("kill -9 $$", "the program was ended by signal 9");
}

#[test]
fn a_program_may_print_as_much_as_it_likes() {
    let line = ["x"; 100].join(" ");
    let why = format!("the program ended with status 3: {line}");
    check_failing("yes x | head -c 100000000; exit 3", &why);
}

#[test]
fn a_program_need_not_read_the_event() {
    let dir = Dir::new();
    let bench = Bench::new();
    bench.alerts.add(exec(&dir.script("exec <&-; exit 0"))).unwrap();
    let mut long = event(1, "info");
    for text in [&mut long.what, &mut long.cause, &mut long.kind, &mut long.object] {
        *text = "nul \0 and \u{20ac} ".repeat(100_000);
    }
    bench.alerts.offer(&long);
    bench.hook_when(|hook| hook.delivered == 1);
}

/// Checks that `path` is refused with `why` when added. If it was recorded earlier, it is accepted and fails.
fn check_unfit(path: &Path, why: &str) {
    let bench = Bench::new();
    let error = bench.alerts.add(exec(path)).unwrap_err();
    assert_eq!(error.kind, AlertErrorKind::Usage);
    assert!(error.what.contains(why), "{error}");
    bench.alerts.restore(exec(path)).unwrap();
    bench.alerts.offer(&event(1, "info"));
    let hook = bench.hook_when(|hook| hook.failed == 1);
    assert!(hook.last_error.contains(why), "{hook:?}");
}

#[test]
fn a_program_that_is_missing_or_none_is_refused() {
    let dir = Dir::new();
    check_unfit(&dir.0.join("nothing"), "cannot find the program");
    check_unfit(&dir.0, "not an executable file");
    let script = dir.script("exit 0");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o644)).unwrap();
    check_unfit(&script, "not an executable file");
    check_unfit(Path::new("/dev/null"), "not an executable file");
}

#[test]
fn a_program_that_others_can_change_is_refused() {
    let dir = Dir::new();
    let script = dir.script("exit 0");
    for mode in [0o757, 0o775, 0o777, 0o1777] {
        fs::set_permissions(&script, fs::Permissions::from_mode(mode)).unwrap();
        check_unfit(&script, "other users can change");
    }
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&dir.0, fs::Permissions::from_mode(0o777)).unwrap();
    check_unfit(&script, "other users can change");
    // A link to the file is refused for the same reason as the file.
    let link = std::env::temp_dir().join(format!("strake-alerts-link-{}", std::process::id()));
    std::os::unix::fs::symlink(&script, &link).unwrap();
    check_unfit(&link, "other users can change");
    fs::remove_file(link).unwrap();
    fs::set_permissions(&dir.0, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(fs::metadata(&script).unwrap().mode() & 0o777, 0o755);
    Bench::new().alerts.add(exec(&script)).unwrap();
}

#[test]
fn only_root_and_we_ourselves_are_trusted() {
    let (file, dir) = (0o100_000, 0o040_000);
    for (uid, mode, expected) in [
        (0, file | 0o755, true),
        (1000, file | 0o700, true),
        (1001, file | 0o755, false),
        (1001, dir | 0o1755, false),
        (0, file | 0o775, false),
        (0, file | 0o1757, false),
        (0, dir | 0o777, false),
        (0, dir | 0o1777, true),
    ] {
        assert_eq!(Owner { uid, mode }.keeps_out_others(1000), expected, "{uid} {mode:o}");
    }
}

#[test]
fn words_that_are_no_absolute_path_are_refused() {
    for target in ["", "true", "./true", "bin/true", "/bin/true\n", "~/alert"] {
        let error = Bench::new().alerts.add(exec(Path::new(target))).unwrap_err();
        assert_eq!(error.kind, AlertErrorKind::Usage);
        assert!(error.what.contains("absolute path of a program"), "{error}");
    }
    // Arguments are a part of the name, and there is no such file.
    let error = Bench::new().alerts.add(exec(Path::new("/bin/true -x"))).unwrap_err();
    assert!(error.what.contains("cannot find the program"), "{error}");
}

/// The history: `/bin/sh` was accepted as the program of a hook, and executed the JSON of events as commands.
#[test]
fn an_interpreter_of_its_input_is_refused_when_named_and_at_every_run() {
    let dir = Dir::new();
    let link = dir.0.join("hook");
    std::os::unix::fs::symlink("/bin/sh", &link).unwrap();
    for target in [Path::new("/bin/sh"), &link] {
        let error = Bench::new().alerts.add(exec(target)).unwrap_err();
        assert_eq!(error.kind, AlertErrorKind::Usage);
        assert!(error.what.contains("execute the event as commands"), "{error}");
    }
    // A recorded hook is added without the check of its program.
    let bench = Bench::new();
    let (_, hook) = bench.alerts.restore(exec(Path::new("/bin/sh"))).unwrap();
    let refused = bench.alerts.check_program(&hook.name).unwrap_err();
    assert!(refused.what.contains("write a script"), "{refused}");
    assert_eq!(bench.alerts.check_program("absent"), Ok(()));
    bench.alerts.offer(&event(1, "info"));
    let hook = bench.hook_when(|hook| hook.failed == 1);
    assert!(hook.last_error.contains("interpreter sh"), "{hook:?}");
}

#[test]
fn a_program_outside_of_the_folders_of_hooks_is_refused() {
    let dir = Dir::new();
    let script = dir.script("exit 0");
    let with = |folders: &[&Path]| {
        let folders = Some(folders.iter().map(|path| path.to_path_buf()).collect());
        Bench::of_programs(Programs { folders, launcher: None }).alerts.add(exec(&script))
    };
    assert!(with(&[Path::new("/usr"), &dir.0]).is_ok());
    // On some distributions, /opt and /usr/local are links.
    let link = Dir::new();
    std::os::unix::fs::symlink(&dir.0, link.0.join("opt")).unwrap();
    assert!(with(&[&link.0.join("opt")]).is_ok());
    let error = with(&[Path::new("/usr"), Path::new("/absent")]).unwrap_err();
    assert_eq!(error.kind, AlertErrorKind::Usage);
    assert!(error.what.contains("the folders are /usr, /absent"), "{error}");
    // The parts of a path count, not its characters.
    let half = PathBuf::from(dir.0.to_str().unwrap().strip_suffix(char::is_numeric).unwrap());
    assert!(with(&[&half]).is_err());
}

#[test]
fn a_launcher_gets_the_path_of_the_program_after_its_option() {
    let dir = Dir::new();
    let launcher = dir.script(&format!("cd {}; echo \"$@\" > args", dir.0.display()));
    let launcher = Some((launcher, "--run-hook".to_owned()));
    let bench = Bench::of_programs(Programs { folders: None, launcher });
    bench.alerts.add(exec(Path::new("/bin/true"))).unwrap();
    bench.alerts.offer(&event(1, "info"));
    let path = fs::canonicalize("/bin/true").unwrap();
    assert_eq!(dir.read("args"), format!("--run-hook {}\n", path.display()));
}
