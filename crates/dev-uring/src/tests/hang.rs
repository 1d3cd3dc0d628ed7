//! Files that hang on demand: a FUSE file system whose requests are held until the test releases them.
//!
//! A call that waits for a held request would not return, because the test releases the request only afterwards. No
//! test measures time: limits are for expected events, and are generous.

use super::*;
use crate::limits::WAKE_AFTER;
use crate::opening;
use crate::reaper::{self, Key};
use crate::ring::wake_ups;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Barrier, Weak, mpsc};
use std::time::{Duration, Instant};
use strake_block::{Arena, DeviceError};

/// For expected events.
const GENEROUS: Duration = Duration::from_secs(60);

/// For events that are expected while the drive hangs. A wait for the drive lasts 30 s or forever.
const SOONER_THAN_THE_DRIVE: Duration = Duration::from_secs(20);

/// For events that must not happen; the exact time does not matter.
const BRIEF: Duration = Duration::from_millis(100);

/// A folder with files that hang; it is removed when the test ends.
struct Hanging {
    folder: PathBuf,
    server: Child,
}

impl Hanging {
    /// Serves `files` files of 1 MiB; returns `None`, and prints the reason, if the host does not support this.
    fn serve(files: u32) -> Option<Self> {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/e2e/_fuse.py");
        let python = |arguments: &[&Path]| {
            let mut command = Command::new("python3");
            command.arg(&program).args(arguments).stdin(Stdio::null());
            command
        };
        match python(&[Path::new("probe")]).output() {
            Ok(probe) if probe.status.success() => {}
            Ok(probe) => {
                skipped("drives that hang", String::from_utf8_lossy(&probe.stdout).trim());
                return None;
            }
            Err(error) => {
                skipped("drives that hang", format!("python3: {error}"));
                return None;
            }
        }
        let folder = Scratch::path();
        let [backing, seen, control] = ["backing", "seen", "control"].map(|n| folder.0.join(n));
        for made in [&backing, &seen] {
            std::fs::create_dir_all(made).expect("a folder can be made");
        }
        for at in 0..files {
            create_sparse(&backing.join(format!("f{at}")), 1 << 20).expect("files can be made");
        }
        let server =
            python(&[Path::new("serve"), &backing, &seen, &control]).spawn().expect("it starts");
        let hanging = Self { folder: folder.0.clone(), server };
        hanging.wait_until("it serves", || control.exists());
        Some(hanging)
    }

    fn path(&self, file: &str) -> PathBuf {
        self.folder.join("seen").join(file)
    }

    fn tell(&self, command: &str) -> String {
        let mut door = UnixStream::connect(self.folder.join("control")).expect("it listens");
        writeln!(door, "{command}").expect("it reads");
        let mut answer = String::new();
        BufReader::new(door).read_line(&mut answer).expect("it answers");
        assert!(!answer.starts_with("error"), "{command}: {answer}");
        answer.trim().to_owned()
    }

    fn held(&self) -> u32 {
        self.tell("held").parse().expect("a number")
    }

