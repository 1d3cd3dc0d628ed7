//! Checks a drive that is bound to vfio-pci: identifies it, writes and reads back, reads a log page, and prints rates.
//!
//! ```text
//! drive ADDRESS                 identifies the drive and reads from it
//! drive ADDRESS --erase SERIAL  also overwrites its first MiB, if this is its serial number
//! drive ... --wait              then reads until the drive fails or is asked for, and prints what happened
//! ```

use std::process::ExitCode;
use std::time::{Duration, Instant};
use strake_block::blocking::Blocking;
use strake_block::{
    BlockDevice, BufPool, CompletionBatch, DeviceError, Durability, Op, Sg, SgMut, Token,
};
use strake_dev_nvme::transport::vfio::{Container, VfioFunction};
use strake_dev_nvme::{NvmeDevice, Window};
use strake_units::{CoreIndex, Lba, Nanos};

const DEPTH: usize = 32;
const BYTES: usize = 4096;

fn now(start: Instant) -> Nanos {
    Nanos(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

/// Writes the first MiB in pieces of all sizes, makes it stable and reads it back.
fn check(device: &NvmeDevice, pool: &mut BufPool) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let queue = device.open_queue(CoreIndex(0), 8).map_err(|error| text(&error))?;
    let start = Instant::now();
    let mut wait = || Some(now(start));
    let mut blocking = Blocking::new(queue, &mut wait);
    let size = u64::from(device.info().block_size.bytes());
    let (mut at, mut bytes) = (0, BYTES);
    while at + bytes as u64 <= 1 << 20 {
        let mut buf = pool.get(bytes).ok_or("no buffer")?;
        buf.as_mut_slice().iter_mut().zip(at..).for_each(|(byte, at)| *byte = (at % 253) as u8);
        let data = Sg::from(buf.freeze());
        let op = Op::Write { at: Lba(at / size), data, durability: Durability::Fua };
        if let Op::Write { data, .. } = blocking.run(op).map_err(|error| text(&error))? {
            data.into_parts().for_each(|part| pool.put_frozen(part));
        }
        at += bytes as u64;
        bytes = if bytes < 64 << 10 { bytes * 2 } else { BYTES };
    }
    blocking.flush().map_err(|error| text(&error))?;
    for place in (0..at).step_by(BYTES) {
        let buf = pool.get(BYTES).ok_or("no buffer")?;
        let buf = blocking.read(Lba(place / size), buf).map_err(|error| text(&error))?;
        let is_right =
            buf.as_slice().iter().zip(place..).all(|(byte, at)| *byte == (at % 253) as u8);
        pool.put(buf);
        if !is_right {
            return Err(format!("other bytes were read at {place}"));
        }
    }
    println!("{at} bytes written and read back");
    Ok(())
}

/// Reads at a queue depth of 32, for `time` or until a read fails.
fn read(device: &NvmeDevice, pool: &mut BufPool, time: Duration) -> Result<(), String> {
    let mut queue =
        device.open_queue(CoreIndex(0), DEPTH as u32).map_err(|error| error.to_string())?;
    let mut batch = CompletionBatch::new(DEPTH);
    let (start, mut done, mut at) = (Instant::now(), 0_u64, 0);
    let blocks = device.info().blocks.min(1 << 16);
    let step = BYTES as u64 / u64::from(device.info().block_size.bytes()).min(BYTES as u64);
    let mut failed = None;
    let mut out = 0;
    while failed.is_none() && start.elapsed() < time || out > 0 {
        while failed.is_none() && start.elapsed() < time && out < DEPTH {
            let Some(buf) = pool.get(BYTES) else { break };
            at = if at + 2 * step > blocks { 0 } else { at + step };
            queue.submit_read(Token(0), Lba(at), SgMut::from(buf)).map_err(|_| "no room")?;
            out += 1;
        }
        queue.ring_doorbell(now(start));
        queue.poll(now(start), &mut batch);
        for completion in batch.drain() {
            (out, done) = (out - 1, done + 1);
            if let Err(error) = completion.result {
                failed.get_or_insert((error, start.elapsed()));
            }
            if let Op::Read { data, .. } = completion.op {
                data.into_parts().for_each(|part| pool.put(part));
            }
        }
    }
    let rate = done as f64 / start.elapsed().as_secs_f64();
    println!("{done} reads of {BYTES} bytes, {rate:.0} per second; {:?}", device.stats());
    if let Some((error, after)) = failed {
        println!("reads fail after {after:?}: {error}; {:?}", device.reason());
    }
    Ok(())
}

fn run(arguments: &[String]) -> Result<(), String> {
    let address = arguments.first().ok_or("the address of a drive is missing")?;
    let text = |error: DeviceError| error.to_string();
    let container = Container::new().map_err(text)?;
    let function = VfioFunction::open(address, &container).map_err(text)?;
    let window = Window::new(container);
    let mut pool = BufPool::new(64, 64 << 10);
    window.map_arena(pool.arena()).map_err(|error| error.to_string())?;
    let device = NvmeDevice::open(address, Box::new(function), &window).map_err(text)?;
    let facts = device.facts().ok_or("the drive says nothing")?;
    println!("{facts:?}\n{}", device.info().identity);
    let health = device.log_reader().log_page(2, 512).map_err(text)?;
    println!("health: spare {} %, used {} %", health[3], health[5]);
    if let Some(place) = arguments.iter().position(|argument| argument == "--erase") {
        if arguments.get(place + 1) != Some(&facts.controller.serial) {
            return Err("the serial number is another one; nothing was written".to_owned());
        }
        check(&device, &mut pool)?;
    }
    read(&device, &mut pool, Duration::from_secs(2))?;
    if arguments.iter().any(|argument| argument == "--wait") {
        println!("UNPLUG-ME");
        read(&device, &mut pool, Duration::from_secs(40))?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
