//! A daemon that answers from a script, and the real `strake` binary against it.

use crate::common::Folder;
use std::pin::Pin;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use strake_api::v1::array_service_server::{ArrayService, ArrayServiceServer};
use strake_api::v1::daemon_service_server::{DaemonService, DaemonServiceServer};
use strake_api::v1::drive_service_server::{DriveService, DriveServiceServer};
use strake_api::v1::export_service_server::{ExportService, ExportServiceServer};
use strake_api::v1::{
    AddDriveRequest, Array, ArrayChange, CreateArrayRequest, CreateExportRequest, Daemon,
    DestroyArrayRequest, Drive, Export, ExportChange, FailMemberRequest, GetArrayRequest,
    GetDaemonRequest, GetDriveRequest, GetStatusRequest, ImportArraysRequest, ImportArraysResponse,
    ListArraysRequest, ListArraysResponse, ListDrivesRequest, ListDrivesResponse,
    ListExportsRequest, ListExportsResponse, Member, RemoveExportRequest, ReplaceMemberRequest,
    StopDaemonRequest, StopDaemonResponse, SystemStatus, UnloadArrayRequest, WatchArrayRequest,
};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Code, Request, Response, Status};

type Answer<T> = Result<Response<T>, Status>;

/// What the daemon answers.
#[derive(Clone, Default)]
pub struct Script {
    /// Answer to `GetStatus`.
    pub status: SystemStatus,
    /// Answers of `WatchArray`, in order; the first is the answer of `GetArray` too.
    pub arrays: Vec<Array>,
    /// Every change is refused with this.
    pub refusal: Option<(Code, &'static str)>,
}

/// The daemon: it remembers the requests that change something, as their Debug text.
#[derive(Clone)]
pub struct Fake {
    script: Script,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Fake {
    fn hear(&self, request: &impl std::fmt::Debug) -> Result<(), Status> {
        self.heard.lock().expect("no test panics with it").push(format!("{request:?}"));
        match self.script.refusal {
            Some((code, why)) => Err(Status::new(code, why)),
            None => Ok(()),
        }
    }

    fn change(&self, request: &impl std::fmt::Debug) -> Answer<ArrayChange> {
        self.hear(request)?;
        Ok(Response::new(ArrayChange {
            result: "changed".into(),
            array: self.script.arrays.first().cloned(),
            plan: vec!["mark every label".into()],
            warnings: vec!["a warning".into()],
        }))
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
        Ok(Response::new(self.script.status.clone()))
    }
    async fn stop_daemon(&self, request: Request<StopDaemonRequest>) -> Answer<StopDaemonResponse> {
        self.hear(request.get_ref())?;
        Ok(Response::new(StopDaemonResponse { pid: 0 }))
    }
}

#[tonic::async_trait]
impl DriveService for Fake {
    async fn list_drives(&self, _: Request<ListDrivesRequest>) -> Answer<ListDrivesResponse> {
        Ok(Response::new(ListDrivesResponse::default()))
    }
    async fn get_drive(&self, request: Request<GetDriveRequest>) -> Answer<Drive> {
        self.hear(request.get_ref())?;
        Ok(Response::new(Drive {
            path: request.into_inner().path,
            state: "free".into(),
            ..Drive::default()
        }))
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
}

#[tonic::async_trait]
impl ExportService for Fake {
    async fn create_export(&self, request: Request<CreateExportRequest>) -> Answer<ExportChange> {
        self.export(request.get_ref())
    }
    async fn list_exports(&self, _: Request<ListExportsRequest>) -> Answer<ListExportsResponse> {
        Ok(Response::new(ListExportsResponse::default()))
    }
    async fn remove_export(&self, request: Request<RemoveExportRequest>) -> Answer<ExportChange> {
        self.export(request.get_ref())
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
        .current_dir(&folder.0)
        .env_remove("STRAKE_SOCKET")
        .env("XDG_RUNTIME_DIR", &folder.0)
        .stdin(Stdio::null())
        .output()
        .expect("strake runs");
    ran(output, Vec::new())
}

/// Runs the real binary with `arguments` against a daemon that answers from `script`.
pub fn against(name: &str, script: Script, arguments: &[&str]) -> Ran {
    let folder = Folder::new(name);
    let socket = folder.0.join("s.sock");
    let heard = Arc::default();
    let fake = Fake { script, heard: Arc::clone(&heard) };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
    let listener = {
        let _inside = runtime.enter();
        tokio::net::UnixListener::bind(&socket).expect("the socket is free")
    };
    runtime.spawn(
        tonic::transport::Server::builder()
            .add_service(DaemonServiceServer::new(fake.clone()))
            .add_service(DriveServiceServer::new(fake.clone()))
            .add_service(ArrayServiceServer::new(fake.clone()))
            .add_service(ExportServiceServer::new(fake))
            .serve_with_incoming(UnixListenerStream::new(listener)),
    );
    let output = Command::new(env!("CARGO_BIN_EXE_strake"))
        .args(arguments)
        .current_dir(&folder.0)
        .env("STRAKE_SOCKET", &socket)
        .stdin(Stdio::null())
        .output()
        .expect("strake runs");
    runtime.shutdown_background();
    let heard = heard.lock().expect("no test panics with it").clone();
    ran(output, heard)
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
