//! Verified load on one connection: every area has one request in flight, every answer is compared.

use crate::demo::area::{Area, Dice, GRANULE, Op};
use crate::demo::client::{self, Receiver, Request, Sender, Verb};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

/// Granules of a request that goes through an area in order: 1 MiB.
const SEQUENTIAL: u32 = (1 << 20) / GRANULE as u32;
/// Largest random request is 2 to the power of one less than this, in granules: 128 KiB.
const RANDOM_SIZES: u32 = 6;
/// In three of this many random requests something is read.
const READS_OF_TEN: u32 = 6;

/// What to do on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Write everything once, in order.
    Fill,
    /// Read and write at random places, in random sizes, until asked to stop.
    Random,
    /// Read everything once, in order.
    Verify,
}

/// What has been done so far, on all connections.
#[derive(Debug, Default)]
pub struct Tally {
    /// Reads answered.
    pub reads: AtomicU64,
    /// Writes answered.
    pub writes: AtomicU64,
    /// Bytes moved, either way.
    pub bytes: AtomicU64,
    /// Bytes read and found to be what was written.
    pub verified: AtomicU64,
    /// Requests answered with an error, and granules that differ.
    pub errors: AtomicU64,
}

impl Tally {
    /// Requests answered.
    #[must_use]
    pub fn requests(&self) -> u64 {
        // Only a figure to print; nothing is synchronized with these counters.
        self.reads.load(Ordering::Relaxed) + self.writes.load(Ordering::Relaxed)
    }
}

/// Everything that a connection needs.
pub struct Job {
    /// Socket of the export.
    pub socket: PathBuf,
    /// Name of the export.
    pub export: String,
    /// What to do.
    pub work: Work,
    /// Where to count.
    pub tally: Arc<Tally>,
    /// Set to end [`Work::Random`].
    pub stop: Arc<AtomicBool>,
    /// Where random choices begin.
    pub seed: u64,
}

/// How a connection ended.
#[derive(Debug)]
pub struct Ended {
    /// The areas, with what they hold now.
    pub areas: Vec<Area>,
    /// Why the connection broke, if it did.
    pub broken: Option<io::Error>,
}

/// An area with its request.
struct Turn {
    area: Area,
    op: Op,
}

/// Requests in flight by cookie, which is the index of their area.
type InFlight = Mutex<Vec<Option<Turn>>>;

/// Does `job` on `areas`. A connection that breaks is an outcome, not an error: the daemon may have been killed
/// on purpose.
#[must_use]
pub fn run(job: &Job, areas: Vec<Area>) -> Ended {
    match client::connect(&job.socket, &job.export) {
        Ok((_, sender, receiver)) => exchange(job, areas, sender, receiver),
        Err(error) => Ended { areas, broken: Some(error) },
    }
}

fn exchange(job: &Job, areas: Vec<Area>, sender: Sender, receiver: Receiver) -> Ended {
    let in_flight: InFlight = Mutex::new(areas.iter().map(|_| None).collect());
    let (free, ready) = mpsc::channel();
    for (cookie, area) in areas.into_iter().enumerate() {
        // The other end is a few lines below.
        let _ = free.send((cookie, area));
    }
    let (mut done, received) = std::thread::scope(|scope| {
        let receiving = scope.spawn(|| receive(job, receiver, &in_flight, free));
        let done = send(job, sender, &in_flight, &ready);
        (done, receiving.join().expect("the receiving half does not panic"))
    });
    let count = lock(&in_flight).len();
    // What the sending half did not see again: areas waiting for their turn, and requests never answered.
    done.extend(ready.try_iter().map(|(_, area)| area));
    for turn in lock(&in_flight).iter_mut().filter_map(Option::take) {
        let Turn { mut area, op } = turn;
        area.cut_off(op);
        done.push(area);
    }
    assert_eq!(done.len(), count, "an area was lost on the way");
    done.sort_by_key(|area| area.byte(0));
    Ended { areas: done, broken: received.err() }
}

/// Sends a request for every area that is free, until none has anything left to do. Gives the areas it is done
/// with; the others are in flight, or still on their way in the channel, because the connection broke.
fn send(
    job: &Job,
    mut sender: Sender,
    in_flight: &InFlight,
    ready: &mpsc::Receiver<(usize, Area)>,
) -> Vec<Area> {
    let count = lock(in_flight).len();
    let mut dice = Dice::new(job.seed);
    let mut cursors = vec![0; count];
    let mut done = Vec::new();
    let mut bytes = vec![0; SEQUENTIAL as usize * GRANULE];
    while done.len() < count {
        let Ok((cookie, mut area)) = ready.recv() else { return done };
        let Some(op) = next(job, &mut area, &mut cursors[cookie], &mut dice) else {
            done.push(area);
            continue;
        };
        let (verb, data) = match &op {
            Op::Read(_) => (Verb::Read, 0),
            Op::Write(granules, version) => {
                let length = granules.len() * GRANULE;
                area.fill(granules, *version, &mut bytes[..length]);
                (Verb::Write, length)
            }
        };
        let request = Request {
            verb,
            cookie: cookie as u64,
            offset: area.byte(op.granules().start),
            length: u32::try_from(op.granules().len() * GRANULE).unwrap_or(u32::MAX),
        };
        lock(in_flight)[cookie] = Some(Turn { area, op });
        if sender.send(request, &bytes[..data]).is_err() {
            // The receiving half learns the reason.
            sender.disconnect();
            return done;
        }
    }
    sender.disconnect();
    done
}

