//! The calls about arrays.

use std::time::Duration;

use strake_api::v1::array_service_server::ArrayService;
use strake_api::v1::{
    AddDriveRequest, Array, ArrayChange, ArrayStats, ChangeScrubRequest, CreateArrayRequest,
    DestroyArrayRequest, FailMemberRequest, GetArrayRequest, GetArrayStatsRequest, GetScrubRequest,
    GrowArrayRequest, ImportArraysRequest, ImportArraysResponse, ListArraysRequest,
    ListArraysResponse, ListImportableRequest, ListImportableResponse, ListTracesRequest,
    ListTracesResponse, ReaddMemberRequest, RebuildArrayRequest, RenameArrayRequest,
    ReplaceMemberRequest, Scrub, ScrubChange, SetArrayRequest, StartScrubRequest,
    UndeleteArrayRequest, UnloadArrayRequest, UpgradeFormatRequest, WatchArrayRequest,
};
use strake_control::Control;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, async_trait};

use crate::shared::{
    Answer, NO_DEVICE, OVERWRITE, Shared, check_drives, check_text, check_texts, is_device,
};

/// Time between two answers of a watch if the client requests none.
const WATCH_EVERY: Duration = Duration::from_millis(500);

/// Minimum time that a client may request, so that watches do not load the daemon.
const WATCH_EVERY_MIN: Duration = Duration::from_millis(50);

#[async_trait]
impl ArrayService for Shared {
    type WatchArrayStream = ReceiverStream<Result<Array, Status>>;

    async fn list_arrays(&self, _: Request<ListArraysRequest>) -> Answer<ListArraysResponse> {
        self.answer(|m| Ok(ListArraysResponse { arrays: m.arrays() })).await
    }

    async fn get_array(&self, request: Request<GetArrayRequest>) -> Answer<Array> {
        let request = request.into_inner();
        check_text("name", &request.name)?;
        self.answer(move |m| m.array(&request.name)).await
    }

    async fn get_array_stats(&self, request: Request<GetArrayStatsRequest>) -> Answer<ArrayStats> {
        let request = request.into_inner();
        check_text("name", &request.name)?;
        self.answer(move |m| m.array_stats(&request.name)).await
    }

    async fn list_traces(&self, request: Request<ListTracesRequest>) -> Answer<ListTracesResponse> {
        let request = request.into_inner();
        check_text("name", &request.name)?;
        self.answer(move |m| m.traces(&request.name)).await
    }

    async fn watch_array(
        &self,
        request: Request<WatchArrayRequest>,
    ) -> Answer<Self::WatchArrayStream> {
        let request = request.into_inner();
        check_text("name", &request.name)?;
        let every = match request.interval_us {
            0 => WATCH_EVERY,
            us => Duration::from_micros(us).max(WATCH_EVERY_MIN),
        };
        let name = request.name.clone();
        // An unknown array is an error of the call, and not the first item of the stream.
        let first = self.run(move |m| m.array(&name)).await?;
        let (send, receive) = mpsc::channel(1);
        tokio::spawn(watch(self.clone(), request.name, first, every, send));
        Ok(Response::new(ReceiverStream::new(receive)))
    }

    async fn create_array(&self, request: Request<CreateArrayRequest>) -> Answer<ArrayChange> {
        let r = request.get_ref();
        check_texts(&[("name", &r.name), ("level", &r.level)])?;
        check_drives(&r.drives)?;
        self.command(request, Control::create_array).await
    }

    async fn fail_member(&self, request: Request<FailMemberRequest>) -> Answer<ArrayChange> {
        let r = request.get_ref();
        check_text("name", &r.name)?;
        check_drives(&r.accept)?;
        self.command(request, Control::fail_member).await
    }

    async fn replace_member(&self, request: Request<ReplaceMemberRequest>) -> Answer<ArrayChange> {
        let r = request.get_ref();
        check_texts(&[("name", &r.name), ("drive", &r.drive)])?;
        self.check_consent(&request, OVERWRITE, r.overwrite).await?;
        self.check_consent(&request, NO_DEVICE, !is_device(&r.drive)).await?;
        self.command(request, Control::replace_member).await
    }

    async fn add_drive(&self, request: Request<AddDriveRequest>) -> Answer<ArrayChange> {
        let r = request.get_ref();
        check_texts(&[("name", &r.name), ("drive", &r.drive)])?;
        self.check_consent(&request, OVERWRITE, r.overwrite).await?;
        self.check_consent(&request, NO_DEVICE, !is_device(&r.drive)).await?;
        self.command(request, Control::add_drive).await
    }

