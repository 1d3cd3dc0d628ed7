//! System calls that this process never makes, and that would help an attacker who controls the process.
//!
//! The filter lists denied calls and not permitted ones: hooks inherit it and may be any program, and io_uring must be
//! permitted in any case. [`ON_EVERY_ARCHITECTURE`] is the table. Tests compare it with the filter of the systemd unit
//! and with the seccomp profile of the container.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch, apply_filter_all_threads,
};
use strake_control::Measure;

/// The name of the measure.
const NAME: &str = "system calls";

/// Pairs of the name, with a prefix, and the number of a call on this architecture.
macro_rules! calls {
    ($($name:ident)*) => { &[$((stringify!($name), libc::$name)),*] };
}

/// The prefix of the names in the tables.
const PREFIX: &str = "SYS_";

/// Calls that are denied with any arguments.
const ON_EVERY_ARCHITECTURE: &[(&str, libc::c_long)] = calls! {
    // Memory, descriptors and state of other processes.
    SYS_ptrace SYS_process_vm_readv SYS_process_vm_writev SYS_process_madvise SYS_pidfd_getfd SYS_kcmp
    SYS_move_pages SYS_migrate_pages SYS_perf_event_open
    // The running kernel.
    SYS_kexec_load SYS_kexec_file_load SYS_init_module SYS_finit_module SYS_delete_module SYS_bpf SYS_userfaultfd
    SYS_personality SYS_lookup_dcookie SYS_nfsservctl SYS_syslog SYS_reboot
    // File systems and their quotas, and files by other means than their names.
    SYS_mount SYS_umount2 SYS_pivot_root SYS_chroot SYS_open_tree SYS_move_mount SYS_fsopen SYS_fsconfig SYS_fsmount
    SYS_fspick SYS_mount_setattr SYS_open_by_handle_at SYS_swapon SYS_swapoff SYS_quotactl SYS_quotactl_fd
    SYS_fanotify_init SYS_acct
    // Namespaces.
    SYS_unshare SYS_setns
    // Keys of the kernel.
    SYS_add_key SYS_request_key SYS_keyctl
    // Clocks, names and the terminal of the host.
    SYS_settimeofday SYS_clock_settime SYS_clock_adjtime SYS_adjtimex SYS_sethostname SYS_setdomainname SYS_vhangup
};

/// Calls that the library `libc` does not name on every architecture. Their numbers are the same on all
/// (asm-generic/unistd.h).
const WITHOUT_NAME: &[(&str, libc::c_long)] = &[("SYS_open_tree_attr", 467)];

/// Further calls of x86.
#[cfg(target_arch = "x86_64")]
const ON_THIS_ARCHITECTURE: &[(&str, libc::c_long)] = calls! {
    SYS_iopl SYS_ioperm SYS_modify_ldt SYS_uselib SYS__sysctl SYS_ustat SYS_sysfs
};
#[cfg(not(target_arch = "x86_64"))]
const ON_THIS_ARCHITECTURE: &[(&str, libc::c_long)] = &[];

/// Returns the names and the numbers of the calls that are denied with any arguments.
fn denied() -> impl Iterator<Item = (&'static str, i64)> {
    let all = ON_EVERY_ARCHITECTURE.iter().chain(WITHOUT_NAME).chain(ON_THIS_ARCHITECTURE);
    all.map(|(name, number)| (name.trim_start_matches(PREFIX), *number))
}

/// The bit of the numbers of calls with 32-bit pointers on x86-64 (`__X32_SYSCALL_BIT`, asm/unistd.h).
const X32: i64 = 0x4000_0000;

/// Denied calls with their own numbers in the x32 table (syscall_64.tbl): ptrace, kexec_load, move_pages,
/// process_vm_readv and process_vm_writev.
const X32_DENIED: [i64; 5] = [521, 528, 533, 539, 540];

/// The number of ioctl in the x32 table.
const X32_IOCTL: i64 = 514;

