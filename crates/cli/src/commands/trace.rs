//! `strake trace`.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use strake_api::v1::{ListTracesRequest, ListTracesResponse, Trace};

use crate::args::trace::{self as args, Collector};
use crate::collector::send;
use crate::connect::Connection;
use crate::error::CliError;
use crate::exit::Exit;
use crate::keep;
use crate::output::Output;
use crate::spans;
use crate::tables::{self, clock::Clock};
use crate::watch::{Absence, Signals, in_time};

/// Requests in the table, unless their number is given.
const ROWS: usize = 20;

/// Time between two questions to the daemon. A core at a million requests per second keeps its samples for a second.
const EVERY: Duration = Duration::from_millis(250);

/// The slowest request of a second is final after this time: the second may have begun with this request, and its end
/// is seen one turn later.
const FINAL_NS: u64 = 1_100_000_000;

/// The reason of records that may be replaced.
const SLOWEST: &str = "slowest";

/// Prints the recorded requests of an array, writes them to a file, or sends them to a collector.
///
/// # Errors
/// If the daemon is unreachable, the array does not run, or the file or the collector does not take the requests.
pub async fn run(trace: args::Trace, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    if trace.follow {
        return follow(&trace, socket, out).await;
    }
    let connection = Connection::open(socket).await?;
    let mut answer = look(&connection, &trace).await?;
    let all = trace.perfetto.is_some() || trace.otlp.is_some();
    let count = trace.count.unwrap_or(if all { 0 } else { ROWS });
    answer.traces.sort_by_key(|t| (Reverse(t.took_ns), t.accepted_ns));
    answer.traces.truncate(if count == 0 { usize::MAX } else { count });
    if let Some(file) = &trace.perfetto {
        return write(file, &answer, out);
    }
    if let Some(collector) = &trace.otlp {
        let sent = Sent { requests: answer.traces.len() };
        deliver(collector, &answer.name, &answer.uuid, &answer.traces).await?;
        let to = collector.authority();
        out.print(&sent, |sent, _| format!("{} requests sent to {to}\n", sent.requests))?;
        return Ok(Exit::Fine);
    }
    let clock = Clock::new(trace.utc);
    out.print(&answer, |answer, width| tables::trace::list(answer, &clock, width))?;
    Ok(Exit::Fine)
}

/// The answer when requests were written or sent.
#[derive(Serialize)]
struct Sent {
    requests: usize,
}

async fn look(
    connection: &Connection,
    trace: &args::Trace,
) -> Result<ListTracesResponse, CliError> {
    let request = ListTracesRequest { name: trace.name.clone() };
    let mut answer = connection.arrays().list_traces(request).await?.into_inner();
    answer.traces.retain(|t| !trace.slowest || t.reason == SLOWEST);
    Ok(answer)
}

fn write(file: &Path, answer: &ListTracesResponse, out: &Output) -> Result<Exit, CliError> {
    if file.exists() {
        return Err(CliError::usage(format!(
            "{} exists and is not overwritten; choose another name, or remove the file",
            file.display()
        )));
    }
    keep::write(file, spans::timeline(answer).to_string().as_bytes())?;
    let written = Sent { requests: answer.traces.len() };
    out.print(&written, |written, _| {
        let (count, file) = (written.requests, file.display());
        format!("{count} requests written to {file}; open the file in ui.perfetto.dev\n")
    })?;
    Ok(Exit::Fine)
}

async fn deliver(
    collector: &Collector,
    name: &str,
    uuid: &str,
    traces: &[Trace],
) -> Result<(), CliError> {
    if traces.is_empty() {
        return Ok(());
    }
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    send(collector, &spans::otlp(name, uuid, &host, traces)).await
}

