//! The requests to a drive, in order: the logs of QEMU's `blklogwrites`, replayed up to where the power may have gone.
//!
//! The format is that of Linux's dm-log-writes (the kernel's Documentation/admin-guide/device-mapper/log-writes.rst
//! and `struct log_write_super` and `struct log_write_entry` of dm-log-writes.c), little-endian throughout: a
//! super block in the first sector, then for every request one sector that describes it and the sectors of its data.
//! QEMU appends a request when the drive has done it and before the guest hears of that. So whatever the guest knew
//! to be stable at a flush stands before that flush in the log, and the drive held nothing younger by necessity.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::ExitCode;

const MAGIC: u64 = 0x006a_7366_7773_6872;
const VERSION: u64 = 1;
const FLUSH: u64 = 1;
const DISCARD: u64 = 4;
const MARK: u64 = 8;
/// Bytes of a description that mean something; the rest of its sector is padding.
const ENTRY_BYTES: usize = 32;

const USAGE: &str = "\
cargo xtask write-log cuts LOG
  prints, for every flush before which something was written, how many entries the log has up to and with it
cargo xtask write-log apply LOG --from A --to B --slice BYTES [--some SEED] IMAGE...
  carries out the entries A to B (B not included) on images, of which each is a slice of the logged drive;
  with --some only a drawn half of them, as a cache that lost its power does";

/// One request to the drive, in bytes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    at: u64,
    bytes: u64,
    flags: u64,
    /// Where its data is in the log.
    data_at: u64,
}

impl Entry {
    fn has_data(self) -> bool {
        self.flags & DISCARD == 0 && self.bytes > 0
    }

    fn writes(self) -> bool {
        self.flags & MARK == 0 && self.bytes > 0
    }
}

/// All entries of the log that `log` is, of `length` bytes; what is wrong with it otherwise.
fn entries(log: &mut (impl Read + Seek), length: u64) -> Result<Vec<Entry>, String> {
    let mut head = [0; ENTRY_BYTES];
    log.read_exact(&mut head).map_err(|e| format!("the super block: {e}"))?;
    let (magic, version, count) = (word(&head, 0), word(&head, 1), word(&head, 2));
    let sector = word(&head, 3) & u64::from(u32::MAX);
    if magic != MAGIC || version != VERSION {
        return Err(format!(
            "no write log of version {VERSION}: magic {magic:x}, version {version}"
        ));
    }
    if !sector.is_power_of_two() || !(512..=1 << 20).contains(&sector) {
        return Err(format!("sectors of {sector} bytes"));
    }
    let mut found = Vec::new();
    let mut next = sector;
    for number in 0..count {
        let cut = |what: &str| format!("entry {number} of {count} {what}");
        log.seek(SeekFrom::Start(next)).map_err(|e| cut(&e.to_string()))?;
        log.read_exact(&mut head).map_err(|e| cut(&e.to_string()))?;
        let (entry, end) =
            entry(&head, sector, next).ok_or_else(|| cut("says more than a drive has"))?;
        if end > length {
            return Err(cut("ends behind the end of the log"));
        }
        found.push(entry);
        next = end;
    }
    Ok(found)
}

/// The entry whose description was found at `found_at`, and where the next one is; none when a number overflows.
fn entry(head: &[u8; ENTRY_BYTES], sector: u64, found_at: u64) -> Option<(Entry, u64)> {
    let [at, bytes] = [0, 1].map(|n| word(head, n).checked_mul(sector));
    let (flags, mark) = (word(head, 2), word(head, 3));
    let data_at = found_at.checked_add(sector)?;
    let entry = Entry { at: at?, bytes: bytes?, flags, data_at };
    entry.at.checked_add(entry.bytes)?;
    // A mark has a text behind it, whose length in bytes is the fourth number.
    let behind = if flags & MARK == 0 {
        if entry.has_data() { entry.bytes } else { 0 }
    } else {
        mark.checked_next_multiple_of(sector)?
    };
    Some((entry, data_at.checked_add(behind)?))
}

