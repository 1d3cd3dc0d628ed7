//! Tests that the metrics match the document and the text format, and that connections are limited.

use super::place::Place;
use super::serve::listen;
use super::text::{Family, Kind, Text};
use super::{Snapshot, families};
use crate::access::Groups;
use crate::shared::Shared;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;
use strake_api::v1::{
    Array, Counters, Daemon, Drive, DriveErrors, DriveHealth, DrivePath, Export, Hook, Member,
    Pool, Problem, Progress, Qos, QosLimit, Queue, Scrub, Spare, Wait,
};
use strake_control::{ArrayLatencies, Control, Latencies, Options};
use strake_units::Nanos;

/// Latencies of two reads of 1 ms and of 1 s, of an array and of its only member.
fn latencies() -> ArrayLatencies {
    let mut latencies = Latencies::default();
    for took in [Nanos::MILLI, Nanos::SECOND] {
        latencies.read.add(took, 1);
    }
    ArrayLatencies { requests: latencies.clone(), members: vec![latencies] }
}

/// A snapshot with one object of each kind.
fn full() -> Snapshot {
    let array = Array {
        name: "tank".into(),
        states: vec!["degraded".into()],
        members: vec![Member { state: "in_sync".into(), ..Member::default() }],
        progress: vec![Progress { job: "rebuild".into(), ..Progress::default() }],
        counters: Some(Counters { reads: 4711, ..Counters::default() }),
        waits: vec![Wait { object: "/d".into(), waited_us: 1_500_000, ..Wait::default() }],
        scrub: Some(Scrub { ended_us: Some(1), next_us: Some(2_500_000), ..Scrub::default() }),
        ..Array::default()
    };
    let drive = Drive {
        path: "nvme-tcp://a/nqn.b".into(),
        state: "member".into(),
        errors: Some(DriveErrors::default()),
        paths: vec![DrivePath { address: "nvme-tcp://a/nqn.b".into(), ..DrivePath::default() }],
        queues: vec![Queue { held: 3, ..Queue::default() }, Queue { held: 4, ..Queue::default() }],
        ..Drive::default()
    };
    let health = DriveHealth {
        path: "/dev/nvme0n1".into(),
        warnings: vec!["temperature".into()],
        temperature_c: Some(71),
        wear_percent: 3,
        spare_percent: 100,
        ..DriveHealth::default()
    };
    let export = Export { name: "tank".into(), state: "online".into(), ..Export::default() };
    let daemon = Daemon { version: "1".into(), uptime_us: 1_500_000, ..Daemon::default() };
    Snapshot {
        daemon,
        arrays: vec![array],
        drives: vec![drive],
        health: vec![health],
        exports: vec![export],
        pools: vec![Pool { name: "p".into(), state: "online".into(), ..Pool::default() }],
        limits: vec![Qos {
            limits: vec![QosLimit { aspect: "iops".into(), ..QosLimit::default() }],
            ..Qos::default()
        }],
        spares: vec![Spare { state: "missing".into(), ..Spare::default() }],
        hooks: vec![Hook { name: "mail".into(), failed: 2, ..Hook::default() }],
        problems: vec![Problem { severity: "failed".into(), ..Problem::default() }],
        refused: vec![("127.0.0.1:4420".into(), 5)],
        is_state_writable: false,
        latencies: vec![("tank".into(), latencies())],
    }
}

/// The metrics by name, each with its kind and its labels.
type Known = BTreeMap<String, (String, BTreeSet<String>)>;

fn documented() -> Known {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    let text = std::fs::read_to_string(path).expect("the document is there");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `strake_"));
    let known = rows.map(|row| {
        let mut cells = row.split('|').map(str::trim);
        let mut next = || cells.next().expect("a row has four cells").replace('`', "");
        let (name, kind, labels) = (format!("strake_{}", next()), next(), next());
        let labels = labels.split(", ").filter(|label| *label != "-").map(str::to_owned);
        (name, (kind, labels.collect()))
    });
    known.collect()
}

