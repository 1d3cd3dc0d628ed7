use crate::access::{Admission, Groups, group_in, groups_in};
use crate::again::{command, unit};
use crate::args::Args;
use crate::process::cpu_ticks;
use crate::run::control_threads;
use crate::shared::{COMMANDS_MAX, Shared, check_drives, check_text, is_device, status_of};
use crate::socket::{bind, listen};
use clap::{CommandFactory, Parser};
use prost::Message as _;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};
use std::time::Duration;
use strake_api::limits::ERROR_DETAIL_KEY;
use strake_api::v1::{ArrayChange, ErrorDetail, UnloadArrayRequest};
use strake_control::{Control, ControlError, ControlErrorKind, Options, Role};
use strake_wording::{replace, say};
use tonic::Code;

#[test]
fn the_command_line_is_consistent() {
    Args::command().debug_assert();
    let args = Args::try_parse_from(["straked", "--cores", "0,1", "--assemble-timeout", "never"])
        .expect("it is fine");
    assert_eq!(args.assemble_timeout.0, None);
    assert!(Args::try_parse_from(["straked", "--cores", "x"]).is_err());
}

#[test]
fn the_command_that_starts_it_again_names_the_state_directory_and_all_that_was_given() {
    let check = |arguments: &[&str], variables: &[(&str, &str)], want: &str| {
        let arguments: Vec<OsString> = arguments.iter().map(Into::into).collect();
        let variables: Vec<_> = variables.iter().map(|(name, to)| (*name, to.into())).collect();
        let (socket, state) = (Path::new("/run/s.sock"), Path::new("/srv/my state"));
        assert_eq!(command(socket, state, &arguments, &variables), want);
    };
    let base = "--socket /run/s.sock --state-dir '/srv/my state'";
    check(&[], &[], &format!("strake daemon start {base}"));
    let cores = ["--state-dir", "other", "--cores=2,3", "--socket=there"];
    check(&cores, &[], &format!("strake daemon start {base} --cores 2,3"));
    let more = ["--cores", "auto", "--assemble-timeout", "never", "--log=json"];
    let all = format!("straked {base} --cores auto --assemble-timeout never --log=json");
    check(&more, &[], &all);
    // The command may be executed in another folder.
    let config = std::path::absolute("rel.toml").expect("there is a folder");
    let config = format!("straked {base} --config {}", config.display());
    check(&["--config", "rel.toml"], &[], &config);
    check(&["--config=rel.toml"], &[], &config);
    let metrics = format!("STRAKE_METRICS='unix:/it'\\''s' straked {base}");
    check(&[], &[("STRAKE_METRICS", "unix:/it's")], &metrics);
}

#[test]
fn the_unit_is_found_in_the_control_groups() {
    let check = |cgroups: &str, want: Option<&str>| assert_eq!(unit(cgroups).as_deref(), want);
    check("0::/system.slice/straked.service\n", Some("straked.service"));
    let hybrid = "4:memory:/system.slice/a.service\n1:name=systemd:/system.slice/a.service\n0::/\n";
    check(hybrid, Some("a.service"));
    check("0::/user.slice/user-0.slice/session-1.scope\n", None);
    check("", None);
}

#[test]
fn the_highest_role_of_the_groups_counts() {
    use Role::{Admin, Operator, Viewer};
    let groups = Groups { operators: Some(60), viewers: Some(70) };
    let check = |others: Groups, uid, groups: &[u32], role| {
        let admission = Admission { admins: 50, others };
        assert_eq!(admission.role(uid, groups, 1000), role, "user {uid}, groups {groups:?}");
    };
    for others in [groups, Groups::default()] {
        check(others, 0, &[0], Some(Admin));
        check(others, 1000, &[7], Some(Admin));
        check(others, 1001, &[4, 50, 7], Some(Admin));
        check(others, 1001, &[70, 60, 50], Some(Admin));
        check(others, 1001, &[7], None);
        check(others, 1001, &[], None);
    }
    check(groups, 1001, &[70, 60], Some(Operator));
    check(groups, 1001, &[7, 70], Some(Viewer));
    check(Groups::default(), 1001, &[60, 70], None);
    let modes = [Groups::default(), groups, Groups { operators: None, viewers: Some(70) }];
    assert_eq!(modes.map(|groups| groups.mode()), [0o660, 0o666, 0o666]);
}

