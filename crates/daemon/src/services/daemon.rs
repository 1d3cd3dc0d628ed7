//! The calls about the daemon.

use strake_api::v1::daemon_service_server::DaemonService;
use strake_api::v1::{
    Daemon, DoctorReport, GetDaemonRequest, GetStatusRequest, RunDoctorRequest, StopDaemonRequest,
    StopDaemonResponse, SystemStatus,
};
use strake_control::{Actor, Control, Manager};
use tonic::{Request, Response, async_trait};

use crate::process;
use crate::shared::{Answer, Shared, actor_of, check_drives};

fn daemon_of(manager: &Manager, socket: &str, caller: &Actor) -> Daemon {
    let role = caller.role.map(|role| role.word().to_owned()).unwrap_or_default();
    Daemon { role, ..manager.daemon(socket, process::memory_bytes(), process::cpu_us()) }
}

#[async_trait]
impl DaemonService for Shared {
    async fn get_daemon(&self, request: Request<GetDaemonRequest>) -> Answer<Daemon> {
        let (socket, caller) = (self.socket.clone(), actor_of(&request));
        self.answer(move |m| Ok(daemon_of(m, &socket, &caller))).await
    }

    async fn get_status(&self, request: Request<GetStatusRequest>) -> Answer<SystemStatus> {
        let (socket, caller) = (self.socket.clone(), actor_of(&request));
        self.answer(move |m| {
            let daemon = daemon_of(m, &socket, &caller);
            Ok(m.status(daemon))
        })
        .await
    }

    async fn stop_daemon(&self, request: Request<StopDaemonRequest>) -> Answer<StopDaemonResponse> {
        check_drives(&request.get_ref().accept)?;
        let (actor, command) = (actor_of(&request), request.into_inner());
        // The call takes no permit of commands: a stop must not wait for commands that wait for drives.
        self.call(move |control| control.command(&actor, &command, Control::check_stop)).await?;
        self.stop.notify_one();
        Ok(Response::new(StopDaemonResponse { pid: std::process::id() }))
    }

    async fn run_doctor(&self, _: Request<RunDoctorRequest>) -> Answer<DoctorReport> {
        self.call(Control::doctor).await.map(Response::new)
    }
}
