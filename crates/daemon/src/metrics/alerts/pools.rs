//! Alerts about pools of volumes.
//!
//! Free space that is kept for thick volumes is not available to thin volumes, so it counts as used.

use strake_api::v1::{GetPoolRequest, ListPoolsRequest, ListVolumesRequest};
use strake_wording::{Text, say};

use super::{Alert, PRESENT, Severity, Trial};

/// The name of the pool in the labels of the alert.
const POOL: &str = "{{ $labels.pool }}";

fn show_pool() -> GetPoolRequest {
    GetPoolRequest { name: POOL.to_owned() }
}

/// A pool whose header cannot be read has no name, so all pools are listed.
fn see_pools() -> Text {
    say("All pools: ").run(ListPoolsRequest {})
}

fn see_reason() -> Text {
    say("The reason, and what to do: ").run(show_pool())
}

fn see_space() -> Text {
    let volumes = ListVolumesRequest { pool: POOL.to_owned(), ..ListVolumesRequest::default() };
    say("Destroy volumes and snapshots that are not needed, discard unused blocks in clients, or limit volumes with \
         quotas. The space of each volume: ")
        .run(volumes)
}

const LABELS: &[(&str, &str)] = &[("pool", "data")];

const SIZE: (&str, &str) = (r#"strake_pool_size_bytes{pool="data"}"#, "1000x20");

/// A pool with much free space. It must not fire.
const OTHER_SIZE: (&str, &str) = (r#"strake_pool_size_bytes{pool="other"}"#, "1000x20");
const OTHER_FREE: (&str, &str) = (r#"strake_pool_free_bytes{pool="other"}"#, "900x20");
const OTHER_RESERVED: (&str, &str) = (r#"strake_pool_reserved_bytes{pool="other"}"#, "0x20");

pub const ALERTS: &[Alert] = &[
    Alert {
        name: "StrakePoolOffline",
        severity: Severity::Critical,
        expr: r#"strake_pool_state{state="offline"} == 1"#,
        hold: "15s",
        summary: "The pool of array {{ $labels.array }} is offline",
        meaning: "The pool could not be opened, so none of its volumes is served. Its array continues to run. The \
            output of strake doctor has the reason.",
        remedy: see_pools,
        trial: Trial {
            series: &[
                (r#"strake_pool_state{array="tank",state="offline"}"#, PRESENT),
                (r#"strake_pool_state{array="other",pool="other",state="online"}"#, "1x20"),
            ],
            fires: "6m",
            resolved: "11m",
            labels: &[("array", "tank"), ("state", "offline")],
            value: "1",
        },
    },
    Alert {
        name: "StrakePoolReadOnly",
        severity: Severity::Critical,
        expr: r#"strake_pool_state{state="read-only"} == 1"#,
        hold: "0s",
        summary: "Pool {{ $labels.pool }} serves only reads",
        meaning: "The log of the pool cannot be written. Writes to its volumes fail until the next start of the pool.",
        remedy: see_reason,
        trial: Trial {
            series: &[
                (r#"strake_pool_state{array="tank",pool="data",state="read-only"}"#, PRESENT),
                (r#"strake_pool_state{array="other",pool="other",state="online"}"#, "1x20"),
            ],
            fires: "6m",
            resolved: "11m",
            labels: &[("array", "tank"), ("pool", "data"), ("state", "read-only")],
            value: "1",
        },
    },
    Alert {
        name: "StrakePoolSpaceLow",
        severity: Severity::Warning,
        expr: "(strake_pool_free_bytes - strake_pool_reserved_bytes) / strake_pool_size_bytes <= 0.2",
        hold: "0s",
        summary: "80 % of the space of pool {{ $labels.pool }} is used or reserved",
        meaning: "Volumes are served. Writes of thin volumes will fail when no space is left.",
        remedy: see_space,
        trial: Trial {
            series: &[
                SIZE,
                (r#"strake_pool_free_bytes{pool="data"}"#, "250x4 200x5 300x10"),
                (r#"strake_pool_reserved_bytes{pool="data"}"#, "0x20"),
                OTHER_SIZE,
                OTHER_FREE,
                OTHER_RESERVED,
            ],
            fires: "6m",
            resolved: "11m",
            labels: LABELS,
            value: "",
        },
    },
    Alert {
        name: "StrakePoolSpaceVeryLow",
        severity: Severity::Warning,
        expr: "(strake_pool_free_bytes - strake_pool_reserved_bytes) / strake_pool_size_bytes <= 0.1",
        hold: "0s",
        summary: "90 % of the space of pool {{ $labels.pool }} is used or reserved",
        meaning: "Writes of thin volumes will fail soon.",
        remedy: see_space,
        trial: Trial {
            series: &[
                SIZE,
                // Reserved space is not available, although it is free.
                (r#"strake_pool_free_bytes{pool="data"}"#, "500x20"),
                (r#"strake_pool_reserved_bytes{pool="data"}"#, "350x4 450x5 0x10"),
                OTHER_SIZE,
                OTHER_FREE,
                OTHER_RESERVED,
            ],
            fires: "6m",
            resolved: "11m",
            labels: LABELS,
            value: "",
        },
    },
    Alert {
        name: "StrakePoolSpaceCritical",
        severity: Severity::Critical,
        expr: "(strake_pool_free_bytes - strake_pool_reserved_bytes) / strake_pool_size_bytes <= 0.05",
        hold: "0s",
        summary: "95 % of the space of pool {{ $labels.pool }} is used or reserved",
        meaning: "Writes of thin volumes fail as soon as no space is left. Reads, and writes to blocks with space of \
            their own, continue.",
        remedy: see_space,
        trial: Trial {
            series: &[
                SIZE,
                (r#"strake_pool_free_bytes{pool="data"}"#, "80x4 40x5 500x10"),
                (r#"strake_pool_reserved_bytes{pool="data"}"#, "0x20"),
                OTHER_SIZE,
                OTHER_FREE,
                OTHER_RESERVED,
            ],
            fires: "6m",
            resolved: "11m",
            labels: LABELS,
            value: "",
        },
    },
];