    fn wait_until(&self, what: &str, done: impl Fn() -> bool) {
        let start = Instant::now();
        while !done() {
            assert!(start.elapsed() < GENEROUS, "not in time: {what}");
            std::thread::yield_now();
        }
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        // Held requests fail when their server stops.
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = Command::new("umount").arg("-l").arg(self.folder.join("seen")).status();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A buffer of zeroes, and a weak reference that shows whether the buffer is still in memory.
fn watched(bytes: usize) -> (Sg, Weak<Arena>) {
    let buf = BufMut::alone(bytes);
    let arena = Arc::downgrade(buf.arena());
    (buf.freeze().into(), arena)
}

fn send(queue: &mut dyn IoQueue, token: u64, op: Op) {
    queue.submit(Io { token: Token(token), op }).expect("there is room");
    queue.ring_doorbell(Nanos(0));
}

/// Polls `queue` until there are `count` completions or a timeout; returns their number.
fn come_back(queue: &mut dyn IoQueue, count: usize) -> usize {
    let (start, mut seen) = (Instant::now(), 0);
    let mut batch = CompletionBatch::new(count);
    while seen < count && start.elapsed() < GENEROUS {
        queue.ring_doorbell(Nanos(0));
        queue.poll(Nanos(0), &mut batch);
        seen += batch.drain().filter(|done| done.result.is_ok()).count();
    }
    seen
}

fn refused<T>(result: Result<T, DeviceError>, words: &str) {
    let error = result.err().expect("it must be refused");
    assert_eq!(error.kind, IoErrorKind::Timeout, "{error}");
    assert!(error.to_string().contains(words), "{error}");
}

fn key_of(path: &Path) -> Key {
    Key::of_file(&rustix::fs::stat(path).expect("it is there"))
}

#[test]
fn a_dropped_queue_does_not_wait_and_what_it_is_owed_is_not_gone_around() {
    let Some(files) = Hanging::serve(1) else { return };
    let path = files.path("f0");
    let key = key_of(&path);
    let device = open(&path);
    let mut queue = queue(&device, 4);
    files.tell("hang write f0");
    let (data, memory) = watched(4096);
    send(&mut *queue, 1, write(0, data, Durability::Fua));
    files.wait_until("the write is held", || files.held() == 1);
    drop(queue);
    assert_eq!(files.held(), 1, "the queue is gone, and its write is not answered");
    assert!(memory.upgrade().is_some(), "the drive may still read the buffer");
    assert_eq!(reaper::owed_by(key).map(|owed| owed.requests), Some(1));
    refused(device.open_queue(CoreIndex(0), 1), "has not answered 1 requests");
    drop(device);
    refused(UringDevice::open(&path, OpenOptions::default()), "has not answered 1 requests");
    files.tell("release");
    assert_eq!(reaper::wait_for(key, GENEROUS), Ok(()));
    assert!(memory.upgrade().is_none(), "the buffer is given back when the drive has answered");
    agrees_with_a_model(&open(&path), 30, 1);
}

/// A data core that stopped an array waited up to 31 s for each unresponsive member, and its other work waited as well.
#[test]
fn a_core_that_drops_a_queue_goes_on_while_the_drive_hangs() {
    let Some(files) = Hanging::serve(1) else { return };
    let path = files.path("f0");
    files.tell("hang write f0");
    let (sent, dropped) = (Barrier::new(2), mpsc::channel());
    std::thread::scope(|scope| {
        // A queue stays on the thread that created it.
        scope.spawn(|| {
            let device = open(&path);
            let mut queue = queue(&device, 4);
            send(&mut *queue, 1, write(0, buffer(1, 4096), Durability::Fua));
            sent.wait();
            sent.wait();
            drop(queue);
            dropped.0.send(()).expect("it is waited for");
        });
        sent.wait();
        files.wait_until("the write is held", || files.held() == 1);
        sent.wait();
        let went_on = dropped.1.recv_timeout(SOONER_THAN_THE_DRIVE).is_ok();
        assert_eq!(files.held(), 1, "nothing let go of the write");
        files.tell("release");
        assert!(went_on, "the core waited for the drive");
    });
    assert_eq!(reaper::wait_for(key_of(&path), GENEROUS), Ok(()));
}

#[test]
fn a_file_whose_closing_hangs_delays_only_who_opens_it() {
    let Some(files) = Hanging::serve(2) else { return };
    let device = open(&files.path("f0"));
    files.tell("hang flush f0");
    drop(device);
    files.wait_until("the close is held", || files.held() == 1);
    open(&files.path("f1"));
    refused(UringDevice::open(&files.path("f0"), OpenOptions::default()), "earlier use");
    files.tell("release");
    let key = key_of(&files.path("f0"));
    assert_eq!(reaper::wait_for(key, GENEROUS), Ok(()));
    open(&files.path("f0"));
}

#[test]
fn an_opening_that_hangs_is_given_up_and_not_tried_twice_at_a_time() {
    let Some(files) = Hanging::serve(1) else { return };
    let path = files.path("f0");
    // Both the examination of a path and its open may hang; the kernel executes some of these operations during path
    // resolution.
    for op in ["open", "getattr", "lookup"] {
        let before: u32 = files.tell(&format!("count {op} f0")).parse().expect("a number");
        files.tell(&format!("hang {op} f0"));
        for _ in 0..3 {
            refused(opening::open_within(&path, OpenOptions::default(), BRIEF), "hangs");
        }
        files.wait_until("it is held", || files.held() == 1);
        let after: u32 = files.tell(&format!("count {op} f0")).parse().expect("a number");
        assert_eq!(after - before, 1, "{op}: each attempt asked the drive once more");
        files.tell("release");
        drop(opening::open_within(&path, OpenOptions::default(), GENEROUS).expect("it opens"));
    }
}

#[test]
fn submitting_to_a_file_that_others_serve_does_not_wait_for_them() {
    let Some(files) = Hanging::serve(1) else { return };
    let device = open(&files.path("f0"));
    assert!(device.shared().served);
    let mut queue = queue(&device, 8);
    files.tell("hang getattr f0");
    let range = LbaRange::new(Lba(0), 8);
    for (name, op) in [
        ("read", read(0, 4096)),
        ("write", write(0, buffer(1, 4096), Durability::Normal)),
        ("fsync", Op::Flush),
        ("fallocate", Op::Deallocate { range }),
    ] {
        files.tell(&format!("hang {name} f0"));
        send(&mut *queue, 0, op);
        files.wait_until("it is held", || files.held() == 1);
        assert_eq!(device.info().bytes(), 1 << 20, "its size is known without asking");
        files.tell(&format!("release {name}"));
        assert_eq!(come_back(&mut *queue, 1), 1, "{name}");
    }
    assert_eq!(files.held(), 0, "nothing has asked for attributes");
}

#[test]
fn a_file_that_hangs_gets_only_so_many_requests() {
    const REQUESTS: usize = 100;
    let Some(files) = Hanging::serve(2) else { return };
    let (hung, well) = (open(&files.path("f0")), open(&files.path("f1")));
    let (mut hung, mut well) = (queue(&hung, REQUESTS as u32), queue(&well, 4));
    files.tell("hang read f0");
    for token in 0..REQUESTS {
        send(&mut *hung, token as u64, read(0, 4096));
    }
    let most = crate::limits::SLOW_DEPTH_MAX;
    files.wait_until("as many are held as one file may occupy threads", || files.held() == most);
    send(&mut *well, 0, Op::Flush);
    send(&mut *well, 1, read(0, 4096));
    assert_eq!(come_back(&mut *well, 2), 2, "another file is served meanwhile");
    assert_eq!(files.held(), most, "no more than that");
    files.tell("release");
    assert_eq!(come_back(&mut *hung, REQUESTS), REQUESTS, "those kept back follow");
}

/// Recent kernels need no thread for each read of such a file. Each flush has one, which waits for the previous flush.
#[test]
fn flushes_of_a_file_that_hangs_leave_threads_of_the_kernel_to_others() {
    const REQUESTS: usize = 100;
    let Some(files) = Hanging::serve(2) else { return };
    let (hung, well) = (open(&files.path("f0")), open(&files.path("f1")));
    let (mut hung, mut well) = (queue(&hung, REQUESTS as u32), queue(&well, 4));
    files.tell("hang fsync f0");
    for token in 0..REQUESTS {
        send(&mut *hung, token as u64, Op::Flush);
    }
    files.wait_until("the first is held", || files.held() == 1);
    send(&mut *well, 0, Op::Flush);
    send(&mut *well, 1, read(0, 4096));
    assert_eq!(come_back(&mut *well, 2), 2, "another file is served meanwhile");
    assert_eq!(files.held(), 1, "the file hangs still");
    files.tell("release");
    assert_eq!(come_back(&mut *hung, REQUESTS), REQUESTS, "those kept back follow");
}

/// A kernel that loses its worker would leave requests without a result forever. The time is an argument of the queue.
#[test]
fn a_queue_without_results_wakes_the_workers_once_a_second() {
    let Some(files) = Hanging::serve(1) else { return };
    let device = open(&files.path("f0"));
    let mut queue = queue(&device, 4);
    let mut batch = CompletionBatch::new(4);
    let mut wake_ups_at = |queue: &mut dyn IoQueue, now: Nanos| {
        let before = wake_ups();
        queue.poll(now, &mut batch);
        assert!(batch.is_empty(), "the request is held");
        wake_ups() - before
    };
    // An idle queue waits for nothing, however long it is idle.
    assert_eq!(wake_ups_at(&mut *queue, Nanos(0)), 0);
    let start = 100 * WAKE_AFTER.0;
    assert_eq!(wake_ups_at(&mut *queue, Nanos(start)), 0);
    files.tell("hang write f0");
    send(&mut *queue, 0, write(0, buffer(1, 4096), Durability::Normal));
    files.wait_until("it is held", || files.held() == 1);
    // The time starts with the first poll.
    let start = start + 10 * WAKE_AFTER.0;
    for (after, count) in [(0, 0), (1, 0), (WAKE_AFTER.0 - 1, 0), (WAKE_AFTER.0, 1)] {
        assert_eq!(wake_ups_at(&mut *queue, Nanos(start + after)), count, "after {after} ns");
    }
    let again = start + WAKE_AFTER.0;
    for (after, count) in [(1, 0), (WAKE_AFTER.0 - 1, 0), (WAKE_AFTER.0, 1)] {
        assert_eq!(wake_ups_at(&mut *queue, Nanos(again + after)), count, "{after} ns later");
    }
    files.tell("release");
    assert_eq!(come_back(&mut *queue, 1), 1);
}
