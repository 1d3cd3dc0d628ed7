//! Arrays that lost more members than their redundancy covers: taken out of service, and started again like any that
//! is recorded when enough members are back.
//!
//! A lost array has recorded nothing of its loss, so it starts as it would after a crash. Clients that rely on what
//! they did not flush are told as they are then: those of NBD lose their connection, and hosts of NVMe/TCP the queues
//! that used it.

use std::thread;
use std::time::{Duration, Instant};

use crate::control::{Control, Reserved};
use crate::error::ControlError;
use crate::manager::{Manager, Running, array_key};
use crate::offline::Offline;

/// Time between the second loss in a row of an array and its start. It doubles with each further one.
const PAUSE_MIN: Duration = Duration::from_secs(5);

/// The longest such time.
const PAUSE_MAX: Duration = Duration::from_secs(600);

/// An array that ran for so long is not the same trouble again.
const STEADY: Duration = Duration::from_secs(600);

/// A loss of an array while it ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Loss {
    at: Instant,
    /// How long it is not started: a drive that fails whenever it is written to would be lost again and again.
    pause: Duration,
}

impl Loss {
    /// A loss at `at`, after the one `before`.
    fn after(before: Option<Self>, at: Instant) -> Self {
        let again = before.filter(|before| at.duration_since(before.at) < before.pause + STEADY);
        let pause =
            again.map_or(Duration::ZERO, |before| (2 * before.pause).clamp(PAUSE_MIN, PAUSE_MAX));
        Self { at, pause }
    }

    /// Whether the array may be started.
    pub(crate) fn is_over(&self) -> bool {
        self.at.elapsed() >= self.pause
    }
}

impl Control {
    /// Takes arrays out of service that are lost.
    pub(crate) fn set_aside_lost(&self) -> Result<(), ControlError> {
        for (uuid, keys) in self.run(|m| Ok(m.lost_arrays()))? {
            // A command that works on it ends soon, because of the loss.
            let Some(reserved) = self.try_reserve(keys)? else { continue };
            let Some(running) = self.run(|m| Ok(m.set_aside(&uuid)))? else { continue };
            let control = self.clone();
            let let_go = move || control.let_go(&uuid, running, reserved);
            // A drive may not answer for long, and other arrays are not to wait for it.
            if let Err(error) = thread::Builder::new().name("strake-lost".into()).spawn(let_go) {
                tracing::warn!(reason = %error, "a lost array is left as it is");
            }
        }
        Ok(())
    }

    /// Waits until nothing of an array is at its drives any more: what arrives there later would hit the array that is
    /// started from them.
    fn let_go(&self, uuid: &str, running: Running, reserved: Reserved) {
        let name = running.array.name().to_string();
        if let Err(error) = running.array.stop() {
            tracing::info!(array = %name, reason = %error, "stopped");
        }
        let let_go = self.run(|m| {
            m.detach_exports_of(uuid);
            Ok(())
        });
        if let Err(error) = let_go {
            tracing::warn!(array = %name, reason = %error, "exports not let go");
        }
        drop(reserved);
    }
}

impl Manager {
    /// Arrays that are lost, and what to reserve of each.
    fn lost_arrays(&self) -> Vec<(String, Vec<String>)> {
        let lost = self.running.iter().filter(|running| running.array.status().lost);
        lost.map(|running| {
            let names = [array_key(&running.array.name().to_string()), array_key(&running.uuid())];
            (running.uuid(), names.into_iter().chain(running.drive_keys()).collect())
        })
        .collect()
    }

    /// Takes a lost array out of sight, as one that cannot be started for now.
    fn set_aside(&mut self, uuid: &str) -> Option<Running> {
        // While it is there: its loss is told.
        self.observe();
        let at = self.running.iter().position(|r| r.uuid() == uuid && r.array.status().lost)?;
        let record = self.config.arrays.iter().find(|a| a.uuid == uuid)?.clone();
        self.keep_scrub(at, true);
        let running = self.running.remove(at);
        self.seen.remove(uuid);
        self.written.remove(uuid);
        let loss = Loss::after(self.losses.get(uuid).copied(), Instant::now());
        self.losses.insert(uuid.to_owned(), loss);
        let why = ControlError::state("it lost more members than its redundancy covers");
        self.offline.insert(uuid.to_owned(), Offline::new(&record, &why, &[]));
        Some(running)
    }
}

#[cfg(test)]
mod tests {
    use super::{Loss, PAUSE_MAX, PAUSE_MIN, STEADY};
    use std::time::{Duration, Instant};

    #[test]
    fn an_array_that_is_lost_again_and_again_is_started_less_and_less_often() {
        let mut now = Instant::now();
        let mut loss = Loss::after(None, now);
        assert_eq!(loss.pause, Duration::ZERO);
        for pause in [PAUSE_MIN, 2 * PAUSE_MIN, 4 * PAUSE_MIN] {
            now += loss.pause + Duration::from_secs(1);
            loss = Loss::after(Some(loss), now);
            assert_eq!(loss.pause, pause);
        }
        for _ in 0..10 {
            now += loss.pause + STEADY / 2;
            loss = Loss::after(Some(loss), now);
        }
        assert_eq!(loss.pause, PAUSE_MAX);
        now += loss.pause + STEADY;
        assert_eq!(Loss::after(Some(loss), now).pause, Duration::ZERO);
    }
}
