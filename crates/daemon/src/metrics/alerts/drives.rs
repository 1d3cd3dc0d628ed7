//! Alerts about drives, paths to remote drives, and spares.

use strake_api::v1::{GetDriveHealthRequest, ListDrivesRequest, ListEventsRequest};
use strake_wording::{Text, say, show};

use super::{ARRAY, Alert, COUNTED, LOWERED, PRESENT, RAISED, Severity, Trial};

const DRIVE: &[(&str, &str)] = &[("drive", "nvme-tcp://t/nqn.a")];

const PATH: &[(&str, &str)] = &[("drive", "nvme-tcp://t/nqn.a"), ("path", "nvme-tcp://u/nqn.a")];

/// The path of the drive in the labels of the alert.
const DRIVE_LABEL: &str = "{{ $labels.drive }}";

fn smart(path: &str) -> GetDriveHealthRequest {
    GetDriveHealthRequest { path: path.to_owned() }
}

fn see_drives() -> Text {
    say("States of all drives: ").run(ListDrivesRequest {})
}

pub const ALERTS: &[Alert] = &[
    Alert {
        name: "StrakeDriveFailed",
        severity: Severity::Warning,
        expr: r#"strake_drive_state{state="failed"} == 1"#,
        hold: "0s",
        summary: "Drive {{ $labels.drive }} failed",
        meaning: "The drive is out of use, or a recorded drive is not connected.",
        remedy: see_drives,
        trial: Trial {
            series: &[(r#"strake_drive_state{drive="/dev/sda",state="failed"}"#, PRESENT)],
            fires: "6m",
            resolved: "11m",
            labels: &[("drive", "/dev/sda"), ("state", "failed")],
            value: "1",
        },
    },
    Alert {
        name: "StrakeDriveErrors",
        severity: Severity::Warning,
        expr: r#"increase(strake_drive_errors_total{reason=~"medium|timeout|device"}[1h]) > 0"#,
        hold: "0s",
        summary: "Drive {{ $labels.drive }} has errors ({{ $labels.reason }})",
        meaning: "The drive failed requests in the last hour. A drive with repeated errors should be replaced.",
        remedy: || {
            say("Check the drive and its cables. ")
                .then(see_drives())
                .say(", and the events: ")
                .run(ListEventsRequest::default())
        },
        trial: Trial {
            series: &[(r#"strake_drive_errors_total{drive="/dev/sda",reason="medium"}"#, COUNTED)],
            fires: "6m",
            resolved: "70m",
            labels: &[("drive", "/dev/sda"), ("reason", "medium")],
            value: "",
        },
    },
    Alert {
        name: "StrakeDriveFailurePredicted",
        severity: Severity::Warning,
        expr: "strake_drive_failure_predicted == 1",
        hold: "0s",
        summary: "Drive {{ $labels.drive }} predicts its failure",
        meaning: "The drive reports a critical warning about its medium or its backup power.",
        remedy: || say("Report of the drive: ").run(smart(DRIVE_LABEL)),
        trial: Trial {
            series: &[(r#"strake_drive_failure_predicted{drive="/dev/nvme0n1"}"#, RAISED)],
            fires: "6m",
            resolved: "11m",
            labels: &[("drive", "/dev/nvme0n1")],
            value: "1",
        },
    },
    Alert {
        name: "StrakeDriveWorn",
        severity: Severity::Warning,
        expr: "strake_drive_wear_ratio >= 0.9",
        hold: "0s",
        summary: "Drive {{ $labels.drive }} is at the end of its rated endurance",
        meaning: "The drive has used 90 % of its rated endurance. Plan its replacement.",
        remedy: || say("Report of the drive: ").run(smart(DRIVE_LABEL)),
        trial: Trial {
            series: &[(r#"strake_drive_wear_ratio{drive="/dev/nvme0n1"}"#, "0.89x4 0.91x5 0x5")],
            fires: "6m",
            resolved: "11m",
            labels: &[("drive", "/dev/nvme0n1")],
            value: "0.91",
        },
    },
    Alert {
        name: "StrakeDriveHot",
        severity: Severity::Warning,
        expr: r#"strake_drive_warning{warning="temperature"} == 1"#,
        hold: "0s",
        summary: "Drive {{ $labels.drive }} is too hot or too cold",
        meaning: "The drive reports a temperature outside of its limits. A hot drive becomes slow.",
        remedy: || {
            say("Check the cooling of the drive. Report of the drive: ").run(smart(DRIVE_LABEL))
        },
        trial: Trial {
            series: &[(
                r#"strake_drive_warning{drive="/dev/nvme0n1",warning="temperature"}"#,
                PRESENT,
            )],
            fires: "6m",
            resolved: "11m",
            labels: &[("drive", "/dev/nvme0n1"), ("warning", "temperature")],
            value: "1",
        },
    },
    Alert {
        name: "StrakeDriveSlow",
        severity: Severity::Warning,
        expr: "strake_array_member_sitting_out == 1",
        hold: "5m",
        summary: "Array {{ $labels.array }}: reads avoid the slow member {{ $labels.member }}",
        meaning: "For five minutes, the drive of the member has responded much more slowly than the drives of the \
            other members.",
        remedy: || say("Latencies and paths of the members: ").run(show(ARRAY)),
        trial: Trial {
            series: &[(
                r#"strake_array_member_sitting_out{array="tank",member="3"}"#,
                "0x4 1x10 0x5",
            )],
            fires: "11m",
            resolved: "16m",
            labels: &[("array", "tank"), ("member", "3")],
            value: "1",
        },
    },
    Alert {
        name: "StrakeDrivePathDown",
        severity: Severity::Warning,
        expr: "strake_drive_path_up == 0",
        hold: "15s",
        summary: "Path {{ $labels.path }} to drive {{ $labels.drive }} is down",
        meaning: "The daemon tries to reconnect the path. Until then, I/O uses the other paths of the drive, if any.",
        remedy: || say("Check the network and the target. ").then(see_drives()),
        trial: Trial {
            series: &[(
                r#"strake_drive_path_up{drive="nvme-tcp://t/nqn.a",path="nvme-tcp://u/nqn.a"}"#,
                LOWERED,
            )],
            fires: "6m",
            resolved: "11m",
            labels: PATH,
            value: "0",
        },
    },
    Alert {
        name: "StrakeDriveUnreachable",
        severity: Severity::Critical,
        expr: "max by (job, instance, drive) (strake_drive_path_up) == 0",
        hold: "15s",
        summary: "No path to drive {{ $labels.drive }} is up",
        meaning: "I/O of the drive waits for a connection. If no path returns in time, the member goes out of use.",
        remedy: || say("Check the network and the target. ").then(see_drives()),
        trial: Trial {
            series: &[
                (r#"strake_drive_path_up{drive="other",path="1"}"#, LOWERED),
                (r#"strake_drive_path_up{drive="other",path="2"}"#, "1x30"),
                (
                    r#"strake_drive_path_up{drive="nvme-tcp://t/nqn.a",path="nvme-tcp://t/nqn.a"}"#,
                    "0x30",
                ),
                (
                    r#"strake_drive_path_up{drive="nvme-tcp://t/nqn.a",path="nvme-tcp://u/nqn.a"}"#,
                    LOWERED,
                ),
            ],
            fires: "6m",
            resolved: "11m",
            labels: DRIVE,
            value: "0",
        },
    },
    Alert {
        name: "StrakeDrivePathUnstable",
        severity: Severity::Warning,
        expr: "increase(strake_drive_path_reconnects_total[15m]) > 3",
        hold: "0s",
        summary: "Path {{ $labels.path }} to drive {{ $labels.drive }} was reconnected repeatedly",
        meaning: "The path was lost more than three times in 15 minutes. Each loss delays I/O.",
        remedy: || say("Check the network and the target. ").then(see_drives()),
        trial: Trial {
            series: &[(
                r#"strake_drive_path_reconnects_total{drive="nvme-tcp://t/nqn.a",path="nvme-tcp://u/nqn.a"}"#,
                "0x4 1+1x5 6x40",
            )],
            fires: "10m",
            resolved: "30m",
            labels: PATH,
            value: "",
        },
    },
    Alert {
        name: "StrakeDriveHeldRequests",
        severity: Severity::Warning,
        expr: "min_over_time(strake_drive_held_requests[1m]) > 0",
        hold: "30s",
        summary: "Drive {{ $labels.drive }}: requests wait",
        meaning: "Requests wait for a connection, for space at the target, or until they can be sent again.",
        remedy: || say("Check the load of the target and the network. ").then(see_drives()),
        trial: Trial {
            series: &[(r#"strake_drive_held_requests{drive="nvme-tcp://t/nqn.a"}"#, RAISED)],
            fires: "8m",
            resolved: "12m",
            labels: DRIVE,
            value: "1",
        },
    },
    Alert {
        name: "StrakeSpareUnusable",
        severity: Severity::Warning,
        expr: r#"strake_spares{state!="ready"} > 0"#,
        hold: "0s",
        summary: "{{ $value }} spares are {{ $labels.state }}",
        meaning: "These spares cannot replace a failed member.",
        remedy: || {
            say("Return the drives of these spares, or remove the spares. ").then(see_drives())
        },
        trial: Trial {
            series: &[(r#"strake_spares{state="missing"}"#, RAISED)],
            fires: "6m",
            resolved: "11m",
            labels: &[("state", "missing")],
            value: "1",
        },
    },
];
