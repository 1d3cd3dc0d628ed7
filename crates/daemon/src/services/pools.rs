//! The calls about pools.

use strake_api::v1::pool_service_server::PoolService;
use strake_api::v1::{
    CreatePoolRequest, DestroyPoolRequest, GetPoolRequest, ListPoolsRequest, ListPoolsResponse,
    Pool, PoolChange,
};
use strake_control::Pools;
use tonic::{Request, Response, async_trait};

use crate::shared::{Answer, OVERWRITE, Shared, check_text, check_texts};

#[async_trait]
impl PoolService for Shared {
    async fn create_pool(&self, request: Request<CreatePoolRequest>) -> Answer<PoolChange> {
        let r = request.get_ref();
        check_texts(&[("name", &r.name), ("array", &r.array)])?;
        self.check_consent(&request, OVERWRITE, r.overwrite).await?;
        self.command(request, |control, request| Pools::of(control).create_pool(request)).await
    }

    async fn list_pools(&self, _: Request<ListPoolsRequest>) -> Answer<ListPoolsResponse> {
        self.call(|control| Pools::of(control).list_pools()).await.map(Response::new)
    }

    async fn get_pool(&self, request: Request<GetPoolRequest>) -> Answer<Pool> {
        let GetPoolRequest { name } = request.into_inner();
        check_text("name", &name)?;
        self.call(move |control| Pools::of(control).pool(&name)).await.map(Response::new)
    }

    async fn destroy_pool(&self, request: Request<DestroyPoolRequest>) -> Answer<PoolChange> {
        check_text("name", &request.get_ref().name)?;
        self.command(request, |control, request| Pools::of(control).destroy_pool(request)).await
    }
}
