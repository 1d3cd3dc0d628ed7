//! Alerts about exports, notification hooks and the daemon.

use strake_api::v1::{
    GetStatusRequest, ListEventsRequest, ListExportsRequest, ListHooksRequest, StartDaemon,
};
use strake_wording::{Text, say};

use super::{Alert, COUNTED, LOWERED, Severity, Trial};

fn see_exports() -> Text {
    say("Exports and their states: ").run(ListExportsRequest {})
}

fn see_events() -> Text {
    say("The events: ").run(ListEventsRequest::default())
}

pub const ALERTS: &[Alert] = &[
    Alert {
        name: "StrakeExportDown",
        severity: Severity::Critical,
        expr: "strake_export_up == 0",
        hold: "15s",
        summary: "Export {{ $labels.export }} is offline",
        meaning: "The array of the export is not served to its clients.",
        remedy: see_exports,
        trial: Trial {
            series: &[(r#"strake_export_up{export="tank"}"#, LOWERED)],
            fires: "6m",
            resolved: "11m",
            labels: &[("export", "tank")],
            value: "0",
        },
    },
    Alert {
        name: "StrakeExportErrors",
        severity: Severity::Warning,
        expr: "increase(strake_export_errors_total[15m]) > 0",
        hold: "0s",
        summary: "Export {{ $labels.export }} answered requests with errors",
        meaning: "Clients received errors in the last 15 minutes. The cause is a failed array, an unreadable block, or \
                  an invalid request.",
        remedy: see_events,
        trial: Trial {
            series: &[(r#"strake_export_errors_total{export="tank"}"#, COUNTED)],
            fires: "6m",
            resolved: "25m",
            labels: &[("export", "tank")],
            value: "",
        },
    },
    Alert {
        name: "StrakeConnectionsRefused",
        severity: Severity::Warning,
        expr: "increase(strake_export_refused_connections_total[15m]) > 0",
        hold: "0s",
        summary: "The connection limit of {{ $labels.listen }} was reached",
        meaning: "In the last 15 minutes, connections of clients were closed because the limit was reached.",
        remedy: see_exports,
        trial: Trial {
            series: &[(
                r#"strake_export_refused_connections_total{listen="127.0.0.1:4420"}"#,
                COUNTED,
            )],
            fires: "6m",
            resolved: "25m",
            labels: &[("listen", "127.0.0.1:4420")],
            value: "",
        },
    },
    Alert {
        name: "StrakeHookFailed",
        severity: Severity::Warning,
        expr: "increase(strake_hook_failed_total[15m]) > 0",
        hold: "0s",
        summary: "Notification hook {{ $labels.hook }} did not deliver events",
        meaning: "Events of the last 15 minutes did not reach the receiver of the hook.",
        remedy: || say("The last error of each hook: ").run(ListHooksRequest {}),
        trial: Trial {
            series: &[(r#"strake_hook_failed_total{hook="mail"}"#, COUNTED)],
            fires: "6m",
            resolved: "25m",
            labels: &[("hook", "mail")],
            value: "",
        },
    },
    Alert {
        name: "StrakeStateNotWritable",
        severity: Severity::Critical,
        expr: "strake_state_writable == 0",
        hold: "0s",
        summary: "{{ $labels.instance }}: the state directory cannot be written",
        meaning: "Arrays continue to serve. The daemon refuses changes of the configuration, and keeps events in \
            memory.",
        remedy: || say("Free space, or make the directory writable. ").then(see_events()),
        trial: Trial {
            series: &[("strake_state_writable", LOWERED)],
            fires: "6m",
            resolved: "11m",
            labels: &[],
            value: "0",
        },
    },
    Alert {
        name: "StrakeDaemonDown",
        severity: Severity::Critical,
        expr: r#"up{job="strake"} == 0 or absent(up{job="strake"})"#,
        hold: "15s",
        summary: "The daemon does not answer {{ $labels.instance }}",
        meaning: "Either the daemon does not run, so that no array is served, or Prometheus cannot reach the metrics \
            of the daemon. Until then, no other alert can fire.",
        remedy: || {
            say("Read the log of the service, then start the daemon: ").run(StartDaemon::default())
        },
        trial: Trial {
            series: &[("up", LOWERED)],
            fires: "6m",
            resolved: "11m",
            labels: &[],
            value: "0",
        },
    },
    Alert {
        name: "StrakeDaemonRestarted",
        severity: Severity::Info,
        expr: "strake_uptime_seconds < 300",
        hold: "0s",
        summary: "{{ $labels.instance }}: the daemon was started within the last five minutes",
        meaning: "After a crash of the daemon or the host, arrays resynchronize their dirty regions.",
        remedy: || say("The state of all objects: ").run(GetStatusRequest {}),
        trial: Trial {
            series: &[("strake_uptime_seconds", "9000x4 10+60x20")],
            fires: "6m",
            resolved: "11m",
            labels: &[],
            value: "70",
        },
    },
    Alert {
        name: "StrakeDaemonUnstable",
        severity: Severity::Warning,
        expr: "resets(strake_uptime_seconds[30m]) > 2",
        hold: "0s",
        summary: "{{ $labels.instance }}: the daemon was restarted {{ $value }} times in 30 minutes",
        meaning: "Each restart interrupts clients. A crash or the watchdog of the service may be the cause.",
        remedy: || say("Read the log of the service. ").then(see_events()),
        trial: Trial {
            series: &[("strake_uptime_seconds", "900x4 1 900 1 900 1 900x60")],
            fires: "10m",
            resolved: "40m",
            labels: &[],
            value: "3",
        },
    },
];
