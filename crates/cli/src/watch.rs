//! Answers that are printed again when they change: in place on a terminal, one after another elsewhere.

use crate::args::Watch;
use crate::error::CliError;
use crate::exit::Exit;
use crate::limits::{CALL_TIMEOUT, LOOK_INTERVAL};
use crate::output::{Format, Output, tell};
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

    /// The result of `work`; `None` if one of them comes first.
    pub async fn unless_ended<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            result = work => Some(result),
            () = self.ended() => None,
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
    // A daemon that does not answer must not keep the user from ending this.
    let Some(first) = signals.unless_ended(look()).await else { return Ok(Exit::Unknown) };
    let mut latest = first?;
    let mut absence = Absence::default();
    loop {
        screen.show(&latest, &table, &news)?;
        let next = async {
            tokio::time::sleep(LOOK_INTERVAL).await;
            in_time(look()).await
        };
        match signals.unless_ended(next).await {
            None => return Ok(exit(&latest)),
            Some(Ok(message)) => {
                absence.ended();
                latest = message;
            }
            Some(Err(error)) => absence.noted(error)?,
        }
    }
}

/// The answer to a call. A daemon that does not answer in time counts as away.
///
/// # Errors
/// Those of `call`, and when the time limit passes.
pub async fn in_time<T>(call: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
    match tokio::time::timeout(CALL_TIMEOUT, call).await {
        Ok(answer) => answer,
        Err(_) => Err(CliError::silent()),
    }
}

/// A daemon that does not answer for a while, because it is restarted.
#[derive(Default)]
pub struct Absence(bool);

impl Absence {
    /// Takes note of `error`. Tells the user once that the daemon is waited for.
    ///
    /// # Errors
    /// `error`, if it is an answer of the daemon.
    pub fn noted(&mut self, error: CliError) -> Result<(), CliError> {
        if !error.is_away() {
            return Err(error);
        }
        if !std::mem::replace(&mut self.0, true) {
            tell("strake: the daemon does not answer; waiting for it");
        }
        Ok(())
    }

    /// The daemon answers.
    pub const fn ended(&mut self) {
        self.0 = false;
    }
}

/// As [`answer`] for messages that the daemon sends by itself once they are `open`, until it ends them or the user ends
/// this. They are opened again when the connection was lost.
///
/// # Errors
/// What the daemon answered instead, and when standard output is gone.
pub async fn stream<M: Serialize + Clone>(
    open: impl AsyncFn() -> Result<Streaming<M>, CliError>,
    out: &Output,
    table: impl Fn(&M, usize) -> String,
    exit: impl Fn(&M) -> Exit,
) -> Result<Exit, CliError> {
    let mut signals = Signals::heard()?;
    let mut screen = Screen::new(out);
    let mut latest = Exit::Unknown;
    let mut absence = Absence::default();
    let Some(opened) = signals.unless_ended(open()).await else { return Ok(latest) };
    let mut messages = opened?;
    loop {
        let Some(next) = signals.unless_ended(messages.message()).await else { return Ok(latest) };
        match next {
            Ok(None) => return Ok(latest),
            Ok(Some(message)) => {
                absence.ended();
                latest = exit(&message);
                screen.show(&message, &table, |_| {})?;
            }
            Err(status) => {
                absence.noted(status.into())?;
                messages = tokio::select! {
                    again = reopened(&open, &mut absence) => again?,
                    () = signals.ended() => return Ok(latest),
                };
            }
        }
    }
}

/// Opens messages again until the daemon answers.
///
/// # Errors
/// What the daemon answered instead.
pub async fn reopened<M>(
    open: impl AsyncFn() -> Result<Streaming<M>, CliError>,
    absence: &mut Absence,
) -> Result<Streaming<M>, CliError> {
    loop {
        tokio::time::sleep(LOOK_INTERVAL).await;
        match open().await {
            Ok(messages) => return Ok(messages),
            Err(error) => absence.noted(error)?,
        }
    }
}

/// Where a watched answer goes. On a terminal it has the alternate screen to itself (`?1049` of xterm's control
/// sequences) and the cursor is hidden (`?25`, DEC); both are given back when this is dropped, and the latest answer
/// stays below what was there before.
pub struct Screen<'a> {
    out: &'a Output,
    in_place: bool,
    last: String,
    /// What was drawn no longer is what the terminal shows.
    is_torn: bool,
}

impl<'a> Screen<'a> {
    /// Draws nothing yet.
    #[must_use]
    pub fn new(out: &'a Output) -> Self {
        Self {
            out,
            in_place: out.format() == Format::Table && out.on_terminal() && !out.is_quiet(),
            last: String::new(),
            is_torn: false,
        }
    }

    /// True if answers are drawn over one another.
    #[must_use]
    pub const fn in_place(&self) -> bool {
        self.in_place
    }

    /// Draws the next answer even if it says nothing new: the terminal has another size.
    pub fn resized(&mut self) {
        self.is_torn = true;
    }

    /// Shows `message` when it says something new: on a terminal anything, elsewhere what `news` leaves of it.
    ///
    /// # Errors
    /// When standard output is gone.
    pub fn show<M: Serialize + Clone>(
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
        let is_torn = std::mem::take(&mut self.is_torn);
        if compared == self.last && !is_torn {
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
