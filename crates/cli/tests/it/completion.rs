//! Completion in a shell: the real binary against a daemon that answers from a script, called as the scripts of the
//! shells call it, and from a real bash.

use crate::fake::{Script, Served, array};
use std::io::Write as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use strake_api::v1::{Drive, Export, Host, Job};
use strake_testkit::Folder;

const HOST: &str = "nqn.2014-08.org.example:front";
const REMOTE: &str = "nvme-tcp://192.0.2.1:4420/nqn.2014-08.org.example:lun";

fn drive(path: &str, kind: &str, state: &str) -> Drive {
    Drive { path: path.into(), kind: kind.into(), state: state.into(), ..Drive::default() }
}

fn script() -> Script {
    let tank = array(&["online"], &["in_sync", "faulty"]);
    let mut vault = array(&["offline"], &["missing"]);
    vault.name = "vault".into();
    vault.members[0].path = "/dev/nvme7n1".into();
    let export = Export {
        name: "lun".into(),
        array: "tank".into(),
        allow_hosts: vec!["nqn.a:back".into(), HOST.into()],
        ..Export::default()
    };
    Script {
        arrays: vec![tank, vault],
        drives: vec![
            drive("/dev/nvme0n1", "nvme", "member"),
            drive("/dev/nvme8n1", "nvme", "free"),
            drive("/dev/nvme9n1", "nvme", "free"),
            drive(REMOTE, "nvme-tcp", "free"),
        ],
        exports: vec![export],
        hosts: vec![Host { nqn: HOST.into(), state: "ready".into(), ..Host::default() }],
        jobs: vec![Job { id: "tank/rebuild".into(), ..Job::default() }],
        ..crate::volumes::script()
    }
}

/// Returns the candidates for the last of `words`. Nothing may be changed or reported.
fn ask(mut command: Command, shell: &str, words: &[&str]) -> Vec<String> {
    command.env("_STRAKE_COMPLETE", shell).env("_CLAP_IFS", "\n");
    command.env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string());
    let output = command.args(["--"]).args(words).stdin(Stdio::null()).output().expect("it runs");
    assert!(output.status.success() && output.stderr.is_empty(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).expect("text").lines().map(str::to_owned).collect()
}

/// Checks the candidates for the end of `line`.
fn check(served: &Served, line: &str, expected: &[&str]) {
    let words: Vec<&str> = line.split(' ').collect();
    assert_eq!(ask(served.command(&[]), "bash", &words), expected, "{line}");
}

#[test]
fn names_of_the_daemon_complete_the_arguments_of_commands() {
    let served = Served::new("completion", script());
    check(&served, "strake array show ", &["tank", "vault"]);
    check(&served, "strake array show v", &["vault"]);
    check(&served, "strake wait ta", &["tank"]);
    check(&served, "strake export create --via nbd t", &["tank"]);
    check(&served, "strake drive show nvme0", &["nvme0n1"]);
    check(&served, "strake drive show /dev/nvme0", &["/dev/nvme0n1"]);
    check(&served, "strake drive show nvme-", &[REMOTE]);
    check(&served, "strake drive disconnect ", &[REMOTE]);
    check(&served, "strake spare add nvme", &["nvme8n1", "nvme9n1", REMOTE]);
    check(&served, "strake export show ", &["lun"]);
    check(&served, "strake export set lun --deny-host nqn.", &[HOST, "nqn.a:back"]);
    check(&served, "strake host key nqn.2014-08.org.example:f", &[HOST]);
    check(&served, "strake job resume ", &["tank/rebuild"]);
    check(
        &served,
        "strake export create --via nbd data/",
        &["data/vm1", "data/copy", "data/before"],
    );
    check(&served, "strake pool create new t", &["tank"]);
    check(&served, "strake pool show d", &["data"]);
    check(&served, "strake volume list ", &["data", "log", "old"]);
    check(&served, "strake volume resize ", &["data/vm1", "data/copy"]);
    check(&served, "strake volume destroy data/b", &["data/before"]);
    check(&served, "strake volume clone ", &["data/before"]);
    check(&served, "strake snapshot create data/v", &["data/vm1"]);
    check(&served, "strake snapshot rollback data/vm1 ", &["data/before"]);
    check(&served, "strake snapshot diff data/before data/c", &["data/copy"]);
    check(&served, "strake array scrub st", &["start", "stop"]);
    let heard = served.heard();
    assert!(heard.iter().all(|request| request.starts_with("List")), "{heard:?}");
}

#[test]
fn members_are_those_of_the_array_in_the_line() {
    let served = Served::new("completion-members", script());
    let of_tank = ["0", "1", "nvme0n1", "/dev/nvme0n1", "nvme1n1", "/dev/nvme1n1"];
    check(&served, "strake array fail tank --member ", &of_tank);
    check(&served, "strake array readd vault --member nv", &["nvme7n1"]);
    check(
        &served,
        "strake array replace tank --member 1 --with nvme",
        &["nvme8n1", "nvme9n1", REMOTE],
    );
}

#[test]
fn the_last_of_several_drives_is_completed_and_none_is_offered_twice() {
    let served = Served::new("completion-drives", script());
    check(&served, "strake array create new --drives nvme8n1,nvme9", &["nvme8n1,nvme9n1"]);
    check(&served, "strake array create new --drives nvme8n1,nvme8", &[]);
    std::fs::write(served.folder.join("file.img"), "").expect("it is written");
    check(&served, "strake array create new --drives nvme8n1,./f", &["nvme8n1,./file.img"]);
}

