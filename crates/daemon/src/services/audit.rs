//! The calls about the audit log.

use strake_api::v1::audit_service_server::AuditService;
use strake_api::v1::{AuditReport, ListAuditRequest, ListAuditResponse, VerifyAuditRequest};
use tonic::{Request, async_trait};

use crate::shared::{Answer, Shared, actor_of, check_text, check_texts};

#[async_trait]
impl AuditService for Shared {
    async fn list_audit(&self, request: Request<ListAuditRequest>) -> Answer<ListAuditResponse> {
        let caller = actor_of(&request);
        let request = request.into_inner();
        check_text("object", &request.object)?;
        self.read_audit(&caller, move |audit| audit.list(&request)).await
    }

    async fn verify_audit(&self, request: Request<VerifyAuditRequest>) -> Answer<AuditReport> {
        let caller = actor_of(&request);
        let request = request.into_inner();
        check_texts(&[("hash", &request.hash)])?;
        self.read_audit(&caller, move |audit| audit.verify(&request)).await
    }
}
