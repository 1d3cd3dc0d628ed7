//! Messages of control threads: requests of operators, new queues, and the end of the pool.

use std::sync::Arc;
use std::sync::mpsc;

use strake_volume_map::{
    Error, Request as MapRequest, Ring, Span, VolumeId, VolumeMap, VolumeSpace,
};

use super::steps::{Owner, Running};
use super::{Driver, Port};
use crate::limits::{LEAVES_PER_COMPARISON, OPERATOR_REQUESTS_MAX, PORTS_MAX};
use crate::request::{Answer, Control, Facts, Found, PoolStatus, Request, SpacePart, VolumeRow};

/// The end of the pool.
pub(super) enum Ending {
    /// The pool serves.
    No,
    /// Nothing new is accepted; what is in progress ends.
    Draining(Vec<mpsc::Sender<()>>),
    /// The last root is written.
    Writing(Vec<mpsc::Sender<()>>),
    /// The pool ends without a root: I/Os in progress end, and nothing else.
    Quitting(Vec<mpsc::Sender<()>>),
    /// The pool has ended.
    Ended,
}

impl Driver {
    /// True until the pool is stopped.
    pub(super) fn is_serving(&self) -> bool {
        matches!(self.ending, Ending::No)
    }

    /// Takes messages of control threads.
    pub(super) fn take_control(&mut self) -> usize {
        let mut count = 0;
        if self.needs_root() && self.is_serving() {
            return 0;
        }
        while self.operator_requests < OPERATOR_REQUESTS_MAX
            && let Some((request, reply)) = self.deferred.pop_front()
        {
            count += 1;
            self.take_request(request, reply);
        }
        while let Ok(message) = self.control.try_recv() {
            count += 1;
            match message {
                Control::Request { request, reply }
                    if self.operator_requests < OPERATOR_REQUESTS_MAX =>
                {
                    self.take_request(request, reply);
                }
                // The end of the pool and new queues do not wait for requests in progress.
                Control::Request { request, reply } => self.deferred.push_back((request, reply)),
                Control::Open { volume, reply } => self.open_volume(volume, &reply),
                Control::Connect { volume, requests, replies, wake, section } => {
                    let (outstanding, has_answers) = (0, false);
                    let port = Port { volume, requests, replies, wake, outstanding, has_answers };
                    self.directs.connect(&mut self.map, section);
                    match self.ports.iter().position(Option::is_none) {
                        Some(at) => self.ports[at] = Some(port),
                        None if self.ports.len() < PORTS_MAX => self.ports.push(Some(port)),
                        // The user sees a pool that was stopped.
                        None => {}
                    }
                }
                Control::Stop { reply } => self.begin_end(reply),
                Control::Quit { reply } => self.quit(reply),
            }
        }
        count
    }

    fn open_volume(&mut self, id: VolumeId, reply: &mpsc::Sender<Facts>) {
        // Without an answer, the sender is dropped.
        let Some(volume) = self.map.volume(id) else { return };
        let kind = volume.kind;
        let Some(view) = self.directs.view(&self.map, id) else { return };
        // A control thread that has stopped waiting needs no answer.
        let _ = reply.send(Facts { view: Arc::clone(view), kind });
    }

    fn take_request(&mut self, request: Request, reply: mpsc::Sender<Result<Answer, Error>>) {
        if !self.is_serving() {
            return;
        }
        let answer = match request {
            Request::Status => Ok(Answer::Status(self.status())),
            Request::Space { volume, first } => space(&self.map, volume, first),
            Request::Differences { from, to, first } => differences(&self.map, from, to, first),
            Request::Checkpoint => return self.checkpoint(Some(reply)),
            Request::Create { name, blocks, policy } => {
                return self.change(MapRequest::Create { name, blocks, policy }, reply);
            }
            Request::Snapshot { volumes } => {
                return self.change(MapRequest::Snapshot { volumes }, reply);
            }
            Request::Clone { snapshot, name } => {
                return self.change(MapRequest::Clone { snapshot, name }, reply);
            }
            Request::Rollback { volume, snapshot } => {
                return self.change(MapRequest::Rollback { volume, snapshot }, reply);
            }
            Request::Delete { volume } => {
                return self.change(MapRequest::Delete { volume }, reply);
            }
            Request::Resize { volume, blocks, tail } => {
                return self.change(MapRequest::Resize { volume, blocks, tail }, reply);
            }
            Request::SetPolicy { volume, policy } => {
                return self.change(MapRequest::SetPolicy { volume, policy }, reply);
            }
            Request::Rename { volume, name } => {
                return self.change(MapRequest::Rename { volume, name }, reply);
            }
        };
        // A control thread that has stopped waiting needs no answer.
        let _ = reply.send(answer);
    }

