//! The state that all services share: the control plane, which is called outside the async threads.

use std::sync::Arc;
use std::time::{Duration, Instant};

use prost::Message as _;
use strake_api::limits::{
    DRIVES_MAX, ERROR_DETAIL_BYTES_MAX, ERROR_DETAIL_KEY, HOSTS_MAX, STRING_BYTES_MAX,
};
use strake_api::v1::ErrorDetail;
use strake_control::audit::Audit;
use strake_control::{Actor, Control, ControlError, ControlErrorKind, Manager, Outcome, Role};
use strake_wording::{Command, has_request};
use tokio::sync::{Notify, Semaphore, watch};
use tonic::metadata::MetadataValue;
use tonic::{Code, Request, Response, Status};

use crate::access::Peer;
use crate::budget::Budgets;
use crate::roles::{denied, unknown_caller};

/// Maximum number of running commands.
pub const COMMANDS_MAX: usize = 32;

/// Maximum number of images of firmware in memory.
const FIRMWARE_MAX: usize = 2;

/// Maximum number of telemetry logs in memory.
const TELEMETRY_MAX: usize = 2;

/// Number of threads for calls that only read, and for the stop.
pub const LOOKS_MAX: usize = 32;

/// Commands of an operator at once.
const COMMANDS_AT_ONCE: u32 = 60;

/// Time after which an operator may send one more command.
const COMMANDS_EVERY: Duration = Duration::from_secs(1);

/// The consent to overwrite the content of a drive, for messages.
pub const OVERWRITE: &str = "a consent to overwrite a drive";

/// The use of a drive that is no device of this host, for messages. Most files have no content that Strake recognizes.
pub const NO_DEVICE: &str = "a drive that is no device of this host";

/// The answer of a call.
pub type Answer<T> = Result<Response<T>, Status>;

/// The shared control plane of all calls.
#[derive(Clone)]
pub struct Shared {
    control: Control,
    /// The permits for running commands.
    turns: Arc<Semaphore>,
    /// The permits for a read of the audit log, which may take seconds: of administrators, and of others.
    audit_turns: [Arc<Semaphore>; 2],
    /// The permits for telemetry logs in memory.
    pub telemetry_turns: Arc<Semaphore>,
    /// The permits for images of firmware in memory.
    pub firmware_turns: Arc<Semaphore>,
    /// The commands of users other than administrators.
    budgets: Arc<Budgets>,
    /// Notified when a client asks the daemon to stop.
    pub stop: Arc<Notify>,
    /// The address of the daemon, for messages.
    pub socket: Arc<str>,
    /// The number of the newest event.
    pub newest: watch::Receiver<u64>,
}

impl Shared {
    pub fn new(control: Control, socket: &str) -> Self {
        let (tell, newest) = watch::channel(control.events().last());
        control.events().listen(move |event| {
            // The number is not needed if no client follows events.
            tell.send_replace(event.number);
        });
        let turns = Arc::new(Semaphore::new(COMMANDS_MAX));
        Self {
            control,
            turns,
            audit_turns: [1, 1].map(|permits| Arc::new(Semaphore::new(permits))),
            telemetry_turns: Arc::new(Semaphore::new(TELEMETRY_MAX)),
            firmware_turns: Arc::new(Semaphore::new(FIRMWARE_MAX)),
            budgets: Arc::new(Budgets::new(COMMANDS_AT_ONCE, COMMANDS_EVERY)),
            stop: Arc::new(Notify::new()),
            socket: socket.into(),
            newest,
        }
    }

