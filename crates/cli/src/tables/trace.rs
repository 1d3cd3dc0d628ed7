//! Recorded requests.

use super::clock::Clock;
use super::grid::{Column, Grid};
use super::stats::time;
use super::{sentence, size};
use crate::fold::wrapped;
use strake_api::v1::{ListTracesResponse, Trace, TraceStage};

/// A row for each request.
#[must_use]
pub fn list(answer: &ListTracesResponse, clock: &Clock, width: usize) -> String {
    if answer.traces.is_empty() {
        let none = "No requests are recorded. The first request of each data core is recorded, and then the slowest \
            request of every second.";
        return sentence(none, width);
    }
    let mut grid = Grid::new(&[
        Column::Word("accepted"),
        Column::Number("core"),
        Column::Word("reason"),
        Column::Word("operation"),
        Column::Number("offset"),
        Column::Number("size"),
        Column::Number("took"),
        Column::Text("stages"),
    ]);
    for trace in &answer.traces {
        let (offset, bytes) = match trace.bytes {
            0 => (String::new(), String::new()),
            bytes => (trace.offset.to_string(), size(bytes)),
        };
        grid.row([
            clock.show_ms(trace.accepted_ns / 1_000),
            trace.core.to_string(),
            trace.reason.clone(),
            words(&trace.operation),
            offset,
            bytes,
            time(trace.took_ns),
            story(trace),
        ]);
    }
    grid.render(width)
}

/// A request as one sentence, for requests that follow one another.
#[must_use]
pub fn one(trace: &Trace, clock: &Clock, width: usize) -> String {
    let place = match trace.bytes {
        0 => String::new(),
        bytes => format!(" of {} at {}", size(bytes), trace.offset),
    };
    let line = format!(
        "{} core {} {:<7} {}{place} took {}: {}",
        clock.show_ms(trace.accepted_ns / 1_000),
        trace.core,
        trace.reason,
        words(&trace.operation),
        time(trace.took_ns),
        story(trace)
    );
    wrapped(&line, width, 4)
}

/// The stages, and the error if the request failed.
fn story(trace: &Trace) -> String {
    let mut parts: Vec<String> = trace.stages.iter().map(stage).collect();
    if !trace.error.is_empty() {
        parts.push(format!("failed: {}", trace.error));
    }
    parts.join(", ")
}

fn stage(stage: &TraceStage) -> String {
    let took = time(stage.took_ns);
    match stage.member {
        Some(member) => format!("{} {took} (member {member})", stage.stage),
        None => format!("{} {took}", stage.stage),
    }
}

/// The name of an operation in words.
fn words(operation: &str) -> String {
    operation.replace('_', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slow() -> Trace {
        let stage = |stage: &str, took_ns, member| {
            let stage = stage.to_owned();
            TraceStage { stage, took_ns, member }
        };
        Trace {
            core: 1,
            reason: "slowest".into(),
            operation: "write_zeroes".into(),
            offset: 8192,
            bytes: 4096,
            accepted_ns: 1_700_000_000_123_456_789,
            took_ns: 250_000_000,
            error: "the device did not answer in time".into(),
            stages: vec![stage("band", 1_000, None), stage("read", 249_999_000, Some(3))],
            ..Trace::default()
        }
    }

    #[test]
    fn a_request_is_one_row_or_one_line() {
        let clock = Clock::new(true);
        let line = one(&slow(), &clock, usize::MAX);
        assert_eq!(
            line,
            "2023-11-14 22:13:20.123Z core 1 slowest write zeroes of 4 KiB at 8192 took 250 ms: band 1.00 us, read \
             250 ms (member 3), failed: the device did not answer in time"
        );
        let answer = ListTracesResponse { traces: vec![slow()], ..ListTracesResponse::default() };
        let table = list(&answer, &clock, usize::MAX);
        assert!(table.lines().nth(1).is_some_and(|row| row.contains("read 250 ms (member 3)")));
        assert!(list(&ListTracesResponse::default(), &clock, 80).starts_with("No requests"));
    }

    #[test]
    fn a_flush_has_no_place() {
        let flush = Trace { operation: "flush".into(), bytes: 0, offset: 0, ..slow() };
        let line = one(&flush, &Clock::new(true), usize::MAX);
        assert!(line.contains(" flush took 250 ms"), "{line}");
    }
}
