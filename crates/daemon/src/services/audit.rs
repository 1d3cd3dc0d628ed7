//! The calls about the audit log.

use strake_api::v1::audit_service_server::AuditService;
use strake_api::v1::{AuditReport, ListAuditRequest, ListAuditResponse, VerifyAuditRequest};
use tonic::{Request, Response, async_trait};

use crate::shared::{Answer, Shared, check_text, check_texts};

#[async_trait]
impl AuditService for Shared {
    async fn list_audit(&self, request: Request<ListAuditRequest>) -> Answer<ListAuditResponse> {
        let request = request.into_inner();
        check_text("object", &request.object)?;
        self.call(move |control| control.audit().list(&request)).await.map(Response::new)
    }

    async fn verify_audit(&self, request: Request<VerifyAuditRequest>) -> Answer<AuditReport> {
        let request = request.into_inner();
        check_texts(&[("hash", &request.hash)])?;
        self.call(move |control| control.audit().verify(&request)).await.map(Response::new)
    }
}