    async fn list_importable(
        &self,
        request: Request<ListImportableRequest>,
    ) -> Answer<ListImportableResponse> {
        let request = request.into_inner();
        check_drives(&request.drives)?;
        self.call(move |control| control.list_importable(&request)).await.map(Response::new)
    }

    async fn import_arrays(
        &self,
        request: Request<ImportArraysRequest>,
    ) -> Answer<ImportArraysResponse> {
        let r = request.get_ref();
        check_text("name", &r.name)?;
        check_drives(&r.drives)?;
        check_drives(&r.use_drives)?;
        self.command(request, Control::import_arrays).await
    }

    async fn unload_array(&self, request: Request<UnloadArrayRequest>) -> Answer<ArrayChange> {
        check_text("name", &request.get_ref().name)?;
        self.command(request, Control::unload_array).await
    }

    async fn destroy_array(&self, request: Request<DestroyArrayRequest>) -> Answer<ArrayChange> {
        check_text("name", &request.get_ref().name)?;
        self.command(request, Control::destroy_array).await
    }

    async fn readd_member(&self, request: Request<ReaddMemberRequest>) -> Answer<ArrayChange> {
        let r = request.get_ref();
        check_texts(&[("name", &r.name), ("drive", &r.drive)])?;
        self.check_consent(&request, NO_DEVICE, !is_device(&r.drive)).await?;
        self.command(request, Control::readd_member).await
    }

    async fn rebuild_array(&self, request: Request<RebuildArrayRequest>) -> Answer<ArrayChange> {
        check_text("name", &request.get_ref().name)?;
        self.command(request, Control::rebuild_array).await
    }

    async fn rename_array(&self, request: Request<RenameArrayRequest>) -> Answer<ArrayChange> {
        let r = request.get_ref();
        check_texts(&[("name", &r.name), ("new_name", &r.new_name)])?;
        self.command(request, Control::rename_array).await
    }

    async fn grow_array(&self, request: Request<GrowArrayRequest>) -> Answer<ArrayChange> {
        check_text("name", &request.get_ref().name)?;
        self.command(request, Control::grow_array).await
    }

    async fn upgrade_format(&self, request: Request<UpgradeFormatRequest>) -> Answer<ArrayChange> {
        check_text("name", &request.get_ref().name)?;
        self.command(request, Control::upgrade_format).await
    }

    async fn undelete_array(&self, request: Request<UndeleteArrayRequest>) -> Answer<ArrayChange> {
        let r = request.get_ref();
        check_text("name", &r.name)?;
        check_drives(&r.drives)?;
        self.command(request, Control::undelete_array).await
    }

    async fn start_scrub(&self, request: Request<StartScrubRequest>) -> Answer<ScrubChange> {
        let r = request.get_ref();
        check_texts(&[("name", &r.name), ("mode", &r.mode)])?;
        self.check_consent(&request, "a scrub that trusts the data", r.mode == "trust_data")
            .await?;
        self.command(request, |c, r| c.run(|m| m.start_scrub(r))).await
    }

    async fn change_scrub(&self, request: Request<ChangeScrubRequest>) -> Answer<ScrubChange> {
        let r = request.get_ref();
        check_texts(&[("name", &r.name), ("action", &r.action)])?;
        self.command(request, |c, r| c.run(|m| m.change_scrub(r))).await
    }

    async fn get_scrub(&self, request: Request<GetScrubRequest>) -> Answer<Scrub> {
        let request = request.into_inner();
        check_text("name", &request.name)?;
        self.answer(move |m| m.scrub(&request.name)).await
    }

    async fn set_array(&self, request: Request<SetArrayRequest>) -> Answer<ArrayChange> {
        check_text("name", &request.get_ref().name)?;
        self.command(request, Control::set_array).await
    }
}

/// Sends the array whenever it differs from the last sent state, until the client has disconnected or the array was
/// removed.
async fn watch(
    shared: Shared,
    name: String,
    first: Array,
    every: Duration,
    send: mpsc::Sender<Result<Array, Status>>,
) {
    let mut last = first.clone();
    if send.send(Ok(first)).await.is_err() {
        return;
    }
    loop {
        tokio::select! {
            () = send.closed() => return,
            () = tokio::time::sleep(every) => {}
        }
        let wanted = name.clone();
        match shared.run(move |m| m.array(&wanted)).await {
            Ok(now) if now == last => {}
            Ok(now) => {
                last = now.clone();
                if send.send(Ok(now)).await.is_err() {
                    return;
                }
            }
            Err(status) => {
                // The client may have disconnected in the meantime, which also ends the watch.
                let _ = send.send(Err(status)).await;
                return;
            }
        }
    }
}
