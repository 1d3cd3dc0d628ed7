//! A daemon that answers from a script, and the real `strake` binary against it.

mod volumes;

use std::pin::Pin;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use strake_api::v1::array_service_server::{ArrayService, ArrayServiceServer};
use strake_api::v1::audit_service_server::{AuditService, AuditServiceServer};
use strake_api::v1::config_service_server::{ConfigService, ConfigServiceServer};
use strake_api::v1::daemon_service_server::{DaemonService, DaemonServiceServer};
use strake_api::v1::drive_service_server::{DriveService, DriveServiceServer};
use strake_api::v1::event_service_server::{EventService, EventServiceServer};
use strake_api::v1::export_service_server::{ExportService, ExportServiceServer};
use strake_api::v1::job_service_server::{JobService, JobServiceServer};
use strake_api::v1::pool_service_server::PoolServiceServer;
use strake_api::v1::qos_service_server::QosServiceServer;
use strake_api::v1::spare_service_server::{SpareService, SpareServiceServer};
use strake_api::v1::volume_service_server::VolumeServiceServer;
use strake_api::v1::*;
use strake_testkit::Folder;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Code, Request, Response, Status};

type Answer<T> = Result<Response<T>, Status>;

/// What the daemon answers.
#[derive(Clone, Default)]
pub struct Script {
    /// Answer to `GetStatus`.
    pub status: SystemStatus,
    /// Later answers to `GetStatus`, in order; the last one is repeated.
    pub later: Vec<SystemStatus>,
    /// Answer to `RunDoctor`.
    pub doctor: DoctorReport,
    /// Answers of `WatchArray`, in order; the first is the answer of `GetArray` too.
    pub arrays: Vec<Array>,
    /// Answer to `ListDrives`.
    pub drives: Vec<Drive>,
    /// Answer to `ListExports`.
    pub exports: Vec<Export>,
    /// Answer to `ListHosts`.
    pub hosts: Vec<Host>,
    /// Answer to `ListJobs`.
    pub jobs: Vec<Job>,
    /// Answer to `ListPools`.
    pub pools: Vec<Pool>,
    /// Answer to `ListVolumes`.
    pub volumes: Vec<Volume>,
    /// Every change is refused with this.
    pub refusal: Option<(Code, &'static str)>,
}

/// The daemon: it remembers the requests that change something, as their Debug text.
#[derive(Clone)]
pub struct Fake {
    script: Script,
    heard: Arc<Mutex<Vec<String>>>,
    asked: Arc<AtomicUsize>,
}

impl Fake {
    fn hear(&self, request: &impl std::fmt::Debug) -> Result<(), Status> {
        self.heard.lock().expect("no test panics with it").push(format!("{request:?}"));
        match self.script.refusal {
            Some((code, why)) => Err(Status::new(code, why)),
            None => Ok(()),
        }
    }

    /// Remembers a request, and answers nothing in particular.
    fn accept<T: Default>(&self, request: &Request<impl std::fmt::Debug>) -> Answer<T> {
        self.hear(request.get_ref())?;
        Ok(Response::new(T::default()))
    }

    fn change(&self, request: &impl std::fmt::Debug) -> Answer<ArrayChange> {
        self.hear(request)?;
        Ok(Response::new(ArrayChange {
            result: "changed".into(),
            array: self.script.arrays.first().cloned(),
            plan: vec!["mark every label".into()],
            warnings: vec!["a warning".into()],
            undo: "strake array undelete tank".into(),
        }))
    }

    fn scrub(&self) -> Scrub {
        let array = self.script.arrays.first();
        let finished = || Scrub { state: "finished".into(), ..Scrub::default() };
        array.and_then(|array| array.scrub.clone()).unwrap_or_else(finished)
    }