async fn follow(trace: &args::Trace, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    let clock = Clock::new(trace.utc);
    let mut signals = Signals::heard()?;
    let Some(opened) = signals.unless_ended(Connection::open(socket)).await else {
        return Ok(Exit::Fine);
    };
    let connection = opened?;
    let Some(first) = signals.unless_ended(look(&connection, trace)).await else {
        return Ok(Exit::Fine);
    };
    let mut seen = Seen::default();
    // Only requests from now on are printed.
    seen.fresh(first?.traces, now_ns());
    let mut absence = Absence::default();
    loop {
        let next = async {
            tokio::time::sleep(EVERY).await;
            in_time(look(&connection, trace)).await
        };
        let answer = match signals.unless_ended(next).await {
            None => return Ok(Exit::Fine),
            Some(Ok(answer)) => answer,
            Some(Err(error)) => {
                absence.noted(error)?;
                continue;
            }
        };
        absence.ended();
        let (name, uuid) = (answer.name, answer.uuid);
        let traces = seen.fresh(answer.traces, now_ns());
        if let Some(collector) = &trace.otlp {
            let sent = deliver(collector, &name, &uuid, &traces);
            match signals.unless_ended(sent).await {
                None => return Ok(Exit::Fine),
                Some(sent) => sent?,
            }
            continue;
        }
        for trace in &traces {
            out.print_one_of_many(trace, |t, width| tables::trace::one(t, &clock, width))?;
        }
    }
}

fn now_ns() -> u64 {
    // A clock before 1970 is wrong, and counts as 1970.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// The numbers of the last records that were seen, by core and reason.
#[derive(Default)]
struct Seen(BTreeMap<(u32, String), u64>);

impl Seen {
    /// The records among `traces` that are new and final at `now_ns`, by the time of acceptance.
    fn fresh(&mut self, traces: Vec<Trace>, now_ns: u64) -> Vec<Trace> {
        let mut last: BTreeMap<(u32, String), u64> = BTreeMap::new();
        for trace in &traces {
            let number = last.entry(key(trace)).or_default();
            *number = trace.number.max(*number);
        }
        for (key, seen) in &mut self.0 {
            // After a restart of the array, the numbers begin again.
            if last.get(key).is_none_or(|last| last < seen) {
                *seen = 0;
            }
        }
        let mut fresh: Vec<Trace> = traces
            .into_iter()
            .filter(|trace| {
                let ended = trace.accepted_ns.saturating_add(trace.took_ns);
                let replaced = last.get(&key(trace)).is_some_and(|last| *last > trace.number);
                let is_final =
                    trace.reason != SLOWEST || replaced || now_ns.saturating_sub(ended) > FINAL_NS;
                is_final && self.0.get(&key(trace)).is_none_or(|seen| trace.number > *seen)
            })
            .collect();
        for trace in &fresh {
            let seen = self.0.entry(key(trace)).or_default();
            *seen = trace.number.max(*seen);
        }
        fresh.sort_by_key(|trace| trace.accepted_ns);
        fresh
    }
}

fn key(trace: &Trace) -> (u32, String) {
    (trace.core, trace.reason.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(reason: &str, number: u64, accepted_ns: u64) -> Trace {
        Trace { reason: reason.to_owned(), number, accepted_ns, took_ns: 5, ..Trace::default() }
    }

    fn numbers(traces: &[Trace]) -> Vec<(&str, u64)> {
        traces.iter().map(|t| (t.reason.as_str(), t.number)).collect()
    }

    #[test]
    fn each_record_is_new_once_and_only_when_it_is_final() {
        const S: u64 = 1_000_000_000;
        let mut seen = Seen::default();
        let first = vec![trace("sample", 1, 10 * S), trace(SLOWEST, 1, 10 * S)];
        assert_eq!(numbers(&seen.fresh(first.clone(), 10 * S)), [("sample", 1)]);
        // The slowest request of the second is replaced by a slower one.
        assert_eq!(numbers(&seen.fresh(first, 10 * S + 1)), []);
        let second = vec![trace("sample", 2, 11 * S), trace(SLOWEST, 1, 10 * S + 9)];
        assert_eq!(numbers(&seen.fresh(second.clone(), 12 * S)), [(SLOWEST, 1), ("sample", 2)]);
        assert_eq!(numbers(&seen.fresh(second, 13 * S)), []);
        // A later second makes the record before it final at once.
        let third = vec![trace(SLOWEST, 2, 20 * S), trace(SLOWEST, 3, 21 * S)];
        assert_eq!(numbers(&seen.fresh(third, 21 * S)), [(SLOWEST, 2)]);
        // The array was restarted.
        let restarted = vec![trace(SLOWEST, 1, 30 * S), trace("sample", 1, 30 * S)];
        assert_eq!(numbers(&seen.fresh(restarted, 32 * S)), [(SLOWEST, 1), ("sample", 1)]);
    }
}
