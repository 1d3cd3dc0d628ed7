//! The demo's load against servers that lie: a demo that cannot fail proves nothing.

use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use strake_cli::demo::area::{Area, GRANULE};
use strake_cli::demo::client;
use strake_cli::demo::load::{self, Ended, Job, Tally, Work};
use strake_testkit::Folder;

const SIZE: usize = 1 << 20;

/// What is wrong with a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    /// One bit of the export is another one.
    Bit,
    /// Writes of the second half are answered and not done.
    LosesWrites,
    /// Writes go one granule too far.
    Misplaces,
    /// Every write is answered with EIO.
    Refuses,
    /// The connection ends after this many requests, with the last one done and not answered.
    CutsOff(u32),
}

/// Serves one connection with `flaw` over `bytes`.
fn serve(mut stream: UnixStream, flaw: Flaw, bytes: &mut [u8]) -> io::Result<()> {
    stream.write_all(b"NBDMAGICIHAVEOPT\0\x03")?;
    // Client flags, then the header of NBD_OPT_GO, whose length is in its last four bytes.
    let mut header = [0; 20];
    stream.read_exact(&mut header)?;
    let mut rest =
        vec![0; u32::from_be_bytes([header[16], header[17], header[18], header[19]]) as usize];
    stream.read_exact(&mut rest)?;
    let reply = |kind: u32, data: &[u8]| {
        let length = data.len() as u32;
        let mut out = 0x0003_e889_0455_65a9_u64.to_be_bytes().to_vec();
        out.extend(7u32.to_be_bytes());
        out.extend(kind.to_be_bytes());
        out.extend(length.to_be_bytes());
        out.extend(data);
        out
    };
    let mut info = 0u16.to_be_bytes().to_vec();
    info.extend((bytes.len() as u64).to_be_bytes());
    info.extend(1u16.to_be_bytes());
    stream.write_all(&[reply(3, &info), reply(1, &[])].concat())?;
    let mut requests = 0;
    loop {
        let mut request = [0; 28];
        stream.read_exact(&mut request)?;
        let offset = u64::from_be_bytes(request[16..24].try_into().expect("eight bytes")) as usize;
        let length = u32::from_be_bytes(request[24..28].try_into().expect("four bytes")) as usize;
        let mut data = Vec::new();
        let mut error = 0u32;
        match request[7] {
            0 => data = bytes[offset..offset + length].to_vec(),
            1 => {
                let mut sent = vec![0; length];
                stream.read_exact(&mut sent)?;
                match flaw {
                    Flaw::Refuses => error = 5,
                    Flaw::LosesWrites if offset >= SIZE / 2 => {}
                    Flaw::Misplaces => {
                        bytes[offset + GRANULE..offset + GRANULE + length].copy_from_slice(&sent)
                    }
                    Flaw::None | Flaw::Bit | Flaw::LosesWrites | Flaw::CutsOff(_) => {
                        bytes[offset..offset + length].copy_from_slice(&sent);
                    }
                }
            }
            _ => return Ok(()),
        }
        if flaw == Flaw::Bit {
            bytes[SIZE / 3] = 0x77;
        }
        requests += 1;
        if flaw == Flaw::CutsOff(requests) {
            return Ok(());
        }
        stream.write_all(&0x6744_6698_u32.to_be_bytes())?;
        stream.write_all(&error.to_be_bytes())?;
        stream.write_all(&request[8..16])?;
        stream.write_all(&data)?;
    }
}

/// Serves connections with `flaw` until the test ends.
fn server(socket: &Path, flaws: Vec<Flaw>) {
    let listener = UnixListener::bind(socket).expect("the socket is free");
    std::thread::spawn(move || {
        let mut bytes = vec![0; SIZE + GRANULE];
        for flaw in flaws {
            let (stream, _) = listener.accept().expect("a client comes");
            // However a connection ends, the next one is served.
            let _ = serve(stream, flaw, &mut bytes);
        }
    });
}

fn job(socket: &Path, work: Work) -> Job {
    let stop = Arc::new(AtomicBool::new(false));
    Job { socket: socket.into(), export: "demo".into(), work, tally: Arc::default(), stop, seed: 1 }
}

fn areas() -> Vec<Area> {
    let granules = (SIZE / GRANULE / 4) as u32;
    (0..4).map(|i| Area::new(u64::from(i * granules) * GRANULE as u64, granules)).collect()
}

fn run(socket: &Path, work: Work, areas: Vec<Area>) -> (Ended, Arc<Tally>) {
    let job = job(socket, work);
    let ended = load::run(&job, areas);
    (ended, job.tally)
}

