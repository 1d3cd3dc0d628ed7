//! What is recorded, as one document.

use strake_api::v1::config_service_server::ConfigService;
use strake_api::v1::{ConfigChange, ConfigDocument, GetConfigRequest, RestoreConfigRequest};
use tonic::{Request, Response, Status, async_trait};

use super::not_here;
use crate::shared::Shared;

#[async_trait]
impl ConfigService for Shared {
    async fn get_config(
        &self,
        _: Request<GetConfigRequest>,
    ) -> Result<Response<ConfigDocument>, Status> {
        Err(not_here("GetConfig"))
    }

    async fn restore_config(
        &self,
        _: Request<RestoreConfigRequest>,
    ) -> Result<Response<ConfigChange>, Status> {
        Err(not_here("RestoreConfig"))
    }
}