fn served() -> Known {
    let mut kinds = BTreeMap::new();
    let mut known = Known::new();
    let text = full().text();
    for line in text.lines() {
        if let Some(family) = line.strip_prefix("# TYPE ") {
            let (name, kind) = family.split_once(' ').expect("a name and a kind");
            let suffix = if kind == "counter" { "_total" } else { "" };
            assert!(kinds.insert(format!("{name}{suffix}"), kind).is_none(), "{name} twice");
        } else if !line.starts_with('#') {
            let (name, rest) = line.split_once(['{', ' ']).expect("a name");
            // A histogram has samples of three names. The limits of its buckets are no label of its own.
            let of_histogram = ["_bucket", "_count", "_sum"].iter().find_map(|suffix| {
                let name = name.strip_suffix(suffix)?;
                (kinds.get(name) == Some(&"histogram")).then_some(name)
            });
            let name = of_histogram.unwrap_or(name);
            let labels = rest.split("=\"").filter_map(|before| before.rsplit([',', '"']).next());
            let count = rest.matches("=\"").count();
            let labels =
                labels.take(count).filter(|label| of_histogram.is_none() || *label != "le");
            let labels: BTreeSet<_> = labels.map(str::to_owned).collect();
            known.insert(name.to_owned(), (kinds[name].to_owned(), labels));
        }
    }
    assert_eq!(known.len(), kinds.len(), "each has a sample: {kinds:?}");
    known
}

#[test]
fn the_document_names_every_metric_and_no_other() {
    assert_eq!(served(), documented());
    let text = full().text();
    assert!(text.ends_with("\n# EOF\n"), "whoever reads it knows that it is whole");
    assert!(text.contains("\nstrake_array_reads_total{array=\"tank\"} 4711\n"), "{text}");
    assert!(text.contains("\nstrake_drive_held_requests{drive=\"nvme-tcp://a/nqn.b\"} 7\n"));
    assert!(text.contains("\nstrake_uptime_seconds 1.5\n"));
    assert!(text.contains("\nstrake_array_scrub_next_timestamp_seconds{array=\"tank\"} 2.5\n"));
    assert!(text.contains("\nstrake_problems{severity=\"degraded\"} 0\n"), "it has no gaps");
    assert!(text.contains("\nstrake_spares{state=\"missing\"} 1\n"));
    assert!(text.contains("\nstrake_state_writable 0\n"));
    assert!(text.contains("\nstrake_hook_failed_total{hook=\"mail\"} 2\n"));
    let bucket = |limit: &str, count: u64| {
        let name = "\nstrake_array_request_duration_seconds_bucket";
        let sample =
            format!("{name}{{array=\"tank\",operation=\"read\",le=\"{limit}\"}} {count}\n");
        assert!(text.contains(&sample), "{sample} {text}");
    };
    // A latency is known to within 3 %, so the one at the limit is counted with the next limit.
    for (limit, count) in [("0.0005", 0), ("0.002", 1), ("0.5", 1), ("2.0", 2), ("+Inf", 2)] {
        bucket(limit, count);
    }
    let name = "\nstrake_array_member_io_duration_seconds";
    let labels = "{array=\"tank\",member=\"0\",operation=\"read\"}";
    assert!(text.contains(&format!("{name}_count{labels} 2{name}_sum{labels} 1.001\n")), "{text}");
}

#[test]
fn what_is_not_there_has_no_figures() {
    let mut snapshot = full();
    snapshot.arrays[0].counters = None;
    snapshot.exports[0].state = "offline".into();
    let text = snapshot.text();
    assert!(!text.contains("\nstrake_array_reads_total"), "{text}");
    assert!(!text.contains("\nstrake_export_reads_total"));
    assert!(text.contains("\nstrake_export_up{export=\"tank\"} 0\n"));
    assert_eq!(text.matches("# TYPE").count(), families::FAMILIES.len(), "but each has its kind");
}