    /// Returns the control plane, for calls that do not block.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// Runs `job` on a thread that may block.
    pub async fn call<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Control) -> Result<T, ControlError> + Send + 'static,
    ) -> Result<T, Status> {
        let control = self.control.clone();
        let done =
            tokio::task::spawn_blocking(move || job(&control).map_err(|error| status_of(&error)));
        done.await.map_err(|_| {
            Status::internal("the command panicked; its cause is in the daemon's log")
        })?
    }

    /// Runs `job` on the manager under its lock, which it must not hold for long.
    pub async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Manager) -> Result<T, ControlError> + Send + 'static,
    ) -> Result<T, Status> {
        self.call(|control| control.run(job)).await
    }

    /// Runs `job` on the manager as [`run`](Self::run) does, and returns the answer of the call.
    pub async fn answer<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Manager) -> Result<T, ControlError> + Send + 'static,
    ) -> Answer<T> {
        self.run(job).await.map(Response::new)
    }

    /// Executes a command that changes the configuration or an array, and records its actor.
    pub async fn command<C: Command + Send + 'static, T: Outcome + Send + 'static>(
        &self,
        request: Request<C>,
        job: impl FnOnce(&Control, &C) -> Result<T, ControlError> + Send + 'static,
    ) -> Answer<T> {
        self.check_budget(&request)?;
        let actor = actor_of(&request);
        let command = request.into_inner();
        // Commands wait for drives and for each other. Those in excess wait here, so that threads are left for calls
        // that only read, and for the stop.
        let turn = self.turns.acquire().await;
        let _turn = turn.map_err(|_| Status::unavailable("the daemon is stopping"))?;
        self.call(move |control| control.command(&actor, &command, job)).await.map(Response::new)
    }

    /// Reads the audit log for `caller`, one administrator and one other caller at a time: many readers would take the
    /// threads of other calls.
    pub async fn read_audit<T: Send + 'static>(
        &self,
        caller: &Actor,
        read: impl FnOnce(&Audit) -> Result<T, ControlError> + Send + 'static,
    ) -> Answer<T> {
        let [admins, others] = &self.audit_turns;
        let turns = if caller.role == Some(Role::Admin) { admins } else { others };
        let turn = Arc::clone(turns).acquire_owned().await;
        let turn = turn.map_err(|_| Status::unavailable("the daemon is stopping"))?;
        // The read holds the permit until its end, also if the client has gone.
        let answer = self.call(move |control| {
            let _turn = turn;
            read(control.audit())
        });
        answer.await.map(Response::new)
    }

    /// Refuses a command beyond the budget of its user: each command has entries in the audit log, whose size is
    /// limited.
    fn check_budget<T>(&self, request: &Request<T>) -> Result<(), Status> {
        let peer = request.extensions().get::<Peer>().filter(|peer| peer.role < Role::Admin);
        match peer {
            Some(peer) if !self.budgets.take(peer.uid, Instant::now()) => {
                Err(Status::resource_exhausted(format!(
                    "user {} has used up its budget of {COMMANDS_AT_ONCE} commands; one more is possible each second",
                    peer.uid
                )))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Refuses a request with a consent that only an administrator may give: `what`, if it `is_set`. The refusal is
    /// recorded.
    pub async fn check_consent<T>(
        &self,
        request: &Request<T>,
        what: &'static str,
        is_set: bool,
    ) -> Result<(), Status> {
        let Some(peer) = request.extensions().get::<Peer>().copied() else {
            return if is_set { Err(unknown_caller()) } else { Ok(()) };
        };
        if !is_set || peer.role == Role::Admin {
            return Ok(());
        }
        let status = denied(peer, what, Role::Admin);
        self.call(move |control| {
            control.audit().deny(&peer.into(), what);
            Ok(())
        })
        .await?;
        Err(status)
    }
}

/// Returns the actor at the other end of the socket.
pub fn actor_of<T>(request: &Request<T>) -> Actor {
    request.extensions().get::<Peer>().copied().map(Actor::from).unwrap_or_default()
}

/// The gRPC status of an error; docs/api.md lists what each means. If its message names requests, the metadata contain
/// its parts. They are not in `grpc-status-details-bin`, where clients expect a `google.rpc.Status`.
pub fn status_of(error: &ControlError) -> Status {
    let code = match error.kind {
        ControlErrorKind::Usage => Code::InvalidArgument,
        ControlErrorKind::NotFound => Code::NotFound,
        ControlErrorKind::Exists => Code::AlreadyExists,
        ControlErrorKind::State | ControlErrorKind::Refused => Code::FailedPrecondition,
        ControlErrorKind::Device | ControlErrorKind::Silent => Code::Aborted,
        ControlErrorKind::Store => Code::ResourceExhausted,
        ControlErrorKind::Stopped => Code::Unavailable,
        ControlErrorKind::Internal => Code::Internal,
    };
    let mut status = Status::new(code, &error.what);
    let detail = ErrorDetail { parts: error.parts.clone() };
    // Metadata share a size limit with the message, which contains the whole text.
    if has_request(&detail.parts) && detail.encoded_len() <= ERROR_DETAIL_BYTES_MAX {
        let detail = MetadataValue::from_bytes(&detail.encode_to_vec());
        status.metadata_mut().insert_bin(ERROR_DETAIL_KEY, detail);
    }
    status
}

/// True if the name of a drive can only be a device of this host: see the names of drives in docs/operations.md. The
/// name may be empty. Ordinary users cannot create files or links below `/dev`, except in the folders excluded here. A
/// drive in memory would lose what is copied to it, and a remote drive may belong to anyone.
pub fn is_device(drive: &str) -> bool {
    let Some(name) = drive.strip_prefix("/dev/") else {
        return drive.is_empty() || drive.starts_with("pci:");
    };
    let mut parts = name.split('/');
    let is_odd = |part: &str| matches!(part, "" | "." | "..");
    let is_foreign = ["shm", "mqueue", "fd", "stdin", "stdout", "stderr", "core"];
    !name.split('/').any(is_odd) && parts.next().is_some_and(|part| !is_foreign.contains(&part))
}

/// Refuses a text that is longer than any name or path.
pub fn check_text(field: &str, text: &str) -> Result<(), Status> {
    if text.len() > STRING_BYTES_MAX {
        let what =
            format!("{field} has {} bytes; at most {STRING_BYTES_MAX} are accepted", text.len());
        return Err(Status::invalid_argument(what));
    }
    Ok(())
}

/// Checks a list of drives: their number, and each text.
pub fn check_drives(drives: &[String]) -> Result<(), Status> {
    if drives.len() > DRIVES_MAX {
        let what =
            format!("{} drives in one request; at most {DRIVES_MAX} are accepted", drives.len());
        return Err(Status::invalid_argument(what));
    }
    drives.iter().try_for_each(|drive| check_text("a drive", drive))
}

/// Checks a list of hosts: their number, and each text.
pub fn check_hosts(hosts: &[String]) -> Result<(), Status> {
    if hosts.len() > HOSTS_MAX {
        let what =
            format!("{} hosts in one request; at most {HOSTS_MAX} are accepted", hosts.len());
        return Err(Status::invalid_argument(what));
    }
    hosts.iter().try_for_each(|host| check_text("a host", host))
}

/// Refuses a request with a field that is longer than any name or path.
pub fn check_texts(fields: &[(&str, &str)]) -> Result<(), Status> {
    fields.iter().try_for_each(|(field, text)| check_text(field, text))
}