    fn export(&self, request: &impl std::fmt::Debug) -> Answer<ExportChange> {
        self.hear(request)?;
        let export = Export {
            name: "tank".into(),
            uri: "nbd+unix:///tank?socket=/s".into(),
            ..Export::default()
        };
        Ok(Response::new(ExportChange {
            result: "created".into(),
            export: Some(export),
            plan: vec![],
        }))
    }
}

#[tonic::async_trait]
impl DaemonService for Fake {
    async fn get_daemon(&self, _: Request<GetDaemonRequest>) -> Answer<Daemon> {
        Ok(Response::new(Daemon { state: "serving".into(), ..Daemon::default() }))
    }
    async fn get_status(&self, _: Request<GetStatusRequest>) -> Answer<SystemStatus> {
        // Relaxed: it orders nothing but itself.
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        let Script { status, later, .. } = &self.script;
        let answer = asked.checked_sub(1).and_then(|nth| later.get(nth).or(later.last()));
        Ok(Response::new(answer.unwrap_or(status).clone()))
    }
    async fn stop_daemon(&self, request: Request<StopDaemonRequest>) -> Answer<StopDaemonResponse> {
        self.hear(request.get_ref())?;
        Ok(Response::new(StopDaemonResponse { pid: 0 }))
    }
    async fn run_doctor(&self, request: Request<RunDoctorRequest>) -> Answer<DoctorReport> {
        self.hear(request.get_ref())?;
        Ok(Response::new(self.script.doctor.clone()))
    }
}

/// The answer to a command that erases a drive, or plans it.
fn erased(path: String) -> DriveChange {
    let drive = Drive { path, serial: "S1".into(), ..Drive::default() };
    let plan = vec!["erase all data".into()];
    DriveChange { result: "planned".into(), drive: Some(drive), plan, ..DriveChange::default() }
}

#[tonic::async_trait]
impl DriveService for Fake {
    type ReadTelemetryStream =
        Pin<Box<dyn tokio_stream::Stream<Item = Result<TelemetryPart, Status>> + Send>>;

    async fn list_drives(&self, _: Request<ListDrivesRequest>) -> Answer<ListDrivesResponse> {
        Ok(Response::new(ListDrivesResponse { drives: self.script.drives.clone() }))
    }
    async fn get_drive(&self, request: Request<GetDriveRequest>) -> Answer<Drive> {
        self.hear(request.get_ref())?;
        Ok(Response::new(Drive {
            path: request.into_inner().path,
            state: "free".into(),
            ..Drive::default()
        }))
    }
    async fn get_drive_health(
        &self,
        request: Request<GetDriveHealthRequest>,
    ) -> Answer<DriveHealth> {
        self.hear(request.get_ref())?;
        Ok(Response::new(DriveHealth { path: request.into_inner().path, ..DriveHealth::default() }))
    }
    async fn read_telemetry(
        &self,
        request: Request<ReadTelemetryRequest>,
    ) -> Answer<Self::ReadTelemetryStream> {
        self.hear(request.get_ref())?;
        let first = TelemetryPart {
            path: request.into_inner().path,
            total_bytes: 1024,
            area: 3,
            data: vec![7; 1000],
            ..TelemetryPart::default()
        };
        let parts = [first, TelemetryPart { data: vec![8; 24], ..TelemetryPart::default() }];
        Ok(Response::new(Box::pin(tokio_stream::iter(parts.map(Ok)))))
    }
    async fn locate_drive(&self, request: Request<LocateDriveRequest>) -> Answer<DriveChange> {
        self.accept(&request)
    }
    async fn clean_drive(&self, request: Request<CleanDriveRequest>) -> Answer<DriveChange> {
        self.accept(&request)
    }
    async fn format_drive(&self, request: Request<FormatDriveRequest>) -> Answer<DriveChange> {
        self.hear(request.get_ref())?;
        Ok(Response::new(erased(request.into_inner().path)))
    }
    async fn sanitize_drive(&self, request: Request<SanitizeDriveRequest>) -> Answer<DriveChange> {
        self.hear(request.get_ref())?;
        Ok(Response::new(erased(request.into_inner().path)))
    }
    async fn get_firmware(&self, request: Request<GetFirmwareRequest>) -> Answer<Firmware> {
        self.accept(&request)
    }
    async fn update_firmware(
        &self,
        request: Request<tonic::Streaming<FirmwarePart>>,
    ) -> Answer<DriveChange> {
        let mut parts = request.into_inner();
        let (mut update, mut bytes) = (None, 0);
        while let Some(part) = parts.message().await? {
            update = update.or(part.request);
            bytes += part.data.len();
        }
        self.hear(&(update.unwrap_or_default(), bytes))?;
        Ok(Response::new(DriveChange { result: "changed".into(), ..DriveChange::default() }))
    }
    async fn take_drives(&self, request: Request<TakeDrivesRequest>) -> Answer<DriverChanges> {
        self.accept(&request)
    }
    async fn release_drives(
        &self,
        request: Request<ReleaseDrivesRequest>,
    ) -> Answer<DriverChanges> {
        self.accept(&request)
    }
    async fn connect_drive(&self, request: Request<ConnectDriveRequest>) -> Answer<DriveChange> {
        self.accept(&request)
    }
    async fn disconnect_drive(
        &self,
        request: Request<DisconnectDriveRequest>,
    ) -> Answer<DriveChange> {
        self.accept(&request)
    }
    async fn discover_drives(
        &self,
        request: Request<DiscoverDrivesRequest>,
    ) -> Answer<DiscoverDrivesResponse> {
        self.accept(&request)
    }
}

#[tonic::async_trait]
impl ArrayService for Fake {
    type WatchArrayStream = Pin<Box<dyn tokio_stream::Stream<Item = Result<Array, Status>> + Send>>;

