//! The way to the daemon: a unix socket, by default where the daemon puts it.

use crate::error::CliError;
use crate::limits::CONNECT_TIMEOUT;
use hyper_util::rt::TokioIo;
use std::io;
use std::path::{Path, PathBuf};
use strake_api::limits::HEADER_BYTES_MAX;
use strake_api::v1::array_service_client::ArrayServiceClient;
use strake_api::v1::audit_service_client::AuditServiceClient;
use strake_api::v1::config_service_client::ConfigServiceClient;
use strake_api::v1::daemon_service_client::DaemonServiceClient;
use strake_api::v1::drive_service_client::DriveServiceClient;
use strake_api::v1::event_service_client::EventServiceClient;
use strake_api::v1::export_service_client::ExportServiceClient;
use strake_api::v1::job_service_client::JobServiceClient;
use strake_api::v1::pool_service_client::PoolServiceClient;
use strake_api::v1::qos_service_client::QosServiceClient;
use strake_api::v1::spare_service_client::SpareServiceClient;
use strake_api::v1::volume_service_client::VolumeServiceClient;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

/// Where the daemon listens by default: `/run/strake` for root, the user's runtime folder (XDG base directory
/// specification) for other users, as straked itself has it.
///
/// # Errors
/// When an ordinary user has no runtime folder. A folder in `/tmp` would be no substitute: any user could have made it
/// first.
pub fn default_socket() -> Result<PathBuf, CliError> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|d| !d.is_empty());
    socket_for(rustix::process::geteuid().is_root(), runtime.map(PathBuf::from)).ok_or_else(|| {
        CliError::usage(
            "the daemon's socket has no default path, because XDG_RUNTIME_DIR is not set: name one with --socket or \
             STRAKE_SOCKET",
        )
    })
}

/// The rule of [`default_socket`], without looking at the process.
#[must_use]
pub fn socket_for(root: bool, runtime: Option<PathBuf>) -> Option<PathBuf> {
    let folder =
        if root { Some(PathBuf::from("/run/strake")) } else { runtime.map(|d| d.join("strake")) };
    folder.map(|d| d.join("straked.sock"))
}

/// A connection to the daemon, and the typed clients on it.
#[derive(Clone)]
pub struct Connection {
    channel: Channel,
}

impl Connection {
    /// Connects to the daemon at `socket`.
    ///
    /// # Errors
    /// [`crate::error::ErrorKind::NoDaemon`] when no daemon answers there, naming the socket and the remedy.
    pub async fn open(socket: &Path) -> Result<Self, CliError> {
        Self::try_open(socket).await.map_err(|e| match cause(&e) {
            (Some(io::ErrorKind::PermissionDenied), _) => CliError::no_permission(socket),
            (_, why) => CliError::no_daemon(socket, why),
        })
    }

    /// Connects without words of advice, for callers that try again.
    ///
    /// # Errors
    /// What the transport said.
    pub async fn try_open(socket: &Path) -> Result<Self, tonic::transport::Error> {
        let path = socket.to_path_buf();
        // The address is never resolved: the connector below ignores it, HTTP only wants one to be there.
        let channel = Endpoint::from_static("http://straked.invalid")
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_max_header_list_size(HEADER_BYTES_MAX)
            .connect_with_connector(service_fn(move |_| {
                let path = path.clone();
                async move { UnixStream::connect(path).await.map(TokioIo::new) }
            }))
            .await?;
        Ok(Self { channel })
    }

    /// Calls about the daemon itself.
    #[must_use]
    pub fn daemon(&self) -> DaemonServiceClient<Channel> {
        DaemonServiceClient::new(self.channel.clone())
            .max_decoding_message_size(strake_api::limits::MESSAGE_BYTES_MAX)
    }

    /// Calls about drives.
    #[must_use]
    pub fn drives(&self) -> DriveServiceClient<Channel> {
        DriveServiceClient::new(self.channel.clone())
            .max_decoding_message_size(strake_api::limits::MESSAGE_BYTES_MAX)
    }

    /// Calls about arrays.
    #[must_use]
    pub fn arrays(&self) -> ArrayServiceClient<Channel> {
        ArrayServiceClient::new(self.channel.clone())
            .max_decoding_message_size(strake_api::limits::MESSAGE_BYTES_MAX)
    }

    /// Calls about exports.
    #[must_use]
    pub fn exports(&self) -> ExportServiceClient<Channel> {
        ExportServiceClient::new(self.channel.clone())
            .max_decoding_message_size(strake_api::limits::MESSAGE_BYTES_MAX)
    }

    /// Calls about pools.
    #[must_use]
    pub fn pools(&self) -> PoolServiceClient<Channel> {
        PoolServiceClient::new(self.channel.clone())
            .max_decoding_message_size(strake_api::limits::MESSAGE_BYTES_MAX)
    }

    /// Calls about limits.
    #[must_use]
    pub fn qos(&self) -> QosServiceClient<Channel> {
        QosServiceClient::new(self.channel.clone())
    }

    /// Calls about volumes and snapshots.
    #[must_use]
    pub fn volumes(&self) -> VolumeServiceClient<Channel> {
        VolumeServiceClient::new(self.channel.clone())
            .max_decoding_message_size(strake_api::limits::MESSAGE_BYTES_MAX)
    }

    /// Calls about spares.
    #[must_use]
    pub fn spares(&self) -> SpareServiceClient<Channel> {
        SpareServiceClient::new(self.channel.clone())
            .max_decoding_message_size(strake_api::limits::MESSAGE_BYTES_MAX)
    }

    /// Calls about jobs.
    #[must_use]
    pub fn jobs(&self) -> JobServiceClient<Channel> {
        JobServiceClient::new(self.channel.clone())
            .max_decoding_message_size(strake_api::limits::MESSAGE_BYTES_MAX)
    }

    /// Calls about events and hooks.
    #[must_use]
    pub fn events(&self) -> EventServiceClient<Channel> {
        EventServiceClient::new(self.channel.clone())
            .max_decoding_message_size(strake_api::limits::MESSAGE_BYTES_MAX)
    }

    /// Calls about the audit log.
    #[must_use]
    pub fn audit(&self) -> AuditServiceClient<Channel> {
        AuditServiceClient::new(self.channel.clone())
            .max_decoding_message_size(strake_api::limits::MESSAGE_BYTES_MAX)
    }

    /// Calls about what the daemon has recorded.
    #[must_use]
    pub fn config(&self) -> ConfigServiceClient<Channel> {
        ConfigServiceClient::new(self.channel.clone())
            .max_decoding_message_size(strake_api::limits::MESSAGE_BYTES_MAX)
    }
}

/// The innermost cause of a transport error, in words, and of which kind it is: "transport error" alone does not help.
fn cause(error: &tonic::transport::Error) -> (Option<io::ErrorKind>, String) {
    let mut inner: &dyn std::error::Error = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    let kind = inner.downcast_ref::<io::Error>().map(io::Error::kind);
    let words = match kind {
        Some(io::ErrorKind::NotFound) => "no such socket".to_owned(),
        Some(io::ErrorKind::ConnectionRefused) => "no process listens on it".to_owned(),
        _ => inner.to_string(),
    };
    (kind, words)
}
