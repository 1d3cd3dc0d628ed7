//! Logs made by hand, whole and damaged.

use super::{DISCARD, Entry, FLUSH, MAGIC, MARK, Request, VERSION, apply, cuts, entries, some};
use std::fs::{File, OpenOptions};
use std::io::Cursor;
use strake_testkit::Folder;

const SECTOR: usize = 512;

/// A log of requests: first sector, sectors, flags and the byte that fills their data.
fn log(requests: &[(u64, u64, u64, u8)]) -> Vec<u8> {
    let mut log = Vec::new();
    sector(&mut log, &[MAGIC, VERSION, requests.len() as u64, SECTOR as u64]);
    for &(at, sectors, flags, byte) in requests {
        let mark = if flags & MARK == 0 { 0 } else { 3 };
        sector(&mut log, &[at, sectors, flags, mark]);
        let data = if flags & DISCARD != 0 { 0 } else { sectors as usize };
        let data = if flags & MARK != 0 { 1 } else { data };
        log.extend(std::iter::repeat_n(byte, data * SECTOR));
    }
    log
}

fn sector(log: &mut Vec<u8>, words: &[u64]) {
    let start = log.len();
    log.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    log.resize(start + SECTOR, 0);
}

fn read(log: &[u8]) -> Result<Vec<Entry>, String> {
    entries(&mut Cursor::new(log), log.len() as u64)
}

/// Files with these contents in a folder of their own.
fn files(contents: &[Vec<u8>]) -> (Folder, Vec<File>) {
    let folder = Folder::new("strake-write-log");
    let open = |(n, content): (usize, &Vec<u8>)| {
        let path = folder.join(n.to_string());
        std::fs::write(&path, content).expect("a file");
        OpenOptions::new().read(true).write(true).open(path).expect("the same file")
    };
    let files = contents.iter().enumerate().map(open).collect();
    (folder, files)
}

#[test]
fn a_log_is_read_as_it_was_written() {
    let log =
        log(&[(8, 2, 0, 7), (0, 0, FLUSH, 0), (0, 0, MARK, 9), (16, 4, DISCARD, 0), (0, 1, 0, 1)]);
    let found = read(&log).expect("it is whole");
    let plain: Vec<_> = found.iter().map(|e| (e.at, e.bytes, e.flags, e.data_at)).collect();
    assert_eq!(
        plain,
        [
            (4096, 1024, 0, 1024),
            (0, 0, FLUSH, 2560),
            (0, 0, MARK, 3072),
            (8192, 2048, DISCARD, 4096),
            (0, 512, 0, 4608)
        ]
    );
}

#[test]
fn only_flushes_with_something_new_are_cuts() {
    let w = |at| (at, 1, 0, 1);
    let flush = (0, 0, FLUSH, 0);
    let log = log(&[flush, w(1), flush, flush, w(2), w(3), (0, 0, MARK, 0), flush, w(4)]);
    assert_eq!(cuts(&read(&log).expect("it is whole")), [3, 8]);
}

#[test]
fn a_replay_leaves_what_the_drive_held_at_the_cut() {
    let log =
        log(&[(1, 1, 0, 1), (0, 0, FLUSH, 0), (5, 2, 0, 2), (1, 1, 0, 3), (4, 1, DISCARD, 0)]);
    let entries = read(&log).expect("it is whole");
    // Two slices of four sectors, of which the first byte of every sector is looked at.
    let check = |to: usize, expected: [u8; 8]| {
        let blank = vec![vec![9; 4 * SECTOR]; 2];
        let (folder, images) = files(&blank);
        let (_log_folder, mut logs) = files(std::slice::from_ref(&log));
        let log = logs.remove(0);
        apply(&log, &entries[..to], 4 * SECTOR as u64, &images).expect("all fits");
        let both = ["0", "1"].map(|n| std::fs::read(folder.join(n)).expect("an image")).concat();
        let found: Vec<u8> = both.chunks(SECTOR).map(|sector| sector[0]).collect();
        assert_eq!(found, expected, "up to {to}");
    };
    check(2, [9, 1, 9, 9, 9, 9, 9, 9]);
    check(3, [9, 1, 9, 9, 9, 2, 2, 9]);
    check(4, [9, 3, 9, 9, 9, 2, 2, 9]);
    check(5, [9, 3, 9, 9, 0, 2, 2, 9]);
}

#[test]
fn a_request_over_the_end_of_a_slice_is_refused() {
    let log = log(&[(3, 2, 0, 1)]);
    let entries = read(&log).expect("it is whole");
    let (_folder, images) = files(&[vec![0; 4 * SECTOR], vec![0; 4 * SECTOR], log]);
    assert!(apply(&images[2], &entries, 4 * SECTOR as u64, &images[..2]).is_err());
}

#[test]
fn damaged_logs_are_refused_and_nothing_panics() {
    let whole = log(&[(8, 2, 0, 7), (0, 0, FLUSH, 0), (0, 0, MARK, 9), (16, 4, 0, 3)]);
    for length in 0..whole.len() {
        assert!(read(&whole[..length]).is_err(), "cut to {length} bytes");
    }
    for at in (0..ENTRY_END).chain(SECTOR..SECTOR + ENTRY_END) {
        for byte in [0, 1, 0x7f, 0x80, 0xff] {
            let mut damaged = whole.clone();
            damaged[at] = byte;
            if let Ok(found) = read(&damaged) {
                let end = |e: &Entry| {
                    e.data_at + if e.has_data() && e.flags & MARK == 0 { e.bytes } else { 0 }
                };
                assert!(found.iter().all(|e| end(e) <= whole.len() as u64), "byte {at} is {byte}");
            }
        }
    }
}

const ENTRY_END: usize = 32;

#[test]
fn a_drawn_half_keeps_its_order_and_repeats() {
    let log = log(&[(1, 1, 0, 1); 100]);
    let all = read(&log).expect("it is whole");
    let half = some(&all, 5);
    assert_eq!(half, some(&all, 5));
    assert_ne!(half, some(&all, 6));
    assert!((25..75).contains(&half.len()), "{}", half.len());
    assert!(half.is_sorted_by_key(|entry| entry.data_at));
}

#[test]
fn what_is_asked_for_is_whole_or_refused() {
    let check = |line: &str, sound: bool| {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        assert_eq!(Request::parse(&words).is_some(), sound, "{line}");
    };
    check("cuts log", true);
    check("cuts", false);
    check("apply log --from 0 --to 3 --slice 512 a b", true);
    check("apply log --from 0 --to 3 --slice 512 --some 4 a b", true);
    check("apply log --from 4 --to 3 --slice 512 a b", false);
    check("apply log --from 0 --to 3 --slice 0 a", false);
    check("apply log --from 0 --to 3 --slice 512", false);
    check("apply log --from 0 --slice 512 a", false);
}