#[test]
fn the_name_of_a_new_object_is_not_offered() {
    let served = Served::new("completion-new", script());
    check(&served, "strake array create t", &[]);
    check(&served, "strake hook add t", &[]);
    check(&served, "strake pool create d", &[]);
    check(&served, "strake volume create data/v", &[]);
    check(&served, "strake volume clone data/before data/c", &[]);
}

/// History: the environment of the daemon's socket and the option were two ways, and only one was used.
#[test]
fn the_socket_of_the_line_is_asked() {
    let served = Served::new("completion-socket", script());
    let socket = served.folder.join("s.sock").display().to_string();
    for option in [vec!["--socket", &socket], vec![&*format!("--socket={socket}")]] {
        let words = [vec!["strake"], option, vec!["array", "show", "v"]].concat();
        let mut command = served.command(&[]);
        command.env("STRAKE_SOCKET", "/nowhere");
        let found = ask(command, "bash", &words);
        assert_eq!(found, ["vault"], "{words:?}");
    }
}

#[test]
fn shells_that_show_remarks_get_them() {
    let served = Served::new("completion-remarks", script());
    let found = ask(served.command(&[]), "fish", &["strake", "export", "show", ""]);
    assert!(found.contains(&"lun\tarray tank".to_owned()), "{found:?}");
    let found = ask(served.command(&[]), "zsh", &["strake", "array", "show", "v"]);
    assert_eq!(found, ["vault:offline"]);
}

fn without_daemon(socket: &Path) -> Vec<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_strake"));
    command.env("STRAKE_SOCKET", socket);
    ask(command, "bash", &["strake", "array", "show", "t"])
}

#[test]
fn without_a_daemon_no_names_are_offered_and_no_errors_are_printed() {
    let folder = Folder::new("strake-cli-completion-none");
    assert_eq!(without_daemon(&folder.join("none.sock")), [""; 0]);
}

/// A daemon that accepts a connection and never answers.
#[test]
fn a_daemon_that_does_not_answer_does_not_hang_a_completion() {
    let folder = Folder::new("strake-cli-completion-silent");
    let socket = folder.join("s.sock");
    let _silent = UnixListener::bind(&socket).expect("the path is free");
    assert_eq!(without_daemon(&socket), [""; 0]);
}

#[test]
fn another_shell_is_no_error_in_the_line_of_the_user() {
    let served = Served::new("completion-shell", script());
    let mut command = served.command(&["--", "strake", ""]);
    let output = command.env("_STRAKE_COMPLETE", "nosuchshell").output().expect("it runs");
    assert_eq!((output.status.code(), output.stdout.len(), output.stderr.len()), (Some(3), 0, 0));
}

/// Returns what bash would offer for `line`; `None` without bash.
fn in_bash(served: &Served, line: &str) -> Option<String> {
    let folder = served.folder.join("bin");
    std::fs::create_dir_all(&folder).expect("it is made");
    let link = folder.join("strake");
    if !link.exists() {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_strake"), link).expect("it is linked");
    }
    let script = "source <(strake completions bash); COMP_LINE=$1; COMP_POINT=${#1}; _strake; \
        printf '%s\\n' \"${COMPREPLY[@]}\"";
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("bash")
        .args(["-c", script, "bash", line])
        .env("PATH", format!("{}:{path}", folder.display()))
        .env("STRAKE_SOCKET", served.folder.join("s.sock"))
        .output();
    let Ok(output) = output else {
        writeln!(std::io::stderr(), "skipped: completion in bash: no bash").expect("an output");
        return None;
    };
    assert!(output.stderr.is_empty(), "{output:?}");
    Some(String::from_utf8(output.stdout).expect("text").trim_end().to_owned())
}

#[test]
fn options_are_offered_where_no_name_fits_or_the_line_asks_for_them() {
    let served = Served::new("completion-options", script());
    check(&served, "strake array show --w", &["--watch"]);
    check(&served, "strake array set tank --rebuild", &["--rebuild-priority"]);
    let found = ask(served.command(&[]), "bash", &["strake", "daemon", "status", ""]);
    assert!(found.contains(&"--json".to_owned()), "{found:?}");
}

/// Bash splits words at colons, which NQNs and addresses contain.
#[test]
fn names_with_colons_complete_in_a_real_bash() {
    let served = Served::new("completion-bash", script());
    for (line, expected) in [
        ("strake array show v", "vault"),
        ("strake host key nqn.2014", HOST),
        ("strake host key nqn.2014-08.org.example:f", "front"),
        ("strake job pause ", "tank/rebuild"),
    ] {
        let Some(offered) = in_bash(&served, line) else { return };
        assert_eq!(offered, expected, "{line}");
    }
}

/// Readline inserts a candidate into the line as it is, and the shell executes the line.
#[test]
fn a_name_with_characters_of_the_shell_is_quoted_in_bash() {
    let served = Served::new("completion-hostile", script());
    let folder = served.folder.join("names");
    std::fs::create_dir_all(&folder).expect("it is made");
    std::fs::write(folder.join("x;touch PWNED $(id)"), "").expect("it is written");
    let line = format!("strake config restore {}/", folder.display());
    let Some(found) = in_bash(&served, &line) else { return };
    let quoted = format!(r"{}/x\;touch\ PWNED\ \$\(id\)", folder.display());
    assert_eq!(found, quoted);
}
