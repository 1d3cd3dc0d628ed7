//! What is recorded, as one document.

use strake_api::v1::config_service_server::ConfigService;
use strake_api::v1::{ConfigChange, ConfigDocument, GetConfigRequest, RestoreConfigRequest};
use strake_control::Control;
use tonic::{Request, Response, Status, async_trait};

use crate::shared::Shared;

#[async_trait]
impl ConfigService for Shared {
    async fn get_config(
        &self,
        _: Request<GetConfigRequest>,
    ) -> Result<Response<ConfigDocument>, Status> {
        self.answer(|m| m.config_document()).await
    }

    async fn restore_config(
        &self,
        request: Request<RestoreConfigRequest>,
    ) -> Result<Response<ConfigChange>, Status> {
        self.command(request, Control::restore_config).await
    }
}
