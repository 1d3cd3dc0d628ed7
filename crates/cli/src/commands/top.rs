//! `strake top`.

use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios};
use rustix::termios::{tcgetattr, tcsetattr};
use strake_api::v1::{ArrayStats, GetStatusRequest};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::args::top::Top;
use crate::commands::iostat::sample;
use crate::connect::Connection;
use crate::error::CliError;
use crate::exit::Exit;
use crate::output::Output;
use crate::rates;
use crate::tables::top::{Shown, View, screen};
use crate::watch::{Screen, Signals, in_time};

/// Shows the rates of arrays until the user ends it. Waits for a daemon that does not answer.
///
/// # Errors
/// When standard output is no terminal, or the daemon is unreachable at first.
pub async fn run(arguments: Top, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    let mut screen_of = Screen::new(out);
    if !screen_of.in_place() {
        return Err(CliError::usage(
            "strake top draws on a terminal, and standard output is none, or is in another format; for scripts: strake \
             iostat --json",
        ));
    }
    let mut signals = Signals::heard()?;
    let mut resized = signal(SignalKind::window_change())
        .map_err(|e| CliError::io("cannot listen for signals", &e))?;
    let (mut keys, _typing) = keys();
    let Some(opened) = signals.unless_ended(Connection::open(socket)).await else {
        return Ok(Exit::Fine);
    };
    let connection = opened?;
    let every = Duration::from_secs_f64(arguments.every);
    let look_at = |moment| look(&connection, moment);
    let mut looking = Box::pin(look_at(Instant::now()));
    let mut latest: Option<Look> = None;
    // Rates need two looks.
    let mut shown: Option<Shown> = None;
    let mut view = View::default();
    loop {
        if let Some(shown) = &shown {
            screen_of.show(shown, |shown, width| screen(shown, view, width), |_| {})?;
        }
        let looked = tokio::select! {
            looked = &mut looking => looked,
            _ = resized.recv() => {
                screen_of.resized();
                continue;
            }
            Some(key) = keys.recv() => match view.after(key) {
                Some(after) => {
                    view = after;
                    continue;
                }
                None => return Ok(Exit::Fine),
            },
            () = signals.ended() => return Ok(Exit::Fine),
        };
        let pause = if latest.is_some() { every } else { every.min(FIRST) };
        looking.set(look_at(Instant::now() + pause));
        match looked {
            Ok(mut after) => {
                if let Some(before) = &latest {
                    let seconds = after.at.duration_since(before.at).as_secs_f64();
                    after.shown.report = rates::between(&before.stats, &after.stats, seconds);
                    match &mut shown {
                        Some(shown) if view.paused => shown.is_old = false,
                        Some(_) | None => shown = Some(after.shown.clone()),
                    }
                }
                latest = Some(after);
            }
            Err(error) if error.is_away() && latest.is_some() => {
                let first = || latest.as_ref().map(|look| look.shown.clone());
                shown = shown.or_else(first).map(|shown| Shown { is_old: true, ..shown });
            }
            Err(error) => return Err(error),
        }
    }
}

/// Time between the first two looks, after which the first rates are shown.
const FIRST: Duration = Duration::from_millis(200);

/// What the daemon answered.
struct Look {
    at: Instant,
    stats: Vec<ArrayStats>,
    /// Without rates.
    shown: Shown,
}

/// Looks at `moment`.
async fn look(connection: &Connection, moment: Instant) -> Result<Look, CliError> {
    tokio::time::sleep_until(moment).await;
    in_time(async {
        let stats = sample(connection, &[]).await?;
        let at = Instant::now();
        let status = connection.daemon().get_status(GetStatusRequest {}).await?.into_inner();
        let (arrays, problems) = (status.arrays, status.problems);
        Ok(Look { at, stats, shown: Shown { arrays, problems, ..Shown::default() } })
    })
    .await
}

/// The keys that are pressed, if standard input is a terminal, and the terminal that gives each key at once while this
/// exists.
fn keys() -> (mpsc::UnboundedReceiver<u8>, Option<Typing>) {
    let (send, keys) = mpsc::unbounded_channel();
    let typing = Typing::begin();
    if typing.is_some() {
        // It ends with the process: nothing else ends a read from a terminal.
        std::thread::spawn(move || {
            for key in std::io::stdin().lock().bytes().map_while(Result::ok) {
                if send.send(key).is_err() {
                    break;
                }
            }
        });
    }
    (keys, typing)
}

/// A terminal that gives keys at once and does not print them. The settings are restored when this is dropped.
struct Typing(Termios);

impl Typing {
    /// `None` if standard input is no terminal.
    fn begin() -> Option<Self> {
        let settings = tcgetattr(std::io::stdin()).ok()?;
        let mut without_lines = settings.clone();
        without_lines.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        // A suspended command would leave these settings to the shell. 0 disables the key (`_POSIX_VDISABLE`).
        without_lines.special_codes[SpecialCodeIndex::VSUSP] = 0;
        // A quit ends the process at once, and leaves the settings as well.
        without_lines.special_codes[SpecialCodeIndex::VQUIT] = 0;
        without_lines.special_codes[SpecialCodeIndex::VMIN] = 1;
        without_lines.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(std::io::stdin(), OptionalActions::Now, &without_lines).ok()?;
        Some(Self(settings))
    }
}

impl Drop for Typing {
    fn drop(&mut self) {
        // Keys that were not read are for no other program. A terminal that is gone needs nothing back.
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Flush, &self.0);
    }
}
