//! Traces of answered requests. These functions are outside of the hot functions that call them, because few requests
//! are traced.

use strake_block::IoError;
use strake_units::{Lba, MemberIndex, Nanos};

use super::{Body, DirectRead, DirectWrite, Fill, Request, Requests};
use crate::trace::{About, Stage, Stages, TraceOp, Tracer};

impl Requests {
    /// Traces a direct write of `bytes` bytes at `at`.
    #[cold]
    #[inline(never)]
    pub(super) fn trace_write(
        &mut self,
        write: &DirectWrite,
        (at, bytes): (Lba, u64),
        result: Result<(), IoError>,
        stages: impl FnOnce() -> Stages,
    ) {
        let (op, error) = (TraceOp::Write, result.err().map(|error| error.kind));
        let about = About { op, at, bytes, accepted: write.since, error };
        self.tracer.record(self.now, &about, stages());
    }

    /// Traces a direct read. Its I/Os were issued at `issued`. The last one was an I/O of `member`.
    #[cold]
    #[inline(never)]
    pub(super) fn trace_direct(&mut self, read: &DirectRead, issued: Nanos, member: MemberIndex) {
        let (op, at, bytes) = (TraceOp::Read, read.at, read.bytes.into());
        let about = About { op, at, bytes, accepted: read.since, error: None };
        let stages = Stages::NONE.with(Stage::Read, self.now.since(issued), Some(member));
        self.tracer.record(self.now, &about, stages);
    }
}

/// Traces an ordinary request of `bytes` bytes. `stages` are those of the span that completed last.
#[cold]
#[inline(never)]
pub(super) fn request(
    tracer: &mut Tracer,
    now: Nanos,
    request: &Request,
    bytes: u64,
    stages: &Stages,
) {
    let op = match request.body {
        Body::Read { .. } => TraceOp::Read,
        Body::Write { fill: Fill::Data(_), .. } => TraceOp::Write,
        Body::Write { fill: Fill::Zeroes, .. } => TraceOp::WriteZeroes,
        Body::Write { fill: Fill::Deallocate, .. } => TraceOp::Deallocate,
        Body::Flush => TraceOp::Flush,
    };
    let (at, error) = (request.range.start, request.error.map(|error| error.kind));
    let about = About { op, at, bytes, accepted: request.since, error };
    tracer.record(now, &about, stages.after(request.retried));
}
