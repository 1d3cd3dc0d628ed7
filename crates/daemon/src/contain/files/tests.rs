//! The rules of hosts, and their judgement.

use std::io;
use std::path::{Path, PathBuf};

use landlock::RulesetStatus;

use super::{Entered, Folders, Host, Places, Rules, SYSTEM, Writes, judge};

fn places(writes: &str, hooks: &str) -> Places {
    Places {
        own: vec!["/var/lib/strake".into(), "/run/strake".into()],
        writes: writes.parse().expect("it is valid"),
        hooks: hooks.parse().expect("it is valid"),
    }
}

fn paths(paths: &[&str]) -> Vec<PathBuf> {
    paths.iter().map(PathBuf::from).collect()
}

fn host() -> Host {
    let data = paths(&["/dev", "/home", "/mnt", "/proc", "/srv", "/var"]);
    let top = data.into_iter().chain(paths(&SYSTEM)).collect();
    Host { system: paths(&SYSTEM), top, always: paths(&["/dev", "/sys", "/tmp"]) }
}

/// A host without links, on which `/absent` does not exist.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    match path.starts_with("/absent") {
        true => Err(io::ErrorKind::NotFound.into()),
        false => Ok(path.to_owned()),
    }
}

fn rules(writes: &str, hooks: &str, host: &Host) -> Result<Rules, String> {
    places(writes, hooks).rules(host, resolve)
}

fn entered(status: RulesetStatus, left_out: &[&str]) -> Result<Entered, String> {
    Ok(Entered { status, left_out: paths(left_out) })
}

#[test]
fn folders_are_absolute_paths() {
    let folders = |text: &str| text.parse::<Folders>().map(|folders| folders.0);
    assert_eq!(folders("none"), Ok(vec![]));
    assert_eq!(folders("/srv,/mnt/a b"), Ok(vec!["/srv".into(), "/mnt/a b".into()]));
    for wrong in ["", "srv", "/srv,", "/srv, /mnt", "any"] {
        assert!(folders(wrong).is_err_and(|why| why.contains("no absolute path")), "{wrong:?}");
    }
    for text in ["any", "none", "/srv,/mnt"] {
        assert_eq!(text.parse::<Writes>().map(|writes| writes.to_string()), Ok(text.to_owned()));
    }
}

#[test]
fn no_system_folder_is_written_and_only_these_have_programs() {
    let rules = rules("any", "none", &host()).expect("every folder exists");
    let is_written = |path: &str| rules.written.iter().any(|at| at == Path::new(path));
    for path in ["/dev", "/home", "/mnt", "/srv", "/var", "/var/lib/strake", "/run/strake"] {
        assert!(is_written(path), "{path}");
    }
    for path in SYSTEM.iter().chain(&["/proc", "/"]) {
        assert!(!is_written(path), "{path}");
    }
    assert_eq!(rules.executed, paths(&SYSTEM));
    assert_eq!(rules.both(), paths(&[]));
}

#[test]
fn an_operator_can_limit_writes_and_name_folders_of_hooks() {
    let rules = rules("/srv/drives", "/srv/hooks", &host()).expect("every folder exists");
    let expected = ["/var/lib/strake", "/run/strake", "/dev", "/sys", "/tmp", "/srv/drives"];
    assert_eq!(rules.written, paths(&expected));
    assert!(rules.executed.contains(&"/srv/hooks".into()));
    let what = places("/srv/drives", "/srv/hooks").what(&rules, &host());
    assert!(what.contains("/srv/drives; programs") && what.contains("and /srv/hooks"), "{what}");
}

/// The history: a missing folder gave its nearest parent, which can be `/`, for writes.
#[test]
fn a_named_folder_that_does_not_exist_is_refused_with_its_option() {
    for (writes, hooks, option) in
        [("/absent", "none", "write-dirs"), ("any", "/absent/hooks", "hook-dirs")]
    {
        let why = rules(writes, hooks, &host()).expect_err("it does not exist");
        assert!(why.contains("/absent") && why.contains(option), "{why}");
        assert!(why.contains("create the folder"), "{why}");
    }
    let own = Places { own: paths(&["/absent/state"]), ..places("any", "none") };
    assert!(own.rules(&host(), resolve).is_err_and(|why| why.contains("state directory")));
}

