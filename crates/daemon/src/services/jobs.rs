//! Jobs.

use strake_api::v1::job_service_server::JobService;
use strake_api::v1::{ChangeJobRequest, JobChange, ListJobsRequest, ListJobsResponse};
use tonic::{Request, Response, Status, async_trait};

use super::not_here;
use crate::shared::Shared;

#[async_trait]
impl JobService for Shared {
    async fn list_jobs(
        &self,
        _: Request<ListJobsRequest>,
    ) -> Result<Response<ListJobsResponse>, Status> {
        Err(not_here("ListJobs"))
    }

    async fn change_job(
        &self,
        _: Request<ChangeJobRequest>,
    ) -> Result<Response<JobChange>, Status> {
        Err(not_here("ChangeJob"))
    }
}
