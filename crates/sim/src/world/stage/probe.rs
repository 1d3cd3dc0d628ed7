//! Single requests whose results the script checks.

use strake_block::{
    BufMut, Completion, CompletionBatch, Durability, Io, IoError, IoQueue, Op, Sg, SgMut, Token,
};
use strake_units::{CoreIndex, LbaRange};

use crate::content;
use crate::oracle::Content;
use crate::world::World;

/// The method of clearing a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clearing {
    /// Writes zeroes, which are then present.
    Zeroes,
    /// Deallocation, which may also have no effect.
    Deallocation,
}

/// A client that the script controls.
pub(super) struct Probe {
    queue: Box<dyn IoQueue>,
    batch: CompletionBatch,
}

impl Probe {
    pub(super) fn open(world: &World) -> Result<Self, String> {
        let queue = world.array().device().open_queue(CoreIndex(0), 1);
        let queue = queue.map_err(|error| error.to_string())?;
        Ok(Self { queue, batch: CompletionBatch::new(1) })
    }

    /// Reads `range`. The data is checked; an error of the array is returned.
    pub(super) fn read(
        &mut self,
        world: &mut World,
        range: LbaRange,
    ) -> Result<Result<(), IoError>, String> {
        let id = next_id(world);
        let begun = world.oracle.begin(id);
        let bytes = (range.blocks << world.ground.block_size.shift()) as usize;
        let data = SgMut::from(BufMut::alone(bytes));
        let Completion { op, result, .. } =
            self.run(world, Io { token: Token(id), op: Op::Read { at: range.start, data } })?;
        let Op::Read { data, .. } = op else {
            return Err("a read came home as a write".to_owned());
        };
        if let Err(error) = result {
            world.oracle.end_failed(begun);
            return Ok(Err(error));
        }
        let bytes: Vec<u8> =
            data.parts().iter().flat_map(|part| part.as_slice().to_vec()).collect();
        world.oracle.end_read(begun, range, &bytes).map_err(|what| format!("read {id}: {what}"))?;
        Ok(Ok(()))
    }

    /// Writes `range`.
    pub(super) fn write(
        &mut self,
        world: &mut World,
        range: LbaRange,
    ) -> Result<Result<(), IoError>, String> {
        let id = next_id(world);
        let begun = world.oracle.begin_write(id, range, Content::Pattern(id), false);
        let block = world.ground.block_size.bytes() as usize;
        let mut data = BufMut::alone(range.blocks as usize * block);
        for (at, bytes) in data.as_mut_slice().chunks_exact_mut(block).enumerate() {
            content::fill(id, range.start.0 + at as u64, bytes);
        }
        let data = Sg::from(data.freeze());
        let op = Op::Write { at: range.start, data, durability: Durability::Normal };
        let answer = self.run(world, Io { token: Token(id), op })?;
        match answer.result {
            Ok(()) => world.oracle.end_write(begun, range, false),
            Err(_) => world.oracle.end_failed(begun),
        }
        Ok(answer.result)
    }

    /// Clears `range`.
    pub(super) fn clear(
        &mut self,
        world: &mut World,
        range: LbaRange,
        how: Clearing,
    ) -> Result<Result<(), IoError>, String> {
        let id = next_id(world);
        let weak = how == Clearing::Deallocation;
        let begun = world.oracle.begin_write(id, range, Content::Zero, weak);
        let op = match how {
            Clearing::Zeroes => Op::WriteZeroes { range, durability: Durability::Normal },
            Clearing::Deallocation => Op::Deallocate { range },
        };
        let answer = self.run(world, Io { token: Token(id), op })?;
        match answer.result {
            Ok(()) => world.oracle.end_write(begun, range, false),
            Err(_) => world.oracle.end_failed(begun),
        }
        Ok(answer.result)
    }

    fn run(&mut self, world: &mut World, io: Io) -> Result<Completion, String> {
        let (queue, batch) = (&mut self.queue, &mut self.batch);
        if queue.submit(io).is_err() {
            return Err("a queue of one has no room for one request".to_owned());
        }
        queue.ring_doorbell(world.now);
        let answer = std::cell::RefCell::new(None);
        let place = std::cell::RefCell::new((queue, batch));
        world.run_until("an answer", |world| {
            let (queue, batch) = &mut *place.borrow_mut();
            queue.poll(world.now, batch);
            let mut answer = answer.borrow_mut();
            *answer = batch.drain().next().or(answer.take());
            answer.is_some()
        })?;
        answer.into_inner().ok_or("waited for it in vain".to_owned())
    }
}

fn next_id(world: &mut World) -> u64 {
    let id = world.next_id;
    world.next_id += 1;
    id
}
