//! What all services share: the manager behind a lock, off the async threads.

use std::sync::{Arc, Mutex};

use strake_api::limits::{DRIVES_MAX, STRING_BYTES_MAX};
use strake_control::{ControlError, ControlErrorKind, Manager};
use tokio::sync::Notify;
use tonic::{Response, Status};

/// One manager, many calls.
#[derive(Clone)]
pub struct Shared {
    manager: Arc<Mutex<Manager>>,
    /// Told when a client asks the daemon to stop.
    pub stop: Arc<Notify>,
    /// Where the daemon listens, for people.
    pub socket: Arc<str>,
}

impl Shared {
    pub fn new(manager: Manager, socket: &str) -> Self {
        Self {
            manager: Arc::new(Mutex::new(manager)),
            stop: Arc::new(Notify::new()),
            socket: socket.into(),
        }
    }

    /// Runs `job` on the manager, on a thread that may block.
    pub async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Manager) -> Result<T, ControlError> + Send + 'static,
    ) -> Result<T, Status> {
        let manager = Arc::clone(&self.manager);
        let done = tokio::task::spawn_blocking(move || {
            let mut manager = manager.lock().map_err(|_| {
                Status::internal("an earlier command panicked and left the control plane unusable; restart straked")
            })?;
            job(&mut manager).map_err(|error| status_of(&error))
        });
        done.await.map_err(|_| {
            Status::internal("the command panicked; its cause is in the daemon's log")
        })?
    }

    /// The same, as an answer.
    pub async fn answer<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Manager) -> Result<T, ControlError> + Send + 'static,
    ) -> Result<Response<T>, Status> {
        self.run(job).await.map(Response::new)
    }
}

/// The gRPC status of an error; docs/api.md lists what each means.
pub fn status_of(error: &ControlError) -> Status {
    let what = error.what.clone();
    match error.kind {
        ControlErrorKind::Usage => Status::invalid_argument(what),
        ControlErrorKind::NotFound => Status::not_found(what),
        ControlErrorKind::Exists => Status::already_exists(what),
        ControlErrorKind::State | ControlErrorKind::Refused => Status::failed_precondition(what),
        ControlErrorKind::Device => Status::aborted(what),
        ControlErrorKind::Store => Status::resource_exhausted(what),
        ControlErrorKind::Stopped => Status::unavailable(what),
    }
}

/// Refuses strings that no name or path can be.
pub fn check_text(field: &str, text: &str) -> Result<(), Status> {
    if text.len() > STRING_BYTES_MAX {
        let what =
            format!("{field} has {} bytes; at most {STRING_BYTES_MAX} are accepted", text.len());
        return Err(Status::invalid_argument(what));
    }
    Ok(())
}

/// The same for a list of drives.
pub fn check_drives(drives: &[String]) -> Result<(), Status> {
    if drives.len() > DRIVES_MAX {
        let what =
            format!("{} drives in one request; at most {DRIVES_MAX} are accepted", drives.len());
        return Err(Status::invalid_argument(what));
    }
    drives.iter().try_for_each(|drive| check_text("a drive", drive))
}
