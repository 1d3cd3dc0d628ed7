//! The calls about drives.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use strake_api::limits::FIRMWARE_BYTES_MAX;
use strake_api::v1::drive_service_server::DriveService;
use strake_api::v1::{
    CleanDriveRequest, ConnectDriveRequest, DisconnectDriveRequest, DiscoverDrivesRequest,
    DiscoverDrivesResponse, Drive, DriveChange, DriveHealth, DriverChanges, Firmware, FirmwarePart,
    FormatDriveRequest, GetDriveHealthRequest, GetDriveRequest, GetFirmwareRequest,
    ListDrivesRequest, ListDrivesResponse, LocateDriveRequest, ReadTelemetryRequest,
    ReleaseDrivesRequest, SanitizeDriveRequest, TakeDrivesRequest, TelemetryPart,
    UpdateFirmwareRequest,
};
use strake_control::Telemetry;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming, async_trait};

use crate::shared::{Answer, Shared, check_drives, check_text, check_texts};

/// Bytes of the data in one message.
const PART_BYTES: usize = 1 << 20;

/// Time limit of a client for each part: its log occupies memory until the last part.
const PART_LIMIT: Duration = Duration::from_secs(60);

/// Time limit of a client for a whole image of firmware, of which the daemon receives one at a time.
const IMAGE_LIMIT: Duration = Duration::from_secs(600);

#[async_trait]
impl DriveService for Shared {
    type ReadTelemetryStream = ReceiverStream<Result<TelemetryPart, Status>>;

    async fn list_drives(&self, _: Request<ListDrivesRequest>) -> Answer<ListDrivesResponse> {
        let drives = self.call(|control| control.list_drives()).await?;
        Ok(Response::new(ListDrivesResponse { drives }))
    }

    async fn get_drive(&self, request: Request<GetDriveRequest>) -> Answer<Drive> {
        let request = request.into_inner();
        check_text("path", &request.path)?;
        self.call(move |control| control.drive(&request.path)).await.map(Response::new)
    }

    async fn get_drive_health(
        &self,
        request: Request<GetDriveHealthRequest>,
    ) -> Answer<DriveHealth> {
        let request = request.into_inner();
        check_text("path", &request.path)?;
        self.call(move |control| control.drive_health(&request)).await.map(Response::new)
    }

    async fn read_telemetry(
        &self,
        request: Request<ReadTelemetryRequest>,
    ) -> Answer<Self::ReadTelemetryStream> {
        check_text("path", &request.get_ref().path)?;
        let turn = Arc::clone(&self.telemetry_turns).acquire_owned().await;
        let turn = turn.map_err(|_| Status::unavailable("the daemon is stopping"))?;
        let log = self.command(request, strake_control::read_telemetry).await?.into_inner();
        let (send, receive) = mpsc::channel(1);
        tokio::spawn(async move {
            send_telemetry(log, send).await;
            drop(turn);
        });
        Ok(Response::new(ReceiverStream::new(receive)))
    }

    async fn locate_drive(&self, request: Request<LocateDriveRequest>) -> Answer<DriveChange> {
        check_text("path", &request.get_ref().path)?;
        self.command(request, |c, r| c.locate_drive(r)).await
    }

    async fn clean_drive(&self, request: Request<CleanDriveRequest>) -> Answer<DriveChange> {
        check_text("path", &request.get_ref().path)?;
        self.command(request, |c, r| c.clean_drive(r)).await
    }

    async fn format_drive(&self, request: Request<FormatDriveRequest>) -> Answer<DriveChange> {
        let FormatDriveRequest { path, serial, erase, .. } = request.get_ref();
        check_texts(&[("path", path), ("serial", serial), ("erase", erase)])?;
        self.command(request, strake_control::format_drive).await
    }

    async fn sanitize_drive(&self, request: Request<SanitizeDriveRequest>) -> Answer<DriveChange> {
        let SanitizeDriveRequest { path, serial, action, .. } = request.get_ref();
        check_texts(&[("path", path), ("serial", serial), ("action", action)])?;
        self.command(request, strake_control::sanitize_drive).await
    }

    async fn get_firmware(&self, request: Request<GetFirmwareRequest>) -> Answer<Firmware> {
        let request = request.into_inner();
        check_text("path", &request.path)?;
        self.call(move |control| strake_control::firmware(control, &request))
            .await
            .map(Response::new)
    }

    async fn update_firmware(
        &self,
        request: Request<Streaming<FirmwarePart>>,
    ) -> Answer<DriveChange> {
        let turn = Arc::clone(&self.firmware_turns).acquire_owned().await;
        let _turn = turn.map_err(|_| Status::unavailable("the daemon is stopping"))?;
        let (metadata, extensions, parts) = request.into_parts();
        let (update, image) = receive_image(parts, IMAGE_LIMIT).await?;
        check_texts(&[("path", &update.path), ("activate", &update.activate)])?;
        let request = Request::from_parts(metadata, extensions, update);
        self.command(request, move |c, r| strake_control::update_firmware(c, r, &image)).await
    }