/// Flags of clone that create namespaces (clone(2)).
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// Families of sockets that are permitted. The resolver of the C library uses `AF_NETLINK`.
const FAMILIES: [i32; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// Requests that put characters into the input of a terminal (`TIOCSTI`, `TIOCLINUX`, ioctl_tty(2)).
const TERMINAL_INPUT: [u64; 2] = [0x5412, 0x541c];

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// A rule that holds if each of `conditions` holds for argument `number`.
fn rule(
    number: u8,
    conditions: impl IntoIterator<Item = (SeccompCmpOp, u64)>,
) -> Result<SeccompRule, Error> {
    let conditions = conditions.into_iter().map(|(compares, value)| {
        SeccompCondition::new(number, SeccompCmpArgLen::Dword, compares, value)
    });
    Ok(SeccompRule::new(conditions.collect::<Result<_, _>>()?)?)
}

/// Returns the rules of calls that are denied with some arguments.
fn of_arguments() -> Result<Rules, Error> {
    let namespaces = NAMESPACES.iter().map(|flag| {
        let flag = u64::from(flag.cast_unsigned());
        rule(0, [(SeccompCmpOp::MaskedEq(flag), flag)])
    });
    let namespaces: Vec<SeccompRule> = namespaces.collect::<Result<_, _>>()?;
    let families =
        FAMILIES.iter().map(|family| (SeccompCmpOp::Ne, u64::from(family.cast_unsigned())));
    let families = vec![rule(0, families)?];
    let input = TERMINAL_INPUT.iter().map(|request| rule(1, [(SeccompCmpOp::Eq, *request)]));
    let input: Vec<SeccompRule> = input.collect::<Result<_, _>>()?;
    let mut rules = Rules::new();
    for (number, of_x32, rule) in [
        (libc::SYS_clone, libc::SYS_clone, namespaces),
        (libc::SYS_socket, libc::SYS_socket, families),
        (libc::SYS_ioctl, X32_IOCTL, input),
    ] {
        if cfg!(target_arch = "x86_64") {
            rules.insert(of_x32 | X32, rule.clone());
        }
        rules.insert(number, rule);
    }
    Ok(rules)
}

/// Returns the numbers of `call`, which has the same number in both tables of x86-64.
fn in_both_tables(call: i64) -> impl Iterator<Item = i64> {
    [call].into_iter().chain(cfg!(target_arch = "x86_64").then_some(call | X32))
}

/// Returns the filters: calls that fail with `EPERM`, and calls that fail as on a kernel without them.
fn filters(architecture: TargetArch) -> Result<[BpfProgram; 2], Error> {
    let mut rules = of_arguments()?;
    rules.extend(denied().flat_map(|(_, number)| in_both_tables(number)).map(|n| (n, Vec::new())));
    if cfg!(target_arch = "x86_64") {
        rules.extend(X32_DENIED.map(|number| (number | X32, Vec::new())));
    }
    // A filter cannot read the flags of clone3, which are in memory. Without the call, the C library calls clone.
    let absent = in_both_tables(libc::SYS_clone3).map(|number| (number, Vec::new())).collect();
    let filter = |rules, errno: i32| -> Result<BpfProgram, Error> {
        let fails = SeccompAction::Errno(errno.cast_unsigned());
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, fails, architecture)?;
        Ok(filter.try_into()?)
    };
    Ok([filter(rules, libc::EPERM)?, filter(absent, libc::ENOSYS)?])
}

/// Denies the calls to every thread of this process and to its child processes. If the kernel has no such filters, or a
/// container refuses them, this is the result.
pub fn enter() -> Measure {
    let entered = || -> Result<(), Error> {
        let architecture = std::env::consts::ARCH.try_into()?;
        filters(architecture)?.iter().try_for_each(|filter| apply_filter_all_threads(filter))
    };
    match entered() {
        Ok(()) => {
            let what = format!(
                "{} that the daemon never needs are denied, among them ptrace, mount, bpf and new namespaces",
                denied().count()
            );
            Measure::in_force(NAME, what)
        }
        Err(error) => Measure::absent(
            NAME,
            format!("not filtered: {error}"),
            "use a kernel with CONFIG_SECCOMP_FILTER, and permit the call seccomp in the container",
        ),
    }
}

#[cfg(test)]
mod tests;