#[test]
fn a_folder_with_a_system_folder_is_never_written() {
    for wrong in ["/", "/etc", "/usr", "/proc"] {
        let why = rules(wrong, "none", &host()).expect_err("it contains a system folder");
        let kind = if wrong == "/" { "contains the system folder" } else { "is a system folder" };
        assert!(why.contains(kind) && why.contains("write-dirs"), "{why}");
        let own = Places { own: paths(&[wrong]), ..places("any", "none") };
        assert!(own.rules(&host(), resolve).is_err(), "{wrong}");
    }
}

/// On these hosts, links in the root folder lead elsewhere.
#[test]
fn the_targets_of_links_count_and_not_their_names() {
    // The link /libx32 leads to /usr, and the links /opt and /usr/local lead below /var.
    let host = Host {
        system: paths(&["/etc", "/usr", "/var/opt", "/var/usrlocal"]),
        top: paths(&["/etc", "/", "/usr", "/usr/libx32", "/var", "/var/home", "/var/opt"]),
        always: paths(&["/dev", "/usr/tmp"]),
    };
    let any = rules("any", "none", &host).expect("every folder exists");
    assert_eq!(any.written, paths(&["/var/lib/strake", "/run/strake", "/var", "/var/home"]));
    assert_eq!(any.executed, host.system);
    // A rule for /var cannot leave out its folders with programs.
    assert_eq!(any.both(), paths(&["/var/opt", "/var/usrlocal"]));
    let none = rules("none", "none", &host).expect("every folder exists");
    assert_eq!(none.written, paths(&["/var/lib/strake", "/run/strake", "/dev"]));
    assert_eq!(none.both(), paths(&[]));
}

#[test]
fn this_host_has_system_folders_and_writes_none_of_them() {
    let host = Host::look().expect("the root folder can be read");
    assert!(host.system.contains(&"/usr".into()) && host.system.contains(&"/etc".into()));
    let places = Places { own: vec![], ..places("any", "none") };
    let rules = places.rules(&host, super::resolved).expect("no folder is named");
    for path in rules.written {
        assert!(!host.keeps(&path), "{}", path.display());
        assert_eq!(std::fs::canonicalize(&path).expect("it exists"), path);
    }
}

#[test]
fn a_folder_that_is_written_and_has_programs_is_reported_by_name() {
    let check = |own: &str, writes: &str, hooks: &str, want: &[&str]| {
        let places = Places { own: paths(&[own]), ..places(writes, hooks) };
        let both = places.rules(&host(), resolve).expect("every folder exists").both();
        assert_eq!(both, paths(want));
        let measures = judge("rules", &both, entered(RulesetStatus::FullyEnforced, &[]));
        let found = measures.iter().find(|measure| measure.name == "writable programs");
        assert_eq!(found.is_some(), !want.is_empty());
        for path in want {
            assert!(found.is_some_and(|found| found.what.contains(path)), "{path}");
        }
    };
    check("/var/lib/strake", "any", "none", &[]);
    check("/var/lib/strake", "any", "/home/me/hooks", &["/home/me/hooks"]);
    check("/var/lib/strake", "/srv", "/home/me/hooks", &[]);
    check("/opt/strake/state", "any", "none", &["/opt/strake/state"]);
    check("/var/lib/strake", "/opt/a,/srv", "/srv", &["/opt/a", "/srv"]);
}

#[test]
fn a_kernel_without_the_rules_is_reported() {
    for entered in [
        entered(RulesetStatus::NotEnforced, &[]),
        entered(RulesetStatus::PartiallyEnforced, &[]),
        Err("denied".to_owned()),
    ] {
        let measures = judge("rules", &[], entered);
        assert!(measures[0].remedy.as_ref().is_some_and(|text| text.contains("landlock")));
    }
    let full = judge("rules", &[], entered(RulesetStatus::FullyEnforced, &[]));
    assert!(matches!(full.as_slice(), [measure] if measure.remedy.is_none()));
}

#[test]
fn a_folder_that_cannot_be_opened_is_reported() {
    let measures = judge("rules", &[], entered(RulesetStatus::FullyEnforced, &["/srv"]));
    assert!(measures[0].what.contains("not /srv") && measures[0].remedy.is_some());
    let rules = Rules { written: paths(&["/absent"]), executed: paths(&["/absent/too"]) };
    // The rules hold for the thread that entered them.
    let entered =
        std::thread::spawn(move || super::restrict(&rules).map(|entered| entered.left_out));
    let left_out = entered.join().expect("it does not panic");
    assert!(left_out.is_err() || left_out == Ok(paths(&["/absent", "/absent/too"])));
}
