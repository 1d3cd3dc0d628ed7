//! The dashboard for Grafana: a table of panels, and the JSON that Grafana imports.

use serde_json::{Value, json};

/// The rows of the dashboard.
pub const ROWS: &[Row] = &[
    Row { title: "Arrays", panels: ARRAYS },
    Row { title: "Drives", panels: DRIVES },
    Row { title: "Pools", panels: POOLS },
    Row { title: "Exports", panels: EXPORTS },
    Row { title: "Daemon", panels: DAEMON },
];

/// A row of panels.
pub struct Row {
    pub title: &'static str,
    pub panels: &'static [Panel],
}

/// How a panel shows its queries.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Values over time.
    Graph,
    /// The current values as large numbers.
    Numbers,
    /// The current series as rows.
    Table,
}

impl Kind {
    /// The name of the panel type in Grafana.
    const fn word(self) -> &'static str {
        match self {
            Self::Graph => "timeseries",
            Self::Numbers => "stat",
            Self::Table => "table",
        }
    }
}

/// A panel.
pub struct Panel {
    pub title: &'static str,
    kind: Kind,
    /// A unit of Grafana.
    unit: &'static str,
    /// Queries in PromQL, each with the legend of its series.
    pub queries: &'static [(&'static str, &'static str)],
}

const fn graph(
    title: &'static str,
    unit: &'static str,
    queries: &'static [(&'static str, &'static str)],
) -> Panel {
    Panel { title, kind: Kind::Graph, unit, queries }
}

const fn numbers(
    title: &'static str,
    unit: &'static str,
    queries: &'static [(&'static str, &'static str)],
) -> Panel {
    Panel { title, kind: Kind::Numbers, unit, queries }
}

const fn table(
    title: &'static str,
    unit: &'static str,
    queries: &'static [(&'static str, &'static str)],
) -> Panel {
    Panel { title, kind: Kind::Table, unit, queries }
}

