//! The calls about spares.

use strake_api::v1::spare_service_server::SpareService;
use strake_api::v1::{
    AddSpareRequest, ListSparesRequest, ListSparesResponse, RemoveSpareRequest, SpareChange,
};
use strake_control::Control;
use tonic::{Request, async_trait};

use crate::shared::{Answer, NO_DEVICE, OVERWRITE, Shared, check_text, check_texts, is_device};

#[async_trait]
impl SpareService for Shared {
    async fn list_spares(&self, _: Request<ListSparesRequest>) -> Answer<ListSparesResponse> {
        self.answer(|m| Ok(m.list_spares())).await
    }

    async fn add_spare(&self, request: Request<AddSpareRequest>) -> Answer<SpareChange> {
        let r = request.get_ref();
        check_texts(&[("drive", &r.drive), ("array", &r.array)])?;
        self.check_consent(&request, OVERWRITE, r.overwrite).await?;
        self.check_consent(&request, NO_DEVICE, !is_device(&r.drive)).await?;
        self.command(request, Control::add_spare).await
    }

    async fn remove_spare(&self, request: Request<RemoveSpareRequest>) -> Answer<SpareChange> {
        check_text("drive", &request.get_ref().drive)?;
        self.command(request, Control::remove_spare).await
    }
}
