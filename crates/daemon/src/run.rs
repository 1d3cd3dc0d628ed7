//! The life of the process: start, serve, stop.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use strake_api::FILE_DESCRIPTOR_SET;
use strake_api::limits::{HEADER_BYTES_MAX, MESSAGE_BYTES_MAX, RESETS_MAX, STREAMS_MAX};
use strake_api::v1::GetStatusRequest;
use strake_api::v1::array_service_server::ArrayServiceServer;
use strake_api::v1::audit_service_server::AuditServiceServer;
use strake_api::v1::config_service_server::ConfigServiceServer;
use strake_api::v1::daemon_service_server::DaemonServiceServer;
use strake_api::v1::drive_service_server::DriveServiceServer;
use strake_api::v1::event_service_server::EventServiceServer;
use strake_api::v1::export_service_server::ExportServiceServer;
use strake_api::v1::job_service_server::JobServiceServer;
use strake_api::v1::pool_service_server::PoolServiceServer;
use strake_api::v1::qos_service_server::QosServiceServer;
use strake_api::v1::spare_service_server::SpareServiceServer;
use strake_api::v1::volume_service_server::VolumeServiceServer;
use strake_control::{Control, Options, Store};
use strake_wording::command;
use tokio::net::UnixListener;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tonic::transport::Server;

use crate::access::{Admission, Groups};
use crate::args::{Args, SOCKET};
use crate::metrics::{self, Metrics, Place};
use crate::notify::{Environment, Message, Pace, Service, summary};
use crate::roles::Checked;
use crate::shared::{COMMANDS_MAX, LOOKS_MAX, Shared};
use crate::{again, contain, files, format, hook, log, socket};
use strake_parity::Kernel;

/// Time between two rounds of upkeep, so that a spare is in use within a second after a failure.
const TICK: Duration = Duration::from_millis(400);

/// Time limit of the wait for the start of arrays, before the daemon answers without them.
const STARTS_FIRST: Duration = Duration::from_secs(1);

/// Time limit for running calls when the daemon stops.
const CALLS_END: Duration = Duration::from_secs(5);

/// The end of the daemon without a request to stop.
pub struct Ended {
    /// The phase in which the daemon ended.
    pub when: When,
    /// The reason, for the operator.
    pub why: String,
}

/// The phase of the daemon when it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The daemon was not serving yet, and nothing was changed. It can be started with other options.
    Starting,
    /// The daemon was serving.
    Serving,
}

impl From<String> for Ended {
    fn from(why: String) -> Self {
        Self { when: When::Starting, why }
    }
}