#[test]
fn groups_are_named_or_numbered() {
    let text = "root:x:0:\nstrake:x:990:ann,bob\nstrake-viewer:*:991:\nbroken\nbroken2:x\n";
    assert_eq!(group_in(text, "strake"), Some(990));
    assert_eq!(group_in(text, "strake-viewer"), Some(991));
    for name in ["", "ann", "broken", "broken2", "stra"] {
        assert_eq!(group_in(text, name), None, "{name}");
    }
    let groups = Groups::of(Some("4711"), None).expect("a number needs no name");
    assert_eq!((groups.operators, groups.viewers), (Some(4711), None));
    let why = Groups::of(None, Some("no such group")).expect_err("there is none");
    assert!(why.contains("no group no such group") && why.contains("create it first"), "{why}");
}

/// History: members of the group `strake` were refused unless it was their effective group.
#[test]
fn supplementary_groups_count_for_their_own_user_only() {
    let status = "Name:\tstrake\nUid:\t7\t1001\t7\t7\nGid:\t9\t9\t9\t9\nGroups:\t4 50 1001 \n";
    assert_eq!(groups_in(status, 1001), [4, 50, 1001]);
    assert_eq!(groups_in(status, 7), [0; 0], "the effective user counts");
    assert_eq!(groups_in("Uid:\t1\t1\t1\t1\nGroups:\t\n", 1), [0; 0]);
    assert_eq!(groups_in("", 0), [0; 0]);
}

#[test]
fn the_command_name_does_not_confuse_processor_time() {
    let stat = "1 (a) b) c) S 2 3 4 5 6 7 8 9 10 11 120 30 0 0 20 0";
    assert_eq!(cpu_ticks(stat), Some(150));
    assert_eq!(cpu_ticks("nonsense"), None);
}

#[test]
fn every_kind_of_error_has_its_status() {
    let check = |kind, code| {
        assert_eq!(status_of(&ControlError::new(kind, "why")).code(), code, "{kind:?}")
    };
    check(ControlErrorKind::Usage, Code::InvalidArgument);
    check(ControlErrorKind::NotFound, Code::NotFound);
    check(ControlErrorKind::Exists, Code::AlreadyExists);
    check(ControlErrorKind::State, Code::FailedPrecondition);
    check(ControlErrorKind::Refused, Code::FailedPrecondition);
    check(ControlErrorKind::Device, Code::Aborted);
    check(ControlErrorKind::Store, Code::ResourceExhausted);
    check(ControlErrorKind::Stopped, Code::Unavailable);
}

/// A client that does not format requests receives the whole message. A client that formats them receives its parts.
#[test]
fn an_error_that_names_a_request_carries_it_as_data() {
    let text = say("it is old; ").run(replace("tank", Some(1), ""));
    let status = status_of(&ControlError::new(ControlErrorKind::State, text.clone()));
    assert_eq!(status.message(), "it is old; strake array replace tank --member 1 --with DRIVE");
    let detail = status.metadata().get_bin(ERROR_DETAIL_KEY).expect("it has a detail");
    let detail = ErrorDetail::decode(detail.to_bytes().expect("it is base64"));
    assert_eq!(detail.expect("it is one").parts, text.parts);
    // In the details, a client that knows only `google.rpc.Status` would lose the code.
    assert!(status.details().is_empty());
    let long = say("x".repeat(9 << 10)).run(replace("tank", Some(1), ""));
    let long = status_of(&ControlError::new(ControlErrorKind::State, long));
    assert!(long.metadata().is_empty() && long.message().ends_with("DRIVE"), "{long:?}");
    let plain = status_of(&ControlError::new(ControlErrorKind::State, "wait"));
    assert!(plain.message() == "wait" && plain.metadata().is_empty(), "{plain:?}");
}

