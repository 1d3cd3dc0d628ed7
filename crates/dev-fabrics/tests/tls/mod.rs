//! The drive over TLS.

use crate::{
    HOST, Machine, Queue, SUBSYSTEM, assert_made_again_once, bytes_of, connect, host, pattern, ram,
    read, write,
};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use strake_block::{DeviceError, DeviceRemedy};
use strake_dev_fabrics::{Address, FabricsDevice, HostName, LinkState, Options};
use strake_export_nvmet::{Keys, Secret, TlsKey};

const KEY: &str =
    "NVMeTLSkey-1:02:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vcSEgBQ==:";
const OTHER: &str = "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";

fn key(text: &str) -> Option<TlsKey> {
    Some(text.parse().expect("a key"))
}

fn secured(address: &Address, text: &str) -> Result<FabricsDevice, DeviceError> {
    let host = HostName { tls: key(text), ..host(HOST) };
    FabricsDevice::connect(address, &host, Options::default())
}

/// A target at which the host must use TLS.
fn guarded() -> Machine {
    let machine = Machine::start(&ram(), 0, 7);
    machine.target.set_tls_key(HOST, key(KEY));
    machine
}

#[test]
fn a_drive_is_used_over_tls() {
    for text in [KEY, OTHER] {
        let machine = guarded();
        machine.target.set_tls_key(HOST, key(text));
        let device = Arc::new(secured(&machine.address(), text).expect("both know the key"));
        let queue = Queue::open(&device, 32);
        let sizes = [1, 2, 5, 32, 33, 256];
        let writes =
            sizes.iter().map(|&blocks| write(300 * blocks as u64 % 3000, &pattern(9, blocks)));
        for (op, result) in queue.run(writes.collect()) {
            assert_eq!(result, Ok(()), "{op:?}");
        }
        let reads = sizes.iter().map(|&blocks| read(300 * blocks as u64 % 3000, blocks)).collect();
        for (at, (op, result)) in queue.run(reads).into_iter().enumerate() {
            assert_eq!(result, Ok(()));
            assert!(bytes_of(op) == pattern(9, sizes[at]), "{} blocks", sizes[at]);
        }
        // Many reads at once: records start and end anywhere in PDUs, and sockets accept partial records.
        let reads = (0..64).map(|at| read(at, 64)).collect();
        assert!(queue.run(reads).iter().all(|(_, result)| result.is_ok()));
    }
}

#[test]
fn a_drive_that_needs_tls_is_distinguished_from_one_with_another_key() {
    let machine = guarded();
    let bare = FabricsDevice::connect(&machine.address(), &host(HOST), Options::default());
    let bare = bare.expect_err("TLS is needed");
    assert!(bare.to_string().contains("does not allow this host"), "{bare}");
    assert_eq!(bare.remedy, Some(DeviceRemedy::TlsKey));
    let other = secured(&machine.address(), OTHER).expect_err("another key").to_string();
    assert!(other.contains("TLS was refused: it does not know the key"), "{other}");
    let machine = Machine::start(&ram(), 0, 7);
    let none = secured(&machine.address(), KEY).expect_err("there is no key").to_string();
    assert!(none.contains("TLS was refused"), "{none}");
    connect(&machine);
}

#[test]
fn proof_is_given_inside_of_tls() {
    let machine = guarded();
    let keys = Some(Keys { host: Secret::from([7; 32]), controller: Some(Secret::from([9; 32])) });
    machine.target.set_keys(HOST, keys.clone());
    let unproven = secured(&machine.address(), KEY).expect_err("TLS is not all");
    assert_eq!(unproven.remedy, Some(DeviceRemedy::Secret), "{unproven}");
    let host = HostName { tls: key(KEY), keys, ..host(HOST) };
    let device = FabricsDevice::connect(&machine.address(), &host, Options::default());
    let queue = Queue::open(&Arc::new(device.expect("both know everything")), 4);
    assert_eq!(queue.run(vec![read(0, 1)])[0].1, Ok(()));
}

#[test]
fn a_queue_uses_the_key_of_now() {
    let machine = guarded();
    let device = Arc::new(secured(&machine.address(), KEY).expect("both know the key"));
    machine.target.set_tls_key(HOST, key(OTHER));
    device.set_tls_key(key(OTHER));
    let queue = Queue::open(&device, 4);
    assert_eq!(queue.run(vec![read(0, 1)])[0].1, Ok(()));
    assert_eq!(device.reconnects(), 0);
}

#[test]
fn a_target_that_restarts_costs_no_request_over_tls() {
    let ram = ram();
    let machine = Machine::start(&ram, 0, 7);
    machine.target.set_tls_key(HOST, key(KEY));
    let device = Arc::new(secured(&machine.address(), KEY).expect("both know the key"));
    let port = device.address().port;
    let queue = Queue::open(&device, 32);
    assert_eq!(queue.run(vec![write(0, &pattern(1, 4))])[0].1, Ok(()));
    drop(machine);
    let machine = Machine::start(&ram, port, 7);
    machine.target.set_tls_key(HOST, key(KEY));
    for (op, result) in queue.run(vec![read(0, 4), write(50, &pattern(2, 64)), read(0, 1)]) {
        assert_eq!(result, Ok(()), "{op:?}");
    }
    assert_made_again_once(&device);
}

