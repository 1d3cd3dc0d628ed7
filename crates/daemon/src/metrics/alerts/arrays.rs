//! Alerts about arrays, their members and their data.

use strake_api::v1::{ChangeJobRequest, GetStatusRequest, ListEventsRequest};
use strake_wording::{Text, replace, say, show, show_scrub};

use super::{ARRAY, Alert, PRESENT, Severity, Trial};

const TANK: &[(&str, &str)] = &[("array", "tank")];

/// The members of the array and the causes of their states.
fn see_members() -> Text {
    say("Members and causes: ").run(show(ARRAY))
}

fn see_jobs() -> Text {
    say("State of the job, and cause: ").run(show(ARRAY))
}

pub const ALERTS: &[Alert] = &[
    Alert {
        name: "StrakeArrayFailed",
        severity: Severity::Critical,
        expr: r#"strake_array_state{state="lost"} == 1"#,
        hold: "0s",
        summary: "Array {{ $labels.array }} failed: I/O is stopped",
        meaning: "More members are absent than the level tolerates.",
        remedy: || {
            let what =
                "Return the drives of the absent members; the array then starts automatically. ";
            say(what).then(see_members())
        },
        trial: Trial {
            series: &[(r#"strake_array_state{array="tank",state="lost"}"#, PRESENT)],
            fires: "6m",
            resolved: "11m",
            labels: &[("array", "tank"), ("state", "lost")],
            value: "1",
        },
    },
    Alert {
        name: "StrakeArrayOffline",
        severity: Severity::Critical,
        expr: concat!(
            r#"strake_array_state{state="offline"} == 1 unless on (job, instance, array) "#,
            r#"strake_array_state{state="lost"}"#
        ),
        hold: "0s",
        summary: "Array {{ $labels.array }} is offline",
        meaning: "The array is recorded and could not be started. Its exports are not served.",
        remedy: || say("The reason and the next action: ").run(show(ARRAY)),
        trial: Trial {
            series: &[
                (r#"strake_array_state{array="tank",state="offline"}"#, PRESENT),
                (r#"strake_array_state{array="failed",state="offline"}"#, PRESENT),
                (r#"strake_array_state{array="failed",state="lost"}"#, PRESENT),
            ],
            fires: "6m",
            resolved: "11m",
            labels: &[("array", "tank"), ("state", "offline")],
            value: "1",
        },
    },
    Alert {
        name: "StrakeArrayNoRedundancy",
        severity: Severity::Critical,
        expr: r#"strake_array_state{state="no_redundancy"} == 1"#,
        hold: "0s",
        summary: "Array {{ $labels.array }} has no redundancy left",
        meaning: "The next member failure may lose data.",
        remedy: || say("Replace an absent member now: ").run(replace(ARRAY, None, "")),
        trial: Trial {
            series: &[(r#"strake_array_state{array="tank",state="no_redundancy"}"#, PRESENT)],
            fires: "6m",
            resolved: "11m",
            labels: &[("array", "tank"), ("state", "no_redundancy")],
            value: "1",
        },
    },
    Alert {
        name: "StrakeArrayDegraded",
        severity: Severity::Warning,
        expr: r#"strake_array_state{state="degraded"} == 1"#,
        hold: "0s",
        summary: "Array {{ $labels.array }} is degraded",
        meaning: "Fewer members are in sync than the array has. All data are served.",
        remedy: see_members,
        trial: Trial {
            series: &[(r#"strake_array_state{array="tank",state="degraded"}"#, PRESENT)],
            fires: "6m",
            resolved: "11m",
            labels: &[("array", "tank"), ("state", "degraded")],
            value: "1",
        },
    },
    Alert {
        name: "StrakeMemberMissing",
        severity: Severity::Warning,
        expr: r#"strake_array_members{state="missing"} > 0"#,
        hold: "0s",
        summary: "Array {{ $labels.array }}: {{ $value }} missing members",
        meaning: "The drives of these members are absent. A member whose drive returns receives only the data that \
            were written in its absence.",
        remedy: see_members,
        trial: Trial {
            series: &[(r#"strake_array_members{array="tank",state="missing"}"#, PRESENT)],
            fires: "6m",
            resolved: "11m",
            labels: &[("array", "tank"), ("state", "missing")],
            value: "1",
        },
    },
    Alert {
        name: "StrakeMemberFaulty",
        severity: Severity::Warning,
        expr: r#"strake_array_members{state="faulty"} > 0"#,
        hold: "0s",
        summary: "Array {{ $labels.array }}: {{ $value }} faulty members",
        meaning: "The drives of these members failed and are still present. The members are out of use.",
        remedy: || {
            say("Replace each faulty member: ")
                .run(replace(ARRAY, None, ""))
                .say(". ")
                .then(see_members())
        },
        trial: Trial {
            series: &[(r#"strake_array_members{array="tank",state="faulty"}"#, PRESENT)],
            fires: "6m",
            resolved: "11m",
            labels: &[("array", "tank"), ("state", "faulty")],
            value: "1",
        },
    },
    Alert {
        name: "StrakeMemberNotReplaced",
        severity: Severity::Warning,
        expr: concat!(
            r#"strake_array_state{state="degraded"} == 1 unless on (job, instance, array) "#,
            r#"strake_array_job_done_bytes{kind="rebuild"}"#
        ),
        hold: "1h",
        summary: "Array {{ $labels.array }} has been degraded for an hour without a rebuild",
        meaning: "The redundancy does not return, because no rebuild is in progress.",
        remedy: || say("Replace the absent member: ").run(replace(ARRAY, None, "")),
        trial: Trial {
            series: &[
                (r#"strake_array_state{array="tank",state="degraded"}"#, "_x5 1x70 stale"),
                (r#"strake_array_state{array="filled",state="degraded"}"#, "_x5 1x70 stale"),
                (r#"strake_array_job_done_bytes{array="filled",kind="rebuild"}"#, "1+1x80"),
            ],
            fires: "66m",
            resolved: "76m",
            labels: &[("array", "tank"), ("state", "degraded")],
            value: "1",
        },
    },
    Alert {
        name: "StrakeRebuildHalted",
        severity: Severity::Critical,
        expr: r#"strake_array_state{state=~"rebuild_halted|resync_halted"} == 1"#,
        hold: "0s",
        summary: "Array {{ $labels.array }}: a rebuild or a resync stopped ({{ $labels.state }})",
        meaning: "The bad block list is full. The array cannot regain its full redundancy.",
        remedy: || say("The reason and the next action: ").run(show(ARRAY)),
        trial: Trial {
            series: &[(r#"strake_array_state{array="tank",state="rebuild_halted"}"#, PRESENT)],
            fires: "6m",
            resolved: "11m",
            labels: &[("array", "tank"), ("state", "rebuild_halted")],
            value: "1",
        },
    },
    Alert {
        name: "StrakeJobStalled",
        severity: Severity::Warning,
        expr: concat!(
            r#"changes(strake_array_job_done_bytes{kind!="scrub"}[10m]) == 0 "#,
            r#"unless on (job, instance, array, kind) strake_array_job_state{state!="running"}"#
        ),
        hold: "5m",
        summary: "Array {{ $labels.array }}: the {{ $labels.kind }} is stalled",
        meaning: "The job is not paused, but made no progress for ten minutes. A slow drive or a high load may be the \
            cause.",
        remedy: see_jobs,
        trial: Trial {
            series: &[
                (
                    r#"strake_array_job_done_bytes{array="tank",kind="rebuild"}"#,
                    "_x5 7x20 8 9 10 11x2 stale",
                ),
                (r#"strake_array_job_state{array="tank",kind="rebuild",state="running"}"#, "1x40"),
                (r#"strake_array_job_done_bytes{array="paused",kind="rebuild"}"#, "7x40"),
                (r#"strake_array_job_state{array="paused",kind="rebuild",state="paused"}"#, "1x40"),
            ],
            fires: "15m",
            resolved: "28m",
            labels: &[("array", "tank"), ("kind", "rebuild")],
            value: "0",
        },
    },
    Alert {
        name: "StrakeJobPaused",
        severity: Severity::Warning,
        expr: r#"strake_array_job_state{state="paused"} == 1"#,
        hold: "1h",
        summary: "Array {{ $labels.array }}: the {{ $labels.kind }} has been paused for an hour",
        meaning: "A paused rebuild or resync leaves the array without its full redundancy.",
        remedy: || {
            let id = format!("{ARRAY}/{{{{ $labels.kind }}}}");
            say("Resume the job: ").run(ChangeJobRequest {
                id,
                action: "resume".into(),
                priority: None,
            })
        },
        trial: Trial {
            series: &[(
                r#"strake_array_job_state{array="tank",kind="rebuild",state="paused"}"#,
                "_x5 1x70 stale",
            )],
            fires: "66m",
            resolved: "76m",
            labels: &[("array", "tank"), ("kind", "rebuild"), ("state", "paused")],
            value: "1",
        },
    },
    Alert {
        name: "StrakeBadBlocks",
        severity: Severity::Critical,
        expr: "strake_array_bad_blocks > 0",
        hold: "0s",
        summary: "Array {{ $labels.array }}: {{ $value }} unreadable blocks",
        meaning: "These blocks could not be reconstructed, and reads of them fail. A write repairs them.",
        remedy: || {
            say("Restore the content from a backup. Ranges of the blocks: ").run(show(ARRAY))
        },
        trial: Trial {
            series: &[(r#"strake_array_bad_blocks{array="tank"}"#, "0x4 3x5 0x5")],
            fires: "6m",
            resolved: "11m",
            labels: TANK,
            value: "3",
        },
    },
    Alert {
        name: "StrakeInDoubt",
        severity: Severity::Critical,
        expr: "strake_array_in_doubt_bytes > 0",
        hold: "0s",
        summary: "Array {{ $labels.array }}: {{ $value | humanize1024 }}B are in doubt",
        meaning: "A member went out of use after a crash, before these regions were resynchronized. In these regions, \
            blocks of absent members may be reconstructed wrongly.",
        remedy: || {
            let what =
                "Return the drive of the member if possible. The ranges and the next action: ";
            say(what).run(show(ARRAY))
        },
        trial: Trial {
            series: &[(r#"strake_array_in_doubt_bytes{array="tank"}"#, "0x4 4096x5 0x5")],
            fires: "6m",
            resolved: "11m",
            labels: TANK,
            value: "4ki",
        },
    },
    Alert {
        name: "StrakeSuspect",
        severity: Severity::Critical,
        expr: "strake_array_suspect_bytes > 0",
        hold: "0s",
        summary: "Array {{ $labels.array }}: {{ $value | humanize1024 }}B may be wrong",
        meaning: "A member was reconstructed from stripes that a scrub had found inconsistent.",
        remedy: || {
            say("Compare these ranges with a backup, then accept the data. The ranges and the next action: ")
                .run(show(ARRAY))
        },
        trial: Trial {
            series: &[(r#"strake_array_suspect_bytes{array="tank"}"#, "0x4 4096x5 0x5")],
            fires: "6m",
            resolved: "11m",
            labels: TANK,
            value: "4ki",
        },
    },
    Alert {
        name: "StrakeCorrupt",
        severity: Severity::Critical,
        expr: "strake_array_corrupt_bytes > 0",
        hold: "0s",
        summary: "Array {{ $labels.array }}: a scrub found {{ $value | humanize1024 }}B wrong",
        meaning: "These bytes are not repaired. The redundancy no longer protects them.",
        remedy: || say("The findings and the next action: ").run(show_scrub(ARRAY)),
        trial: Trial {
            series: &[(r#"strake_array_corrupt_bytes{array="tank"}"#, "0x4 4096x5 0x5")],
            fires: "6m",
            resolved: "11m",
            labels: TANK,
            value: "4ki",
        },
    },
    Alert {
        name: "StrakeUnverified",
        severity: Severity::Warning,
        expr: r#"strake_array_state{state="unverified"} == 1"#,
        hold: "0s",
        summary: "Array {{ $labels.array }}: the redundancy is not verified",
        meaning: "The array was started after a crash in mode none. Its parity or copies may not match its data.",
        remedy: || {
            say("Run a complete scrub. The state of the array contains the command: ")
                .run(show(ARRAY))
        },
        trial: Trial {
            series: &[(r#"strake_array_state{array="tank",state="unverified"}"#, PRESENT)],
            fires: "6m",
            resolved: "11m",
            labels: &[("array", "tank"), ("state", "unverified")],
            value: "1",
        },
    },
    Alert {
        name: "StrakeArrayWaits",
        severity: Severity::Warning,
        expr: "strake_array_wait_seconds > 15",
        hold: "0s",
        summary: "Array {{ $labels.array }} does not start: it waits for {{ $labels.object }}",
        meaning: "The start waits for labels of drives, or for updates of labels, bitmaps and log.",
        remedy: || say("Cause of the wait, and next action: ").run(show(ARRAY)),
        trial: Trial {
            series: &[(
                r#"strake_array_wait_seconds{array="tank",object="/dev/sda"}"#,
                "_x4 1+60x5 stale",
            )],
            fires: "6m",
            resolved: "11m",
            labels: &[("array", "tank"), ("object", "/dev/sda")],
            value: "121",
        },
    },
    Alert {
        name: "StrakeScrubOverdue",
        severity: Severity::Warning,
        expr: "time() - strake_array_scrub_next_timestamp_seconds > 86400",
        hold: "0s",
        summary: "Array {{ $labels.array }}: the scheduled scrub is overdue by more than a day",
        meaning: "Without scrubs, wrong and unreadable blocks are found too late.",
        remedy: || say("The schedule and the last scrub: ").run(show_scrub(ARRAY)),
        trial: Trial {
            series: &[(
                // A trial starts in 1970, so a time of more than a day ago is negative.
                r#"strake_array_scrub_next_timestamp_seconds{array="tank"}"#,
                "9000x4 -90000x5 9000x5",
            )],
            fires: "6m",
            resolved: "11m",
            labels: TANK,
            value: "",
        },
    },
    Alert {
        name: "StrakeProblem",
        severity: Severity::Warning,
        expr: "sum by (job, instance) (strake_problems) > 0",
        hold: "15m",
        summary: "{{ $labels.instance }}: the status of the daemon lists {{ $value }} problems",
        meaning: "This alert covers every problem in the output of strake status, also problems without an alert of \
            their own.",
        remedy: || {
            let events = ListEventsRequest::default();
            say("The problems: ").run(GetStatusRequest {}).say(", and the events: ").run(events)
        },
        trial: Trial {
            series: &[(r#"strake_problems{severity="degraded"}"#, "0x4 2x20 0x5")],
            fires: "21m",
            resolved: "26m",
            labels: &[],
            value: "2",
        },
    },
];
