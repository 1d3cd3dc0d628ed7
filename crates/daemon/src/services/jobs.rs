//! The calls about jobs.

use strake_api::v1::job_service_server::JobService;
use strake_api::v1::{ChangeJobRequest, JobChange, ListJobsRequest, ListJobsResponse};
use strake_control::Control;
use tonic::{Request, async_trait};

use crate::shared::{Answer, Shared, check_texts};

#[async_trait]
impl JobService for Shared {
    async fn list_jobs(&self, _: Request<ListJobsRequest>) -> Answer<ListJobsResponse> {
        self.answer(|m| Ok(m.list_jobs())).await
    }

    async fn change_job(&self, request: Request<ChangeJobRequest>) -> Answer<JobChange> {
        let r = request.get_ref();
        check_texts(&[("id", &r.id), ("action", &r.action)])?;
        self.command(request, Control::change_job).await
    }
}