/// Fills and verifies an export served with `flaw`: are errors counted?
fn check(name: &str, flaw: Flaw, errors: bool) {
    let folder = Folder::new(&format!("strake-cli-{name}"));
    let socket = folder.join("n.sock");
    server(&socket, vec![flaw; 2]);
    let (filled, first) = run(&socket, Work::Fill, areas());
    assert!(filled.broken.is_none(), "{:?}", filled.broken);
    let (verified, second) = run(&socket, Work::Verify, filled.areas);
    assert!(verified.broken.is_none(), "{:?}", verified.broken);
    let counted = first.errors.load(Ordering::Relaxed) + second.errors.load(Ordering::Relaxed);
    assert_eq!(counted > 0, errors, "{flaw:?}: {counted} errors");
    let right = second.verified.load(Ordering::Relaxed);
    // A refused write leaves what was there, which is right.
    let whole = !errors || flaw == Flaw::Refuses;
    assert_eq!(right == SIZE as u64, whole, "{flaw:?}: {right} bytes are right");
}

#[test]
fn an_honest_server_passes() {
    check("honest", Flaw::None, false);
}

#[test]
fn every_lie_is_found() {
    check("bit", Flaw::Bit, true);
    check("loses", Flaw::LosesWrites, true);
    check("misplaces", Flaw::Misplaces, true);
    check("refuses", Flaw::Refuses, true);
}

#[test]
fn a_write_that_was_cut_off_may_be_done_or_not() {
    for after in 1..6 {
        let folder = Folder::new(&format!("strake-cli-cut{after}"));
        let socket = folder.join("n.sock");
        server(&socket, vec![Flaw::None, Flaw::CutsOff(after), Flaw::None]);
        let (filled, _) = run(&socket, Work::Fill, areas());
        let (again, _) = run(&socket, Work::Fill, filled.areas);
        // With fewer requests than areas all of it may have been sent, but not answered.
        assert!(again.broken.is_some() || after > 4, "the connection was cut off");
        let (verified, tally) = run(&socket, Work::Verify, again.areas);
        assert!(verified.broken.is_none(), "{:?}", verified.broken);
        assert_eq!(tally.errors.load(Ordering::Relaxed), 0);
        assert_eq!(tally.verified.load(Ordering::Relaxed), SIZE as u64);
    }
}

#[test]
fn random_load_ends_on_request() {
    let folder = Folder::new("strake-cli-random");
    let socket = folder.join("n.sock");
    server(&socket, vec![Flaw::None; 2]);
    let job = job(&socket, Work::Random);
    let (ended, answered) = std::thread::scope(|scope| {
        let running = scope.spawn(|| load::run(&job, areas()));
        while job.tally.requests() < 100 && !running.is_finished() {
            std::thread::yield_now();
        }
        job.stop.store(true, Ordering::Relaxed);
        (running.join().expect("the load does not panic"), job.tally.requests())
    });
    assert!(ended.broken.is_none() && answered >= 100);
    assert_eq!(job.tally.errors.load(Ordering::Relaxed), 0);
    let (_, tally) = run(&socket, Work::Verify, ended.areas);
    assert_eq!(tally.errors.load(Ordering::Relaxed), 0);
}

#[test]
fn what_is_not_nbd_is_refused_with_a_reason() {
    let hostile: [(&[u8], &str); 5] = [
        (b"HTTP/1.1 400 Bad Request", "does not speak NBD"),
        (b"NBDMAGIC\0\0\x42\x02\x81\x86\x12\x53", "oldstyle"),
        (b"NBDMAGICIHAVEOPT\0\0", "fixed newstyle"),
        (b"NBDMAGICIHAVEOPT\0\x03garbage that is no answer", "not an answer"),
        (
            b"NBDMAGICIHAVEOPT\0\x03\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x07\0\0\0\x03\xff\xff\xff\xff",
            "bytes to an option",
        ),
    ];
    for (bytes, why) in hostile {
        let mut both = Duplex { read: bytes, written: Vec::new() };
        let error = client::negotiate(&mut both, "x").expect_err("it is not NBD");
        assert!(error.to_string().contains(why), "{error} does not say {why}");
    }
    let mut short = Duplex { read: b"NBDMAGIC", written: Vec::new() };
    let error = client::negotiate(&mut short, "x").expect_err("it ends");
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
}

/// A server that says what it says, whatever it hears.
struct Duplex<'a> {
    read: &'a [u8],
    written: Vec<u8>,
}

impl Read for Duplex<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.read.read(into)
    }
}

impl Write for Duplex<'_> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.written.write(from)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