    async fn create_array(&self, request: Request<CreateArrayRequest>) -> Answer<ArrayChange> {
        self.change(request.get_ref())
    }
    async fn list_arrays(&self, _: Request<ListArraysRequest>) -> Answer<ListArraysResponse> {
        Ok(Response::new(ListArraysResponse { arrays: self.script.arrays.clone() }))
    }
    async fn get_array(&self, _: Request<GetArrayRequest>) -> Answer<Array> {
        let array = self.script.arrays.first().cloned();
        array.map(Response::new).ok_or_else(|| Status::not_found("there is no array of that name"))
    }
    async fn get_array_stats(&self, _: Request<GetArrayStatsRequest>) -> Answer<ArrayStats> {
        Ok(Response::new(ArrayStats::default()))
    }
    async fn list_traces(&self, _: Request<ListTracesRequest>) -> Answer<ListTracesResponse> {
        Ok(Response::new(ListTracesResponse::default()))
    }
    async fn watch_array(&self, _: Request<WatchArrayRequest>) -> Answer<Self::WatchArrayStream> {
        let arrays: Vec<_> = self.script.arrays.iter().cloned().map(Ok).collect();
        Ok(Response::new(Box::pin(tokio_stream::iter(arrays))))
    }
    async fn fail_member(&self, request: Request<FailMemberRequest>) -> Answer<ArrayChange> {
        self.change(request.get_ref())
    }
    async fn replace_member(&self, request: Request<ReplaceMemberRequest>) -> Answer<ArrayChange> {
        self.change(request.get_ref())
    }
    async fn add_drive(&self, request: Request<AddDriveRequest>) -> Answer<ArrayChange> {
        self.change(request.get_ref())
    }
    async fn list_importable(
        &self,
        request: Request<ListImportableRequest>,
    ) -> Answer<ListImportableResponse> {
        self.accept(&request)
    }
    async fn import_arrays(
        &self,
        request: Request<ImportArraysRequest>,
    ) -> Answer<ImportArraysResponse> {
        self.hear(request.get_ref())?;
        Ok(Response::new(ImportArraysResponse {
            arrays: self.script.arrays.clone(),
            ..Default::default()
        }))
    }
    async fn unload_array(&self, request: Request<UnloadArrayRequest>) -> Answer<ArrayChange> {
        self.change(request.get_ref())
    }
    async fn destroy_array(&self, request: Request<DestroyArrayRequest>) -> Answer<ArrayChange> {
        self.change(request.get_ref())
    }
    async fn readd_member(&self, request: Request<ReaddMemberRequest>) -> Answer<ArrayChange> {
        self.change(request.get_ref())
    }
    async fn rebuild_array(&self, request: Request<RebuildArrayRequest>) -> Answer<ArrayChange> {
        self.change(request.get_ref())
    }
    async fn rename_array(&self, request: Request<RenameArrayRequest>) -> Answer<ArrayChange> {
        self.change(request.get_ref())
    }
    async fn grow_array(&self, request: Request<GrowArrayRequest>) -> Answer<ArrayChange> {
        self.change(request.get_ref())
    }
    async fn upgrade_format(&self, request: Request<UpgradeFormatRequest>) -> Answer<ArrayChange> {
        self.change(request.get_ref())
    }
    async fn undelete_array(&self, request: Request<UndeleteArrayRequest>) -> Answer<ArrayChange> {
        self.change(request.get_ref())
    }
    async fn set_array(&self, request: Request<SetArrayRequest>) -> Answer<ArrayChange> {
        self.change(request.get_ref())
    }
    async fn start_scrub(&self, request: Request<StartScrubRequest>) -> Answer<ScrubChange> {
        self.hear(request.get_ref())?;
        Ok(Response::new(ScrubChange { result: "created".into(), scrub: Some(self.scrub()) }))
    }
    async fn change_scrub(&self, request: Request<ChangeScrubRequest>) -> Answer<ScrubChange> {
        self.hear(request.get_ref())?;
        Ok(Response::new(ScrubChange { result: "changed".into(), scrub: Some(self.scrub()) }))
    }
    async fn get_scrub(&self, request: Request<GetScrubRequest>) -> Answer<Scrub> {
        self.hear(request.get_ref())?;
        Ok(Response::new(self.scrub()))
    }
}

#[tonic::async_trait]
impl ExportService for Fake {
    async fn create_export(&self, request: Request<CreateExportRequest>) -> Answer<ExportChange> {
        self.export(request.get_ref())
    }
    async fn list_exports(&self, _: Request<ListExportsRequest>) -> Answer<ListExportsResponse> {
        Ok(Response::new(ListExportsResponse { exports: self.script.exports.clone() }))
    }
    async fn get_export(&self, _: Request<GetExportRequest>) -> Answer<Export> {
        Err(Status::not_found("there is no export of that name"))
    }
    async fn remove_export(&self, request: Request<RemoveExportRequest>) -> Answer<ExportChange> {
        self.export(request.get_ref())
    }
    async fn release_export(&self, request: Request<ReleaseExportRequest>) -> Answer<ExportChange> {
        self.export(request.get_ref())
    }
    async fn set_export(&self, request: Request<SetExportRequest>) -> Answer<ExportChange> {
        self.export(request.get_ref())
    }
    async fn disconnect_host(&self, request: Request<DisconnectHostRequest>) -> Answer<HostChange> {
        self.accept(&request)
    }
    async fn add_host(&self, request: Request<AddHostRequest>) -> Answer<HostChange> {
        self.accept(&request)
    }
    async fn list_hosts(&self, _: Request<ListHostsRequest>) -> Answer<ListHostsResponse> {
        Ok(Response::new(ListHostsResponse { hosts: self.script.hosts.clone() }))
    }
    async fn remove_host(&self, request: Request<RemoveHostRequest>) -> Answer<HostChange> {
        self.accept(&request)
    }
    async fn add_referral(&self, request: Request<AddReferralRequest>) -> Answer<ReferralChange> {
        self.accept(&request)
    }
    async fn list_referrals(
        &self,
        _: Request<ListReferralsRequest>,
    ) -> Answer<ListReferralsResponse> {
        Ok(Response::new(ListReferralsResponse::default()))
    }
    async fn remove_referral(
        &self,
        request: Request<RemoveReferralRequest>,
    ) -> Answer<ReferralChange> {
        self.accept(&request)
    }
}

#[tonic::async_trait]
impl ConfigService for Fake {
    async fn get_config(&self, request: Request<GetConfigRequest>) -> Answer<ConfigDocument> {
        self.hear(request.get_ref())?;
        let json = r#"{ "backup": true, "version": 1, "arrays": [], "exports": [] }"#.to_owned();
        Ok(Response::new(ConfigDocument { json }))
    }
    async fn restore_config(&self, request: Request<RestoreConfigRequest>) -> Answer<ConfigChange> {
        self.accept(&request)
    }
}

#[tonic::async_trait]
impl AuditService for Fake {
    async fn list_audit(&self, request: Request<ListAuditRequest>) -> Answer<ListAuditResponse> {
        self.accept(&request)
    }
    async fn verify_audit(&self, request: Request<VerifyAuditRequest>) -> Answer<AuditReport> {
        self.accept(&request)
    }
}

#[tonic::async_trait]
impl EventService for Fake {
    type FollowEventsStream =
        Pin<Box<dyn tokio_stream::Stream<Item = Result<Event, Status>> + Send>>;

