//! The real binary against a daemon that answers from a script: requests, exit codes, and what goes where.

use crate::fake::{Ran, Script, Served, against, array, strake};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use strake_api::v1::{Array, SystemStatus};
use strake_testkit::Folder;
use tonic::Code;

fn healthy() -> Script {
    Script { arrays: vec![array(&["online"], &["in_sync"; 4])], ..Script::default() }
}

fn degraded() -> Script {
    let array = array(&["online", "degraded"], &["in_sync", "in_sync", "in_sync", "faulty"]);
    Script { arrays: vec![array], ..Script::default() }
}

/// Runs `line` against `script` and holds the exit code.
fn check(name: &str, script: Script, line: &str, code: i32) -> Ran {
    let arguments: Vec<&str> = line.split_whitespace().collect();
    let ran = against(name, script, &arguments);
    assert_eq!(ran.code, code, "{line}\nstdout: {}\nstderr: {}", ran.stdout, ran.stderr);
    ran
}

#[test]
fn create_sends_what_was_typed_with_absolute_paths() {
    let line = "array create tank --level n+4 --drives a.img,ram:1GiB --drives /x/b.img --strip 64KiB \
                --group-size 4 --block-size 4096 --dry-run --overwrite";
    let ran = check("create", healthy(), line, 0);
    let heard = &ran.heard[0];
    for part in [
        "name: \"tank\"",
        "level: \"n+4\"",
        "/a.img\", \"ram:1GiB\", \"/x/b.img\"]",
        "drives: [\"/",
        "strip_bytes: 65536",
        "group_size: Some(4)",
        "block_bytes: Some(4096)",
        "dry_run: true",
        "overwrite: true",
    ] {
        assert!(heard.contains(part), "{part} is not in {heard}");
    }
    assert!(ran.stderr.contains("warning: a warning"), "{}", ran.stderr);
}