    async fn take_drives(&self, request: Request<TakeDrivesRequest>) -> Answer<DriverChanges> {
        check_drives(&request.get_ref().drives)?;
        self.command(request, |c, r| c.take_drives(r)).await
    }

    async fn release_drives(
        &self,
        request: Request<ReleaseDrivesRequest>,
    ) -> Answer<DriverChanges> {
        check_drives(&request.get_ref().drives)?;
        self.command(request, |c, r| c.release_drives(r)).await
    }

    async fn connect_drive(&self, request: Request<ConnectDriveRequest>) -> Answer<DriveChange> {
        let ConnectDriveRequest { address, host_nqn, secret, controller_secret, tls_key, .. } =
            request.get_ref();
        check_texts(&[("address", address), ("host_nqn", host_nqn)])?;
        check_texts(&[("secret", secret), ("controller_secret", controller_secret)])?;
        check_text("tls_key", tls_key)?;
        self.command(request, |c, r| c.connect_drive(r)).await
    }

    async fn disconnect_drive(
        &self,
        request: Request<DisconnectDriveRequest>,
    ) -> Answer<DriveChange> {
        check_text("address", &request.get_ref().address)?;
        self.command(request, |c, r| c.disconnect_drive(r)).await
    }

    async fn discover_drives(
        &self,
        request: Request<DiscoverDrivesRequest>,
    ) -> Answer<DiscoverDrivesResponse> {
        let request = request.into_inner();
        let DiscoverDrivesRequest { address, host_nqn, secret, controller_secret, tls_key } =
            &request;
        check_texts(&[("address", address), ("host_nqn", host_nqn)])?;
        check_texts(&[("secret", secret), ("controller_secret", controller_secret)])?;
        check_text("tls_key", tls_key)?;
        self.call(move |control| control.discover_drives(&request)).await.map(Response::new)
    }
}

/// Sends a telemetry log in parts. Ends early if the client has gone, or accepts no part within the limit.
async fn send_telemetry(log: Telemetry, send: mpsc::Sender<Result<TelemetryPart, Status>>) {
    let mut first = TelemetryPart {
        path: log.path,
        model: log.model,
        serial: log.serial,
        firmware: log.firmware,
        area: log.area,
        generation: log.generation.into(),
        total_bytes: log.data.len() as u64,
        data: Vec::new(),
    };
    for piece in log.data.chunks(PART_BYTES) {
        let part = TelemetryPart { data: piece.to_vec(), ..std::mem::take(&mut first) };
        let sent = tokio::time::timeout(PART_LIMIT, send.send(Ok(part))).await;
        if !matches!(sent, Ok(Ok(()))) {
            return;
        }
    }
}

/// Receives the request and the image of a firmware update within `limit`.
async fn receive_image(
    parts: impl Stream<Item = Result<FirmwarePart, Status>>,
    limit: Duration,
) -> Result<(UpdateFirmwareRequest, Vec<u8>), Status> {
    let received = tokio::time::timeout(limit, receive_parts(parts)).await;
    received.map_err(|_| {
        let what = format!("the image did not arrive within {} s", limit.as_secs());
        Status::deadline_exceeded(what)
    })?
}

async fn receive_parts(
    parts: impl Stream<Item = Result<FirmwarePart, Status>>,
) -> Result<(UpdateFirmwareRequest, Vec<u8>), Status> {
    let mut parts = pin!(parts);
    let (mut update, mut image) = (None, Vec::new());
    loop {
        let next = tokio::time::timeout(PART_LIMIT, parts.next()).await;
        let next = next.map_err(|_| Status::deadline_exceeded("the image does not arrive"))?;
        let Some(part) = next else { break };
        let FirmwarePart { request, data } = part?;
        update = update.or(request);
        if image.len() + data.len() > FIRMWARE_BYTES_MAX {
            let what = format!("an image of firmware has at most {} MiB", FIRMWARE_BYTES_MAX >> 20);
            return Err(Status::invalid_argument(what));
        }
        image.extend(data);
    }
    Ok((update.unwrap_or_default(), image))
}

#[cfg(test)]
mod tests {
    use super::{FirmwarePart, UpdateFirmwareRequest, receive_image};
    use std::time::Duration;
    use tokio_stream::{StreamExt, iter, pending};
    use tonic::Code;

    fn part(bytes: usize) -> FirmwarePart {
        let request = Some(UpdateFirmwareRequest { path: "d".into(), ..Default::default() });
        FirmwarePart { request, data: vec![1; bytes] }
    }

    /// A client that sends a part now and then would keep every other client from an update.
    #[tokio::test]
    async fn a_whole_image_has_a_time_limit() {
        let endless = iter([Ok(part(8))]).chain(pending());
        let late = receive_image(endless, Duration::from_millis(1)).await;
        let late = late.expect_err("it never ends");
        assert_eq!(late.code(), Code::DeadlineExceeded);
        assert!(late.message().contains("did not arrive within"), "{late}");
        let whole = iter([Ok(part(8)), Ok(part(4))]);
        let (update, image) =
            receive_image(whole, Duration::from_secs(60)).await.expect("it is whole");
        assert_eq!((&*update.path, image.len()), ("d", 12));
    }
}
