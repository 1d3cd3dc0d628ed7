//! The calls about the recorded configuration as one document.

use strake_api::v1::config_service_server::ConfigService;
use strake_api::v1::{ConfigChange, ConfigDocument, GetConfigRequest, RestoreConfigRequest};
use strake_control::Control;
use tonic::{Request, async_trait};

use crate::shared::{Answer, Shared};

#[async_trait]
impl ConfigService for Shared {
    async fn get_config(&self, _: Request<GetConfigRequest>) -> Answer<ConfigDocument> {
        self.answer(|m| m.config_document()).await
    }

    async fn restore_config(&self, request: Request<RestoreConfigRequest>) -> Answer<ConfigChange> {
        self.command(request, Control::restore_config).await
    }
}
