//! A load that checks itself: every block is written with bytes that say where and when, and read back.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::CliError;
use crate::nbd::NbdClient;

/// Connections, each with a region of its own.
const CONNECTIONS: u64 = 4;

/// Bytes of one connection's region.
const REGION_BYTES: u64 = 32 << 20;

/// Sizes of requests: below a strip, a strip, and more than a stripe.
const SIZES: [u64; 5] = [4 << 10, 12 << 10, 64 << 10, 200 << 10, 512 << 10];

/// Counts of all connections. Relaxed: they order nothing.
#[derive(Default)]
struct Counts {
    verified: AtomicU64,
    errors: AtomicU64,
    stop: AtomicBool,
}

/// A running load. Dropping it tells its threads to end.
pub struct Load {
    counts: Arc<Counts>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts the load behind the first `start` bytes of the export.
    pub fn start(socket: &Path, export: &str, start: u64) -> Result<Self, CliError> {
        let counts = Arc::new(Counts::default());
        let mut load = Self { counts: Arc::clone(&counts), threads: Vec::new() };
        for number in 0..CONNECTIONS {
            let client = NbdClient::connect(socket, export)
                .map_err(|e| CliError::failed(format!("the load cannot connect: {e}")))?;
            let begin = start + number * REGION_BYTES;
            if begin + REGION_BYTES > client.bytes {
                return Err(CliError::usage("the drives are too small for the demo; use a larger --drive-size"));
            }
            let counts = Arc::clone(&counts);
            load.threads.push(std::thread::spawn(move || work(client, begin, number, &counts)));
        }
        Ok(load)
    }

    /// Waits until `bytes` more are verified.
    pub async fn reached(&self, bytes: u64, patience: Duration) -> Result<(), CliError> {
        let begun = Instant::now();
        let goal = self.counts.verified.load(Ordering::Relaxed) + bytes;
        while self.counts.verified.load(Ordering::Relaxed) < goal {
            let errors = self.counts.errors.load(Ordering::Relaxed);
            if errors > 0 {
                return Err(CliError::failed(format!("the load met {errors} errors")));
            }
            if begun.elapsed() > patience {
                return Err(CliError::failed("the load got stuck"));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Ends it; returns bytes verified and errors.
    pub async fn finish(mut self) -> (u64, u64) {
        self.counts.stop.store(true, Ordering::Relaxed);
        let threads = std::mem::take(&mut self.threads);
        let panicked = tokio::task::spawn_blocking(move || {
            threads.into_iter().map(JoinHandle::join).filter(Result::is_err).count() as u64
        });
        let panicked = panicked.await.unwrap_or(CONNECTIONS);
        (self.counts.verified.load(Ordering::Relaxed), self.counts.errors.load(Ordering::Relaxed) + panicked)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.counts.stop.store(true, Ordering::Relaxed);
    }
}

/// Fills `data` with bytes that follow from `seed`: a sequence of splitmix64 (Steele, Lea, Flood 2014).
pub fn fill(seed: u64, data: &mut [u8]) {
    let mut state = seed;
    for chunk in data.chunks_mut(8) {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let bytes = (z ^ (z >> 31)).to_le_bytes();
        chunk.copy_from_slice(&bytes[..chunk.len()]);
    }
}

fn work(mut client: NbdClient, begin: u64, number: u64, counts: &Counts) {
    let mut round = 0;
    while !counts.stop.load(Ordering::Relaxed) {
        round += 1;
        if pass(&mut client, begin, number << 32 | round, counts).is_err() {
            counts.errors.fetch_add(1, Ordering::Relaxed);
            return;
        }
    }
}

/// Writes the region from end to end in requests of every size, then reads it back.
fn pass(client: &mut NbdClient, begin: u64, seed: u64, counts: &Counts) -> std::io::Result<()> {
    let mut written = Vec::new();
    let mut at = begin;
    let mut expected = vec![0; SIZES[SIZES.len() - 1] as usize];
    let mut found = expected.clone();
    for size in SIZES.iter().cycle() {
        if at + size > begin + REGION_BYTES || counts.stop.load(Ordering::Relaxed) {
            break;
        }
        let data = &mut expected[..*size as usize];
        fill(seed ^ at, data);
        client.write(at, data)?;
        written.push((at, *size as usize));
        at += size;
    }
    client.flush()?;
    for (at, size) in written {
        fill(seed ^ at, &mut expected[..size]);
        client.read(at, &mut found[..size])?;
        if expected[..size] != found[..size] {
            counts.errors.fetch_add(1, Ordering::Relaxed);
        }
        counts.verified.fetch_add(size as u64, Ordering::Relaxed);
    }
    Ok(())
}
