//! The answers about pools and volumes.

use super::{Answer, Fake};
use strake_api::v1::pool_service_server::PoolService;
use strake_api::v1::qos_service_server::QosService;
use strake_api::v1::volume_service_server::VolumeService;
use strake_api::v1::*;
use tonic::{Request, Response};

impl Fake {
    fn pool(&self, request: &impl std::fmt::Debug, name: &str) -> Answer<PoolChange> {
        self.hear(request)?;
        let pool = Pool { name: name.into(), array: "tank".into(), ..Pool::default() };
        let (result, plan) = ("created".into(), vec!["write the labels of the pool".into()]);
        Ok(Response::new(PoolChange { result, pool: Some(pool), plan, warnings: vec![] }))
    }

    fn volume(&self, request: &impl std::fmt::Debug, name: &str) -> Answer<VolumeChange> {
        self.hear(request)?;
        let (result, plan) = ("changed".into(), vec!["write a record".into()]);
        let volume = Some(self.known(name));
        Ok(Response::new(VolumeChange { result, volume, plan, warnings: vec!["a warning".into()] }))
    }

    /// The volume of the script, or one of 10 GiB.
    fn known(&self, name: &str) -> Volume {
        let found = self.script.volumes.iter().find(|volume| volume.name == name).cloned();
        let size_bytes = 10 << 30;
        found.unwrap_or_else(|| Volume { name: name.into(), size_bytes, ..Volume::default() })
    }
}

#[tonic::async_trait]
impl PoolService for Fake {
    async fn create_pool(&self, request: Request<CreatePoolRequest>) -> Answer<PoolChange> {
        self.pool(request.get_ref(), &request.get_ref().name)
    }
    async fn list_pools(&self, _: Request<ListPoolsRequest>) -> Answer<ListPoolsResponse> {
        Ok(Response::new(ListPoolsResponse { pools: self.script.pools.clone() }))
    }
    async fn get_pool(&self, request: Request<GetPoolRequest>) -> Answer<Pool> {
        let name = request.into_inner().name;
        let found = self.script.pools.iter().find(|pool| pool.name == name).cloned();
        let online = || Pool { name, state: "online".into(), ..Pool::default() };
        Ok(Response::new(found.unwrap_or_else(online)))
    }
    async fn destroy_pool(&self, request: Request<DestroyPoolRequest>) -> Answer<PoolChange> {
        self.pool(request.get_ref(), &request.get_ref().name)
    }
}

#[tonic::async_trait]
impl VolumeService for Fake {
    async fn create_volume(&self, request: Request<CreateVolumeRequest>) -> Answer<VolumeChange> {
        self.volume(request.get_ref(), &request.get_ref().name)
    }
    async fn list_volumes(
        &self,
        request: Request<ListVolumesRequest>,
    ) -> Answer<ListVolumesResponse> {
        self.hear(request.get_ref())?;
        let kind = request.into_inner().kind;
        let mut volumes = self.script.volumes.clone();
        volumes.retain(|volume| kind.is_empty() || volume.kind == kind);
        Ok(Response::new(ListVolumesResponse { volumes }))
    }
    async fn get_volume(&self, request: Request<GetVolumeRequest>) -> Answer<Volume> {
        self.hear(request.get_ref())?;
        Ok(Response::new(self.known(&request.get_ref().name)))
    }
    async fn resize_volume(&self, request: Request<ResizeVolumeRequest>) -> Answer<VolumeChange> {
        self.volume(request.get_ref(), &request.get_ref().name)
    }
    async fn set_volume(&self, request: Request<SetVolumeRequest>) -> Answer<VolumeChange> {
        self.volume(request.get_ref(), &request.get_ref().name)
    }
    async fn rename_volume(&self, request: Request<RenameVolumeRequest>) -> Answer<VolumeChange> {
        self.volume(request.get_ref(), &request.get_ref().name)
    }
    async fn destroy_volume(&self, request: Request<DestroyVolumeRequest>) -> Answer<VolumeChange> {
        self.volume(request.get_ref(), &request.get_ref().name)
    }
    async fn create_snapshots(
        &self,
        request: Request<CreateSnapshotsRequest>,
    ) -> Answer<SnapshotsChange> {
        self.accept(&request)
    }
    async fn clone_snapshot(&self, request: Request<CloneSnapshotRequest>) -> Answer<VolumeChange> {
        self.volume(request.get_ref(), &request.get_ref().name)
    }
    async fn rollback_volume(
        &self,
        request: Request<RollbackVolumeRequest>,
    ) -> Answer<VolumeChange> {
        self.volume(request.get_ref(), &request.get_ref().name)
    }
    /// Two answers, with ranges that are adjacent. From `stuck`, it makes no progress.
    async fn compare_volumes(
        &self,
        request: Request<CompareVolumesRequest>,
    ) -> Answer<CompareVolumesResponse> {
        self.hear(request.get_ref())?;
        let range = |offset_bytes| ByteRange { offset_bytes, length_bytes: 4096 };
        let (ranges, next_byte) = match request.get_ref() {
            CompareVolumesRequest { from, .. } if from.ends_with("stuck") => (vec![], Some(0)),
            CompareVolumesRequest { first_byte: 0, .. } => {
                (vec![range(0), range(8192)], Some(12_288))
            }
            _ => (vec![range(12_288), range(65_536)], None),
        };
        Ok(Response::new(CompareVolumesResponse { ranges, next_byte }))
    }
}

impl Fake {
    fn limits(&self, request: &impl std::fmt::Debug, kind: &str, name: &str) -> Answer<QosChange> {
        self.hear(request)?;
        let (result, plan) = ("changed".into(), vec!["iops: 7/s".into()]);
        let qos = Some(limited(kind, name));
        Ok(Response::new(QosChange { result, qos, plan, warnings: vec![] }))
    }
}

/// An object with one limit.
fn limited(kind: &str, name: &str) -> Qos {
    let limit = QosLimit { aspect: "iops".into(), rate: 7, burst_ms: 100, ..QosLimit::default() };
    Qos { kind: kind.into(), name: name.into(), limits: vec![limit] }
}

#[tonic::async_trait]
impl QosService for Fake {
    async fn set_qos(&self, request: Request<SetQosRequest>) -> Answer<QosChange> {
        let SetQosRequest { kind, name, .. } = request.get_ref();
        self.limits(request.get_ref(), kind, name)
    }
    async fn list_qos(&self, _: Request<ListQosRequest>) -> Answer<ListQosResponse> {
        Ok(Response::new(ListQosResponse { objects: vec![limited("volume", "tank/vm1")] }))
    }
    async fn get_qos(&self, request: Request<GetQosRequest>) -> Answer<Qos> {
        self.hear(request.get_ref())?;
        let GetQosRequest { kind, name } = request.into_inner();
        Ok(Response::new(limited(&kind, &name)))
    }
    async fn clear_qos(&self, request: Request<ClearQosRequest>) -> Answer<QosChange> {
        let ClearQosRequest { kind, name, .. } = request.get_ref();
        self.limits(request.get_ref(), kind, name)
    }
}