    async fn list_events(&self, request: Request<ListEventsRequest>) -> Answer<ListEventsResponse> {
        self.accept(&request)
    }
    async fn follow_events(
        &self,
        request: Request<FollowEventsRequest>,
    ) -> Answer<Self::FollowEventsStream> {
        self.hear(request.get_ref())?;
        Ok(Response::new(Box::pin(tokio_stream::iter([Ok(Event::default())]))))
    }
    async fn add_hook(&self, request: Request<AddHookRequest>) -> Answer<HookChange> {
        self.accept(&request)
    }
    async fn list_hooks(&self, request: Request<ListHooksRequest>) -> Answer<ListHooksResponse> {
        self.accept(&request)
    }
    async fn remove_hook(&self, request: Request<RemoveHookRequest>) -> Answer<HookChange> {
        self.accept(&request)
    }
    async fn test_hook(&self, request: Request<TestHookRequest>) -> Answer<HookChange> {
        self.accept(&request)
    }
}

#[tonic::async_trait]
impl JobService for Fake {
    async fn list_jobs(&self, request: Request<ListJobsRequest>) -> Answer<ListJobsResponse> {
        self.hear(request.get_ref())?;
        Ok(Response::new(ListJobsResponse { jobs: self.script.jobs.clone() }))
    }
    async fn change_job(&self, request: Request<ChangeJobRequest>) -> Answer<JobChange> {
        self.accept(&request)
    }
}

#[tonic::async_trait]
impl SpareService for Fake {
    async fn add_spare(&self, request: Request<AddSpareRequest>) -> Answer<SpareChange> {
        self.accept(&request)
    }
    async fn list_spares(&self, request: Request<ListSparesRequest>) -> Answer<ListSparesResponse> {
        self.accept(&request)
    }
    async fn remove_spare(&self, request: Request<RemoveSpareRequest>) -> Answer<SpareChange> {
        self.accept(&request)
    }
}

/// What `strake` did.
pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
    /// What the daemon heard.
    pub heard: Vec<String>,
}

