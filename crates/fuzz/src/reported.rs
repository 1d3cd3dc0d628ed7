//! What to print when something panics, whichever thread that is: a data core that does so ends the process, and no
//! destructor runs.

use std::io::{Write, stderr};
use std::panic;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread::{ThreadId, current};

use crate::corpus::Case;

/// What every test is at, by its thread.
static NOW: Mutex<Vec<(ThreadId, String)>> = Mutex::new(Vec::new());
static HOOK: Once = Once::new();

fn now() -> MutexGuard<'static, Vec<(ThreadId, String)>> {
    NOW.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A text that is printed after the message of any panic while this is there.
pub(crate) struct Reported;

impl Reported {
    pub(crate) fn of(text: String) -> Self {
        HOOK.call_once(|| {
            let usual = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                usual(info);
                for (_, text) in now().iter() {
                    // What the test runner captures is lost when the process aborts; this is not captured.
                    let _ = writeln!(stderr(), "{text}");
                }
            }));
        });
        now().push((current().id(), text));
        Self
    }
}

impl Drop for Reported {
    fn drop(&mut self) {
        let (mut now, own) = (now(), current().id());
        if let Some(last) = now.iter().rposition(|(thread, _)| *thread == own) {
            now.remove(last);
        }
    }
}

/// Has the exchange printed when a test fails while this is there, as the corpus would have it.
pub struct Shown {
    _reported: Reported,
}

impl Shown {
    /// From now on.
    #[must_use]
    pub fn new(case: &Case) -> Self {
        Self {
            _reported: Reported::of(format!(
                "the conversation, {} of the corpus:\n{}",
                name(case),
                case.text()
            )),
        }
    }
}

fn name(case: &Case) -> &str {
    if case.name.is_empty() { "none yet" } else { &case.name }
}
