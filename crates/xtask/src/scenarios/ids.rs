//! Every scenario that the project owes an answer: the failure matrix, the known bugs of others, faults of NVMe
//! controllers, input over NVMe/TCP that broke others, and mdadm's tests.
//!
//! The list is code and not part of the catalogue, so that no scenario is lost by deleting its row.

/// Rows of the failure matrix: F01 to F44.
const FAILURES: u32 = 44;
/// Known bugs of other projects: B01 to B30.
const BUGS: u32 = 30;

/// Faults of NVMe controllers that are driven from user space: D01 to D33.
const DRIVES: u32 = 33;

/// Scenarios of mdadm's own test suite, by their names there. A name that stands for a family of files there
/// (`05r1-add-internalbitmap*` is one test for each metadata version) is one scenario here.
const MDADM: &[&str] = &[
    "00raid0",
    "00raid1",
    "00raid4",
    "00raid5",
    "00raid5-zero",
    "00raid6",
    "00raid10",
    "00linear",
    "00names",
    "00createnames",
    "00readonly",
    "01r1fail",
    "01r5fail",
    "01r5integ",
    "01raid6integ",
    "01replace",
    "02r1add",
    "02r1grow",
    "02r5grow",
    "02r6grow",
    "02lineargrow",
    "03assem-incr",
    "03r0assem",
    "03r5assem",
    "03r5assemV1",
    "04update-uuid",
    "04update-metadata",
    "04r5swap",
    "07autoassemble",
    "05r1-re-add",
    "05r1-re-add-nosuper",
    "05r1-add-internalbitmap",
    "05r1-remove-internalbitmap",
    "05r1-grow-internalbitmap",
    "05r5-internalbitmap",
    "05r1-failfast",
    "05r1-add-badblocks",
    "05r6tor0",
    "07changelevels",
    "07changelevelintr",
    "07layouts",
    "07reshape5intr",
    "07revert-grow",
    "07revert-shrink",
    "07revert-inplace",
    "07testreshape5",
    "imsm-migrate",
    "imsm-takeover",
    "imsm-grow",
    "imsm-olce",
    "10ddf-create-fail-rebuild",
    "10ddf-fail-create-race",
    "10ddf-fail-readd",
    "10ddf-fail-readd-readonly",
    "10ddf-fail-spare",
    "10ddf-fail-stop-readd",
    "10ddf-fail-twice",
    "10ddf-fail-two-spares",
    "10ddf-incremental-wrong-order",
    "10ddf-sudden-degraded",
    "10ddf-assemble-missing",
    "11spare-migration",
    "19raid6check",
    "19raid6repair",
    "19raid6auto-repair",
    "19repair-does-not-destroy",
    "20raid5journal",
    "21raid5cache",
    "23rdev-lifetime",
    "24raid10deadlock",
    "24raid456deadlock",
    "25raid456-recovery-while-reshape",
    "25raid456-reshape-corrupt-data",
    "25raid456-reshape-deadlock",
    "25raid456-reshape-while-recovery",
];

/// Input over NVMe/TCP that broke other targets and hosts, by the names it is known under.
const BAD_INPUT: &[&str] = &[
    "CVE-2022-50717",
    "CVE-2023-6356",
    "CVE-2023-52454",
    "CVE-2023-6535",
    "CVE-2023-6536",
    "CVE-2023-6121",
    "CVE-2023-5178",
    "CVE-2026-22998",
    "CVE-2026-23112",
    "CVE-2026-64534",
    "nvmet-cb8563f5",
    "CVE-2025-21927",
    "CVE-2024-53169",
    "nvmet-auth",
    "CVE-2025-57275",
    "SPDK-f513182217",
    "SPDK-7a2a588c62",
    "SPDK-8d1c4f74d4",
    "SPDK-6b372f419d",
    "SPDK-acc4d1766c",
    "SPDK-414f91a0c7",
    "SPDK-9e3d841d3e",
    "CVE-2021-28361",
];

/// Every scenario, in the order of the catalogue.
pub fn all() -> Vec<String> {
    let failures = (1..=FAILURES).map(|n| format!("F{n:02}"));
    let bugs = (1..=BUGS).map(|n| format!("B{n:02}"));
    let drives = (1..=DRIVES).map(|n| format!("D{n:02}"));
    let named = BAD_INPUT.iter().chain(MDADM).map(ToString::to_string);
    failures.chain(bugs).chain(drives).chain(named).collect()
}

/// How the name of a test of `id` begins: `f15`, `b04`, `md_05r1_re_add`.
pub fn test_prefix(id: &str) -> String {
    let plain = id.to_lowercase().replace('-', "_");
    if MDADM.contains(&id) { format!("md_{plain}") } else { plain }
}

/// The scenarios that a test is named after, one after the other: `b06_f16_...` shows both. Of several that fit it is
/// the one with the longest prefix, so that `md_05r1_re_add_nosuper` is not taken for a test of `05r1-re-add`.
pub fn named_after<'a>(function: &str, ids: &'a [String]) -> Vec<&'a str> {
    let mut named = Vec::new();
    let mut rest = function;
    while let Some((id, behind)) = first_named(rest, ids) {
        named.push(id);
        rest = behind;
    }
    named
}

/// The scenario a name begins with, and what follows it.
fn first_named<'a, 'n>(name: &'n str, ids: &'a [String]) -> Option<(&'a str, &'n str)> {
    let fits = |id: &'a String| {
        let rest = name.strip_prefix(&test_prefix(id))?;
        let behind = if rest.is_empty() { Some(rest) } else { rest.strip_prefix('_') };
        behind.map(|behind| (id.as_str(), behind))
    };
    ids.iter().filter_map(fits).max_by_key(|(id, _)| id.len())
}