#[test]
fn files_are_distinguished_from_devices_by_their_names() {
    let devices = ["", "/dev/nvme3n1", "/dev/disk/by-id/x", "pci:0000:01:00.0"];
    let files = [
        "/srv/d",
        "/dev/shm/d",
        "/dev//shm/d",
        "/dev/./shm/d",
        "/dev/../srv/d",
        "/dev/fd/3",
        "/dev/",
        "/",
        "./d",
        "../d",
        "/devices",
        "ram:1GiB",
        "null:1TiB",
        "nvme-tcp://evil/nqn",
        "home/x",
    ];
    devices.iter().for_each(|name| assert!(is_device(name), "{name}"));
    files.iter().for_each(|name| assert!(!is_device(name), "{name}"));
}

#[test]
fn requests_beyond_the_limits_are_refused() {
    assert!(check_text("name", &"x".repeat(4096)).is_ok());
    assert!(check_text("name", &"x".repeat(4097)).is_err());
    assert!(check_drives(&vec![String::new(); 256]).is_ok());
    assert!(check_drives(&vec![String::new(); 257]).is_err());
}

#[tokio::test]
async fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
    let dir: PathBuf = std::env::temp_dir().join(format!("straked-test-{}", std::process::id()));
    let path = dir.join("sock");
    std::fs::create_dir_all(&dir).expect("it can be made");
    let bound = bind(&path, 0o660).expect("the path is free");
    let mode = std::fs::metadata(&path).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o660, "before anybody can connect");
    let early = std::os::unix::net::UnixStream::connect(&path).expect_err("nobody listens");
    assert_eq!(early.kind(), std::io::ErrorKind::ConnectionRefused);
    drop(bound);
    let (listener, guard) =
        listen(&path, "--socket", Groups::default()).expect("nobody listens there");
    let mode = std::fs::metadata(&path).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o660, "others than its owner and group are kept out");
    assert!(
        listen(&path, "--socket", Groups::default())
            .err()
            .is_some_and(|why| why.contains("answers"))
    );
    drop(listener);
    drop(guard);
    // A listener without a guard does not remove its path, like a killed daemon.
    drop(std::os::unix::net::UnixListener::bind(&path).expect("the path is free"));
    let (_listener, guard) =
        listen(&path, "--socket", Groups::default()).expect("the socket is stale");
    drop(guard);
    assert!(!path.exists());
    std::fs::write(&path, b"precious").expect("it can be written");
    assert!(
        listen(&path, "--socket", Groups::default())
            .err()
            .is_some_and(|why| why.contains("not a socket"))
    );
    std::fs::remove_dir_all(&dir).expect("it can be removed");
}

/// History: sixteen commands that waited for each other's reservations used all threads. Neither `status` nor the stop
/// was answered before they ended.
#[test]
fn commands_that_wait_leave_threads_to_queries() {
    let state = std::env::temp_dir().join(format!("strake-daemon-{}", std::process::id()));
    let control = Control::start(&state, Options::default()).expect("it starts");
    let shared = Shared::new(control.clone(), "/nowhere");
    let runtime = control_threads().expect("there are threads");
    let gate = Arc::new(RwLock::new(()));
    let closed = gate.write().expect("nobody panicked");
    let commands: Vec<_> = (0..4 * COMMANDS_MAX)
        .map(|_| {
            let (shared, gate) = (shared.clone(), Arc::clone(&gate));
            runtime.spawn(async move {
                let wait = move |_: &Control, _: &UnloadArrayRequest| {
                    drop(gate.read());
                    Ok(ArrayChange::default())
                };
                shared.command(tonic::Request::new(UnloadArrayRequest::default()), wait).await
            })
        })
        .collect();
    runtime.block_on(async {
        let look = shared.run(|m| Ok(m.arrays().len()));
        let looked = tokio::time::timeout(Duration::from_secs(60), look).await;
        assert_eq!(looked.expect("it is answered while they wait").expect("it answers"), 0);
    });
    drop(closed);
    for command in commands {
        let done = runtime.block_on(command).expect("no panic");
        done.expect("each has its turn");
    }
    assert!(control.stop().is_empty());
    drop((shared, control));
    std::fs::remove_dir_all(&state).expect("it can be removed");
}
