//! Answers that are printed again when they change: in place on a terminal, one after another elsewhere.

use crate::args::Watch;
use crate::error::CliError;
use crate::exit::Exit;
use crate::limits::LOOK_INTERVAL;
use crate::output::{Format, Output};
use serde::Serialize;
use std::io::Write as _;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tonic::Streaming;

/// The ways in which a person or the system asks a command to end. Once listened for, none of them ends the process by
/// itself.
pub struct Signals([Signal; 3]);

impl Signals {
    /// Listens from now on.
    ///
    /// # Errors
    /// When the system does not let it.
    pub fn heard() -> Result<Self, CliError> {
        let on = |kind| signal(kind).map_err(|e| CliError::io("cannot listen for signals", &e));
        Ok(Self([
            on(SignalKind::interrupt())?,
            on(SignalKind::terminate())?,
            on(SignalKind::hangup())?,
        ]))
    }

    /// Ends when one of them comes.
    pub async fn ended(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}

/// Prints what `look` finds as `table` makes it: once, or, when it is `watched`, again whenever it has changed, until
/// the user ends it. `news` removes from an answer what changes all the time, such as an uptime: on a terminal, this is
/// shown, but elsewhere it is no reason to print the answer again. The command ends with the `exit` of the latest
/// answer.
///
/// # Errors
/// Those of `look`, and when standard output is gone.
pub async fn answer<M: Serialize + Clone>(
    watched: Watch,
    out: &Output,
    look: impl AsyncFn() -> Result<M, CliError>,
    table: impl Fn(&M, usize) -> String,
    news: impl Fn(&mut M),
    exit: impl Fn(&M) -> Exit,
) -> Result<Exit, CliError> {
    if !watched.watch {
        let message = look().await?;
        out.print(&message, table)?;
        return Ok(exit(&message));
    }
    let mut signals = Signals::heard()?;
    let mut screen = Screen::new(out);
    loop {
        let message = look().await?;
        screen.show(&message, &table, &news)?;
        tokio::select! {
            () = tokio::time::sleep(LOOK_INTERVAL) => {}
            () = signals.ended() => return Ok(exit(&message)),
        }
    }
}

/// As [`answer`] for messages that the daemon sends by itself, until it ends them or the user ends this.
///
/// # Errors
/// What the daemon answered instead, and when standard output is gone.
pub async fn stream<M: Serialize + Clone>(
    mut messages: Streaming<M>,
    out: &Output,
    table: impl Fn(&M, usize) -> String,
    exit: impl Fn(&M) -> Exit,
) -> Result<Exit, CliError> {
    let mut signals = Signals::heard()?;
    let mut screen = Screen::new(out);
    let mut latest = Exit::Unknown;
    loop {
        let next = tokio::select! {
            next = messages.message() => next?,
            () = signals.ended() => return Ok(latest),
        };
        let Some(message) = next else { return Ok(latest) };
        latest = exit(&message);
        screen.show(&message, &table, |_| {})?;
    }
}

/// Where a watched answer goes. On a terminal it has the alternate screen to itself (`?1049` of xterm's control
/// sequences) and the cursor is hidden (`?25`, DEC); both are given back when this is dropped, and the latest answer
/// stays below what was there before.
struct Screen<'a> {
    out: &'a Output,
    in_place: bool,
    last: String,
}

impl<'a> Screen<'a> {
    fn new(out: &'a Output) -> Self {
        Self {
            out,
            in_place: out.format() == Format::Table && out.on_terminal(),
            last: String::new(),
        }
    }

    /// Shows `message` when it says something new: on a terminal anything, elsewhere what `news` leaves of it.
    fn show<M: Serialize + Clone>(
        &mut self,
        message: &M,
        table: impl Fn(&M, usize) -> String,
        news: impl Fn(&mut M),
    ) -> Result<(), CliError> {
        let mut compared = message.clone();
        if !self.in_place {
            news(&mut compared);
        }
        let compared = self.out.rendered(&compared, &table);
        if compared == self.last {
            return Ok(());
        }
        let first = self.last.is_empty();
        self.last = compared;
        if self.in_place {
            return self.redraw(first);
        }
        let text = self.out.rendered(message, &table);
        match (first, self.out.format()) {
            (false, Format::Table) => Ok(self.out.text(&format!("\n{text}"))?),
            (true, Format::Table) | (_, Format::Json) => Ok(self.out.text(&text)?),
        }
    }

    fn redraw(&self, first: bool) -> Result<(), CliError> {
        let (columns, rows) = crate::output::terminal();
        let enter = if first { "\x1b[?1049h\x1b[?25l" } else { "" };
        let screen = frame(&self.last, columns, rows);
        let mut stdout = std::io::stdout().lock();
        write!(stdout, "{enter}{screen}")
            .and_then(|()| stdout.flush())
            .map_err(|e| strake_terminal::Error::answer(e).into())
    }
}

impl Drop for Screen<'_> {
    fn drop(&mut self) {
        if self.in_place && !self.last.is_empty() {
            let mut stdout = std::io::stdout().lock();
            // A terminal that is gone needs nothing back.
            let _ =
                writeln!(stdout, "\x1b[?25h\x1b[?1049l{}", self.last).and_then(|()| stdout.flush());
        }
    }
}

/// What draws `text` over what a screen of so many `columns` and `rows` shows, without clearing it first, which would
/// flicker: from the top, each line erased to its end, and then everything below (ECMA-48 CUP, EL, ED). What does not
/// fit is counted in the last row.
#[must_use]
pub fn frame(text: &str, columns: usize, rows: usize) -> String {
    let height = |line: &str| {
        let seen = crate::output::paint::plain(line).chars().count();
        seen.max(1).div_ceil(columns.max(1))
    };
    let total = text.lines().count();
    let fits = text.lines().map(height).sum::<usize>() <= rows;
    let mut room = if fits { usize::MAX } else { rows.saturating_sub(1) };
    let mut out = String::from("\x1b[H");
    let mut shown = 0;
    for line in text.lines() {
        let Some(left) = room.checked_sub(height(line)) else { break };
        room = left;
        if shown > 0 {
            out.push_str("\r\n");
        }
        out.push_str(line);
        out.push_str("\x1b[K");
        shown += 1;
    }
    if shown < total {
        let separator = if shown > 0 { "\r\n" } else { "" };
        out.push_str(&format!("{separator}... {} more lines\x1b[K", total - shown));
    }
    out.push_str("\x1b[J");
    out
}
