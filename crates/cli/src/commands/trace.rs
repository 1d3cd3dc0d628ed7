//! `strake trace`.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use strake_api::v1::{ListTracesRequest, ListTracesResponse, Trace};
use tonic::Code;

use crate::args::trace::{self as args, Collector};
use crate::collector::{Refusal, send};
use crate::connect::Connection;
use crate::error::{CliError, ErrorKind};
use crate::exit::Exit;
use crate::keep;
use crate::output::{Output, tell};
use crate::spans;
use crate::tables::{self, clock::Clock};
use crate::watch::{Absence, Signals, in_time};

/// Requests in the table, unless their number is given.
const ROWS: usize = 20;

/// Time between two questions to the daemon. A core with a million requests per second keeps its samples for half a
/// second.
const EVERY: Duration = Duration::from_millis(250);

/// The slowest request of a second is final after this time: the second may have begun with this request, and its end
/// is seen one turn later.
const FINAL_NS: u64 = 1_100_000_000;

/// Requests in one message to a collector.
const BATCH: usize = 500;

/// Requests that are kept while a collector does not take them.
const UNSENT_MAX: usize = 8 * BATCH;

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
    once(&mut answer.traces);
    let all = trace.perfetto.is_some() || trace.otlp.is_some();
    let count = trace.count.unwrap_or(if all { 0 } else { ROWS });
    answer.traces.sort_by_key(|t| (Reverse(t.took_ns), t.accepted_ns));
    answer.traces.truncate(if count == 0 { usize::MAX } else { count });
    if let Some(file) = &trace.perfetto {
        return write(file, &answer, out);
    }
    if let Some(collector) = &trace.otlp {
        for traces in answer.traces.chunks(BATCH) {
            let spans = spans::otlp(&answer.name, &answer.uuid, &host(), traces);
            send(collector, &spans).await.map_err(|refusal| refusal.error(collector))?;
        }
        let sent = Sent { requests: answer.traces.len() };
        let to = collector.authority();
        out.print(&sent, |sent, _| format!("{} requests sent to {to}\n", sent.requests))?;
        return Ok(Exit::Fine);
    }
    let clock = Clock::new(trace.utc);
    out.print(&answer, |answer, width| tables::trace::list(answer, &clock, width))?;
    Ok(Exit::Fine)
}