#[test]
fn every_verb_reaches_its_call() {
    let cases = [
        (
            "array fail tank --member 2",
            "FailMemberRequest { name: \"tank\", member: 2, dry_run: false, accept: [] }",
        ),
        ("array fail tank --member 2 --accept redundancy --yes", "accept: [\"redundancy\"]"),
        (
            "array readd tank --member 2 --drive /dev/null --dry-run",
            "member: Some(2), drive: \"/dev/null\", dry_run: true",
        ),
        ("array readd tank", "ReaddMemberRequest { name: \"tank\", member: None, drive: \"\""),
        ("array rebuild tank", "RebuildArrayRequest { name: \"tank\", dry_run: false }"),
        (
            "array grow tank --force --dry-run",
            "GrowArrayRequest { name: \"tank\", dry_run: true, force: true",
        ),
        (
            "array upgrade-format tank --dry-run",
            "UpgradeFormatRequest { name: \"tank\", dry_run: true, force: false",
        ),
        ("array rename tank vault", "RenameArrayRequest { name: \"tank\", new_name: \"vault\""),
        (
            "array set tank --rebuild-priority 80 --auto-readd off",
            "rebuild_priority: Some(80), auto_replace: None, auto_readd: Some(false), replace_after_errors: None",
        ),
        ("array set tank --report-at-wear 90", "report_at_wear_percent: Some(90)"),
        ("array set tank --consistency strict", "consistency: Some(\"strict\")"),
        ("array set tank --consistency none --yes", "consistency: Some(\"none\")"),
        ("array set tank --scrub-every 2w", "scrub_every_s: Some(1209600)"),
        ("array set tank --scrub-every off", "scrub_every_s: Some(0), scrub_repair: None"),
        ("array set tank --scrub-repair on", "scrub_every_s: None, scrub_repair: Some(true)"),
        ("array scrub start tank", "StartScrubRequest { name: \"tank\", mode: \"check\" }"),
        ("array scrub start tank --repair", "mode: \"repair\""),
        ("array scrub start tank --repair --wait", "GetScrubRequest { name: \"tank\" }"),
        ("array scrub start tank --trust-data --yes", "mode: \"trust_data\""),
        ("array scrub stop tank", "ChangeScrubRequest { name: \"tank\", action: \"stop\" }"),
        (
            "array import tank --use /dev/null --dry-run",
            "use_drives: [\"/dev/null\"], dry_run: true",
        ),
        ("array undelete tank --drives /dev/null", "drives: [\"/dev/null\"], dry_run: false"),
        ("drive locate /dev/null --off", "LocateDriveRequest { path: \"/dev/null\", off: true }"),
        (
            "drive clean /dev/null --accept-loss --yes",
            "CleanDriveRequest { path: \"/dev/null\", dry_run: false, accept_loss: true }",
        ),
        (
            "drive take /dev/null pci:0000:3b:00.0 --dry-run",
            "TakeDrivesRequest { drives: [\"/dev/null\", \"pci:0000:3b:00.0\"], dry_run: true }",
        ),
        (
            "drive release 0000:3b:00.0",
            "ReleaseDrivesRequest { drives: [\"0000:3b:00.0\"], dry_run: false }",
        ),
        (
            "drive discover nvme-tcp://host --host-nqn nqn.a",
            "DiscoverDrivesRequest { address: \"nvme-tcp://host\", host_nqn: \"nqn.a\"",
        ),
        ("drive smart /dev/null", "GetDriveHealthRequest { path: \"/dev/null\" }"),
        (
            "drive telemetry /dev/null --file telemetry.bin --controller --area 2",
            "ReadTelemetryRequest { path: \"/dev/null\", controller: true, area: 2 }",
        ),
        (
            "drive format /dev/null --block-size 512 --erase user --yes",
            "path: \"/dev/null\", dry_run: false, force: false, serial: \"\", lbaf: None, block_bytes: 512, \
             erase: \"user\"",
        ),
        ("drive format /dev/null --lbaf 3 --serial S1 --dry-run", "serial: \"S1\", lbaf: Some(3)"),
        (
            "drive sanitize /dev/null --action crypto --force --yes",
            "path: \"/dev/null\", dry_run: false, force: true, serial: \"\", action: \"crypto\"",
        ),
        ("drive firmware /dev/null", "GetFirmwareRequest { path: \"/dev/null\" }"),
        ("drive errors /dev/null", "GetDriveRequest { path: \"/dev/null\" }"),
        (
            "spare add /dev/null --array tank",
            "AddSpareRequest { drive: \"/dev/null\", array: \"tank\", dry_run: false, overwrite: false }",
        ),
        ("spare remove /dev/null", "RemoveSpareRequest { drive: \"/dev/null\" }"),
        ("spare list", "ListSparesRequest"),
        ("job list", "ListJobsRequest"),
        (
            "job pause tank/rebuild",
            "ChangeJobRequest { id: \"tank/rebuild\", action: \"pause\", priority: None }",
        ),
        ("job resume tank/rebuild", "action: \"resume\""),
        ("job cancel tank/replace", "action: \"cancel\""),
        ("job set tank/rebuild --priority 90", "action: \"set\", priority: Some(90)"),
        (
            "event list --from 7 --object array/tank --kind command --severity warning --last 3",
            "from: 7, object: \"array/tank\", kind: \"command\", severity: \"warning\", last: 3",
        ),
        (
            "hook add pager --webhook https://a.example/ --severity critical",
            "kind: \"webhook\", target: \"https://a.example/\", severity: \"critical\"",
        ),
        (
            "hook add ops --email a@example.com --server smtp://m:25 --from b@example.com",
            "severity: \"warning\", server: \"smtp://m:25\", from: \"b@example.com\"",
        ),
        ("hook add log --exec /bin/true", "kind: \"exec\", target: \"/bin/true\""),
        ("hook list", "ListHooksRequest"),
        (
            "host add nqn.a --no-controller-secret --new-tls-key",
            "AddHostRequest { nqn: \"nqn.a\", secret: \"\", controller_secret: \"\", tls_key: \"\", \
             new_tls_key: true, no_secret: false, no_tls: false, new_secret: false, \
             new_controller_secret: false, no_controller_secret: true, known: false, keep_old_seconds: 0 }",
        ),
        (
            "host key nqn.a --new-secret --new-controller-secret --keep-old 2h",
            "new_tls_key: false, no_secret: false, no_tls: false, new_secret: true, \
             new_controller_secret: true, no_controller_secret: false, known: true, \
             keep_old_seconds: 7200 }",
        ),
        (
            "host remove nqn.2014-08.com.example:db1",
            "RemoveHostRequest { nqn: \"nqn.2014-08.com.example:db1\" }",
        ),
        ("hook remove pager", "RemoveHookRequest { name: \"pager\" }"),
        ("hook test pager", "TestHookRequest { name: \"pager\" }"),
        ("config show", "GetConfigRequest"),
        (
            "array create tank --level 6 --drives /dev/null --overwrite --yes",
            "dry_run: false, overwrite: true",
        ),
        ("array replace tank --member 2 --with null:1GiB", "drive: \"null:1GiB\""),
        (
            "array add tank --drive /dev/null",
            "AddDriveRequest { name: \"tank\", drive: \"/dev/null\"",
        ),
        ("array import --degraded --accept-loss", "allow_degraded: true, accept_loss: true"),
        (
            "array unload tank --force",
            "UnloadArrayRequest { name: \"tank\", dry_run: false, force: true }",
        ),
        (
            "array destroy tank --yes",
            "DestroyArrayRequest { name: \"tank\", dry_run: false, force: false }",
        ),
        (
            "array destroy tank --dry-run",
            "DestroyArrayRequest { name: \"tank\", dry_run: true, force: false }",
        ),
        ("export create tank --via nbd --listen 127.0.0.1:10809 --read-only", "read_only: true"),
        ("export remove tank --force", "RemoveExportRequest { name: \"tank\", force: true }"),
        ("export release tank --yes", "ReleaseExportRequest { name: \"tank\" }"),
        (
            "export set tank --allow-host a --allow-host b --deny-host c --dry-run",
            "allow_hosts: [\"a\", \"b\"], deny_hosts: [\"c\"], dry_run: true",
        ),
        ("host disconnect a", "DisconnectHostRequest { nqn: \"a\" }"),
        ("drive show /dev/null", "GetDriveRequest { path: \"/dev/null\" }"),
        ("daemon stop", "StopDaemonRequest"),
    ];
    for (line, part) in cases {
        let ran = check("verbs", healthy(), line, 0);
        assert!(ran.heard.last().is_some_and(|h| h.contains(part)), "{line}: {:?}", ran.heard);
    }
}