const ARRAYS: &[Panel] = &[
    table("Firing alerts", "none", &[(r#"ALERTS{alertname=~"Strake.*",alertstate="firing"}"#, "")]),
    table("States", "none", &[(r#"strake_array_state{array=~"$array"} == 1"#, "")]),
    table("Capacity", "bytes", &[(r#"strake_array_size_bytes{array=~"$array"}"#, "")]),
    graph(
        "Failures tolerated",
        "none",
        &[(r#"strake_array_redundancy_left{array=~"$array"}"#, "{{array}}")],
    ),
    graph(
        "Members by state",
        "none",
        &[(r#"strake_array_members{array=~"$array"}"#, "{{array}} {{state}}")],
    ),
    graph(
        "Progress of jobs",
        "percentunit",
        &[(
            r#"strake_array_job_done_bytes{array=~"$array"} / strake_array_job_total_bytes{array=~"$array"}"#,
            "{{array}} {{kind}}",
        )],
    ),
    table("States of jobs", "none", &[(r#"strake_array_job_state{array=~"$array"} == 1"#, "")]),
    graph(
        "Throughput",
        "Bps",
        &[
            (
                r#"rate(strake_array_read_bytes_total{array=~"$array"}[$__rate_interval])"#,
                "{{array}} read",
            ),
            (
                r#"rate(strake_array_write_bytes_total{array=~"$array"}[$__rate_interval])"#,
                "{{array}} written",
            ),
        ],
    ),
    graph(
        "Requests",
        "iops",
        &[
            (
                r#"rate(strake_array_reads_total{array=~"$array"}[$__rate_interval])"#,
                "{{array}} reads",
            ),
            (
                r#"rate(strake_array_writes_total{array=~"$array"}[$__rate_interval])"#,
                "{{array}} writes",
            ),
            (
                r#"rate(strake_array_degraded_reads_total{array=~"$array"}[$__rate_interval])"#,
                "{{array}} degraded reads",
            ),
        ],
    ),
    graph(
        "99th percentile of the latency of requests",
        "s",
        &[(
            "histogram_quantile(0.99, sum by (array, operation, le) \
             (rate(strake_array_request_duration_seconds_bucket{array=~\"$array\"}[$__rate_interval])))",
            "{{array}} {{operation}}",
        )],
    ),
    graph(
        "99th percentile of the latency of member I/Os",
        "s",
        &[(
            "histogram_quantile(0.99, sum by (array, member, le) \
             (rate(strake_array_member_io_duration_seconds_bucket{array=~\"$array\"}[$__rate_interval])))",
            "{{array}} member {{member}}",
        )],
    ),
    graph(
        "Unreadable and rewritten blocks",
        "none",
        &[
            (
                r#"increase(strake_array_medium_errors_total{array=~"$array"}[$__rate_interval])"#,
                "{{array}} unreadable",
            ),
            (
                r#"increase(strake_array_repairs_total{array=~"$array"}[$__rate_interval])"#,
                "{{array}} rewritten",
            ),
        ],
    ),
    graph(
        "Bytes with possible errors",
        "bytes",
        &[
            (r#"strake_array_in_doubt_bytes{array=~"$array"}"#, "{{array}} in doubt"),
            (r#"strake_array_suspect_bytes{array=~"$array"}"#, "{{array}} suspect"),
            (r#"strake_array_corrupt_bytes{array=~"$array"}"#, "{{array}} corrupt"),
        ],
    ),
    graph("Bad blocks", "none", &[(r#"strake_array_bad_blocks{array=~"$array"}"#, "{{array}}")]),
    numbers(
        "Time since the last scrub",
        "s",
        &[(r#"time() - strake_array_scrub_ended_timestamp_seconds{array=~"$array"}"#, "{{array}}")],
    ),
    numbers(
        "Time until the next scrub",
        "s",
        &[(r#"strake_array_scrub_next_timestamp_seconds{array=~"$array"} - time()"#, "{{array}}")],
    ),
    table("Waits of starts", "s", &[(r#"strake_array_wait_seconds{array=~"$array"}"#, "")]),
];

const DRIVES: &[Panel] = &[
    table("States", "none", &[("strake_drive_state == 1", "")]),
    table("Capacity", "bytes", &[("strake_drive_size_bytes", "")]),
    numbers("Spares", "none", &[("strake_spares", "{{state}}")]),
    graph(
        "Errors",
        "none",
        &[("increase(strake_drive_errors_total[$__rate_interval])", "{{drive}} {{reason}}")],
    ),
    graph("Used endurance", "percentunit", &[("strake_drive_wear_ratio", "{{drive}}")]),
    graph("Spare blocks", "percentunit", &[("strake_drive_spare_ratio", "{{drive}}")]),
    graph("Temperatures", "celsius", &[("strake_drive_temperature_celsius", "{{drive}}")]),
    graph(
        "Media errors",
        "none",
        &[("increase(strake_drive_media_errors_total[$__rate_interval])", "{{drive}}")],
    ),
    table("Warnings of drives", "none", &[("strake_drive_warning == 1", "")]),
    table("Predicted failures", "none", &[("strake_drive_failure_predicted == 1", "")]),
    graph(
        "Members that reads avoid",
        "none",
        &[(r#"strake_array_member_sitting_out{array=~"$array"}"#, "{{array}} {{member}}")],
    ),
    graph(
        "Paths of remote drives",
        "none",
        &[
            ("strake_drive_path_up", "{{path}} up"),
            ("strake_drive_path_used", "{{path}} used"),
            ("strake_drive_queues", "{{drive}} queues"),
        ],
    ),
    graph(
        "Reconnects of remote drives",
        "none",
        &[
            ("increase(strake_drive_path_reconnects_total[$__rate_interval])", "{{path}}"),
            ("increase(strake_drive_reconnects_total[$__rate_interval])", "{{drive}} continued"),
        ],
    ),
    graph("Requests that wait", "none", &[("strake_drive_held_requests", "{{drive}}")]),
];

const POOLS: &[Panel] = &[
    table("States", "none", &[("strake_pool_state == 1", "")]),
    graph(
        "Space",
        "bytes",
        &[
            ("strake_pool_size_bytes", "{{pool}} size"),
            ("strake_pool_used_bytes", "{{pool}} used"),
            ("strake_pool_free_bytes", "{{pool}} free"),
            ("strake_pool_reserved_bytes", "{{pool}} reserved"),
        ],
    ),
    graph(
        "Volumes",
        "none",
        &[
            ("strake_pool_volumes", "{{pool}} volumes"),
            ("strake_pool_snapshots", "{{pool}} snapshots"),
        ],
    ),
    graph(
        "Use of limits",
        "percentunit",
        &[(
            "rate(strake_limit_used_total[$__rate_interval]) / strake_limit_rate",
            "{{kind}} {{name}} {{limit}}",
        )],
    ),
    graph(
        "Requests waiting for limits",
        "none",
        &[
            (
                "rate(strake_limit_throttled_seconds_total[$__rate_interval])",
                "{{kind}} {{name}} {{limit}}",
            ),
            (
                "rate(strake_limit_throttled_requests_total[$__rate_interval])",
                "{{kind}} {{name}} {{limit}} throttled per second",
            ),
        ],
    ),
];

const EXPORTS: &[Panel] = &[
    numbers("Online", "none", &[("strake_export_up", "{{export}}")]),
    graph(
        "Connections",
        "none",
        &[
            ("strake_export_connections", "{{export}}"),
            (
                "increase(strake_export_refused_connections_total[$__rate_interval])",
                "{{listen}} refused",
            ),
        ],
    ),
    graph(
        "Throughput",
        "Bps",
        &[
            ("rate(strake_export_read_bytes_total[$__rate_interval])", "{{export}} read"),
            ("rate(strake_export_write_bytes_total[$__rate_interval])", "{{export}} written"),
        ],
    ),
    graph(
        "Requests",
        "iops",
        &[
            ("rate(strake_export_reads_total[$__rate_interval])", "{{export}} reads"),
            ("rate(strake_export_writes_total[$__rate_interval])", "{{export}} writes"),
            ("rate(strake_export_flushes_total[$__rate_interval])", "{{export}} flushes"),
        ],
    ),
    graph(
        "Errors",
        "none",
        &[("increase(strake_export_errors_total[$__rate_interval])", "{{export}}")],
    ),
];

const DAEMON: &[Panel] = &[
    numbers("Answers", "none", &[(r#"up{job="strake"}"#, "{{instance}}")]),
    numbers("Running for", "s", &[("strake_uptime_seconds", "{{instance}}")]),
    table("Version", "none", &[("strake_build_info", "")]),
    graph("Problems", "none", &[("strake_problems", "{{instance}} {{severity}}")]),
    graph(
        "Processor time",
        "percentunit",
        &[("rate(strake_cpu_seconds_total[$__rate_interval])", "{{instance}}")],
    ),
    graph(
        "Memory",
        "bytes",
        &[
            ("strake_memory_bytes", "{{instance}}"),
            (r#"strake_array_memory_bytes{array=~"$array"}"#, "{{array}}"),
        ],
    ),
    numbers("State directory can be written", "none", &[("strake_state_writable", "{{instance}}")]),
    graph(
        "Notification hooks",
        "none",
        &[
            ("increase(strake_hook_delivered_total[$__rate_interval])", "{{hook}} delivered"),
            ("increase(strake_hook_failed_total[$__rate_interval])", "{{hook}} failed"),
        ],
    ),
];

/// Width of the dashboard in units of its grid, and of three panels beside each other.
const WIDTH: usize = 24;
const PANEL: (usize, usize) = (8, 7);

/// Returns the dashboard as the JSON that Grafana imports.
pub fn dashboard() -> String {
    let mut panels = Vec::new();
    let mut y = 0;
    for row in ROWS {
        let place = json!({"x": 0, "y": y, "w": WIDTH, "h": 1});
        let id = panels.len() + 1;
        panels.push(
            json!({"id": id, "type": "row", "title": row.title, "gridPos": place, "panels": []}),
        );
        y += 1;
        let (w, h) = PANEL;
        let each_line = WIDTH / w;
        for (at, panel) in row.panels.iter().enumerate() {
            let (x, y) = (at % each_line * w, y + at / each_line * h);
            let place = json!({"x": x, "y": y, "w": w, "h": h});
            panels.push(shown(panels.len() + 1, panel, &place));
        }
        y += row.panels.len().div_ceil(each_line) * h;
    }
    let all = json!({
        "uid": "strake",
        "title": "Strake",
        "tags": ["strake"],
        "schemaVersion": 38,
        "editable": true,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": variables()},
        "panels": panels,
    });
    format!("{all:#}\n")
}

/// The source of all data, as a variable that the user of the dashboard sets.
fn source() -> Value {
    json!({"type": "prometheus", "uid": "${datasource}"})
}

fn variables() -> Value {
    let arrays = "label_values(strake_array_state, array)";
    json!([
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
        {
            "name": "array",
            "label": "Array",
            "type": "query",
            "datasource": source(),
            "definition": arrays,
            "query": {"query": arrays, "refId": "arrays"},
            "refresh": 2,
            "sort": 1,
            "multi": true,
            "includeAll": true,
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
        },
    ])
}

fn shown(id: usize, panel: &Panel, place: &Value) -> Value {
    let is_table = panel.kind == Kind::Table;
    let target = |(at, (expr, legend)): (usize, &(&str, &str))| {
        let ref_id = format!("Q{at}");
        json!({
            "refId": ref_id,
            "datasource": source(),
            "expr": expr,
            "legendFormat": legend,
            "instant": is_table,
            "range": !is_table,
            "format": if is_table { "table" } else { "time_series" },
        })
    };
    let targets: Vec<Value> = panel.queries.iter().enumerate().map(target).collect();
    json!({
        "id": id,
        "type": panel.kind.word(),
        "title": panel.title,
        "datasource": source(),
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": targets,
    })
}
