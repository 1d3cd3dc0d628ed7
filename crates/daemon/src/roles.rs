//! The role that each call requires, and the check before a call.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use strake_control::{Control, Role};
use tokio::sync::Semaphore;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::NamedService;

use crate::access::{Peer, Visitor};

/// Calls of users without a role that are answered with a reason and an audit entry at the same time.
static STRANGERS_AT_ONCE: Semaphore = Semaphore::const_new(2);

#[cfg(test)]
mod tests;

/// The calls by the role that they require. A call that is in no list requires [`Role::Admin`].
///
/// A viewer sees everything except secrets. An operator keeps arrays healthy, and overwrites no content that Strake
/// recognizes. Calls with which a caller could read, lose or admit data of others require an administrator.
const CALLS: [(Role, &[&str]); 3] = [
    (
        Role::Viewer,
        &[
            "ArrayService/GetArray",
            "ArrayService/GetArrayStats",
            "ArrayService/GetScrub",
            "ArrayService/ListArrays",
            "ArrayService/ListTraces",
            "ArrayService/WatchArray",
            "AuditService/ListAudit",
            "AuditService/VerifyAudit",
            "ConfigService/GetConfig",
            "DaemonService/GetDaemon",
            "DaemonService/GetStatus",
            "DaemonService/RunDoctor",
            "DriveService/GetDrive",
            "DriveService/GetDriveHealth",
            "DriveService/ListDrives",
            "EventService/FollowEvents",
            "EventService/ListEvents",
            "EventService/ListHooks",
            "ExportService/GetExport",
            "ExportService/ListExports",
            "ExportService/ListHosts",
            "ExportService/ListReferrals",
            "JobService/ListJobs",
            "PoolService/GetPool",
            "PoolService/ListPools",
            "QosService/GetQos",
            "QosService/ListQos",
            "SpareService/ListSpares",
            "VolumeService/CompareVolumes",
            "VolumeService/GetVolume",
            "VolumeService/ListVolumes",
        ],
    ),
    (
        Role::Operator,
        &[
            "ArrayService/AddDrive",
            "ArrayService/ChangeScrub",
            "ArrayService/ListImportable",
            "ArrayService/ReaddMember",
            "ArrayService/RebuildArray",
            "ArrayService/ReplaceMember",
            "ArrayService/StartScrub",
            "DriveService/DiscoverDrives",
            "DriveService/GetFirmware",
            "DriveService/LocateDrive",
            "DriveService/ReadTelemetry",
            "EventService/TestHook",
            "JobService/ChangeJob",
            "QosService/ClearQos",
            "QosService/SetQos",
            "SpareService/AddSpare",
            "SpareService/RemoveSpare",
            "VolumeService/CloneSnapshot",
            "VolumeService/CreateSnapshots",
            "VolumeService/CreateVolume",
            "VolumeService/ResizeVolume",
            "VolumeService/SetVolume",
        ],
    ),
    (
        Role::Admin,
        &[
            "ArrayService/CreateArray",
            "ArrayService/DestroyArray",
            "ArrayService/FailMember",
            "ArrayService/GrowArray",
            "ArrayService/ImportArrays",
            "ArrayService/RenameArray",
            "ArrayService/SetArray",
            "ArrayService/UndeleteArray",
            "ArrayService/UnloadArray",
            "ArrayService/UpgradeFormat",
            "ConfigService/RestoreConfig",
            "DaemonService/StopDaemon",
            "DriveService/CleanDrive",
            "DriveService/ConnectDrive",
            "DriveService/DisconnectDrive",
            "DriveService/FormatDrive",
            "DriveService/ReleaseDrives",
            "DriveService/SanitizeDrive",
            "DriveService/TakeDrives",
            "DriveService/UpdateFirmware",
            "EventService/AddHook",
            "EventService/RemoveHook",
            "ExportService/AddHost",
            "ExportService/AddReferral",
            "ExportService/CreateExport",
            "ExportService/DisconnectHost",
            "ExportService/ReleaseExport",
            "ExportService/RemoveExport",
            "ExportService/RemoveHost",
            "ExportService/RemoveReferral",
            "ExportService/SetExport",
            "PoolService/CreatePool",
            "PoolService/DestroyPool",
            "VolumeService/DestroyVolume",
            "VolumeService/RenameVolume",
            "VolumeService/RollbackVolume",
        ],
    ),
];