/// Programs get errors in the format that they requested, and people may print less or other colours.
#[test]
fn options_of_every_command_change_only_the_output() {
    let json = check("json", healthy(), "array list --json", 0);
    assert_eq!(json.stdout, check("json", healthy(), "--output json array list", 0).stdout);
    assert!(json.stdout.starts_with('{'), "{}", json.stdout);
    let both = check("json", healthy(), "array list --json --output json", 0);
    assert_eq!(json.stdout, both.stdout);

    let quiet = check("quiet", healthy(), "array list -q", 0);
    assert_eq!((quiet.stdout.as_str(), quiet.stderr.as_str()), ("", ""));
    check("quiet", healthy(), "array show tank --quiet", 0);
    let waited = check("quiet", healthy(), "wait tank --for online --quiet", 0);
    assert_eq!((waited.stdout.as_str(), waited.stderr.as_str()), ("", ""));
    let secret = check("quiet", healthy(), "host add nqn.a --new-secret --quiet", 3);
    assert!(secret.stderr.contains("printed only once"), "{}", secret.stderr);

    let colored = |line: &str| check("color", healthy(), line, 0).stdout.contains('\x1b');
    assert!(colored("array list --color always"));
    assert!(!colored("array list --color never"));
    assert!(!colored("array list"), "a pipe is no terminal");

    for line in
        ["export show none --json", "array set --json", "array --output json list --nonsense"]
    {
        let failed = check("errors", healthy(), line, 3);
        let error: serde_json::Value = serde_json::from_str(&failed.stderr).expect(line);
        assert_eq!(error["error"]["exit_code"], 3, "{line}");
        assert!(error["error"]["message"].is_string() && failed.stdout.is_empty(), "{line}");
    }
    let failed = check("errors", healthy(), "export show none --json", 3);
    assert!(failed.stderr.contains("\"code\":\"NOT_FOUND\""), "{}", failed.stderr);
}