/// Runs the real binary with `arguments` in `folder`, without a daemon unless they name one.
pub fn strake(folder: &Folder, arguments: &[&str]) -> Ran {
    let output = Command::new(env!("CARGO_BIN_EXE_strake"))
        .args(arguments)
        .current_dir(folder)
        .env_remove("STRAKE_SOCKET")
        .env("XDG_RUNTIME_DIR", &**folder)
        .stdin(Stdio::null())
        .output()
        .expect("strake runs");
    ran(output, Vec::new())
}

/// A daemon that answers from a script until it is dropped.
pub struct Served {
    /// Where its socket is, and whatever else a test puts there.
    pub folder: Folder,
    heard: Arc<Mutex<Vec<String>>>,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Served {
    /// Serves `script` in a new folder for the test `name`.
    pub fn new(name: &str, script: Script) -> Self {
        let folder = Folder::new(&format!("strake-cli-{name}"));
        let heard = Arc::default();
        let fake = Fake { script, heard: Arc::clone(&heard), asked: Arc::default() };
        let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
        let listener = {
            let _inside = runtime.enter();
            tokio::net::UnixListener::bind(folder.join("s.sock")).expect("the socket is free")
        };
        runtime.spawn(
            tonic::transport::Server::builder()
                .add_service(DaemonServiceServer::new(fake.clone()))
                .add_service(DriveServiceServer::new(fake.clone()))
                .add_service(ArrayServiceServer::new(fake.clone()))
                .add_service(ExportServiceServer::new(fake.clone()))
                .add_service(ConfigServiceServer::new(fake.clone()))
                .add_service(AuditServiceServer::new(fake.clone()))
                .add_service(EventServiceServer::new(fake.clone()))
                .add_service(JobServiceServer::new(fake.clone()))
                .add_service(SpareServiceServer::new(fake.clone()))
                .add_service(PoolServiceServer::new(fake.clone()))
                .add_service(VolumeServiceServer::new(fake.clone()))
                .add_service(QosServiceServer::new(fake))
                .serve_with_incoming(UnixListenerStream::new(listener)),
        );
        Self { folder, heard, runtime: Some(runtime) }
    }

    /// The real binary with `arguments`, to be run against it.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_strake"));
        command.args(arguments).current_dir(&self.folder);
        command.env("STRAKE_SOCKET", self.folder.join("s.sock")).env("TZ", "UTC");
        command
    }

    /// Runs the real binary with `arguments` against it.
    pub fn run(&self, arguments: &[&str]) -> Ran {
        let output = self.command(arguments).stdin(Stdio::null()).output().expect("strake runs");
        ran(output, self.heard())
    }

    /// What it heard so far that changes something.
    pub fn heard(&self) -> Vec<String> {
        self.heard.lock().expect("no test panics with it").clone()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.runtime.take().expect("it is dropped once").shutdown_background();
    }
}

/// Runs the real binary with `arguments` against a daemon that answers from `script`.
pub fn against(name: &str, script: Script, arguments: &[&str]) -> Ran {
    Served::new(name, script).run(arguments)
}

fn ran(output: Output, heard: Vec<String>) -> Ran {
    Ran {
        code: output.status.code().expect("strake is not killed"),
        stdout: String::from_utf8(output.stdout).expect("text"),
        stderr: String::from_utf8(output.stderr).expect("text"),
        heard,
    }
}

/// An array of `states` whose members are in `members` states.
pub fn array(states: &[&str], members: &[&str]) -> Array {
    let member = |(i, state): (usize, &&str)| Member {
        position: i as u32,
        state: (*state).into(),
        path: format!("/dev/nvme{i}n1"),
        ..Member::default()
    };
    Array {
        name: "tank".into(),
        states: states.iter().map(|s| (*s).into()).collect(),
        level: "6".into(),
        members: members.iter().enumerate().map(member).collect(),
        ..Array::default()
    }
}
