//! Tests with clients of other projects: `nbdinfo` and `nbdcopy` of libnbd, `qemu-io` and `qemu-img` of QEMU, and fio.
//! A client that is not installed is reported as skipped, on standard error.

mod common;

use common::Host;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use strake_dev_mem::RamDevice;
use strake_units::BlockSize;

/// Time limit of a client in seconds. It is a bound and not a measurement.
const CLIENT_SECONDS: &str = "60";

/// Reports a skipped test and the reason. Writes directly to standard error, because the output of a test is shown only
/// if the test fails.
fn skip(why: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    // Standard error may have no reader.
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {why}");
}

/// Runs a client and returns what it printed; `None` when it is not installed.
fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let found = Command::new("which")
        .arg(program)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !found {
        skip(&format!("{program} is not installed"));
        return None;
    }
    let output = Command::new("timeout")
        .arg(CLIENT_SECONDS)
        .arg(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("timeout is part of coreutils");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}\n{text}\n{errors}");
    Some(text)
}

fn uri(host: &Host, name: &str) -> String {
    format!("nbd+unix:///{name}?socket={}", host.socket().display())
}

/// Bytes that differ from block to block.
fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| ((i >> 9) as u8) ^ (i as u8).wrapping_mul(31)).collect()
}

fn content(ram: &RamDevice, bytes: usize) -> Vec<u8> {
    let mut data = vec![0; bytes];
    ram.read_at(0, &mut data).expect("the range is on the drive");
    data
}

#[test]
fn nbdinfo_sees_what_is_exported() {
    let (host, _ram) = Host::with_ram(64, BlockSize::B4096);
    let Some(text) = run("nbdinfo", &[&uri(&host, "ram")]) else { return };
    for line in [
        "export-size: 67108864",
        "content:",
        "is_read_only: false",
        "can_multi_conn: true",
        "can_flush: true",
        "can_fua: true",
        "can_trim: true",
        "can_zero: true",
        "can_fast_zero: true",
        "can_df: true",
        "can_cache: true",
        "block_size_minimum: 4096",
        "block_size_preferred: 4096",
        "block_size_maximum: 33554432",
        "base:allocation",
        "description: test export ram",
    ] {
        assert!(text.contains(line), "{line:?} is missing in\n{text}");
    }
    let list = run("nbdinfo", &["--list", &uri(&host, "")]).expect("it was there a moment ago");
    assert!(list.contains("export=\"ram\""), "{list}");
    host.stop();
}

#[test]
fn nbdcopy_brings_bytes_in_and_out() {
    let (host, ram) = Host::with_ram(32, BlockSize::B512);
    let data = pattern(32 << 20);
    let (there, back) = (host.folder.path("in"), host.folder.path("out"));
    std::fs::write(&there, &data).expect("the folder is writable");
    let there = there.display().to_string();
    if run("nbdcopy", &["--flush", &there, &uri(&host, "ram")]).is_none() {
        return;
    }
    assert!(content(&ram, data.len()) == data, "what was copied in is not on the drive");
    run("nbdcopy", &[&uri(&host, "ram"), &back.display().to_string()]);
    assert!(std::fs::read(&back).expect("it was copied") == data, "what was copied out differs");
    let stats = &host.server().exports()[0];
    assert!(stats.read_bytes >= 32 << 20 && stats.errors == 0, "{stats:?}");
    host.stop();
}

#[test]
fn nbdcopy_uses_several_connections_and_requests() {
    let host = Host::start();
    let source = RamDevice::new(16 << 8, BlockSize::B4096);
    let target = RamDevice::new(16 << 8, BlockSize::B4096);
    let data = pattern(16 << 20);
    source.write_at(0, &data).expect("the range is on the drive");
    host.export("source", Arc::new(source));
    host.export("target", Arc::new(target.clone()));
    let arguments = ["--connections=4", "--requests=64", "--request-size=65536"];
    let (from, to) = (uri(&host, "source"), uri(&host, "target"));
    let all: Vec<&str> = arguments.into_iter().chain([from.as_str(), to.as_str()]).collect();
    if run("nbdcopy", &all).is_none() {
        return;
    }
    assert!(content(&target, data.len()) == data, "the copy differs");
    host.stop();
}

#[test]
fn qemu_io_writes_reads_zeroes_and_discards() {
    let (host, ram) = Host::with_ram(64, BlockSize::B4096);
    let target = uri(&host, "ram");
    let commands = [
        "write -P 0xab 0 1M",
        "read -P 0xab 0 1M",
        "write -f -P 0xcd 3M 32M",
        "read -P 0xcd 3M 32M",
        "write -z 4M 1M",
        "read -P 0 4M 1M",
        "write -z -u 6M 1M",
        "read -P 0 6M 1M",
        "discard 8M 1M",
        "flush",
        "aio_write -P 1 40M 64k",
        "aio_write -P 2 41M 64k",
        "aio_flush",
        "read -P 1 40M 64k",
        "read -P 2 41M 64k",
        "map",
    ];
    let mut arguments = vec!["-f", "raw", target.as_str()];
    for command in &commands {
        arguments.extend(["-c", command]);
    }
    let Some(text) = run("qemu-io", &arguments) else { return };
    assert!(!text.contains("failed") && !text.contains("error"), "{text}");
    let bytes = content(&ram, 64 << 20);
    assert!(bytes[..1 << 20].iter().all(|&b| b == 0xab), "the first write is on the drive");
    assert!(bytes[6 << 20..7 << 20].iter().all(|&b| b == 0), "zeroes are on the drive");
    host.stop();
}

#[test]
fn fio_verifies_random_writes() {
    let (host, _ram) = Host::with_ram(16, BlockSize::B4096);
    let target = format!("--uri={}", uri(&host, "ram"));
    let arguments = [
        "--name=verify",
        "--ioengine=nbd",
        &target,
        "--rw=randwrite",
        "--bs=4k,4k",
        "--size=16m",
        "--iodepth=32",
        "--verify=crc32c",
        "--do_verify=1",
        "--randseed=7",
    ];
    let engines = run("fio", &["--enghelp"]);
    match engines {
        None => return,
        Some(list) if !list.contains("nbd") => {
            skip("fio has no nbd engine");
            return;
        }
        Some(_) => {}
    }
    let Some(text) = run("fio", &arguments) else { return };
    assert!(text.contains("err= 0"), "{text}");
    host.stop();
}