/// One key is offered at a time, so the host connects again to a target that knows only the older of its two
/// identities.
#[test]
fn the_older_identity_is_offered_where_the_newer_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let (offered, offers) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for identity in ["NVMe1R02 ", "NVMe0R02 "] {
            let (mut stream, _) = listener.accept().expect("the host connects");
            let mut room = [0; 4096];
            let count = stream.read(&mut room).expect("a hello");
            let names = format!("{identity}{HOST} {SUBSYSTEM}");
            let found = room[..count].windows(names.len()).any(|part| part == names.as_bytes());
            offered.send(found).expect("the test goes on");
            // An alert of a peer that does not know the key (RFC 8446, section 6.2).
            stream.write_all(&[21, 3, 3, 0, 2, 2, 51]).expect("the host listens");
        }
    });
    let address = format!("nvme-tcp://{address}/{SUBSYSTEM}").parse().expect("an address");
    let refused = secured(&address, KEY).expect_err("nobody knows the key").to_string();
    assert!(refused.contains("TLS was refused: it does not know the key"), "{refused}");
    assert_eq!(offers.try_iter().collect::<Vec<_>>(), [true, true]);
}

/// A target that closes its socket with unread data: the connection is reset.
#[test]
fn the_older_identity_is_offered_to_one_that_resets_the_connection_too() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let (offered, offers) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for identity in ["NVMe1R02 ", "NVMe0R02 "] {
            let (stream, _) = listener.accept().expect("the host connects");
            let mut room = [0; 4096];
            let count = stream.peek(&mut room).expect("a hello");
            let names = format!("{identity}{HOST} {SUBSYSTEM}");
            let found = room[..count].windows(names.len()).any(|part| part == names.as_bytes());
            offered.send(found).expect("the test goes on");
        }
    });
    let address = format!("nvme-tcp://{address}/{SUBSYSTEM}").parse().expect("an address");
    secured(&address, KEY).expect_err("nobody knows the key");
    assert_eq!(offers.try_iter().collect::<Vec<_>>(), [true, true]);
}

/// A proxy that changes a byte of the target's output, or truncates it.
fn between(
    machine: &Machine,
    change: impl Fn(usize, &mut Vec<u8>) -> bool + Send + 'static,
) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address: SocketAddr = listener.local_addr().expect("an address");
    let behind = machine.target.address();
    std::thread::spawn(move || {
        let (host, _) = listener.accept().expect("the host connects");
        let target = TcpStream::connect(behind).expect("the target listens");
        drop(listener);
        let clone = |stream: &TcpStream| stream.try_clone().expect("a descriptor is free");
        let (mut from_host, mut to_target) = (clone(&host), clone(&target));
        std::thread::spawn(move || {
            // Either end may close at any time.
            let _ = std::io::copy(&mut from_host, &mut to_target);
            let _ = to_target.shutdown(Shutdown::Both);
        });
        let (mut from_target, mut to_host) = (target, host);
        let (mut room, mut passed) = ([0; 4096], 0);
        while let Ok(count @ 1..) = from_target.read(&mut room) {
            let mut bytes = room[..count].to_vec();
            let goes_on = change(passed, &mut bytes);
            passed += count;
            if to_host.write_all(&bytes).is_err() || !goes_on {
                break;
            }
        }
        let _ = to_host.shutdown(Shutdown::Both);
        let _ = from_target.shutdown(Shutdown::Both);
    });
    format!("nvme-tcp://{address}/{SUBSYSTEM}").parse().expect("an address")
}

/// The output of a target up to the completion of Connect has a few hundred bytes: a change of one of them, or a
/// truncation there, causes an error with a readable reason.
#[test]
fn a_changed_byte_or_a_cut_ends_a_connection_with_a_reason() {
    let machine = guarded();
    for place in (0..600_usize).step_by(37) {
        let address = between(&machine, move |passed, bytes| {
            if let Some(byte) = place.checked_sub(passed).and_then(|at| bytes.get_mut(at)) {
                *byte ^= 0x80;
            }
            true
        });
        let changed = secured(&address, KEY).expect_err("it is noticed").to_string();
        assert!(changed.contains("TLS") || changed.contains("closed"), "{place}: {changed}");
        let address = between(&machine, move |passed, bytes| {
            bytes.truncate(place - passed.min(place));
            passed + bytes.len() < place
        });
        let cut = secured(&address, KEY).expect_err("it is noticed").to_string();
        assert!(cut.contains("cut off") || cut.contains("closed"), "{place}: {cut}");
    }
    let device = secured(&machine.address(), KEY).expect("the target goes on with others");
    assert_eq!(device.state(), LinkState::Up);
}
