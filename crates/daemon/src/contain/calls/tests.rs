//! The filter, executed as the kernel executes it, and compared with the other two lists of calls.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use seccompiler::{BpfProgram, TargetArch};
use serde_json::Value;

use super::{FAMILIES, NAMESPACES, TERMINAL_INPUT, X32, denied, filters};

/// Architectures (`AUDIT_ARCH_*`, linux/audit.h).
const OWN: u32 = if cfg!(target_arch = "x86_64") { 0xc000_003e } else { 0xc000_00b7 };
const I386: u32 = 0x4000_0003;

/// Results of a filter (seccomp(2)).
const ALLOW: u32 = 0x7fff_0000;
const ERRNO: u32 = 0x0005_0000;
const KILL_PROCESS: u32 = 0x8000_0000;

/// A call as a filter sees it (`struct seccomp_data`, seccomp(2)).
struct Call {
    number: i64,
    architecture: u32,
    arguments: [u64; 6],
}

impl Call {
    /// Returns the word at a byte offset.
    fn word(&self, offset: u32) -> u32 {
        match offset {
            0 => self.number as u32,
            4 => self.architecture,
            16.. => {
                let argument = self.arguments[(offset as usize - 16) / 8];
                if offset.is_multiple_of(8) { argument as u32 } else { (argument >> 32) as u32 }
            }
            _ => panic!("no filter needs the instruction pointer"),
        }
    }
}

/// Executes a filter (classic BPF, linux/bpf_common.h).
fn execute(filter: &BpfProgram, call: &Call) -> u32 {
    let (mut accumulator, mut at) = (0, 0);
    loop {
        let instruction = &filter[at];
        let k = instruction.k;
        at += 1;
        let jump = match instruction.code {
            0x20 => {
                accumulator = call.word(k);
                continue;
            }
            0x54 => {
                accumulator &= k;
                continue;
            }
            0x06 => return k,
            0x05 => {
                at += k as usize;
                continue;
            }
            0x15 => accumulator == k,
            0x25 => accumulator > k,
            0x35 => accumulator >= k,
            code => panic!("instruction {code:#x} is not modelled"),
        };
        at += usize::from(if jump { instruction.jt } else { instruction.jf });
    }
}

/// Returns the result of all filters, of which the strictest counts (seccomp(2)).
fn result(number: i64, arguments: [u64; 6], architecture: u32) -> u32 {
    let own: TargetArch = std::env::consts::ARCH.try_into().expect("it is supported");
    let filters = filters(own).expect("they can be compiled");
    let call = Call { number, architecture, arguments };
    let results = filters.iter().map(|filter| execute(filter, &call));
    // Actions are signed numbers: the smallest is the strictest.
    results.min_by_key(|result| result.cast_signed()).expect("there are filters")
}

fn check(number: i64, arguments: [u64; 6], want: u32) {
    let found = result(number, arguments, OWN);
    assert_eq!(found, want, "call {number} with {arguments:x?}: {found:x} instead of {want:x}");
}

const DENIED: u32 = ERRNO | 1;

#[test]
fn every_call_of_the_table_is_denied_with_any_arguments() {
    for (_, number) in denied() {
        check(number, [0; 6], DENIED);
        check(number, [u64::MAX; 6], DENIED);
        if cfg!(target_arch = "x86_64") {
            check(number | X32, [0; 6], DENIED);
        }
    }
    check(libc::SYS_clone3, [0; 6], ERRNO | libc::ENOSYS as u32);
}

#[test]
fn calls_of_the_daemon_are_permitted() {
    for number in [
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
        libc::SYS_set_mempolicy,
        libc::SYS_sched_setaffinity,
        libc::SYS_openat,
        libc::SYS_openat2,
        libc::SYS_execve,
        libc::SYS_mmap,
        libc::SYS_landlock_restrict_self,
        libc::SYS_seccomp,
    ] {
        check(number, [0; 6], ALLOW);
    }
    // A thread: CLONE_VM and so on, without a namespace.
    check(libc::SYS_clone, [0x3d_0f00, 0, 0, 0, 0, 0], ALLOW);
    // NVMe admin command, and the size of a terminal.
    for request in [0xc048_4e41, 0x5413] {
        check(libc::SYS_ioctl, [3, request, 0, 0, 0, 0], ALLOW);
    }
    for family in FAMILIES {
        check(libc::SYS_socket, [family as u64, 1, 0, 0, 0, 0], ALLOW);
    }
}

