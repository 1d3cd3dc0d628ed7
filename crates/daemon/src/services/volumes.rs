//! The calls about volumes and snapshots.

use strake_api::v1::volume_service_server::VolumeService;
use strake_api::v1::{
    CloneSnapshotRequest, CompareVolumesRequest, CompareVolumesResponse, CreateSnapshotsRequest,
    CreateVolumeRequest, DestroyVolumeRequest, GetVolumeRequest, ListVolumesRequest,
    ListVolumesResponse, RenameVolumeRequest, ResizeVolumeRequest, RollbackVolumeRequest,
    SetVolumeRequest, SnapshotsChange, Volume, VolumeChange,
};
use strake_control::Pools;
use strake_control::limits::SNAPSHOTS_MAX;
use tonic::{Request, Response, Status, async_trait};

use crate::shared::{Answer, Shared, check_text, check_texts};

/// The consent to lose the end of a volume.
const DISCARD_TAIL: &str = "discarding the end of a volume";

#[async_trait]
impl VolumeService for Shared {
    async fn create_volume(&self, request: Request<CreateVolumeRequest>) -> Answer<VolumeChange> {
        check_text("name", &request.get_ref().name)?;
        self.command(request, |control, request| Pools::of(control).create_volume(request)).await
    }

    async fn list_volumes(
        &self,
        request: Request<ListVolumesRequest>,
    ) -> Answer<ListVolumesResponse> {
        let request = request.into_inner();
        check_texts(&[("pool", &request.pool), ("kind", &request.kind)])?;
        self.call(move |control| Pools::of(control).list_volumes(&request)).await.map(Response::new)
    }

    async fn get_volume(&self, request: Request<GetVolumeRequest>) -> Answer<Volume> {
        let request = request.into_inner();
        check_text("name", &request.name)?;
        self.call(move |control| Pools::of(control).volume(&request)).await.map(Response::new)
    }

    async fn resize_volume(&self, request: Request<ResizeVolumeRequest>) -> Answer<VolumeChange> {
        let r = request.get_ref();
        check_text("name", &r.name)?;
        self.check_consent(&request, DISCARD_TAIL, r.discard_tail).await?;
        self.command(request, |control, request| Pools::of(control).resize_volume(request)).await
    }

    async fn set_volume(&self, request: Request<SetVolumeRequest>) -> Answer<VolumeChange> {
        check_text("name", &request.get_ref().name)?;
        self.command(request, |control, request| Pools::of(control).set_volume(request)).await
    }

    async fn rename_volume(&self, request: Request<RenameVolumeRequest>) -> Answer<VolumeChange> {
        let r = request.get_ref();
        check_texts(&[("name", &r.name), ("new_name", &r.new_name)])?;
        self.command(request, |control, request| Pools::of(control).rename_volume(request)).await
    }

    async fn destroy_volume(&self, request: Request<DestroyVolumeRequest>) -> Answer<VolumeChange> {
        check_text("name", &request.get_ref().name)?;
        self.command(request, |control, request| Pools::of(control).destroy_volume(request)).await
    }

    async fn create_snapshots(
        &self,
        request: Request<CreateSnapshotsRequest>,
    ) -> Answer<SnapshotsChange> {
        let snapshots = &request.get_ref().snapshots;
        if snapshots.len() > SNAPSHOTS_MAX {
            return Err(Status::invalid_argument(format!(
                "{} snapshots in one request; at most {SNAPSHOTS_MAX} are accepted",
                snapshots.len()
            )));
        }
        for new in snapshots {
            check_texts(&[("volume", &new.volume), ("name", &new.name)])?;
        }
        self.command(request, |control, request| Pools::of(control).create_snapshots(request)).await
    }

    async fn clone_snapshot(&self, request: Request<CloneSnapshotRequest>) -> Answer<VolumeChange> {
        let r = request.get_ref();
        check_texts(&[("snapshot", &r.snapshot), ("name", &r.name)])?;
        self.command(request, |control, request| Pools::of(control).clone_snapshot(request)).await
    }

    async fn rollback_volume(
        &self,
        request: Request<RollbackVolumeRequest>,
    ) -> Answer<VolumeChange> {
        let r = request.get_ref();
        check_texts(&[("name", &r.name), ("snapshot", &r.snapshot)])?;
        self.command(request, |control, request| Pools::of(control).rollback_volume(request)).await
    }

    async fn compare_volumes(
        &self,
        request: Request<CompareVolumesRequest>,
    ) -> Answer<CompareVolumesResponse> {
        let request = request.into_inner();
        check_texts(&[("from", &request.from), ("to", &request.to)])?;
        self.call(move |control| Pools::of(control).compare_volumes(&request))
            .await
            .map(Response::new)
    }
}
