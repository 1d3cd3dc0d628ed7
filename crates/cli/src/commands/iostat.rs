//! `strake iostat`.

use crate::args::iostat::{Iostat, Reports};
use crate::connect::Connection;
use crate::error::CliError;
use crate::exit::Exit;
use crate::output::Output;
use crate::rates;
use crate::tables;
use crate::watch::{Absence, Signals, in_time};
use std::path::Path;
use std::time::{Duration, Instant};
use strake_api::v1::{ArrayStats, GetArrayStatsRequest, ListArraysRequest};

/// Prints reports until their number is reached or the user ends the command. A daemon that does not answer is waited
/// for.
///
/// # Errors
/// When the daemon is unreachable at first, or a named array does not run at first.
pub async fn run(arguments: Iostat, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    let Reports { arrays, every, count } = arguments.reports().map_err(CliError::usage)?;
    let mut signals = Signals::heard()?;
    let Some(opened) = signals.unless_ended(Connection::open(socket)).await else {
        return Ok(Exit::Fine);
    };
    let connection = opened?;
    let mut absence = Absence::default();
    let first = signals.unless_ended(sample(&connection, &arrays)).await;
    let Some(first) = first else { return Ok(Exit::Fine) };
    let mut before = (Instant::now(), first?);
    let mut printed = 0;
    while count.is_none_or(|count| printed < count) {
        let next = async {
            tokio::time::sleep(Duration::from_secs_f64(every)).await;
            in_time(sample(&connection, &arrays)).await
        };
        let after = match signals.unless_ended(next).await {
            None => break,
            Some(Ok(sample)) => (Instant::now(), sample),
            Some(Err(error)) => {
                absence.noted(error)?;
                continue;
            }
        };
        absence.ended();
        let seconds = after.0.duration_since(before.0).as_secs_f64();
        let report = rates::between(&before.1, &after.1, seconds);
        let table = |report: &_, width| tables::rates::report(report, arguments.members, width);
        out.print_one_of_many(&report, table)?;
        before = after;
        printed += 1;
    }
    Ok(Exit::Fine)
}

/// The counters of the named arrays, or of all running ones.
pub(crate) async fn sample(
    connection: &Connection,
    names: &[String],
) -> Result<Vec<ArrayStats>, CliError> {
    let mut arrays = connection.arrays();
    let running: Vec<String> = match names {
        [] => {
            let all = arrays.list_arrays(ListArraysRequest {}).await?.into_inner().arrays;
            let running = all.into_iter().filter(|array| array.counters.is_some());
            running.map(|array| array.uuid).collect()
        }
        names => names.to_vec(),
    };
    let mut stats = Vec::new();
    for name in running {
        match arrays.get_array_stats(GetArrayStatsRequest { name }).await {
            Ok(answer) => stats.push(answer.into_inner()),
            // The array stopped after the list was made.
            Err(status) if names.is_empty() && is_gone(&status) => {}
            Err(status) => return Err(status.into()),
        }
    }
    Ok(stats)
}

/// True if an array does not exist or does not run.
fn is_gone(status: &tonic::Status) -> bool {
    matches!(status.code(), tonic::Code::NotFound | tonic::Code::FailedPrecondition)
}
