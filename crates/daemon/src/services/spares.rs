//! Spares.

use strake_api::v1::spare_service_server::SpareService;
use strake_api::v1::{
    AddSpareRequest, ListSparesRequest, ListSparesResponse, RemoveSpareRequest, SpareChange,
};
use strake_control::Control;
use tonic::{Request, Response, Status, async_trait};

use crate::shared::{Shared, check_texts};

#[async_trait]
impl SpareService for Shared {
    async fn list_spares(
        &self,
        _: Request<ListSparesRequest>,
    ) -> Result<Response<ListSparesResponse>, Status> {
        self.answer(|m| Ok(m.list_spares())).await
    }

    async fn add_spare(
        &self,
        request: Request<AddSpareRequest>,
    ) -> Result<Response<SpareChange>, Status> {
        let r = request.get_ref();
        check_texts(&[("drive", &r.drive), ("array", &r.array)])?;
        self.command(request, Control::add_spare).await
    }

    async fn remove_spare(
        &self,
        request: Request<RemoveSpareRequest>,
    ) -> Result<Response<SpareChange>, Status> {
        let r = request.get_ref();
        check_texts(&[("drive", &r.drive)])?;
        self.command(request, Control::remove_spare).await
    }
}
