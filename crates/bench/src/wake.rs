//! How much longer the first request takes when the core of the array sleeps, without any export in between.

use std::sync::Arc;
use std::time::{Duration, Instant};

use strake_block::{BlockDevice, BufMut, CompletionBatch, Io, IoQueue, Op, SgMut, Token};
use strake_engine::Array;
use strake_raid::Level;
use strake_reactor::monotonic;
use strake_units::{CoreIndex, Lba};

use crate::bay::array_on;
use crate::measure::Samples;
use crate::rig::{Rig, pass};
use crate::scenario::Made;

const DRIVE_BYTES: u64 = 1 << 30;
/// Longer than a core waits before it sleeps.
const REST: Duration = Duration::from_millis(5);
/// How often it is let sleep for one result.
const RESTS: usize = 20;
/// Reads of a client that is busy, after each rest.
const BUSY_READS: usize = 101;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// An array on one core, and a client on another.
pub struct Sleeper {
    // Dropped before the cores it runs on.
    array: Array,
    _cores: Rig,
    clients: Rig,
}

impl Sleeper {
    /// Gets both ready.
    ///
    /// # Errors
    /// What is wrong with the machine.
    pub fn new() -> Result<Self, String> {
        let cores = Rig::start(1)?;
        // The second of these has a CPU of its own.
        let clients = Rig::start(2)?;
        let array = array_on(&cores, Made::Null, Level::Raid1, 2, DRIVE_BYTES)?;
        Ok(Self { array, _cores: cores, clients })
    }

    /// By how many microseconds the first read after a rest takes longer than those after it: the median of several
    /// rests.
    ///
    /// # Errors
    /// When reads fail or are not answered.
    pub fn wake(&self) -> Result<f64, String> {
        let device = self.array.device();
        let client = self.clients.handles().pop().ok_or("there is no core")?;
        client.call(move |_| wakes(&device)).map_err(|e| e.to_string())?
    }
}

fn wakes(device: &Arc<dyn BlockDevice>) -> Result<f64, String> {
    let queue = device.open_queue(CoreIndex(0), 1).map_err(|e| e.to_string())?;
    let data = SgMut::from(BufMut::alone(device.info().block_size.bytes() as usize));
    let mut reader = Reader { queue, batch: CompletionBatch::new(1), data: Some(data) };
    let mut found = Vec::new();
    for _ in 0..RESTS {
        pass(REST);
        let first = reader.read()?;
        let busy = (0..BUSY_READS).map(|_| reader.read()).collect::<Result<Vec<_>, _>>()?;
        found.push((first - Samples::new(busy).median()) * 1e6);
    }
    Ok(Samples::new(found).median())
}

/// Reads the first block again and again, and asks for the answer until it is there.
struct Reader {
    queue: Box<dyn IoQueue>,
    batch: CompletionBatch,
    /// The buffer, while no read has it.
    data: Option<SgMut>,
}

impl Reader {
    /// The seconds that one read takes.
    fn read(&mut self) -> Result<f64, String> {
        let data = self.data.take().ok_or("a read has not completed")?;
        let since = Instant::now();
        let io = Io { token: Token(0), op: Op::Read { at: Lba(0), data } };
        self.queue.submit(io).map_err(|_| "the queue is full")?;
        self.queue.ring_doorbell(monotonic());
        loop {
            self.queue.poll(monotonic(), &mut self.batch);
            if let Some(completion) = self.batch.drain().next() {
                let took = since.elapsed().as_secs_f64();
                completion.result.map_err(|e| e.to_string())?;
                if let Op::Read { data, .. } = completion.op {
                    self.data = Some(data);
                }
                return Ok(took);
            }
            if since.elapsed() > PATIENCE {
                return Err(format!("a read was not answered within {PATIENCE:?}"));
            }
        }
    }
}
