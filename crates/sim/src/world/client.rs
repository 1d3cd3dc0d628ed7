//! A client of the array: one queue, random requests, and checks of every completion.

use std::collections::BTreeMap;

use strake_block::{
    BufMut, Completion, CompletionBatch, Durability, Io, IoError, IoErrorKind, IoQueue, Op, Sg,
    SgMut, Token,
};
use strake_units::{BlockSize, Lba, LbaRange, Nanos};

use crate::content;
use crate::drive::describe;
use crate::oracle::{Begun, Content, Oracle};
use crate::rng::Rng;
use crate::trace::Trace;

/// Size of the hot spots, in bytes.
const SPOT_BYTES: u64 = 192 << 10;

/// Largest request in bytes.
const REQUEST_BYTES_MAX: u64 = 1 << 20;

/// The target ranges of requests: few places, so that requests overlap.
#[derive(Clone, Debug)]
pub struct Ground {
    /// Blocks of the array.
    pub capacity: u64,
    /// Block size of the array.
    pub block_size: BlockSize,
    /// Blocks of a strip.
    pub strip: u64,
    /// Blocks of a stripe.
    pub stripe: u64,
    /// First blocks of the hot spots.
    pub spots: Vec<u64>,
}

impl Ground {
    fn range(&self, rng: &mut Rng) -> LbaRange {
        let max = (REQUEST_BYTES_MAX >> self.block_size.shift()).min(self.capacity);
        let length = match rng.below(10) {
            0..=2 => 1,
            3..=5 => rng.between(1, 16),
            6 => self.strip,
            7 => rng.between(1, 2 * self.strip),
            8 => self.stripe,
            _ => rng.between(1, 2 * self.stripe),
        };
        let length = length.clamp(1, max.min(if rng.one_in(20) { max } else { 512 }));
        let spot = SPOT_BYTES >> self.block_size.shift();
        let start = if rng.one_in(10) {
            rng.below(self.capacity)
        } else {
            rng.pick(&self.spots) + rng.below(spot)
        };
        let start = match rng.below(4) {
            0 => start / self.strip * self.strip,
            1 => start / self.stripe * self.stripe,
            _ => start,
        };
        let start = start.min(self.capacity - length);
        LbaRange::new(Lba(start), length)
    }
}

enum What {
    Read,
    Write { fua: bool },
    Flush,
}

struct Request {
    begun: Begun,
    range: LbaRange,
    what: What,
}

/// State that a client shares with the rest of the world during a turn.
pub struct Scene<'a> {
    /// The specification.
    pub oracle: &'a mut Oracle,
    /// The record.
    pub trace: &'a Trace,
    /// The next request number, which is unique.
    pub next_id: &'a mut u64,
    /// The number of remaining requests.
    pub left: &'a mut u64,
    /// Whether the array is being stopped: requests may be rejected.
    pub stopping: bool,
    /// Whether the array has lost too many members: requests may fail.
    pub lost: bool,
    /// The time.
    pub now: Nanos,
}

/// One client.
pub struct Client {
    number: u64,
    queue: Box<dyn IoQueue>,
    batch: CompletionBatch,
    live: BTreeMap<u64, Request>,
    depth: usize,
    rng: Rng,
}

impl Client {
    /// A client on `queue`.
    pub fn new(number: u64, queue: Box<dyn IoQueue>, depth: usize, rng: Rng) -> Self {
        Self {
            number,
            queue,
            batch: CompletionBatch::new(depth.max(1)),
            live: BTreeMap::new(),
            depth,
            rng,
        }
    }