#[test]
fn labels_cannot_break_out_of_their_quotes() {
    let family = Family { name: "a", kind: Kind::Gauge, help: "A.", samples: |_, _| {} };
    let mut text = Text::default();
    text.begin(&family);
    text.say(&[("path", "a\"} 1\nb{c=\"\\"), ("state", "")], 1);
    let reported = text.end();
    let sample = reported.lines().nth(2);
    assert_eq!(sample, Some("a{path=\"a\\\"} 1\\nb{c=\\\"\\\\\",state=\"\"} 1"), "{reported}");
}

#[test]
fn metrics_are_asked_for_on_this_machine_only() {
    let parse = |text: &str| text.parse::<Place>();
    assert_eq!(parse("unix:/run/m.sock"), Ok(Place::Unix("/run/m.sock".into())));
    for fine in ["127.0.0.1:9464", "[::1]:9464", "127.9.9.9:0"] {
        assert!(matches!(parse(fine), Ok(Place::Loopback(_))), "{fine}");
    }
    for (bad, why) in [
        ("0.0.0.0:9464", "other hosts"),
        ("[::]:9464", "other hosts"),
        ("192.0.2.1:9464", "other hosts"),
        ("unix:m.sock", "/absolute/path"),
        ("localhost:9464", "loopback address such as"),
        ("9464", "loopback address such as"),
        ("", "loopback address such as"),
    ] {
        assert!(parse(bad).is_err_and(|said| said.contains(why)), "{bad}");
    }
}

/// A daemon without arrays that serves metrics.
struct Served {
    folder: PathBuf,
    shared: Shared,
    runtime: tokio::runtime::Runtime,
    address: String,
}

impl Served {
    fn start(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("straked-{name}-{}", std::process::id()));
        let options = Options { cores: "0".parse().expect("a core"), ..Options::default() };
        let control = Control::start(&folder, options).expect("the control plane starts");
        let shared = Shared::new(control, "/run/none");
        let runtime = tokio::runtime::Runtime::new().expect("threads");
        let place = "127.0.0.1:0".parse().expect("a place");
        let metrics = runtime.block_on(listen(&place, Groups::default())).expect("there is a port");
        let address = metrics.place();
        runtime.spawn(metrics.serve(shared.clone()));
        Self { folder, shared, runtime, address }
    }

    fn dial(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout can be set");
        stream
    }

    /// Returns the answer to `bytes`; empty if the connection was closed.
    fn ask(&self, bytes: &[u8]) -> String {
        let mut stream = self.dial();
        let mut answer = Vec::new();
        // The connection may already be closed.
        let _ = stream.write_all(bytes);
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).expect("it is text")
    }

    fn get(&self, path: &str) -> String {
        self.ask(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let stopped = self.runtime.block_on(self.shared.call(|control| Ok(control.stop())));
        assert!(stopped.is_ok_and(|errors| errors.is_empty()), "it stops in order");
        std::fs::remove_dir_all(&self.folder).expect("it can be removed");
    }
}

#[test]
fn the_server_gives_one_document_and_nothing_else() {
    let served = Served::start("metrics");
    let answer = served.get("/metrics");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0"), "{head}");
    assert!(body.contains("\nstrake_build_info{version=\"") && body.ends_with("# EOF\n"));
    let begins = |answer: String, with: &str| assert!(answer.starts_with(with), "{answer}");
    begins(served.get("/"), "HTTP/1.1 404");
    begins(served.get("/metrics/../etc"), "HTTP/1.1 404");
    begins(
        served.ask(b"POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"),
        "HTTP/1.1 405",
    );
    begins(served.ask(b"\0\xff\0\r\n\r\n"), "HTTP/1.1 400");
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(64 << 10));
    assert!(!served.ask(long.as_bytes()).contains("200 OK"), "it is too long");
    begins(served.get("/metrics"), "HTTP/1.1 200");
}

#[test]
fn those_who_ask_nothing_take_no_more_than_their_places() {
    let served = Served::start("metrics-places");
    let silent: Vec<_> = (0..super::serve::CONNECTIONS_MAX).map(|_| served.dial()).collect();
    assert_eq!(served.get("/metrics"), "", "there is no place left");
    drop(silent);
    let again = (0..10_000).any(|_| served.get("/metrics").starts_with("HTTP/1.1 200"));
    assert!(again, "their places are free again");
}
