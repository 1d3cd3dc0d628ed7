//! The calls about drives.

use strake_api::v1::drive_service_server::DriveService;
use strake_api::v1::{
    CleanDriveRequest, ConnectDriveRequest, DisconnectDriveRequest, DiscoverDrivesRequest,
    DiscoverDrivesResponse, Drive, DriveChange, DriveHealth, DriverChanges, GetDriveHealthRequest,
    GetDriveRequest, ListDrivesRequest, ListDrivesResponse, LocateDriveRequest,
    ReleaseDrivesRequest, TakeDrivesRequest,
};
use tonic::{Request, Response, async_trait};

use crate::shared::{Answer, Shared, check_drives, check_text, check_texts};

#[async_trait]
impl DriveService for Shared {
    async fn list_drives(&self, _: Request<ListDrivesRequest>) -> Answer<ListDrivesResponse> {
        let drives = self.call(|control| control.list_drives()).await?;
        Ok(Response::new(ListDrivesResponse { drives }))
    }

    async fn get_drive(&self, request: Request<GetDriveRequest>) -> Answer<Drive> {
        let request = request.into_inner();
        check_text("path", &request.path)?;
        self.call(move |control| control.drive(&request.path)).await.map(Response::new)
    }

    async fn get_drive_health(
        &self,
        request: Request<GetDriveHealthRequest>,
    ) -> Answer<DriveHealth> {
        let request = request.into_inner();
        check_text("path", &request.path)?;
        self.call(move |control| control.drive_health(&request)).await.map(Response::new)
    }

    async fn locate_drive(&self, request: Request<LocateDriveRequest>) -> Answer<DriveChange> {
        check_text("path", &request.get_ref().path)?;
        self.command(request, |c, r| c.locate_drive(r)).await
    }

    async fn clean_drive(&self, request: Request<CleanDriveRequest>) -> Answer<DriveChange> {
        check_text("path", &request.get_ref().path)?;
        self.command(request, |c, r| c.clean_drive(r)).await
    }

    async fn take_drives(&self, request: Request<TakeDrivesRequest>) -> Answer<DriverChanges> {
        check_drives(&request.get_ref().drives)?;
        self.command(request, |c, r| c.take_drives(r)).await
    }

    async fn release_drives(
        &self,
        request: Request<ReleaseDrivesRequest>,
    ) -> Answer<DriverChanges> {
        check_drives(&request.get_ref().drives)?;
        self.command(request, |c, r| c.release_drives(r)).await
    }

    async fn connect_drive(&self, request: Request<ConnectDriveRequest>) -> Answer<DriveChange> {
        let ConnectDriveRequest { address, host_nqn, secret, controller_secret, tls_key, .. } =
            request.get_ref();
        check_texts(&[("address", address), ("host_nqn", host_nqn)])?;
        check_texts(&[("secret", secret), ("controller_secret", controller_secret)])?;
        check_text("tls_key", tls_key)?;
        self.command(request, |c, r| c.connect_drive(r)).await
    }

    async fn disconnect_drive(
        &self,
        request: Request<DisconnectDriveRequest>,
    ) -> Answer<DriveChange> {
        check_text("address", &request.get_ref().address)?;
        self.command(request, |c, r| c.disconnect_drive(r)).await
    }

    async fn discover_drives(
        &self,
        request: Request<DiscoverDrivesRequest>,
    ) -> Answer<DiscoverDrivesResponse> {
        let request = request.into_inner();
        let DiscoverDrivesRequest { address, host_nqn, secret, controller_secret, tls_key } =
            &request;
        check_texts(&[("address", address), ("host_nqn", host_nqn)])?;
        check_texts(&[("secret", secret), ("controller_secret", controller_secret)])?;
        check_text("tls_key", tls_key)?;
        self.call(move |control| control.discover_drives(&request)).await.map(Response::new)
    }
}
