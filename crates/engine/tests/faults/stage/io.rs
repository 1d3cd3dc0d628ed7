//! Requests to the array on the stage, and the model that answers are compared with.

use strake_block::{BufMut, Completion, Durability, IoErrorKind, Op, Sg, SgMut};
use strake_units::Lba;

use super::{Answer, Stage};

impl Stage {
    /// Bytes that follow from `seed`.
    pub fn pattern(bytes: usize, seed: u64) -> Vec<u8> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut out = Vec::with_capacity(bytes + 8);
        while out.len() < bytes {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            out.extend_from_slice(&state.to_le_bytes());
        }
        out.truncate(bytes);
        out
    }

    pub fn write_op(&self, at: u64, blocks: u64, seed: u64) -> Op {
        let bytes = (blocks << self.size.shift()) as usize;
        let mut buf = BufMut::alone(bytes);
        buf.as_mut_slice().copy_from_slice(&Self::pattern(bytes, seed));
        Op::Write { at: Lba(at), data: Sg::from(buf.freeze()), durability: Durability::Normal }
    }

    /// Submits a write, whose answer [`result`](Self::result) waits for.
    pub fn submit_write(&mut self, queue: usize, at: u64, blocks: u64, seed: u64) -> u64 {
        let op = self.write_op(at, blocks, seed);
        self.submit(queue, op)
    }

    /// Submits a write that the model holds from now on.
    pub fn begin_write(&mut self, at: u64, blocks: u64, seed: u64) -> u64 {
        self.expect(at, blocks, seed);
        self.submit_write(0, at, blocks, seed)
    }

    pub fn submit_read(&mut self, queue: usize, at: u64, blocks: u64) -> u64 {
        let op = self.read_op(at, blocks);
        self.submit(queue, op)
    }

    /// Waits until all of these have succeeded.
    pub fn done(&mut self, ids: impl IntoIterator<Item = u64>) {
        for id in ids {
            assert_eq!(self.result(id), Ok(()));
        }
    }

    pub fn read_op(&self, at: u64, blocks: u64) -> Op {
        Op::Read {
            at: Lba(at),
            data: SgMut::from(BufMut::alone((blocks << self.size.shift()) as usize)),
        }
    }

    /// What the model holds from now on.
    pub fn expect(&mut self, at: u64, blocks: u64, seed: u64) {
        let from = (at << self.size.shift()) as usize;
        let bytes = Self::pattern((blocks << self.size.shift()) as usize, seed);
        self.model[from..from + bytes.len()].copy_from_slice(&bytes);
    }

    pub fn write(&mut self, at: u64, blocks: u64, seed: u64) -> Answer {
        let op = self.write_op(at, blocks, seed);
        let answer = self.run(0, op);
        if answer.is_ok() {
            self.expect(at, blocks, seed);
        }
        answer
    }

    /// Writes `blocks` in all, in pieces of `piece`.
    pub fn fill(&mut self, blocks: u64, piece: u64, seed: u64) {
        let pieces = (0..blocks).step_by(piece as usize);
        let ids = pieces.map(|at| self.begin_write(at, piece.min(blocks - at), seed + at));
        let ids: Vec<u64> = ids.collect();
        self.done(ids);
    }

    pub fn read(&mut self, queue: usize, at: u64, blocks: u64) -> Result<Vec<u8>, IoErrorKind> {
        let id = self.submit_read(queue, at, blocks);
        bytes_of(self.answer(id))
    }

    /// Reads `blocks` from the start and compares.
    pub fn verify(&mut self, blocks: u64) {
        let shift = self.size.shift();
        let piece = (150_000u64 >> shift).max(1);
        for at in (0..blocks).step_by(piece as usize) {
            let length = piece.min(blocks - at);
            let bytes = self.read(0, at, length).unwrap_or_else(|e| panic!("block {at}: {e:?}"));
            let from = (at << shift) as usize;
            let wrong =
                strake_parity::first_difference(&bytes, &self.model[from..from + bytes.len()]);
            assert_eq!(wrong, None, "from block {at}");
        }
    }
}

/// A read's bytes.
pub fn bytes_of(done: Completion) -> Result<Vec<u8>, IoErrorKind> {
    done.result.map_err(|e| e.kind)?;
    let Op::Read { data, .. } = done.op else { panic!("a read came back as something else") };
    let mut bytes = Vec::with_capacity(data.len());
    data.parts().iter().for_each(|part| bytes.extend_from_slice(part.as_slice()));
    Ok(bytes)
}
