//! Requests of one core to a queue of the driver, and the time of the calls.

use std::sync::Arc;
use std::time::{Duration, Instant};

use strake_block::{
    BlockDevice as _, BufPool, CompletionBatch, Durability, IoQueue, Op, Sg, SgMut, Token,
};
use strake_dev_nvme::NvmeDevice;
use strake_reactor::monotonic;
use strake_units::{CoreIndex, Lba, Nanos};

use super::models::Model;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Blocks between two requests: neighbours in time are no neighbours on the drive.
const STRIDE: u64 = 7919;

/// Direction of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
}

impl Kind {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Read => "randread",
            Self::Write => "randwrite",
        }
    }
}

/// Where the model runs while the driver waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Where {
    /// On the thread of the driver.
    Here,
    /// On another core.
    Elsewhere,
}

/// The times of bursts, without what the caller does.
#[derive(Clone, Debug, Default)]
pub(super) struct Spent {
    /// Microseconds for a request in the calls of the driver, by burst.
    driver: Vec<f64>,
    /// Microseconds for a request between submission and completion, when the model does its work.
    model: Vec<f64>,
}

impl Spent {
    /// Microseconds of the driver's calls for a request.
    pub(super) fn driver_us(self) -> f64 {
        fastest(self.driver)
    }

    /// Microseconds of the model for a request.
    pub(super) fn model_us(self) -> f64 {
        fastest(self.model)
    }
}

/// The mean of the fastest 90 %: whatever else the machine does falls into the rest.
fn fastest(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.truncate((times.len() * 9).div_ceil(10));
    times.iter().sum::<f64>() / times.len() as f64
}

/// Data of a request.
enum Data {
    Into(SgMut),
    From(Sg),
}

/// A user of a queue, with as many buffers as requests.
pub(super) struct Caller {
    queue: Box<dyn IoQueue>,
    batch: CompletionBatch,
    data: Vec<Data>,
    model: Arc<Model>,
    place: Where,
    blocks: u64,
    at: u64,
    depth: usize,
}

impl Caller {
    /// Opens a queue for `depth` requests on this thread, and makes it ready.
    pub(super) fn new(
        (device, model): (&Arc<NvmeDevice>, &Arc<Model>),
        place: Where,
        kind: Kind,
        (depth, mut pool): (u32, BufPool),
    ) -> Result<Self, String> {
        let queue = device.open_queue(CoreIndex(0), depth).map_err(|e| e.to_string())?;
        let buffer = |_| {
            let buf = pool.get(super::BYTES).ok_or("there are not enough buffers")?;
            Ok(match kind {
                Kind::Read => Data::Into(buf.into()),
                Kind::Write => Data::From(buf.freeze().into()),
            })
        };
        let data: Vec<Data> = (0..depth).map(buffer).collect::<Result<_, &str>>()?;
        let (depth, batch) = (data.len(), CompletionBatch::new(data.len()));
        let (model, blocks) = (Arc::clone(model), device.info().blocks);
        let mut caller = Self { queue, batch, data, model, place, blocks, at: 0, depth };
        // The first requests wait for the queue pair, and find the region of the buffers.
        for _ in 0..2 {
            while caller.submit()? {}
            caller.empty()?;
        }
        Ok(caller)
    }

    /// Submits a request, if a buffer is left. Returns false if none is.
    fn submit(&mut self) -> Result<bool, String> {
        let Some(data) = self.data.pop() else { return Ok(false) };
        self.at = (self.at + STRIDE) % self.blocks;
        let (token, at) = (Token(self.at), Lba(self.at));
        let sent = match data {
            Data::Into(data) => self.queue.submit_read(token, at, data),
            Data::From(data) => self.queue.submit_write(token, at, data, Durability::Normal),
        };
        sent.map(|()| true).map_err(|_| "the queue is full".to_owned())
    }

    /// Takes the buffers of completed requests back. Returns how many requests completed.
    fn settle(&mut self) -> Result<usize, String> {
        let mut count = 0;
        for completion in self.batch.drain() {
            completion.result.map_err(|e| e.to_string())?;
            count += 1;
            match completion.op {
                Op::Read { data, .. } => self.data.push(Data::Into(data)),
                Op::Write { data, .. } => self.data.push(Data::From(data)),
                Op::Flush | Op::Deallocate { .. } | Op::WriteZeroes { .. } => {}
            }
        }
        Ok(count)
    }

    /// Does bursts of as many requests as the queue holds until `span` has passed, and measures the driver's calls.
    pub(super) fn bursts(&mut self, span: Duration) -> Result<Spent, String> {
        let since = Instant::now();
        let mut spent = Spent::default();
        while since.elapsed() < span || spent.driver.is_empty() {
            let (driver, model) = self.burst()?;
            let each = |time: Duration| time.as_secs_f64() * 1e6 / self.depth as f64;
            spent.driver.push(each(driver));
            spent.model.push(each(model));
        }
        Ok(spent)
    }

    /// One burst: all is submitted, the model answers all of it, and all is taken. Returns the time in calls of the
    /// driver, and the time between them.
    fn burst(&mut self) -> Result<(Duration, Duration), String> {
        let (now, goal) = (monotonic(), self.model.posted() + self.depth as u64);
        let begin = Instant::now();
        while self.submit()? {}
        self.queue.ring_doorbell(now);
        let sent = Instant::now();
        while self.model.posted() < goal {
            self.give_time(now);
            if sent.elapsed() > PATIENCE {
                return Err(silent());
            }
        }
        let posted = Instant::now();
        self.queue.poll(now, &mut self.batch);
        let end = Instant::now();
        let requests = self.settle()?;
        if requests < self.depth {
            return Err(format!("{requests} of {} completions were taken", self.depth));
        }
        Ok(((sent - begin) + (end - posted), posted - sent))
    }

    /// Lets the model do its work.
    fn give_time(&self, now: Nanos) {
        match self.place {
            Where::Here => self.model.step(now),
            Where::Elsewhere => std::hint::spin_loop(),
        }
    }

    /// Keeps the queue full until `span` has passed. Returns requests per second, of driver and model together.
    pub(super) fn rate(&mut self, span: Duration) -> Result<f64, String> {
        let (since, mut done) = (Instant::now(), 0);
        let mut elapsed = Duration::ZERO;
        while elapsed < span || done == 0 {
            while self.submit()? {}
            done += self.turn()?;
            elapsed = since.elapsed();
            if done == 0 && elapsed > span + PATIENCE {
                return Err(silent());
            }
        }
        self.empty()?;
        Ok(done as f64 / elapsed.as_secs_f64())
    }

    /// A turn of a core, with one read of the clock. Returns how many requests completed.
    fn turn(&mut self) -> Result<usize, String> {
        let now = monotonic();
        self.queue.ring_doorbell(now);
        self.give_time(now);
        self.queue.poll(now, &mut self.batch);
        self.settle()
    }

    /// Waits until no request is out.
    fn empty(&mut self) -> Result<(), String> {
        let since = Instant::now();
        while self.data.len() < self.depth {
            self.turn()?;
            if since.elapsed() > PATIENCE {
                return Err(silent());
            }
        }
        Ok(())
    }

    /// The queue, without requests.
    pub(super) fn queue(&mut self) -> &mut dyn IoQueue {
        &mut *self.queue
    }
}

fn silent() -> String {
    format!("no answer of a model within {PATIENCE:?}")
}
