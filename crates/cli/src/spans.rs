//! Recorded requests in the formats of other programs: the JSON of ui.perfetto.dev, and OTLP.
//!
//! A record contains the time in each stage, and not the order of stages that occurred several times. Both formats show
//! the stages one after another in the order in which a request passes them.

use serde_json::{Value, json};
use strake_api::v1::{ListTracesResponse, Trace, TraceStage};

/// A stage with its start, in nanoseconds since 1970.
fn stages(trace: &Trace) -> impl Iterator<Item = (u64, &TraceStage)> {
    trace.stages.iter().scan(trace.accepted_ns, |next, stage| {
        let start = *next;
        *next += stage.took_ns;
        Some((start, stage))
    })
}

/// The requests in the Trace Event Format ("Trace Event Format", Google, section "Async Events"). Requests overlap, so
/// each is an asynchronous event of its own, with its stages inside. Times begin with the first request: a number of
/// microseconds since 1970 would lose digits.
#[must_use]
pub fn timeline(answer: &ListTracesResponse) -> Value {
    let name = format!("array {}", answer.name);
    let first = answer.traces.iter().map(|trace| trace.accepted_ns).min().unwrap_or(0);
    let mut events = vec![json!({
        "ph": "M", "name": "process_name", "pid": 1, "args": {"name": name}
    })];
    for trace in &answer.traces {
        let mut event = |ph: &str, name: &str, at: u64, args: Value| {
            events.push(json!({
                "ph": ph, "cat": trace.reason, "name": name, "id": trace.id, "pid": 1,
                "tid": trace.core, "ts": (at - first) as f64 / 1e3, "args": args
            }));
        };
        let args = json!({
            "core": trace.core, "number": trace.number, "offset": trace.offset, "bytes": trace.bytes,
            "error": trace.error
        });
        event("b", &trace.operation, trace.accepted_ns, args);
        for (start, stage) in stages(trace) {
            let args = stage.member.map_or(json!({}), |member| json!({"member": member}));
            event("b", &stage.stage, start, args);
            event("e", &stage.stage, start + stage.took_ns, json!({}));
        }
        event("e", &trace.operation, trace.accepted_ns + trace.took_ns, json!({}));
    }
    json!({
        "displayTimeUnit": "ns",
        "otherData": {"first_accepted_ns": first.to_string()},
        "traceEvents": events
    })
}

/// A request to the collector (OpenTelemetry Protocol 1.9, "JSON Protobuf Encoding"): numbers of 64 bits are texts, and
/// identifiers are hexadecimal. Each record is a trace with a span for the request, and a span for each stage.
#[must_use]
pub fn otlp(name: &str, uuid: &str, host: &str, traces: &[Trace]) -> Value {
    let spans: Vec<Value> = traces.iter().flat_map(spans_of).collect();
    json!({"resourceSpans": [{
        "resource": {"attributes": [
            text("service.name", "strake"),
            text("service.instance.id", uuid),
            text("host.name", host),
            text("strake.array", name),
        ]},
        "scopeSpans": [{
            "scope": {"name": "strake", "version": env!("CARGO_PKG_VERSION")},
            "spans": spans
        }]
    }]})
}

/// `SPAN_KIND_SERVER` and `SPAN_KIND_INTERNAL`.
const SERVER: u32 = 2;
const INTERNAL: u32 = 1;

/// `STATUS_CODE_UNSET` and `STATUS_CODE_ERROR`.
const UNSET: u32 = 0;
const ERROR: u32 = 2;

fn spans_of(trace: &Trace) -> Vec<Value> {
    let span = |number: u64, name: &str, (start, took): (u64, u64)| {
        json!({
            "traceId": trace.id, "spanId": format!("{number:016x}"), "name": name,
            "startTimeUnixNano": start.to_string(), "endTimeUnixNano": (start + took).to_string()
        })
    };
    let mut request = span(1, &trace.operation, (trace.accepted_ns, trace.took_ns));
    request["kind"] = SERVER.into();
    request["attributes"] = json!([
        text("strake.reason", &trace.reason),
        int("strake.core", trace.core.into()),
        int("strake.offset", trace.offset),
        int("strake.bytes", trace.bytes),
    ]);
    request["status"] = match trace.error.as_str() {
        "" => json!({"code": UNSET}),
        error => json!({"code": ERROR, "message": error}),
    };
    let mut all = vec![request];
    for (number, (start, stage)) in (2..).zip(stages(trace)) {
        let mut part = span(number, &stage.stage, (start, stage.took_ns));
        part["kind"] = INTERNAL.into();
        part["parentSpanId"] = format!("{:016x}", 1).into();
        let member = stage.member.map(|member| int("strake.member", member.into()));
        part["attributes"] = Value::Array(member.into_iter().collect());
        all.push(part);
    }
    all
}

fn text(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

fn int(key: &str, value: u64) -> Value {
    json!({"key": key, "value": {"intValue": value.to_string()}})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> ListTracesResponse {
        let stage = |stage: &str, took_ns, member| {
            let stage = stage.to_owned();
            TraceStage { stage, took_ns, member }
        };
        let trace = Trace {
            id: "00112233445566778899aabbccddeeff".into(),
            core: 1,
            number: 7,
            reason: "slowest".into(),
            operation: "write".into(),
            offset: 8192,
            bytes: 4096,
            accepted_ns: 1_700_000_000_000_000_000,
            took_ns: 5_000,
            error: "no space left on the device".into(),
            stages: vec![stage("band", 2_000, None), stage("write", 3_000, Some(4))],
        };
        ListTracesResponse { name: "tank".into(), uuid: "u".into(), traces: vec![trace] }
    }

    #[test]
    fn a_timeline_nests_the_stages_in_their_request() {
        let timeline = timeline(&answer());
        let events = timeline["traceEvents"].as_array().expect("a list");
        let seen: Vec<_> = events[1..]
            .iter()
            .map(|e| {
                let ts = e["ts"].as_f64().expect("a number");
                (e["ph"].as_str().unwrap_or(""), e["name"].as_str().unwrap_or(""), ts)
            })
            .collect();
        let expected = [
            ("b", "write", 0.0),
            ("b", "band", 0.0),
            ("e", "band", 2.0),
            ("b", "write", 2.0),
            ("e", "write", 5.0),
            ("e", "write", 5.0),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn a_record_is_a_trace_with_a_span_for_each_stage() {
        let answer = answer();
        let request = otlp(&answer.name, &answer.uuid, "host", &answer.traces);
        let spans = &request["resourceSpans"][0]["scopeSpans"][0]["spans"];
        let [whole, band, write] = &spans.as_array().expect("a list")[..] else {
            panic!("{spans}")
        };
        assert_eq!(whole["traceId"], "00112233445566778899aabbccddeeff");
        assert_eq!(whole["status"]["code"], 2);
        assert_eq!(whole["endTimeUnixNano"], "1700000000000005000");
        assert_eq!((&band["name"], &write["name"]), (&"band".into(), &"write".into()));
        assert_eq!(write["parentSpanId"], whole["spanId"]);
        assert_ne!(write["spanId"], band["spanId"]);
        assert_eq!(write["startTimeUnixNano"], band["endTimeUnixNano"]);
        assert_eq!(write["attributes"][0]["value"]["intValue"], "4");
    }
}