/// The next request of an area; `None` when it has nothing left to do.
fn next(job: &Job, area: &mut Area, cursor: &mut u32, dice: &mut Dice) -> Option<Op> {
    let all = area.granules();
    if job.work == Work::Random {
        let count = 1 << dice.below(RANDOM_SIZES);
        let first = dice.below(all - count + 1);
        let reads = dice.below(10) < READS_OF_TEN;
        // The daemon that sets it has nothing to show for it before the threads are joined.
        let stop = job.stop.load(Ordering::Relaxed);
        return (!stop).then(|| match reads {
            true => Op::Read(first..first + count),
            false => area.write(first..first + count),
        });
    }
    let first = *cursor;
    *cursor = (first + SEQUENTIAL).min(all);
    match (first < all, job.work) {
        (true, Work::Fill) => Some(area.write(first..*cursor)),
        (true, Work::Verify | Work::Random) => Some(Op::Read(first..*cursor)),
        (false, Work::Verify) => {
            area.settled();
            None
        }
        (false, Work::Fill | Work::Random) => None,
    }
}

/// Takes replies, compares what was read, and hands the areas back, until the connection ends.
fn receive(
    job: &Job,
    mut receiver: Receiver,
    in_flight: &InFlight,
    free: mpsc::Sender<(usize, Area)>,
) -> io::Result<()> {
    let mut bytes = vec![0; SEQUENTIAL as usize * GRANULE];
    while let Some(reply) = receiver.reply()? {
        let cookie = usize::try_from(reply.cookie).unwrap_or(usize::MAX);
        let turn = lock(in_flight).get_mut(cookie).and_then(Option::take);
        let Some(turn) = turn else {
            return Err(io::Error::other(format!(
                "a reply to a request never made: {}",
                reply.cookie
            )));
        };
        let Turn { mut area, op } = turn;
        let bytes = &mut bytes[..op.granules().len() * GRANULE];
        if reply.error != 0 {
            job.tally.errors.fetch_add(1, Ordering::Relaxed);
            area.cut_off(op);
        } else if let Err(error) = answered(&job.tally, &mut receiver, &mut area, &op, bytes) {
            lock(in_flight)[cookie] = Some(Turn { area, op });
            return Err(error);
        }
        if let Err(mpsc::SendError((cookie, area))) = free.send((cookie, area)) {
            // The sending half has given up; the area is collected from here.
            lock(in_flight)[cookie] = Some(Turn { area, op: Op::Read(0..0) });
        }
    }
    match lock(in_flight).iter().all(Option::is_none) {
        true => Ok(()),
        false => {
            Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection"))
        }
    }
}

fn answered(
    tally: &Tally,
    receiver: &mut Receiver,
    area: &mut Area,
    op: &Op,
    bytes: &mut [u8],
) -> io::Result<()> {
    let length = bytes.len() as u64;
    match op {
        Op::Read(granules) => {
            receiver.data(bytes)?;
            let wrong = area.compare(granules, bytes);
            tally.reads.fetch_add(1, Ordering::Relaxed);
            tally.errors.fetch_add(wrong, Ordering::Relaxed);
            tally.verified.fetch_add(length - wrong * GRANULE as u64, Ordering::Relaxed);
        }
        Op::Write(granules, version) => {
            area.acknowledged(granules, *version);
            tally.writes.fetch_add(1, Ordering::Relaxed);
        }
    }
    tally.bytes.fetch_add(length, Ordering::Relaxed);
    Ok(())
}

/// Reads `into` from `offset` of an export, in one connection, for what another client wrote.
///
/// # Errors
/// When the server cannot be reached or answers with an error.
pub fn read_at(socket: &Path, export: &str, offset: u64, into: &mut [u8]) -> io::Result<()> {
    let (_, mut sender, mut receiver) = client::connect(socket, export)?;
    let mut at = offset;
    for part in into.chunks_mut(SEQUENTIAL as usize * GRANULE) {
        let length = u32::try_from(part.len()).unwrap_or(u32::MAX);
        sender.send(Request { verb: Verb::Read, cookie: at, offset: at, length }, &[])?;
        match receiver.reply()? {
            Some(reply) if reply.error == 0 && reply.cookie == at => receiver.data(part)?,
            Some(reply) => {
                return Err(io::Error::other(format!("error {} at byte {at}", reply.error)));
            }
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
        at += u64::from(length);
    }
    sender.disconnect();
    Ok(())
}

fn lock(in_flight: &InFlight) -> std::sync::MutexGuard<'_, Vec<Option<Turn>>> {
    // A panic of the other half is passed on when it is joined.
    in_flight.lock().unwrap_or_else(PoisonError::into_inner)
}