fn word(bytes: &[u8; ENTRY_BYTES], number: usize) -> u64 {
    bytes[number * 8..].iter().take(8).rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// For each flush with something new before it, how many entries there are up to and with it.
fn cuts(entries: &[Entry]) -> Vec<usize> {
    let mut cuts = Vec::new();
    let mut wrote = false;
    for (index, entry) in entries.iter().enumerate() {
        // A flush of a request that also writes (dm-log-writes has those) comes before its data, which is not
        // promised by it; being counted as covered only makes a state of the drive that may be just as well.
        wrote |= entry.writes();
        if entry.flags & FLUSH != 0 && wrote {
            cuts.push(index + 1);
            wrote = false;
        }
    }
    cuts
}

/// Carries `chosen` entries out on `images`, each of `slice` bytes.
fn apply(log: &File, chosen: &[Entry], slice: u64, images: &[File]) -> Result<(), String> {
    let mut data = Vec::new();
    for entry in chosen.iter().filter(|entry| entry.writes()) {
        let within = entry.at % slice;
        let image = usize::try_from(entry.at / slice).ok().and_then(|n| images.get(n));
        let image = image.filter(|_| entry.bytes <= slice - within).ok_or_else(|| {
            format!("{} bytes at {} are in no slice of {slice}", entry.bytes, entry.at)
        })?;
        data.clear();
        // Nothing is promised of what deallocated blocks read as; they read as zeroes here.
        data.resize(usize::try_from(entry.bytes).map_err(|e| e.to_string())?, 0);
        let read =
            if entry.has_data() { log.read_exact_at(&mut data, entry.data_at) } else { Ok(()) };
        read.and_then(|()| image.write_all_at(&data, within)).map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// A half of `entries`, as `seed` has it (Steele, Lea and Flood, "Fast splittable pseudorandom number generators").
fn some(entries: &[Entry], seed: u64) -> Vec<Entry> {
    let mut state = seed;
    let mut coin = |_: &&Entry| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) & 1 == 1
    };
    entries.iter().filter(|entry| coin(entry)).copied().collect()
}

/// What `write-log` was asked for.
#[derive(Debug, PartialEq, Eq)]
enum Request<'a> {
    Cuts {
        log: &'a str,
    },
    Apply {
        log: &'a str,
        from: usize,
        to: usize,
        slice: u64,
        seed: Option<u64>,
        images: &'a [String],
    },
}

impl<'a> Request<'a> {
    fn parse(words: &'a [String]) -> Option<Self> {
        match words {
            [cuts, log] if cuts == "cuts" => Some(Self::Cuts { log }),
            [apply, log, rest @ ..] if apply == "apply" => {
                let (from, rest) = option(rest, "--from")?;
                let (to, rest) = option(rest, "--to")?;
                let (slice, rest) = option(rest, "--slice")?;
                let (seed, images) = match option(rest, "--some") {
                    Some((seed, rest)) => (Some(seed), rest),
                    None => (None, rest),
                };
                let [from, to] = [from, to].map(|n| usize::try_from(n).ok());
                let (from, to) = (from?, to?);
                let sound = from <= to && slice > 0 && !images.is_empty();
                sound.then_some(Self::Apply { log, from, to, slice, seed, images })
            }
            _ => None,
        }
    }

    fn carry_out(&self) -> Result<(), String> {
        match *self {
            Self::Cuts { log } => {
                let (_, entries) = open(log)?;
                for cut in cuts(&entries) {
                    println!("{cut}");
                }
                Ok(())
            }
            Self::Apply { log, from, to, slice, seed, images } => {
                let (log, entries) = open(log)?;
                let range = entries.get(from..to);
                let range =
                    range.ok_or_else(|| format!("the log has {} entries", entries.len()))?;
                let chosen = seed.map_or_else(|| range.to_vec(), |seed| some(range, seed));
                let open = |path: &String| OpenOptions::new().write(true).open(path);
                let images: Result<Vec<File>, _> = images.iter().map(open).collect();
                apply(&log, &chosen, slice, &images.map_err(|e| format!("an image: {e}"))?)
            }
        }
    }
}

/// The number behind `name`, and the words behind that.
fn option<'a>(words: &'a [String], name: &str) -> Option<(u64, &'a [String])> {
    match words {
        [first, number, rest @ ..] if first == name => Some((number.parse().ok()?, rest)),
        _ => None,
    }
}

fn open(path: &str) -> Result<(File, Vec<Entry>), String> {
    let explain = |e: std::io::Error| format!("{path}: {e}");
    let mut log = File::open(Path::new(path)).map_err(explain)?;
    let length = log.metadata().map_err(explain)?.len();
    let entries = entries(&mut log, length).map_err(|why| format!("{path}: {why}"))?;
    Ok((log, entries))
}

/// `cargo xtask write-log ...`.
pub fn run(words: &[String]) -> ExitCode {
    let Some(request) = Request::parse(words) else {
        eprintln!("{USAGE}");
        return ExitCode::from(3);
    };
    match request.carry_out() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests;
