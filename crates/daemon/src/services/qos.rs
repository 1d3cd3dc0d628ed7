//! The calls about limits of I/O.

use strake_api::v1::qos_service_server::QosService;
use strake_api::v1::{
    ClearQosRequest, GetQosRequest, ListQosRequest, ListQosResponse, Qos, QosChange, SetQosRequest,
};
use strake_control::Limits;
use tonic::{Request, Response, async_trait};

use crate::shared::{Answer, Shared, check_texts};

#[async_trait]
impl QosService for Shared {
    async fn set_qos(&self, request: Request<SetQosRequest>) -> Answer<QosChange> {
        let r = request.get_ref();
        check_texts(&[("kind", &r.kind), ("name", &r.name)])?;
        self.command(request, |control, request| Limits::of(control).set(request)).await
    }

    async fn list_qos(&self, _: Request<ListQosRequest>) -> Answer<ListQosResponse> {
        self.call(|control| Limits::of(control).list()).await.map(Response::new)
    }

    async fn get_qos(&self, request: Request<GetQosRequest>) -> Answer<Qos> {
        let request = request.into_inner();
        check_texts(&[("kind", &request.kind), ("name", &request.name)])?;
        self.call(move |control| Limits::of(control).get(&request)).await.map(Response::new)
    }

    async fn clear_qos(&self, request: Request<ClearQosRequest>) -> Answer<QosChange> {
        let r = request.get_ref();
        check_texts(&[("kind", &r.kind), ("name", &r.name)])?;
        self.command(request, |control, request| Limits::of(control).clear(request)).await
    }
}
