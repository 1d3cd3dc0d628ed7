//! Drives.

use strake_api::v1::drive_service_server::DriveService;
use strake_api::v1::{
    CleanDriveRequest, Drive, DriveChange, GetDriveRequest, ListDrivesRequest, ListDrivesResponse,
    LocateDriveRequest,
};
use tonic::{Request, Response, Status, async_trait};

use super::not_here;
use crate::shared::{Shared, check_text};

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
        _: Request<LocateDriveRequest>,
    ) -> Result<Response<DriveChange>, Status> {
        Err(not_here("LocateDrive"))
    }

    async fn clean_drive(
        &self,
        _: Request<CleanDriveRequest>,
    ) -> Result<Response<DriveChange>, Status> {
        Err(not_here("CleanDrive"))
    }
}