/// Runs the daemon until a request to stop.
pub fn run(args: &Args) -> Result<(), Ended> {
    log::start(args.log);
    let state_dir = args.state_dir()?;
    let path = args.socket()?;
    make_folders(&path, args.metrics.as_ref(), &state_dir)?;
    // Before the first thread starts, because threads inherit the measures.
    let choices = args.containment()?;
    let measures = contain::enter(&choices)?;
    let service = Service::new(&Environment::of_process(), std::process::id());
    let kernel = args.parity_kernel.unwrap_or(Kernel::fit());
    if !kernel.choose() {
        return Err("another parity kernel is in use already".to_owned().into());
    }
    tracing::info!(kernel = kernel.name(), "parity kernel");
    files::allow_all()?;
    let groups = Groups::of(args.operator_group.as_deref(), args.viewer_group.as_deref())?;
    let options = Options {
        cores: args.cores.clone(),
        assemble_timeout: args.assemble_timeout.0,
        io_limits: args.io_timeout,
        measures,
        programs: hook::programs(&choices.places),
        formatter: Some(format::formatter()),
        ..Options::default()
    };
    let runtime =
        control_threads().map_err(|e| format!("cannot start the control threads: {e}"))?;
    // From here on, a signal causes a clean stop.
    let signals = {
        let _context = runtime.enter();
        Signals::receive()
    };
    let metrics = runtime.block_on(async {
        match &args.metrics {
            Some(place) => metrics::listen(place, groups).await.map(Some),
            None => Ok(None),
        }
    })?;
    // The state directory is locked before the socket is created: only the process with the lock may replace a stale
    // socket.
    let control = Control::open(&state_dir, options).map_err(|e| e.to_string())?;
    // When the first client connects, the arrays whose drives answer quickly run. The other arrays are started in the
    // background.
    if !control.starts_are_over(STARTS_FIRST).map_err(|e| e.to_string())? {
        let status = command(&GetStatusRequest {});
        tracing::info!("arrays are still being started: {status} says what they wait for");
    }
    let shared = Shared::new(control, &path.display().to_string());
    let served = runtime.block_on(async {
        let (listener, guard) = socket::listen(&path, SOCKET, groups)?;
        let arguments: Vec<_> = std::env::args_os().skip(1).collect();
        again::write_down(&path, &state_dir, &arguments);
        if let Some(metrics) = &metrics {
            tracing::info!(place = %metrics.place(), "giving metrics");
        }
        tracing::info!(socket = %path.display(), state_dir = %state_dir.display(), "serving");
        let served = serve(&shared, listener, guard.admission(), metrics, &service, signals).await;
        drop(guard);
        served.map_err(|why| Ended { when: When::Serving, why })
    });
    service.send(&[Message::Stopping, Message::Status("Stopping arrays".to_owned())]);
    let stopped = shared.call(|control| Ok(control.stop()));
    let stopped = runtime.block_on(alive_while(&service, stopped));
    let failed = |why| Ended { when: When::Serving, why };
    for error in stopped.map_err(|e| failed(e.message().to_owned()))? {
        tracing::error!(reason = %error, "not stopped cleanly");
    }
    tracing::info!("stopped");
    // A watch that still waits must not delay the end.
    runtime.shutdown_timeout(Duration::from_secs(1));
    served
}

/// Creates the folders of the daemon. The containment permits writes in them, and not in their parents. An unusable
/// address is detected before the state directory is created, arrays are started, and events are recorded.
fn make_folders(path: &Path, metrics: Option<&Place>, state_dir: &Path) -> Result<(), String> {
    socket::refuse_unusable(path, metrics.and_then(Place::unix))?;
    metrics.map_or(Ok(()), metrics::prepare)?;
    Store::make(state_dir).map_err(|error| error.to_string())
}

/// Creates the threads that answer calls.
pub fn control_threads() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(COMMANDS_MAX + LOOKS_MAX)
        .thread_name("strake-control")
        .enable_all()
        .build()
}

/// The calls of a service, checked and with messages of limited size.
macro_rules! calls {
    ($server:ident, $shared:expr) => {{
        let server = $server::new($shared.clone());
        Checked::new(server.max_decoding_message_size(MESSAGE_BYTES_MAX), $shared.control())
    }};
}

