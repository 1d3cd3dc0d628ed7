//! What each call does: check the size of what came, and hand it to the manager.

use std::time::Duration;

use strake_api::v1::array_service_server::ArrayService;
use strake_api::v1::daemon_service_server::DaemonService;
use strake_api::v1::drive_service_server::DriveService;
use strake_api::v1::export_service_server::ExportService;
use strake_api::v1::{
    AddDriveRequest, Array, ArrayChange, CreateArrayRequest, CreateExportRequest, Daemon,
    DestroyArrayRequest, Drive, ExportChange, FailMemberRequest, GetArrayRequest, GetDaemonRequest,
    GetDriveRequest, GetStatusRequest, ImportArraysRequest, ImportArraysResponse,
    ListArraysRequest, ListArraysResponse, ListDrivesRequest, ListDrivesResponse,
    ListExportsRequest, ListExportsResponse, RemoveExportRequest, ReplaceMemberRequest,
    StopDaemonRequest, StopDaemonResponse, SystemStatus, UnloadArrayRequest, WatchArrayRequest,
};
use strake_control::Manager;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, async_trait};

use crate::process;
use crate::shared::{Shared, check_drives, check_text};

/// Time between two answers of a watch when the client does not say.
const WATCH_EVERY: Duration = Duration::from_millis(500);

/// Shortest time a client may ask for, so that watching cannot become a load.
const WATCH_EVERY_MIN: Duration = Duration::from_millis(50);

fn daemon_of(manager: &Manager, socket: &str) -> Daemon {
    manager.daemon(socket, process::memory_bytes(), process::cpu_us())
}

#[async_trait]
impl DaemonService for Shared {
    async fn get_daemon(&self, _: Request<GetDaemonRequest>) -> Result<Response<Daemon>, Status> {
        let socket = self.socket.clone();
        self.answer(move |m| Ok(daemon_of(m, &socket))).await
    }

    async fn get_status(
        &self,
        _: Request<GetStatusRequest>,
    ) -> Result<Response<SystemStatus>, Status> {
        let socket = self.socket.clone();
        self.answer(move |m| {
            let daemon = daemon_of(m, &socket);
            Ok(m.status(daemon))
        })
        .await
    }

    async fn stop_daemon(
        &self,
        _: Request<StopDaemonRequest>,
    ) -> Result<Response<StopDaemonResponse>, Status> {
        self.stop.notify_one();
        Ok(Response::new(StopDaemonResponse { pid: std::process::id() }))
    }

    async fn run_doctor(
        &self,
        _: Request<strake_api::v1::RunDoctorRequest>,
    ) -> Result<Response<strake_api::v1::DoctorReport>, Status> {
        Err(not_here("RunDoctor"))
    }
}

#[async_trait]
impl DriveService for Shared {
    async fn list_drives(
        &self,
        _: Request<ListDrivesRequest>,
    ) -> Result<Response<ListDrivesResponse>, Status> {
        self.answer(|m| Ok(ListDrivesResponse { drives: m.list_drives() })).await
    }

    async fn get_drive(
        &self,
        request: Request<GetDriveRequest>,
    ) -> Result<Response<Drive>, Status> {
        let request = request.into_inner();
        check_text("path", &request.path)?;
        self.answer(move |m| m.drive(&request.path)).await
    }

    async fn locate_drive(
        &self,
        _: Request<strake_api::v1::LocateDriveRequest>,
    ) -> Result<Response<strake_api::v1::DriveChange>, Status> {
        Err(not_here("LocateDrive"))
    }

    async fn clean_drive(
        &self,
        _: Request<strake_api::v1::CleanDriveRequest>,
    ) -> Result<Response<strake_api::v1::DriveChange>, Status> {
        Err(not_here("CleanDrive"))
    }
}

#[async_trait]
impl ArrayService for Shared {
    type WatchArrayStream = ReceiverStream<Result<Array, Status>>;

    async fn create_array(
        &self,
        request: Request<CreateArrayRequest>,
    ) -> Result<Response<ArrayChange>, Status> {
        let request = request.into_inner();
        check_text("name", &request.name)?;
        check_text("level", &request.level)?;
        check_drives(&request.drives)?;
        self.answer(move |m| m.create_array(&request)).await
    }

    async fn list_arrays(
        &self,
        _: Request<ListArraysRequest>,
    ) -> Result<Response<ListArraysResponse>, Status> {
        self.answer(|m| Ok(ListArraysResponse { arrays: m.arrays() })).await
    }

    async fn get_array(
        &self,
        request: Request<GetArrayRequest>,
    ) -> Result<Response<Array>, Status> {
        let request = request.into_inner();
        check_text("name", &request.name)?;
        self.answer(move |m| m.array(&request.name)).await
    }

    async fn watch_array(
        &self,
        request: Request<WatchArrayRequest>,
    ) -> Result<Response<Self::WatchArrayStream>, Status> {
        let request = request.into_inner();
        check_text("name", &request.name)?;
        let every = match request.interval_us {
            0 => WATCH_EVERY,
            us => Duration::from_micros(us).max(WATCH_EVERY_MIN),
        };
        let name = request.name.clone();
        // An array that is not there is the answer to the call, not the first item of the stream.
        let first = self.run(move |m| m.array(&name)).await?;
        let (send, receive) = mpsc::channel(1);
        tokio::spawn(watch(self.clone(), request.name, first, every, send));
        Ok(Response::new(ReceiverStream::new(receive)))
    }

