//! `strake event ...`.

use crate::args::event::{EventVerb, Which};
use crate::args::parse::word;
use crate::connect::Connection;
use crate::error::CliError;
use crate::exit::Exit;
use crate::output::Output;
use crate::tables::{self, clock::Clock};
use crate::watch::{Absence, Signals, reopened};
use std::cell::Cell;
use std::path::Path;
use strake_api::v1::{FollowEventsRequest, ListEventsRequest};

/// Executes `verb`.
///
/// # Errors
/// When the daemon is unreachable, refuses the request, or stops while events are followed.
pub async fn run(verb: EventVerb, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    match verb {
        EventVerb::List { which, last } => {
            let clock = Clock::new(which.utc);
            let request = list_request(which, last);
            let mut events = Connection::open(socket).await?.events();
            let answer = events.list_events(request).await?.into_inner();
            out.print(&answer, |a, width| tables::event::list(a, &clock, width))?;
            Ok(Exit::Fine)
        }
        EventVerb::Follow { which } => follow(which, socket, out).await,
    }
}

fn list_request(which: Which, last: u32) -> ListEventsRequest {
    ListEventsRequest {
        from: which.from.unwrap_or(0),
        object: which.object.unwrap_or_default(),
        kind: which.kind.unwrap_or_default(),
        severity: which.severity.as_ref().map(word).unwrap_or_default(),
        last,
    }
}

async fn follow(which: Which, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    let clock = Clock::new(which.utc);
    let mut signals = Signals::heard()?;
    let Some(opened) = signals.unless_ended(Connection::open(socket)).await else {
        return Ok(Exit::Fine);
    };
    let connection = opened?;
    let from = match which.from {
        Some(number) => number,
        None => match signals.unless_ended(next_number(&connection)).await {
            Some(next) => next?,
            None => return Ok(Exit::Fine),
        },
    };
    let ListEventsRequest { object, kind, severity, .. } = list_request(which, 0);
    let next = Cell::new(from);
    let open = async || {
        let (object, kind, severity) = (object.clone(), kind.clone(), severity.clone());
        let request = FollowEventsRequest { from: next.get(), object, kind, severity };
        Ok(connection.events().follow_events(request).await?.into_inner())
    };
    let mut absence = Absence::default();
    let Some(opened) = signals.unless_ended(open()).await else { return Ok(Exit::Fine) };
    let mut events = opened?;
    loop {
        let event = tokio::select! {
            event = events.message() => event,
            () = signals.ended() => return Ok(Exit::Fine),
        };
        let gone = match event {
            Ok(Some(event)) => {
                absence.ended();
                next.set(event.number.saturating_add(1));
                out.print_one_of_many(&event, |e, width| tables::event::one(e, &clock, width))?;
                continue;
            }
            Ok(None) => CliError::lost(),
            Err(status) => status.into(),
        };
        absence.noted(gone)?;
        events = tokio::select! {
            again = reopened(&open, &mut absence) => again?,
            () = signals.ended() => return Ok(Exit::Fine),
        };
    }
}

/// The number of the next event.
async fn next_number(connection: &Connection) -> Result<u64, CliError> {
    let request = ListEventsRequest { last: 1, ..ListEventsRequest::default() };
    let latest = connection.events().list_events(request).await?.into_inner().events;
    Ok(latest.last().map_or(1, |e| e.number.saturating_add(1)))
}