/// Services of gRPC itself, which describe the interface and whether it is served.
const DESCRIPTIONS: [&str; 2] =
    ["/grpc.health.v1.Health/", "/grpc.reflection.v1.ServerReflection/"];

/// The name of the package in the path of a call.
const PACKAGE: &str = "/strake.v1.";

/// Returns the role that the call with this path requires.
pub fn required(path: &str) -> Role {
    if DESCRIPTIONS.iter().any(|service| path.starts_with(service)) {
        return Role::Viewer;
    }
    let call = path.strip_prefix(PACKAGE).unwrap_or_default();
    let found = CALLS.iter().find(|(_, calls)| calls.contains(&call));
    found.map_or(Role::Admin, |(role, _)| *role)
}

/// The error of a call that requires a higher role.
pub fn denied(peer: Peer, what: &str, required: Role) -> Status {
    Status::permission_denied(format!(
        "user {} is {} here, and {what} requires the role {required}; ask an administrator, or to be added to a group \
         with this role",
        peer.uid,
        with_article(peer.role),
    ))
}

/// The error of a call without a caller. Each accepted connection has one.
pub fn unknown_caller() -> Status {
    Status::unauthenticated("the caller is unknown")
}

const fn with_article(role: Role) -> &'static str {
    match role {
        Role::Viewer => "a viewer",
        Role::Operator => "an operator",
        Role::Admin => "an administrator",
    }
}

/// A service whose calls are checked first.
#[derive(Clone)]
pub struct Checked<S> {
    service: S,
    control: Control,
}

impl<S> Checked<S> {
    /// Checks each call of `service`, and records denied calls.
    pub fn new(service: S, control: &Control) -> Self {
        Self { service, control: control.clone() }
    }
}

impl<S: NamedService> NamedService for Checked<S> {
    const NAME: &'static str = S::NAME;
}

/// The answer of a call, some time later.
type Answering = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

impl<S> Service<http::Request<Body>> for Checked<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Answering {
        let path = request.uri().path();
        let required = required(path);
        let call = path.trim_start_matches(PACKAGE).to_owned();
        let visitor = request.extensions().get::<Visitor>().copied();
        let control = self.control.clone();
        let deny = move || -> Status {
            match visitor {
                None => unknown_caller(),
                Some(Visitor::Known(peer)) => {
                    control.audit().deny(&peer.into(), &call);
                    denied(peer, &call, required)
                }
                Some(Visitor::Stranger(who)) => {
                    control.audit().deny(&who.into(), &call);
                    Status::permission_denied(who.reason_here())
                }
            }
        };
        match visitor {
            Some(Visitor::Known(peer)) if peer.role >= required => {
                request.extensions_mut().insert(peer);
                Box::pin(self.service.call(request))
            }
            Some(Visitor::Stranger(_)) => Box::pin(async move {
                // Strangers may not occupy the threads that answer other users.
                let Ok(_permit) = STRANGERS_AT_ONCE.try_acquire() else {
                    let what = "this user has no role here, and too many calls without a role arrive: try again later";
                    return Ok(Status::permission_denied(what).into_http());
                };
                let status = tokio::task::spawn_blocking(deny).await;
                Ok(status.unwrap_or_else(|_| unknown_caller()).into_http())
            }),
            Some(Visitor::Known(_)) | None => Box::pin(async move {
                // The call is denied also if the reason cannot be formed and recorded.
                let status = tokio::task::spawn_blocking(deny).await;
                Ok(status.unwrap_or_else(|_| unknown_caller()).into_http())
            }),
        }
    }
}