async fn serve(
    shared: &Shared,
    listener: UnixListener,
    admission: Admission,
    metrics: Option<Metrics>,
    service: &Service,
    signals: Option<Signals>,
) -> Result<(), String> {
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_serving::<ArrayServiceServer<Shared>>().await;
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()
        .map_err(|e| format!("cannot offer reflection: {e}"))?;
    let callers = socket::callers(listener, admission);
    let ticking = tokio::spawn(tick(shared.clone(), service.clone()));
    let metering = metrics.map(|metrics| tokio::spawn(metrics.serve(shared.clone())));
    let (reported, end) = tokio::sync::watch::channel(false);
    let mut graceful = end.clone();
    let server = Server::builder()
        .max_concurrent_streams(STREAMS_MAX)
        .http2_max_header_list_size(HEADER_BYTES_MAX)
        .http2_max_pending_accept_reset_streams(Some(RESETS_MAX))
        .add_service(calls!(DaemonServiceServer, shared))
        .add_service(calls!(DriveServiceServer, shared))
        .add_service(calls!(ArrayServiceServer, shared))
        .add_service(calls!(PoolServiceServer, shared))
        .add_service(calls!(VolumeServiceServer, shared))
        .add_service(calls!(QosServiceServer, shared))
        .add_service(calls!(ExportServiceServer, shared))
        .add_service(calls!(SpareServiceServer, shared))
        .add_service(calls!(JobServiceServer, shared))
        .add_service(calls!(EventServiceServer, shared))
        .add_service(calls!(ConfigServiceServer, shared))
        .add_service(calls!(AuditServiceServer, shared))
        .add_service(Checked::new(health, shared.control()))
        .add_service(Checked::new(reflection, shared.control()))
        .serve_with_incoming_shutdown(callers, async move {
            // An error means that the sender was dropped, which also requests the end.
            let _ = graceful.wait_for(|end| *end).await;
        });
    let mut server = std::pin::pin!(server);
    service.send(&[Message::Ready, Message::Status("Serving".to_owned())]);
    let ended = tokio::select! {
        ended = &mut server => ended,
        () = asked_to_stop(shared, signals) => {
            reporter.set_not_serving::<ArrayServiceServer<Shared>>().await;
            // The receiver is held above.
            let _ = reported.send(true);
            // Watches do not end without a time limit.
            tokio::time::timeout(CALLS_END, &mut server).await.unwrap_or(Ok(()))
        }
    };
    ticking.abort();
    if let Some(metering) = metering {
        metering.abort();
        // The task ends as cancelled after its socket was removed.
        let _ = metering.await;
    }
    drop(end);
    ended.map_err(|e| format!("serving ended: {e}"))
}

/// Runs rounds of upkeep. If this function ends, the messages to the watchdog also end, and the service manager
/// restarts the daemon.
async fn tick(shared: Shared, service: Service) {
    let mut pace = Pace::new(service.every());
    loop {
        tokio::time::sleep(TICK).await;
        let mut round = shared.call(Control::round).await;
        if round.is_ok() && pace.is_due(Instant::now()) {
            let arrays = shared.run(|manager| Ok(manager.arrays())).await;
            round = arrays.map(|arrays| {
                service.send(&[Message::Alive, Message::Status(summary(&arrays))]);
            });
        }
        if let Err(status) = round {
            tracing::error!(reason = %status.message(), "upkeep ended");
            return;
        }
    }
}

/// Waits for `job`, which has a separate time limit, and sends the messages to the watchdog in the meantime.
async fn alive_while<T>(service: &Service, job: impl Future<Output = T>) -> T {
    let mut job = std::pin::pin!(job);
    let Some(every) = service.every() else { return job.await };
    loop {
        tokio::select! {
            done = &mut job => return done,
            () = tokio::time::sleep(every) => service.send(&[Message::Alive]),
        }
    }
}

/// The signals that request a clean stop.
struct Signals {
    term: Signal,
    int: Signal,
    /// SIGHUP: the terminal was closed.
    hup: Signal,
}

impl Signals {
    /// Starts to receive the signals. Returns `None` and logs the error if this is not possible.
    fn receive() -> Option<Self> {
        let received = || -> io::Result<Self> {
            Ok(Self {
                term: signal(SignalKind::terminate())?,
                int: signal(SignalKind::interrupt())?,
                hup: signal(SignalKind::hangup())?,
            })
        };
        let why = match received() {
            Ok(signals) => return Some(signals),
            Err(error) => error,
        };
        tracing::error!(%why, "signals cannot be received; stop this daemon through its socket");
        None
    }
}

async fn asked_to_stop(shared: &Shared, signals: Option<Signals>) {
    let Some(mut signals) = signals else { return shared.stop.notified().await };
    tokio::select! {
        _ = signals.term.recv() => tracing::info!("stopping: SIGTERM"),
        _ = signals.int.recv() => tracing::info!("stopping: SIGINT"),
        _ = signals.hup.recv() => tracing::info!("stopping: SIGHUP"),
        () = shared.stop.notified() => tracing::info!("stopping: asked by a client"),
    }
}