#[test]
fn what_loses_data_needs_yes_in_a_script() {
    let lines = [
        "array destroy tank",
        "array create tank --level 6 --drives /dev/null --overwrite",
        "array replace tank --member 2 --with /dev/null --overwrite",
        "array add tank --drive /dev/null --overwrite",
        "spare add /dev/null --overwrite",
        "drive clean /dev/null",
        "drive format /dev/null",
        "drive sanitize /dev/null --action block",
        "export release tank",
    ];
    for line in lines {
        let ran = check("yes", healthy(), line, 3);
        assert!(ran.stderr.contains("--yes"), "{line}: {}", ran.stderr);
        assert_eq!(ran.heard, [""; 0], "{line}: nothing was asked of the daemon");
        check("yes", healthy(), &format!("{line} --yes"), 0);
    }
}

/// An argument is there to be read by every user of the machine, so that no password may be one.
/// Keys of hosts come from files that are their owner's alone.
#[test]
fn a_key_of_a_host_comes_from_a_file_that_only_its_owner_may_read() {
    let folder = Folder::new("strake-cli-keys");
    let write = |name: &str, mode: u32| {
        let path = folder.join(name);
        std::fs::write(&path, format!("DHHC-1:00:{name}:\n")).expect("the folder is writable");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("it is ours");
        path.display().to_string()
    };
    let (own, other, open) = (write("own", 0o600), write("other", 0o400), write("open", 0o640));
    let add = "host add nqn.2014-08.com.example:db1 --secret-file";
    let line = format!("{add} {own} --controller-secret-file {other} --tls-key-file {own}");
    let ran = check("keys", healthy(), &line, 0);
    for part in [
        "secret: \"DHHC-1:00:own:\"",
        "controller_secret: \"DHHC-1:00:other:\"",
        "tls_key: \"DHHC-1:00:own:\"",
    ] {
        assert!(ran.heard.last().is_some_and(|h| h.contains(part)), "{part}: {:?}", ran.heard);
    }
    for option in ["", " --controller-secret-file", " --tls-key-file"] {
        let own = if option.is_empty() { "" } else { &own };
        let line = format!("{add} {own}{option} {open}");
        let ran = check("keys", healthy(), &line, 3);
        assert!(ran.stderr.contains("chmod 600"), "{line}: {}", ran.stderr);
        assert!(!ran.stderr.contains("DHHC"), "{line}: {}", ran.stderr);
        assert_eq!(ran.heard, [""; 0], "{line}: nothing was asked of the daemon");
    }
}