    /// The number of outstanding requests.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.live.len()
    }

    /// Takes completions and submits requests. Returns whether there was work.
    ///
    /// Returns the violation of a completion.
    pub fn turn(&mut self, ground: &Ground, scene: &mut Scene<'_>) -> Result<bool, String> {
        let mut work = self.take_answers(ground, scene)?;
        let burst = self.rng.between(1, 4);
        for _ in 0..burst {
            if *scene.left == 0 || self.live.len() >= self.depth {
                break;
            }
            *scene.left -= 1;
            work = true;
            self.request(ground, scene)?;
        }
        self.queue.ring_doorbell(scene.now);
        Ok(work)
    }

    /// Submits a read of `range`; for checks at the end of a run. The client must have room.
    ///
    /// Returns an error if the array rejects the request.
    pub fn read(
        &mut self,
        ground: &Ground,
        range: LbaRange,
        scene: &mut Scene<'_>,
    ) -> Result<(), String> {
        let op = read_op(ground, range);
        self.submit(range, What::Read, op, None, scene)?;
        self.queue.ring_doorbell(scene.now);
        Ok(())
    }

    /// Submits a write of `range`. The client must have room.
    ///
    /// Returns an error if the array rejects the request.
    pub fn write(
        &mut self,
        ground: &Ground,
        range: LbaRange,
        scene: &mut Scene<'_>,
    ) -> Result<(), String> {
        let id = *scene.next_id;
        let data = self.data(ground, range, id);
        let op = Op::Write { at: range.start, data, durability: Durability::Normal };
        let change = Some((Content::Pattern(id), false));
        self.submit(range, What::Write { fua: false }, op, change, scene)?;
        self.queue.ring_doorbell(scene.now);
        Ok(())
    }

    /// Submits a flush. The client must have room.
    ///
    /// Returns an error if the array rejects the request.
    pub fn flush(&mut self, scene: &mut Scene<'_>) -> Result<(), String> {
        self.submit(LbaRange::default(), What::Flush, Op::Flush, None, scene)?;
        self.queue.ring_doorbell(scene.now);
        Ok(())
    }

    /// Takes completions. Returns whether there were any.
    ///
    /// Returns the violation of a completion.
    pub fn take_answers(&mut self, ground: &Ground, scene: &mut Scene<'_>) -> Result<bool, String> {
        self.queue.poll(scene.now, &mut self.batch);
        let work = !self.batch.is_empty();
        let answers: Vec<Completion> = self.batch.drain().collect();
        for answer in answers {
            self.answered(ground, answer, scene)?;
        }
        Ok(work)
    }

    fn request(&mut self, ground: &Ground, scene: &mut Scene<'_>) -> Result<(), String> {
        let range = ground.range(&mut self.rng);
        let id = *scene.next_id;
        let fua = self.rng.one_in(6);
        let durability = if fua { Durability::Fua } else { Durability::Normal };
        match self.rng.below(20) {
            0..=6 => self.submit(range, What::Read, read_op(ground, range), None, scene),
            7..=15 => {
                let data = self.data(ground, range, id);
                let op = Op::Write { at: range.start, data, durability };
                self.submit(
                    range,
                    What::Write { fua },
                    op,
                    Some((Content::Pattern(id), false)),
                    scene,
                )
            }
            16 => {
                let op = Op::WriteZeroes { range, durability };
                self.submit(range, What::Write { fua }, op, Some((Content::Zero, false)), scene)
            }
            17 => {
                let op = Op::Deallocate { range };
                self.submit(
                    range,
                    What::Write { fua: false },
                    op,
                    Some((Content::Zero, true)),
                    scene,
                )
            }
            _ => self.submit(LbaRange::default(), What::Flush, Op::Flush, None, scene),
        }
    }

    /// The content of write `id`, in one to four pieces.
    fn data(&mut self, ground: &Ground, range: LbaRange, id: u64) -> Sg {
        let block = ground.block_size.bytes() as usize;
        let mut rest = BufMut::alone(range.blocks as usize * block);
        for (at, bytes) in rest.as_mut_slice().chunks_exact_mut(block).enumerate() {
            content::fill(id, range.start.0 + at as u64, bytes);
        }
        let mut data = Sg::default();
        for _ in 0..self.rng.below(4) {
            let blocks = (rest.len() / block) as u64;
            if blocks < 2 {
                break;
            }
            let piece = rest.split_to(self.rng.between(1, blocks - 1) as usize * block);
            if data.push(piece.freeze()).is_err() {
                unreachable!("at most four pieces");
            }
        }
        if data.push(rest.freeze()).is_err() {
            unreachable!("at most four pieces");
        }
        data
    }

    fn submit(
        &mut self,
        range: LbaRange,
        what: What,
        op: Op,
        change: Option<(Content, bool)>,
        scene: &mut Scene<'_>,
    ) -> Result<(), String> {
        let id = *scene.next_id;
        *scene.next_id += 1;
        scene.trace.event(&[70, self.number, id, range.start.0, range.blocks], || {
            format!("client {} request {id}: {}", self.number, describe(&op))
        });
        let begun = match change {
            Some((content, weak)) => scene.oracle.begin_write(id, range, content, weak),
            None => scene.oracle.begin(id),
        };
        if let Err(back) = self.queue.submit(Io { token: Token(id), op }) {
            return Err(format!(
                "client {} has room and its queue has not: {}",
                self.number,
                describe(&back.op)
            ));
        }
        self.live.insert(id, Request { begun, range, what });
        Ok(())
    }

    fn answered(
        &mut self,
        ground: &Ground,
        answer: Completion,
        scene: &mut Scene<'_>,
    ) -> Result<(), String> {
        let Completion { token, op, result } = answer;
        let Some(request) = self.live.remove(&token.0) else {
            return Err(format!("an answer to request {} that was not made, or twice", token.0));
        };
        let outcome = result.map_or_else(|e| e.kind as u64 + 1, |()| 0);
        scene.trace.event(&[71, self.number, token.0, outcome], || {
            format!("client {} answer {}: {} {result:?}", self.number, token.0, describe(&op))
        });
        match result {
            Ok(()) => self.succeeded(ground, request, op, scene),
            Err(error) => failed(request, error, &op, scene),
        }
    }

    fn succeeded(
        &self,
        ground: &Ground,
        request: Request,
        op: Op,
        scene: &mut Scene<'_>,
    ) -> Result<(), String> {
        let Request { begun, range, what } = request;
        match (what, op) {
            (What::Read, Op::Read { data, .. }) => {
                let mut bytes = Vec::with_capacity(data.len());
                data.parts().iter().for_each(|part| bytes.extend_from_slice(part.as_slice()));
                if bytes.len() as u64 != range.blocks << ground.block_size.shift() {
                    return Err(format!(
                        "read {} of {range:?} came home with {} bytes",
                        begun.id,
                        bytes.len()
                    ));
                }
                scene
                    .oracle
                    .end_read(begun, range, &bytes)
                    .map_err(|what| format!("read {}: {what}", begun.id))
            }
            (What::Write { fua }, _) => {
                scene.oracle.end_write(begun, range, fua);
                Ok(())
            }
            (What::Flush, _) => {
                scene.oracle.end_flush(begun);
                Ok(())
            }
            (What::Read, _) => Err(format!("read {} came home as something else", begun.id)),
        }
    }
}

fn failed(request: Request, error: IoError, op: &Op, scene: &mut Scene<'_>) -> Result<(), String> {
    let turned_away = scene.stopping && error.kind == IoErrorKind::Aborted;
    if !turned_away && !scene.lost {
        return Err(format!("request {} ({}) failed: {error}", request.begun.id, describe(op)));
    }
    scene.oracle.end_failed(request.begun);
    Ok(())
}

fn read_op(ground: &Ground, range: LbaRange) -> Op {
    let mut data = BufMut::alone((range.blocks << ground.block_size.shift()) as usize);
    data.as_mut_slice().fill(0xdd);
    Op::Read { at: range.start, data: SgMut::from(data) }
}