    async fn fail_member(
        &self,
        request: Request<FailMemberRequest>,
    ) -> Result<Response<ArrayChange>, Status> {
        let request = request.into_inner();
        check_text("name", &request.name)?;
        self.answer(move |m| m.fail_member(&request)).await
    }

    async fn replace_member(
        &self,
        request: Request<ReplaceMemberRequest>,
    ) -> Result<Response<ArrayChange>, Status> {
        let request = request.into_inner();
        check_text("name", &request.name)?;
        check_text("drive", &request.drive)?;
        self.answer(move |m| m.replace_member(&request)).await
    }

    async fn add_drive(
        &self,
        request: Request<AddDriveRequest>,
    ) -> Result<Response<ArrayChange>, Status> {
        let request = request.into_inner();
        check_text("name", &request.name)?;
        check_text("drive", &request.drive)?;
        self.answer(move |m| m.add_drive(&request)).await
    }

    async fn import_arrays(
        &self,
        request: Request<ImportArraysRequest>,
    ) -> Result<Response<ImportArraysResponse>, Status> {
        let request = request.into_inner();
        check_text("name", &request.name)?;
        check_drives(&request.drives)?;
        self.answer(move |m| m.import_arrays(&request)).await
    }

    async fn unload_array(
        &self,
        request: Request<UnloadArrayRequest>,
    ) -> Result<Response<ArrayChange>, Status> {
        let request = request.into_inner();
        check_text("name", &request.name)?;
        self.answer(move |m| m.unload_array(&request)).await
    }

    async fn destroy_array(
        &self,
        request: Request<DestroyArrayRequest>,
    ) -> Result<Response<ArrayChange>, Status> {
        let request = request.into_inner();
        check_text("name", &request.name)?;
        self.answer(move |m| m.destroy_array(&request)).await
    }

    async fn readd_member(
        &self,
        _: Request<strake_api::v1::ReaddMemberRequest>,
    ) -> Result<Response<ArrayChange>, Status> {
        Err(not_here("ReaddMember"))
    }

    async fn rebuild_array(
        &self,
        _: Request<strake_api::v1::RebuildArrayRequest>,
    ) -> Result<Response<ArrayChange>, Status> {
        Err(not_here("RebuildArray"))
    }

    async fn rename_array(
        &self,
        _: Request<strake_api::v1::RenameArrayRequest>,
    ) -> Result<Response<ArrayChange>, Status> {
        Err(not_here("RenameArray"))
    }

    async fn undelete_array(
        &self,
        _: Request<strake_api::v1::UndeleteArrayRequest>,
    ) -> Result<Response<ArrayChange>, Status> {
        Err(not_here("UndeleteArray"))
    }

    async fn set_array(
        &self,
        _: Request<strake_api::v1::SetArrayRequest>,
    ) -> Result<Response<ArrayChange>, Status> {
        Err(not_here("SetArray"))
    }
}

/// Sends the array whenever it differs from what was sent last, until the client or the array is gone.
async fn watch(
    shared: Shared,
    name: String,
    first: Array,
    every: Duration,
    send: mpsc::Sender<Result<Array, Status>>,
) {
    let mut last = first.clone();
    if send.send(Ok(first)).await.is_err() {
        return;
    }
    loop {
        tokio::select! {
            () = send.closed() => return,
            () = tokio::time::sleep(every) => {}
        }
        let wanted = name.clone();
        match shared.run(move |m| m.array(&wanted)).await {
            Ok(now) if now == last => {}
            Ok(now) => {
                last = now.clone();
                if send.send(Ok(now)).await.is_err() {
                    return;
                }
            }
            Err(status) => {
                // The client may have gone in the meantime, which ends the watch all the same.
                let _ = send.send(Err(status)).await;
                return;
            }
        }
    }
}

#[async_trait]
impl ExportService for Shared {
    async fn create_export(
        &self,
        request: Request<CreateExportRequest>,
    ) -> Result<Response<ExportChange>, Status> {
        let request = request.into_inner();
        check_text("array", &request.array)?;
        check_text("name", &request.name)?;
        check_text("listen", &request.listen)?;
        self.answer(move |m| m.create_export(&request)).await
    }

    async fn list_exports(
        &self,
        _: Request<ListExportsRequest>,
    ) -> Result<Response<ListExportsResponse>, Status> {
        self.answer(|m| Ok(ListExportsResponse { exports: m.exports() })).await
    }

    async fn remove_export(
        &self,
        request: Request<RemoveExportRequest>,
    ) -> Result<Response<ExportChange>, Status> {
        let request = request.into_inner();
        check_text("name", &request.name)?;
        self.answer(move |m| m.remove_export(&request)).await
    }
}

/// A call of the interface that this daemon does not carry out.
fn not_here(call: &str) -> Status {
    Status::unimplemented(format!(
        "{call} is not carried out by this version of straked; nothing was done"
    ))
}