#[test]
fn a_secret_of_a_hook_comes_from_a_file_and_never_from_an_argument() {
    let folder = Folder::new("strake-cli-secrets");
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).expect("the folder is writable");
        path.display().to_string()
    };
    let url = write("url", "https://u:pa55@a.example/x\n");
    let server = write("server", "smtps://u:pa55@m:465\n");
    let mail = "hook add ops --email a@example.com --from b@example.com";
    let taken = [
        (format!("hook add pager --webhook-file {url}"), "target: \"https://u:pa55@a.example/x\""),
        (format!("{mail} --server-file {server}"), "server: \"smtps://u:pa55@m:465\""),
        ("hook add pager --webhook https://a.example/a@b".to_owned(), "https://a.example/a@b"),
    ];
    for (line, part) in taken {
        let ran = check("secrets", healthy(), &line, 0);
        assert!(ran.heard.last().is_some_and(|h| h.contains(part)), "{line}: {:?}", ran.heard);
    }
    let refused = [
        ("hook add pager --webhook https://u:pa55@a.example/x".to_owned(), "--webhook-file"),
        (format!("{mail} --server smtps://u:pa55@m:465"), "--server-file"),
        (format!("hook add pager --webhook-file {}", write("none", "\n")), "one line"),
        (format!("hook add pager --webhook-file {}", write("two", "http://a\npa55")), "one line"),
        (format!("hook add pager --webhook-file {}", write("long", &"a".repeat(5000))), "one line"),
        (format!("{mail} --server smtp://m:25 --server-file {server}"), "cannot be used with"),
    ];
    for (line, words) in refused {
        let ran = check("secrets", healthy(), &line, 3);
        assert!(
            ran.stderr.contains(words) && !ran.stderr.contains("pa55"),
            "{line}: {}",
            ran.stderr
        );
        assert_eq!(ran.heard, [""; 0], "{line}: nothing was asked of the daemon");
    }
    let served = Served::new("secrets", healthy());
    let mut child = served
        .command(&["hook", "add", "pager", "--webhook-file", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts");
    let mut input = child.stdin.take().expect("it is piped");
    input.write_all(b"https://u:pa55@a.example/x\n").expect("it is read");
    drop(input);
    assert!(child.wait().expect("it ends").success());
    assert!(served.heard().last().is_some_and(|h| h.contains("pa55@a.example")));
}

#[test]
fn errors_of_the_daemon_become_exit_codes() {
    let cases = [
        (Code::InvalidArgument, 3),
        (Code::NotFound, 3),
        (Code::AlreadyExists, 3),
        (Code::FailedPrecondition, 3),
        (Code::ResourceExhausted, 3),
        (Code::Aborted, 2),
        (Code::DataLoss, 2),
        (Code::Unavailable, 4),
        (Code::Unknown, 4),
        (Code::Internal, 4),
    ];
    for (code, exit) in cases {
        let script =
            Script { refusal: Some((code, "drive /x is a filesystem: wipe it")), ..healthy() };
        let ran = check("refused", script, "array add tank --drive /x", exit);
        assert_eq!(ran.stderr, "strake: drive /x is a filesystem: wipe it\n");
        assert_eq!(ran.stdout, "", "errors go to standard error only");
    }
}

#[test]
fn questions_about_health_end_with_it() {
    let states = [
        (vec!["online"], 0),
        (vec!["online", "initializing"], 0),
        (vec!["online", "degraded", "rebuilding"], 1),
        (vec!["online", "degraded", "no_redundancy"], 1),
        (vec!["offline"], 2),
        (vec!["online", "lost"], 2),
    ];
    for (states, code) in states {
        let script = Script { arrays: vec![array(&states, &["in_sync"; 4])], ..Script::default() };
        check("health", script, "array show tank", code);
    }
    for (health, code) in [("ok", 0), ("degraded", 1), ("failed", 2), ("something new", 4)] {
        let status = SystemStatus { health: health.into(), ..SystemStatus::default() };
        check("status", Script { status, ..Script::default() }, "status", code);
    }
}

#[test]
fn json_is_one_document_and_the_message_itself() {
    let ran = check("json", healthy(), "array show tank --output json", 0);
    let array: Array = serde_json::from_str(&ran.stdout).expect("one document");
    assert_eq!(array, healthy().arrays[0]);
    let watched =
        Script { arrays: [healthy().arrays, degraded().arrays].concat(), ..Script::default() };
    let ran = check("watch", watched, "array show tank --watch --output json", 1);
    let read =
        ran.stdout.lines().map(|l| serde_json::from_str::<Array>(l).expect("one document a line"));
    assert_eq!(read.count(), 2);
}

#[test]
fn wait_ends_when_the_goal_is_reached_or_cannot_be() {
    let rebuilding = || array(&["online", "degraded", "rebuilding"], &["in_sync", "rebuilding"]);
    let script = |arrays| Script { arrays, ..Script::default() };
    let online = || array(&["online"], &["in_sync", "in_sync"]);
    check("wait0", script(vec![rebuilding(), online()]), "wait tank --for rebuild", 0);
    check("wait1", script(vec![online()]), "wait tank --for healthy --timeout 10s", 0);
    check("wait2", script(vec![rebuilding(), array(&["lost"], &[])]), "wait tank --for healthy", 2);
    let ran = check("wait4", script(vec![rebuilding()]), "wait tank --for rebuild", 4);
    assert_eq!(ran.stderr.lines().next(), Some("tank: online degraded rebuilding"));
    check("wait5", script(vec![rebuilding()]), "wait tank --for resync", 0);
}

#[test]
fn misuse_is_3_and_help_is_0() {
    let folder = Folder::new("strake-cli-misuse");
    let misuse = [
        "",
        "arrey list",
        "array",
        "array create tank",
        "array create tank --level 6",
        "array create tank --level 6 --drives a --strip 64Q",
        "array create tank --level 6 --drives a --strip 9GiB",
        "array fail tank",
        "array fail tank --member -1",
        "array fail tank --member 4294967296",
        "wait tank --for glory",
        "array set tank",
        "array set tank --scrub-every 30",
        "array scrub",
        "array scrub start",
        "array scrub start tank --repair --trust-data",
        "array set tank --rebuild-priority 101",
        "array set tank --auto-readd maybe",
        "array fail tank --member 1 --accept everything",
        "hook add pager",
        "hook add ops --email a@example.com",
        "hook add ops --webhook https://a.example --exec /bin/true",
        "job set tank/rebuild --priority 101",
        "job set tank/rebuild",
        "wait tank --for rebuild --timeout soon",
        "export create tank --via smoke --listen x",
        "status --output xml",
        "completions klingon",
        "array create tank --level 6 --drives a --strip 0",
        "array create tank --level 6 --drives a,,b",
    ];
    // The socket is known here, and the usage does not show it as required.
    let served = Served::new("usage", healthy());
    let output = served.command(&["array", "delete", "tank"]).output().expect("strake runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("'destroy'") && !errors.contains("--socket"), "{errors}");
    for line in misuse {
        let ran = strake(&folder, &line.split_whitespace().collect::<Vec<_>>());
        assert_eq!(ran.code, 3, "{line:?}: {}", ran.stderr);
        assert_eq!(ran.stdout, "", "{line:?} prints to standard error");
    }
    for line in ["--help", "--version", "array create --help", "array --help"] {
        let ran = strake(&folder, &line.split_whitespace().collect::<Vec<_>>());
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{line}");
    }
}

#[test]
fn without_a_daemon_the_socket_and_the_remedy_are_named() {
    let folder = Folder::new("strake-cli-nodaemon");
    let ran = strake(&folder, &["status", "--socket", "/nowhere/s.sock"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (4, ""));
    assert!(ran.stderr.contains("/nowhere/s.sock: no such socket"), "{}", ran.stderr);
    assert!(ran.stderr.contains("strake daemon start"), "{}", ran.stderr);
    let file = folder.join("file");
    std::fs::write(&file, "").expect("writable");
    let ran = strake(&folder, &["status", "--socket", "file"]);
    assert_eq!(ran.code, 4);
    assert!(ran.stderr.contains("no process listens on it"), "{}", ran.stderr);
}

#[test]
fn the_usual_socket_is_where_straked_has_it() {
    let cases = [
        (true, Some("/run/user/0"), Some("/run/strake/straked.sock")),
        (true, None, Some("/run/strake/straked.sock")),
        (false, Some("/run/user/7"), Some("/run/user/7/strake/straked.sock")),
        (false, None, None),
    ];
    for (root, runtime, socket) in cases {
        let found = strake_cli::connect::socket_for(root, runtime.map(Into::into));
        assert_eq!(found.as_deref(), socket.map(std::path::Path::new));
    }
}

#[test]
fn a_word_that_is_a_device_and_a_file_is_not_guessed() {
    let folder = Folder::new("strake-cli-ambiguous");
    std::fs::write(folder.join("null"), "").expect("writable");
    let ran = strake(&folder, &["drive", "show", "null"]);
    assert_eq!(ran.code, 3);
    assert!(ran.stderr.contains("write /dev/null or ./null"), "{}", ran.stderr);
}

#[test]
fn completions_and_pages_cover_the_grammar() {
    let folder = Folder::new("strake-cli-pages");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = strake(&folder, &["completions", shell]);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
        let asks = ran.stdout.contains("_STRAKE_COMPLETE");
        assert_eq!(asks, shell != "powershell", "{shell}");
    }
    let ran = strake(&folder, &["man", "pages"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    for page in ["strake.1", "strake-array-create.1", "strake-wait.1", "strake-demo.1"] {
        let text = std::fs::read_to_string(folder.join("pages").join(page)).expect(page);
        assert!(text.starts_with(".ie") || text.starts_with(".TH"), "{page} is not a manual page");
    }
}