/// Removes samples that are also the slowest request of their second.
fn once(traces: &mut Vec<Trace>) {
    let place = |t: &Trace| (t.core, t.accepted_ns, t.took_ns, t.offset, t.operation.clone());
    let slowest: BTreeSet<_> = traces.iter().filter(|t| t.reason == SLOWEST).map(place).collect();
    traces.retain(|t| t.reason == SLOWEST || !slowest.contains(&place(t)));
}

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
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
    if file.symlink_metadata().is_ok() {
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
    let mut unsent = Unsent::default();
    let mut is_waiting = false;
    loop {
        let next = async {
            tokio::time::sleep(EVERY).await;
            in_time(look(&connection, trace)).await
        };
        let answer = match signals.unless_ended(next).await {
            None => return Ok(Exit::Fine),
            Some(Ok(answer)) => answer,
            // The daemon answers before its arrays run again.
            Some(Err(error)) if is_stopped(&error) => {
                if !std::mem::replace(&mut is_waiting, true) {
                    tell(format_args!("strake: {}; waiting for the array", error.text));
                }
                continue;
            }
            Some(Err(error)) => {
                absence.noted(error)?;
                continue;
            }
        };
        absence.ended();
        is_waiting = false;
        let (name, uuid) = (answer.name, answer.uuid);
        let (traces, missed) = seen.fresh(answer.traces, now_ns());
        if missed > 0 {
            tell(format_args!("strake: {missed} records were replaced before they were read"));
        }
        if let Some(collector) = &trace.otlp {
            let sending = unsent.send(collector, (&name, &uuid), traces);
            match signals.unless_ended(sending).await {
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

/// True if the array does not run, or is not known yet.
fn is_stopped(error: &CliError) -> bool {
    matches!(error.kind, ErrorKind::Refused(Code::NotFound | Code::FailedPrecondition))
}

/// Requests that the collector has not taken yet.
#[derive(Default)]
struct Unsent {
    traces: Vec<Trace>,
    is_reported: bool,
    /// Number of requests that were dropped since the collector took requests.
    dropped: usize,
}

impl Unsent {
    /// Sends the requests. While the collector does not take requests, keeps the newest ones for the next call, and
    /// reports it once.
    ///
    /// # Errors
    /// If the collector will not take the requests.
    async fn send(
        &mut self,
        collector: &Collector,
        (name, uuid): (&str, &str),
        traces: Vec<Trace>,
    ) -> Result<(), CliError> {
        self.traces.extend(traces);
        while !self.traces.is_empty() {
            let count = self.traces.len().min(BATCH);
            let spans = spans::otlp(name, uuid, &host(), &self.traces[..count]);
            match send(collector, &spans).await {
                Ok(()) => {
                    self.traces.drain(..count);
                    self.is_reported = false;
                    let dropped = std::mem::take(&mut self.dropped);
                    if dropped > 0 {
                        tell(format_args!("strake: {dropped} older requests were not sent"));
                    }
                }
                Err(refusal @ Refusal::Temporary(_)) => {
                    if !std::mem::replace(&mut self.is_reported, true) {
                        let error = refusal.error(collector);
                        tell(format_args!("strake: {}; trying again", error.text));
                    }
                    let surplus = self.traces.len().saturating_sub(UNSENT_MAX);
                    self.traces.drain(..surplus);
                    self.dropped += surplus;
                    return Ok(());
                }
                Err(refusal) => return Err(refusal.error(collector)),
            }
        }
        Ok(())
    }
}

fn now_ns() -> u64 {
    // A clock before 1970 is wrong, and counts as 1970.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// The last record that was seen, by core and reason: its number and its identifier.
#[derive(Default)]
struct Seen(BTreeMap<(u32, String), (u64, String)>);

impl Seen {
    /// Returns the records among `traces` that are new and final at `now_ns`, by the time of acceptance, and the number
    /// of records in between that were replaced.
    fn fresh(&mut self, traces: Vec<Trace>, now_ns: u64) -> (Vec<Trace>, u64) {
        let mut last: BTreeMap<(u32, String), u64> = BTreeMap::new();
        for trace in &traces {
            let number = last.entry(key(trace)).or_default();
            *number = trace.number.max(*number);
        }
        // After a restart of the array, the numbers begin again, with other requests.
        self.0.retain(|key_of, (seen, id)| {
            let same = |t: &&Trace| t.number == *seen && key(t) == *key_of;
            let is_other = traces.iter().find(same).is_some_and(|trace| trace.id != *id);
            !is_other && last.get(key_of).is_some_and(|last| last >= seen)
        });
        let is_final = |trace: &Trace| {
            let ended = trace.accepted_ns.saturating_add(trace.took_ns);
            trace.reason != SLOWEST
                || last.get(&key(trace)).is_some_and(|last| *last > trace.number)
                || now_ns.saturating_sub(ended) > FINAL_NS
        };
        let is_new = |t: &Trace| self.0.get(&key(t)).is_none_or(|(seen, _)| t.number > *seen);
        let mut fresh: Vec<Trace> =
            traces.into_iter().filter(|trace| is_final(trace) && is_new(trace)).collect();
        let mut missed = 0;
        // Within a key, the numbers ascend.
        for trace in &fresh {
            let new = (trace.number, trace.id.clone());
            let before = self.0.insert(key(trace), new);
            missed += before.map_or(0, |(number, _)| trace.number - number - 1);
        }
        fresh.sort_by_key(|trace| trace.accepted_ns);
        (fresh, missed)
    }
}

fn key(trace: &Trace) -> (u32, String) {
    (trace.core, trace.reason.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The identifier is that of the time.
    fn trace(reason: &str, number: u64, accepted_ns: u64) -> Trace {
        let (reason, id) = (reason.to_owned(), accepted_ns.to_string());
        Trace { id, reason, number, accepted_ns, took_ns: 5, ..Trace::default() }
    }

    fn numbers((traces, missed): &(Vec<Trace>, u64)) -> (Vec<(&str, u64)>, u64) {
        (traces.iter().map(|t| (t.reason.as_str(), t.number)).collect(), *missed)
    }

    const S: u64 = 1_000_000_000;

    #[test]
    fn each_record_is_new_once_and_only_when_it_is_final() {
        let mut seen = Seen::default();
        let first = vec![trace("sample", 1, 10 * S), trace(SLOWEST, 1, 10 * S)];
        assert_eq!(numbers(&seen.fresh(first.clone(), 10 * S)), (vec![("sample", 1)], 0));
        // The slowest request of the second is replaced by a slower one.
        assert_eq!(numbers(&seen.fresh(first, 10 * S + 1)), (vec![], 0));
        let sample = trace("sample", 1, 10 * S);
        let second = vec![sample, trace("sample", 2, 11 * S), trace(SLOWEST, 1, 10 * S + 9)];
        let fresh = seen.fresh(second.clone(), 12 * S);
        assert_eq!(numbers(&fresh), (vec![(SLOWEST, 1), ("sample", 2)], 0));
        assert_eq!(numbers(&seen.fresh(second, 13 * S)), (vec![], 0));
        // A later second makes the record before it final at once.
        let third = vec![trace(SLOWEST, 2, 20 * S), trace(SLOWEST, 3, 21 * S)];
        assert_eq!(numbers(&seen.fresh(third, 21 * S)), (vec![(SLOWEST, 2)], 0));
        // Records were replaced before they were read.
        let late = vec![trace(SLOWEST, 7, 25 * S), trace(SLOWEST, 8, 26 * S)];
        assert_eq!(numbers(&seen.fresh(late, 26 * S)), (vec![(SLOWEST, 7)], 4));
    }

    #[test]
    fn the_numbers_begin_again_after_a_restart() {
        let mut seen = Seen::default();
        seen.fresh(vec![trace("sample", 1, S), trace("sample", 2, 2 * S)], 3 * S);
        // Fewer records, as many, and more.
        for (count, from) in [(1, 10), (1, 20), (3, 30)] {
            let again: Vec<_> = (1..=count).map(|n| trace("sample", n, (from + n) * S)).collect();
            let (fresh, missed) = seen.fresh(again, 40 * S);
            assert_eq!((fresh.len() as u64, missed), (count, 0), "from {from}");
        }
    }

    #[test]
    fn a_request_with_two_records_is_listed_once() {
        let mut traces =
            vec![trace("sample", 1, S), trace("sample", 2, 2 * S), trace(SLOWEST, 1, S)];
        once(&mut traces);
        assert_eq!(numbers(&(traces, 0)), (vec![("sample", 2), (SLOWEST, 1)], 0));
    }
}