    fn change(&mut self, request: MapRequest, reply: mpsc::Sender<Result<Answer, Error>>) {
        match self.map.begin(request) {
            Ok(id) => {
                self.operator_requests += 1;
                self.operations.insert(id, Running::new(Owner::Operator { reply }));
            }
            Err(error) => {
                // A control thread that has stopped waiting needs no answer.
                let _ = reply.send(Err(error));
            }
        }
    }

    fn status(&self) -> PoolStatus {
        let header = &self.layout.header;
        let row = |(id, volume): (VolumeId, &strake_volume_map::Volume)| VolumeRow {
            id,
            name: volume.name.clone(),
            blocks: volume.blocks,
            kind: volume.kind,
            origin: volume.origin,
            policy: volume.policy,
            mapped: volume.mapped,
        };
        PoolStatus {
            space: self.map.space(),
            cluster_bytes: header.cluster_bytes,
            clusters: header.clusters,
            block_bytes: header.block_bytes,
            is_read_only: self.map.is_read_only(),
            deleting: self.map.dying().count(),
            log_blocks: (self.log.used(), self.log.blocks()),
            volumes: self.map.volumes().map(row).collect(),
        }
    }

    fn begin_end(&mut self, reply: mpsc::Sender<()>) {
        self.directs.close();
        match &mut self.ending {
            Ending::No => self.ending = Ending::Draining(vec![reply]),
            Ending::Draining(replies) | Ending::Writing(replies) | Ending::Quitting(replies) => {
                replies.push(reply);
            }
            Ending::Ended => {
                // A control thread that has stopped waiting needs no answer.
                let _ = reply.send(());
            }
        }
    }

    /// Ends the pool without a root. I/Os that the device has not taken are not sent.
    fn quit(&mut self, reply: mpsc::Sender<()>) {
        self.directs.close();
        self.drop_unsent();
        self.ending = match std::mem::replace(&mut self.ending, Ending::Ended) {
            Ending::Draining(mut replies)
            | Ending::Writing(mut replies)
            | Ending::Quitting(mut replies) => {
                replies.push(reply);
                Ending::Quitting(replies)
            }
            Ending::No | Ending::Ended => Ending::Quitting(vec![reply]),
        };
    }

    pub(super) fn drop_unsent(&mut self) {
        for io in std::mem::take(&mut self.unsent) {
            self.transfers.remove(io.token.0 as u32);
        }
    }

    /// Continues the end of the pool: first everything in progress, then a root.
    pub(super) fn end_if_stopped(&mut self) {
        if matches!(self.ending, Ending::No | Ending::Ended) {
            return;
        }
        let is_quiet = self.operations.is_empty()
            && self.requests.len() == 0
            && self.transfers.len() == 0
            && self.directs.are_idle()
            && self.log_write.is_none();
        // After a failure of the log, the rest of its records is never written.
        let is_idle =
            is_quiet && (self.map.is_read_only() || self.map.records(Ring::LEADER).len() == 0);
        let is_over = match self.ending {
            Ending::Quitting(_) => self.transfers.len() == 0 && self.directs.are_idle(),
            _ => is_idle,
        };
        match std::mem::replace(&mut self.ending, Ending::Ended) {
            Ending::Draining(replies) if is_over && !self.map.is_read_only() => {
                self.checkpoint(None);
                self.ending = Ending::Writing(replies);
            }
            Ending::Draining(replies) | Ending::Writing(replies) | Ending::Quitting(replies)
                if is_over =>
            {
                for reply in replies {
                    // A control thread that has stopped waiting needs no answer.
                    let _ = reply.send(());
                }
            }
            other => self.ending = other,
        }
    }
}

/// Counts the space of a part of a volume, so that the pool core has bounded work.
fn space(map: &VolumeMap, id: VolumeId, first: usize) -> Result<Answer, Error> {
    let (exclusive, next) = map.exclusive_in(id, first, LEAVES_PER_COMPARISON as usize)?;
    let mapped = map.volume(id).map_or(0, |volume| u64::from(volume.mapped));
    let space = VolumeSpace { mapped, exclusive, shared: 0, reserved: map.reserved(id) };
    Ok(Answer::Space(SpacePart { space, next }))
}

/// Compares a part of two volumes, so that the pool core has bounded work.
fn differences(map: &VolumeMap, from: VolumeId, to: VolumeId, first: u64) -> Result<Answer, Error> {
    let shape = map.shape();
    let per = u64::from(shape.cluster_blocks) * u64::from(shape.leaf_entries);
    let end = first.saturating_add(per * LEAVES_PER_COMPARISON);
    let mut spans: Vec<Span> = Vec::new();
    for span in map.differences(from, to)?.within(first, end) {
        match spans.last_mut() {
            Some(last) if last.first + last.count == span.first => last.count += span.count,
            Some(_) | None => spans.push(span),
        }
    }
    let blocks = map.volume(to).map_or(0, |volume| volume.blocks);
    Ok(Answer::Differences(Found { spans, next: (end < blocks).then_some(end) }))
}