#[test]
fn some_calls_are_denied_with_some_arguments() {
    for flag in NAMESPACES {
        let flag = u64::from(flag.cast_unsigned());
        check(libc::SYS_clone, [flag | 17, 0, 0, 0, 0, 0], DENIED);
        // The kernel ignores the upper half.
        check(libc::SYS_clone, [flag | 1 << 40, 0, 0, 0, 0, 0], DENIED);
    }
    for request in TERMINAL_INPUT {
        check(libc::SYS_ioctl, [0, request, 0, 0, 0, 0], DENIED);
        check(libc::SYS_ioctl, [0, request | 1 << 32, 0, 0, 0, 0], DENIED);
    }
    for family in [libc::AF_PACKET, libc::AF_ALG, libc::AF_VSOCK, libc::AF_BLUETOOTH] {
        check(libc::SYS_socket, [family as u64, 3, 0, 0, 0, 0], DENIED);
    }
}

/// The numbers of another architecture have another meaning.
#[test]
fn calls_of_another_architecture_end_the_process() {
    assert_eq!(result(libc::SYS_openat, [0; 6], I386), KILL_PROCESS);
}

fn read(file: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(root.join(file)).expect("the package has this file")
}

fn names() -> BTreeSet<&'static str> {
    denied().map(|(name, _)| name).collect()
}

#[test]
fn the_container_permits_no_denied_call() {
    let profile: Value = serde_json::from_str(&read("packaging/container/seccomp.json")).unwrap();
    assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
    let mut permitted = BTreeSet::new();
    let mut clone = None;
    for entry in profile["syscalls"].as_array().expect("it is a list") {
        let named = entry["names"].as_array().expect("it is a list").iter();
        let named: Vec<&str> = named.filter_map(Value::as_str).collect();
        match (entry["action"].as_str().expect("it is a text"), named.as_slice()) {
            ("SCMP_ACT_ALLOW", ["clone"]) => clone = entry["args"][0]["value"].as_u64(),
            ("SCMP_ACT_ALLOW", all) => permitted.extend(all.iter().map(ToString::to_string)),
            (_, names) => assert_eq!((names, &entry["errnoRet"]), (&["clone3"][..], &38.into())),
        }
    }
    let mask = NAMESPACES.iter().fold(0, |mask, flag| mask | u64::from(flag.cast_unsigned()));
    assert_eq!(clone, Some(mask), "namespaces of clone");
    let both: Vec<_> = names().into_iter().filter(|name| permitted.contains(*name)).collect();
    assert_eq!(both, [""; 0], "denied by the daemon, and permitted by the profile");
    for own in ["seccomp", "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"]
    {
        assert!(permitted.contains(own), "the daemon contains itself with {own}");
    }
}

/// Returns the calls of the lines `SystemCallFilter=`, with `~` before denied ones.
fn of_unit() -> Vec<String> {
    let unit = read("packaging/straked.service");
    let lines = unit.lines().filter_map(|line| line.strip_prefix("SystemCallFilter="));
    let words = lines.flat_map(|line| {
        let (sign, words) = line.strip_prefix('~').map_or(("", line), |words| ("~", words));
        words.split_whitespace().map(move |word| format!("{sign}{word}"))
    });
    words.collect()
}

/// Returns the calls of a set of systemd and of the sets in it.
fn expand(text: &str, set: &str) -> BTreeSet<String> {
    let section = text.lines().skip_while(|line| *line != set).skip(1);
    let section = section.take_while(|line| !line.starts_with('@'));
    let calls = section.map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    calls
        .flat_map(|call| match call.strip_prefix('@') {
            Some(_) => expand(text, call),
            None => [call.to_owned()].into(),
        })
        .collect()
}

#[test]
fn the_unit_permits_no_denied_call() {
    let all = names();
    let lines = of_unit();
    for word in lines.iter().filter_map(|word| word.strip_prefix('~')) {
        assert!(word.starts_with('@') || all.contains(word), "{word} is not in the table");
    }
    let Ok(made) = Command::new("systemd-analyze").arg("syscall-filter").output() else {
        eprintln!("skipped in part: systemd-analyze is not installed");
        return;
    };
    let sets = String::from_utf8(made.stdout).expect("it is text");
    let mut permitted = BTreeSet::new();
    for word in &lines {
        let (denies, word) = word.strip_prefix('~').map_or((false, &**word), |w| (true, w));
        let calls = match word.starts_with('@') {
            true => expand(&sets, word),
            false => [word.to_owned()].into(),
        };
        match denies {
            true => permitted.retain(|call| !calls.contains(call)),
            false => permitted.extend(calls),
        }
    }
    assert!(permitted.contains("io_uring_enter") && permitted.contains("landlock_add_rule"));
    let both: Vec<_> = all.into_iter().filter(|name| permitted.contains(*name)).collect();
    assert_eq!(both, [""; 0], "denied by the daemon, and permitted by the unit");
}
