//! Drives.

use strake_api::v1::drive_service_server::DriveService;
use strake_api::v1::{
    CleanDriveRequest, ConnectDriveRequest, DisconnectDriveRequest, DiscoverDrivesRequest,
    DiscoverDrivesResponse, Drive, DriveChange, GetDriveRequest, ListDrivesRequest,
    ListDrivesResponse, LocateDriveRequest,
};
use tonic::{Request, Response, Status, async_trait};

use crate::shared::{Shared, check_text, check_texts};

#[async_trait]
impl DriveService for Shared {
    async fn list_drives(
        &self,
        _: Request<ListDrivesRequest>,
    ) -> Result<Response<ListDrivesResponse>, Status> {
        let drives = self.call(|control| control.list_drives()).await?;
        Ok(Response::new(ListDrivesResponse { drives }))
    }

    async fn get_drive(
        &self,
        request: Request<GetDriveRequest>,
    ) -> Result<Response<Drive>, Status> {
        let request = request.into_inner();
        check_text("path", &request.path)?;
        self.call(move |control| control.drive(&request.path)).await.map(Response::new)
    }

    async fn locate_drive(
        &self,
        request: Request<LocateDriveRequest>,
    ) -> Result<Response<DriveChange>, Status> {
        check_text("path", &request.get_ref().path)?;
        self.command(request, |control, request| control.locate_drive(request)).await
    }

    async fn clean_drive(
        &self,
        request: Request<CleanDriveRequest>,
    ) -> Result<Response<DriveChange>, Status> {
        check_text("path", &request.get_ref().path)?;
        self.command(request, |control, request| control.clean_drive(request)).await
    }

    async fn connect_drive(
        &self,
        request: Request<ConnectDriveRequest>,
    ) -> Result<Response<DriveChange>, Status> {
        let ConnectDriveRequest { address, host_nqn, secret, controller_secret, tls_key, .. } =
            request.get_ref();
        check_texts(&[("address", address), ("host_nqn", host_nqn)])?;
        check_texts(&[("secret", secret), ("controller_secret", controller_secret)])?;
        check_texts(&[("tls_key", tls_key)])?;
        self.command(request, |control, request| control.connect_drive(request)).await
    }

    async fn disconnect_drive(
        &self,
        request: Request<DisconnectDriveRequest>,
    ) -> Result<Response<DriveChange>, Status> {
        check_text("address", &request.get_ref().address)?;
        self.command(request, |control, request| control.disconnect_drive(request)).await
    }

    async fn discover_drives(
        &self,
        request: Request<DiscoverDrivesRequest>,
    ) -> Result<Response<DiscoverDrivesResponse>, Status> {
        let request = request.into_inner();
        let DiscoverDrivesRequest { address, host_nqn, secret, controller_secret, tls_key } =
            &request;
        check_texts(&[("address", address), ("host_nqn", host_nqn)])?;
        check_texts(&[("secret", secret), ("controller_secret", controller_secret)])?;
        check_texts(&[("tls_key", tls_key)])?;
        self.call(move |control| control.discover_drives(&request)).await.map(Response::new)
    }
}
