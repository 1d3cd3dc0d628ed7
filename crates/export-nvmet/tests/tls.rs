//! TLS: hosts that must use it, and other connections to the port of a target.

mod common;

use common::{BLOCK, HOST, Host, Machine, SUBSYSTEM, capsule, until};
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use strake_dev_mem::RamDevice;
use strake_export_nvmet::{
    Export, ExportErrorKind, Keys, Reason, Rejection, TargetConfig, TlsKey, nqn,
};
use strake_nvme_wire::Sgl;
use strake_nvme_wire::nvm::opcode;
use strake_tls::limits::{CONTROL_RECORD_PRICE, CREDIT_MAX};
use strake_tls::{Client, TlsError};
use strake_units::{BlockSize, CoreIndex, Nanos};

const KEY: &str =
    "NVMeTLSkey-1:02:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vcSEgBQ==:";
const OTHER: &str = "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";
/// A subsystem that requires TLS.
const STRICT: &str = "nqn.2014-08.org.nvmexpress:uuid:strict";
const NAMES: (&str, &str) = (HOST, SUBSYSTEM);
/// Connect Invalid Host (Base, Figure 102).
const INVALID_HOST: u16 = 0x184;
/// Connect Invalid Parameters (Base, Figure 102).
const INVALID_PARAMETERS: u16 = 0x182;

fn key(text: &str) -> TlsKey {
    text.parse().expect("a key")
}

/// A target at which the host must use TLS.
fn range_locked() -> Machine {
    let machine = Machine::start();
    machine.target.set_tls_key(HOST, Some(key(KEY)));
    machine
}

/// A connection with TLS for these names, after ICReq and ICResp.
fn secured(machine: &Machine, text: &str, names: (&str, &str)) -> Host {
    let mut host = machine.dial();
    host.secure(&key(text), names).expect("the key is known");
    host.ask();
    host
}

/// An enabled controller and one I/O queue.
fn controller(machine: &Machine) -> (Host, Host) {
    let mut admin = secured(machine, KEY, NAMES);
    let id = admin.connect(0, 0xffff, 0).expect("a controller") as u16;
    admin.enable();
    let mut io = secured(machine, KEY, NAMES);
    io.connect(1, id, 0).expect("an I/O queue");
    (admin, io)
}

fn pattern(blocks: usize) -> Vec<u8> {
    (0..blocks * BLOCK).map(|at| (at / 3 + at / BLOCK) as u8).collect()
}

/// Waits until the target closes the connection; returns the bytes before that.
fn last_words(host: &mut Host) -> Vec<u8> {
    let mut said = Vec::new();
    match host.stream.read_to_end(&mut said) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
    said
}

#[test]
fn everything_goes_through_tls() {
    let machine = range_locked();
    let (mut admin, mut io) = controller(&machine);
    let reported = machine.target.controllers(SUBSYSTEM);
    assert!(
        reported[0].queues.iter().all(|queue| queue.facts.is_secure),
        "and it is visible to a peer that asks"
    );
    assert_eq!(io.write(1, &pattern(2)), 0, "with the data in the capsule");
    let data = pattern(64);
    let (cid, tag) = io.announce(100, 64);
    let half = data.len() / 2;
    io.put(&common::h2c(cid, tag, 0, half as u32, 0, &data[..half]));
    io.put(&common::h2c(cid, tag, half as u32, half as u32, 4, &data[half..]));
    assert_eq!(io.finish().2, 0, "with data that was asked for");
    assert_eq!(io.read(100, 64), (data, 0));
    assert_eq!(io.read(1, 2), (pattern(2), 0));
    // 1 MiB takes many records, which the socket accepts in several parts.
    let (large, status) = io.read(0, 256);
    assert_eq!((large.len(), status), (256 * BLOCK, 0));
    assert!(large[100 * BLOCK..164 * BLOCK] == pattern(64));
    admin.send(0x18, Sgl::Transport { length: 0 }, &[], &[]);
    assert_eq!(admin.finish().2, 0, "a sign of life");
}

#[test]
fn a_host_with_a_key_is_refused_without_tls() {
    let machine = range_locked();
    let mut host = Host::asked(&machine);
    assert_eq!(host.connect(0, 0xffff, 0), Err(INVALID_HOST));
    let mut host = Host::asked(&machine);
    let names = (HOST, nqn::DISCOVERY);
    assert_eq!(host.connect_as(names, 0, 0xffff, 0), Err(INVALID_HOST), "discovery too");
    // For a subsystem that does not exist, the host gets the completion that every host gets: the completion does not
    // reveal that the host has a key.
    for host in [HOST, "nqn.2014-08.org.stranger"] {
        let names = (host, "nqn.2014-08.org.nvmexpress:uuid:none");
        let refused = Host::asked(&machine).connect_as(names, 0, 0xffff, 0);
        assert_eq!(refused, Err(INVALID_PARAMETERS), "{host}");
    }
    // An I/O queue also cannot connect without TLS.
    let mut admin = secured(&machine, KEY, NAMES);
    let id = admin.connect(0, 0xffff, 0).expect("a controller") as u16;
    admin.enable();
    let mut io = Host::asked(&machine);
    assert_eq!(io.connect(1, id, 0), Err(INVALID_HOST));
    machine.target.set_tls_key(HOST, None);
    Host::asked(&machine).connect(0, 0xffff, 0).expect("it has no key any more");
}

#[test]
fn tls_is_refused_to_hosts_without_a_key_and_with_another() {
    let machine = Machine::start();
    let refused = Err(TlsError::PeerAlert(51));
    assert_eq!(machine.dial().secure(&key(KEY), NAMES), refused, "it has none");
    Host::asked(&machine).connect(0, 0xffff, 0).expect("and needs none");
    machine.target.set_tls_key(HOST, Some(key(OTHER)));
    assert_eq!(machine.dial().secure(&key(KEY), NAMES), refused, "it has another");
    let stranger = ("nqn.2014-08.org.stranger", SUBSYSTEM);
    assert_eq!(machine.dial().secure(&key(OTHER), stranger), refused, "it is another");
    controller_with(&machine, OTHER);
}

fn controller_with(machine: &Machine, text: &str) {
    secured(machine, text, NAMES).connect(0, 0xffff, 0).expect("a controller");
}

/// A key is valid for the names from which it was derived: a host with the key of another host, or with a key for
/// another subsystem, is rejected if its Connect command has other names.
#[test]
fn the_names_of_connect_are_those_of_the_key() {
    let machine = range_locked();
    let other = "nqn.2014-08.org.nvmexpress:uuid:other";
    machine.target.set_tls_key(other, Some(key(OTHER)));
    let mut host = secured(&machine, OTHER, (other, SUBSYSTEM));
    assert_eq!(host.connect(0, 0xffff, 0), Err(INVALID_HOST), "another host");
    let mut host = secured(&machine, KEY, (HOST, nqn::DISCOVERY));
    assert_eq!(host.connect(0, 0xffff, 0), Err(INVALID_HOST), "another subsystem");
    // A host that needs no key cannot use a connection of a host that has one.
    machine.target.set_tls_key(HOST, None);
    let mut host = secured(&machine, OTHER, (other, SUBSYSTEM));
    assert_eq!(host.connect(0, 0xffff, 0), Err(INVALID_HOST));
}

#[test]
fn discovery_says_who_has_to_use_tls() {
    for (text, expected) in [(Some(KEY), (1, 2)), (None, (2, 0))] {
        let machine = Machine::start();
        machine.target.set_tls_key(HOST, text.map(key));
        let names = (HOST, nqn::DISCOVERY);
        let mut host = match text {
            Some(text) => secured(&machine, text, names),
            None => Host::asked(&machine),
        };
        host.connect_as(names, 0, 0xffff, 0).expect("discovery");
        host.enable();
        let words = [(10, 0x70 | 511 << 16)];
        host.send(2, Sgl::Transport { length: 2048 }, &words, &[]);
        let (page, _, status) = host.finish();
        assert_eq!(status, 0);
        let entry = &page[1024..];
        assert_eq!((entry[3], entry[768]), expected, "TREQ and SECTYPE");
    }
}

/// The discovery log page over TLS or without: TREQ and SECTYPE of each subsystem, by name.
fn discovered(host: &mut Host) -> Vec<(String, u8, u8)> {
    host.connect_as((HOST, nqn::DISCOVERY), 0, 0xffff, 0).expect("discovery");
    host.enable();
    let words = [(10, 0x70 | 767 << 16)];
    host.send(2, Sgl::Transport { length: 3072 }, &words, &[]);
    let (page, _, status) = host.finish();
    assert_eq!(status, 0);
    let name = |entry: &[u8]| {
        let end = entry[256..512].iter().position(|&byte| byte == 0).expect("an end");
        String::from_utf8_lossy(&entry[256..256 + end]).into_owned()
    };
    page[1024..].chunks(1024).map(|entry| (name(entry), entry[3], entry[768])).collect()
}

#[test]
fn no_host_connects_to_a_secure_subsystem_without_tls() {
    let machine = Machine::start();
    let ram = || Arc::new(RamDevice::new(common::BLOCKS, BlockSize::B4096));
    let strict = Export { nqn: STRICT.to_owned(), secure: true, ..common::export(ram()) };
    machine.target.add_export(&strict).expect("a fresh name");
    let mut bare = Host::asked(&machine);
    assert_eq!(bare.connect_as((HOST, STRICT), 0, 0xffff, 0), Err(INVALID_HOST), "it has no key");
    Host::asked(&machine).connect(0, 0xffff, 0).expect("the other subsystem takes it as it is");
    let entry = |name: &str, treq, sectype| (name.to_owned(), treq, sectype);
    let (free, strict_entry) = (entry(SUBSYSTEM, 2, 0), entry(STRICT, 1, 2));
    assert_eq!(discovered(&mut Host::asked(&machine)), [free, strict_entry.clone()]);

    machine.target.set_tls_key(HOST, Some(key(KEY)));
    secured(&machine, KEY, (HOST, STRICT)).connect_as((HOST, STRICT), 0, 0xffff, 0).expect("TLS");
    let mut host = secured(&machine, KEY, (HOST, nqn::DISCOVERY));
    assert_eq!(discovered(&mut host), [entry(SUBSYSTEM, 1, 2), strict_entry]);

    let second = Export { namespace: 2, uuid: [2; 16], ..strict };
    let joins = |export: Export| machine.target.add_export(&export).map_err(|error| error.kind);
    let lax = Export { secure: false, ..second.clone() };
    assert_eq!(joins(lax), Err(ExportErrorKind::BadExport), "one way for all of a subsystem");
    assert_eq!(joins(second), Ok(()));
}

#[test]
fn a_host_that_is_rejected_is_reported() {
    let machine = range_locked();
    let mut bare = Host::asked(&machine);
    assert_eq!(bare.connect(0, 0xffff, 0), Err(INVALID_HOST));
    let refused = Err(TlsError::PeerAlert(51));
    assert_eq!(machine.dial().secure(&key(OTHER), NAMES), refused, "it has another key");
    let mut elsewhere = secured(&machine, KEY, (HOST, nqn::DISCOVERY));
    assert_eq!(elsewhere.connect(0, 0xffff, 0), Err(INVALID_HOST), "it is for another subsystem");
    let stranger = "nqn.2014-08.org.stranger:\u{202e}\u{1f980}";
    for (subsystem, status) in
        [(SUBSYSTEM, INVALID_HOST), (nqn::DISCOVERY, INVALID_HOST), (STRICT, 0x182)]
    {
        let mut host = Host::asked(&machine);
        assert_eq!(host.connect_as((stranger, subsystem), 0, 0xffff, 0), Err(status));
    }
    // A listed host that connects to a removed subsystem is not reported.
    let mut welcome = secured(&machine, KEY, (HOST, STRICT));
    assert_eq!(welcome.connect_as((HOST, STRICT), 0, 0xffff, 0), Err(0x182));

    let reported = machine.target.take_rejections(Nanos(1));
    let here = Some(std::net::IpAddr::from([127, 0, 0, 1]));
    let one =
        |reason, host: &str, count| Rejection { from: here, reason, host: host.into(), count };
    assert_eq!(
        reported,
        [
            one(Reason::NotListed, stranger, 3),
            one(Reason::Bare, HOST, 1),
            one(Reason::OtherNames, HOST, 1),
            one(Reason::Tls, "", 1),
        ]
    );
    assert_eq!(machine.target.take_rejections(Nanos(1)), [], "it is told");
}

#[test]
fn proof_is_asked_for_inside_of_tls_too() {
    let machine = range_locked();
    let secret = "DHHC-1:00:BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwfLJNij:";
    let keys = Keys { host: secret.parse().expect("a secret"), controller: None };
    machine.target.set_keys(HOST, Some(keys));
    let mut host = secured(&machine, KEY, NAMES);
    let result = host.connect(0, 0xffff, 0).expect("it is asked for");
    assert_eq!(result >> 16 & 3, 2, "ATR");
}

#[test]
fn garbage_instead_of_a_hello_ends_the_connection_and_no_other() {
    let machine = range_locked();
    let (_admin, mut io) = controller(&machine);
    let table: [&[u8]; 5] = [
        &[0x16; 64],
        &[0x16, 3, 1, 0, 1, 0],
        b"\x16\x03\x01\xff\xff and so on",
        &[0x16, 3, 3, 0, 4, 2, 0, 0, 0],
        &[0x16, 3, 3, 0, 4, 1, 0xff, 0xff, 0xff],
    ];
    for bytes in table {
        let mut host = machine.dial();
        host.stream.write_all(bytes).expect("the target takes bytes");
        host.stream.shutdown(Shutdown::Write).expect("it is connected");
        let said = last_words(&mut host);
        assert!(said.is_empty() || said[..3] == [21, 3, 3], "{bytes:?}: {said:?}");
    }
    assert_eq!(io.read(0, 1).1, 0, "another host goes on");
}

/// A target at which the host must use TLS, with a short time limit.
fn impatient(handshake_time_max: Nanos) -> Machine {
    let config = TargetConfig {
        handshake_time_max,
        failed_handshake_time: Nanos(0),
        ..TargetConfig::default()
    };
    let ram = Arc::new(RamDevice::new(common::BLOCKS, BlockSize::B4096));
    let machine = Machine::set_up(ram, config);
    machine.target.set_tls_key(HOST, Some(key(KEY)));
    machine
}

#[test]
fn a_host_that_only_begins_tls_is_given_up() {
    let machine = impatient(Nanos(200 * Nanos::MILLI.0));
    let names = strake_nvme_auth::Names { host: HOST.into(), subsystem: SUBSYSTEM.into() };
    let mut hello = Vec::new();
    Client::begin(&key(KEY).offers(&names)[0], &mut hello).expect("a hello");
    for end in [1, 5, hello.len() / 2] {
        let mut host = machine.dial();
        host.stream.write_all(&hello[..end]).expect("the target takes bytes");
        assert!(last_words(&mut host).is_empty(), "{end} bytes");
    }
    // The time limit is longer for hosts that must succeed, also on a busy machine.
    let machine = impatient(Nanos::SECOND.times(2));
    let mut host = machine.dial();
    host.stream.write_all(&hello).expect("the target takes bytes");
    assert_eq!(last_words(&mut host)[..1], [22], "it was answered, and did not go on");
    let mut host = machine.dial();
    host.secure(&key(KEY), NAMES).expect("the key is known");
    assert!(host.pdu().is_none(), "it agreed, and asked for nothing");
}

/// The record of a command without data from the host.
fn sealed(host: &mut Host, opcode: u8) -> Vec<u8> {
    let mut wire = Vec::new();
    let capsule = capsule(opcode, 9, Sgl::Transport { length: 4096 }, &[(1, 1)], &[]);
    let sealed = host.channel().send(&[std::io::IoSlice::new(&capsule)], |bytes| {
        wire.extend_from_slice(bytes);
        Ok::<_, ()>(bytes.len())
    });
    assert_eq!(sealed, Ok(72));
    wire
}

#[test]
fn a_record_that_was_changed_ends_the_connection() {
    let machine = range_locked();
    let (_admin, mut io) = controller(&machine);
    let (_other, mut other) = controller(&machine);
    let mut wire = sealed(&mut io, 2);
    wire[20] ^= 1;
    io.stream.write_all(&wire).expect("the target takes bytes");
    let said = last_words(&mut io);
    assert_eq!(said[..3], [23, 3, 3], "an alert, and nothing else");
    assert_eq!(said.len(), 5 + 2 + 1 + 16);
    assert_eq!(other.read(0, 1).1, 0, "another queue goes on");
}

/// A modified record behind valid data of the same read was once detected only when more data arrived, which never
/// happened. An Asynchronous Event Request does not complete here, so no other event shows the target that the
/// connection has ended.
#[test]
fn a_record_that_was_changed_behind_a_good_one_ends_the_connection_too() {
    let machine = range_locked();
    let (mut admin, _io) = controller(&machine);
    let mut wire = sealed(&mut admin, 0x0c);
    let good = wire.len();
    wire.extend(sealed(&mut admin, 0x0c));
    wire[good + 20] ^= 1;
    admin.stream.write_all(&wire).expect("the target takes bytes");
    assert_eq!(last_words(&mut admin).len(), 24, "an alert, and nothing else");
}

/// The same modification behind a command that completed in the same turn: neither data nor completion is sent.
#[test]
fn a_record_that_was_changed_behind_an_answered_command_ends_the_connection_too() {
    let machine = range_locked();
    let (mut admin, mut io) = controller(&machine);
    let mut wire = sealed(&mut admin, 6);
    let good = wire.len();
    wire.extend(sealed(&mut admin, 6));
    wire[good + 20] ^= 1;
    admin.stream.write_all(&wire).expect("the target takes bytes");
    assert_eq!(last_words(&mut admin).len(), 24, "an alert, and nothing else");
    assert!(io.pdu().is_none(), "the controller goes with its admin queue");
    let (_admin, mut io) = controller(&machine);
    assert_eq!(io.read(0, 1).1, 0, "the target goes on");
}

#[test]
fn a_bare_pdu_inside_of_tls_is_no_record() {
    let machine = range_locked();
    let (_admin, mut io) = controller(&machine);
    let capsule = capsule(2, 9, Sgl::Transport { length: 4096 }, &[(1, 1)], &[]);
    io.stream.write_all(&capsule).expect("the target takes bytes");
    assert_eq!(last_words(&mut io).len(), 24, "an alert, and no data");
}

#[test]
fn a_target_that_stops_says_so() {
    let machine = range_locked();
    let (mut admin, mut io) = controller(&machine);
    let Machine { target, .. } = machine;
    target.stop().expect("it stops");
    // `pdu` returns `None` if the channel was closed properly, and panics otherwise.
    assert!(io.pdu().is_none());
    assert!(admin.pdu().is_none());
}

#[test]
fn a_replaced_key_is_accepted_until_it_is_withdrawn() {
    let machine = Machine::start();
    let fails = |text| machine.dial().secure(&key(text), NAMES).is_err();
    machine.target.set_tls_keys(HOST, vec![key(OTHER), key(KEY)]);
    assert_eq!([fails(KEY), fails(OTHER)], [false, false]);
    machine.target.set_tls_key(HOST, Some(key(OTHER)));
    assert_eq!([fails(KEY), fails(OTHER)], [true, false]);
}

#[test]
fn keys_are_changed_under_io() {
    let machine = range_locked();
    let (_admin, mut io) = controller(&machine);
    for round in 0..40 {
        if round % 8 == 0 {
            io.channel().change_keys();
        }
        assert_eq!(io.write(round, &pattern(1)), 0);
        assert_eq!(io.read(round, 1), (pattern(1), 0));
    }
}

/// One turn decrypts some of the records only, and the socket has no further event for the others.
#[test]
fn a_command_in_many_small_records_completes_on_a_core_that_sleeps() {
    let machine = range_locked();
    let mut admin = secured(&machine, KEY, NAMES);
    admin.record_bytes = 1;
    let id = admin.connect(0, 0xffff, 0).expect("a controller") as u16;
    admin.enable();
    let mut io = secured(&machine, KEY, NAMES);
    io.connect(1, id, 0).expect("an I/O queue");
    io.record_bytes = 7;
    for block in 0..3 {
        until("the core sleeps", || machine.is_asleep(CoreIndex(0)));
        assert_eq!(io.write(block, &pattern(1)), 0);
    }
}

/// Each change costs a core as much as many commands, so a host cannot change keys with every command.
#[test]
fn a_host_that_changes_keys_with_every_command_is_disconnected() {
    let machine = range_locked();
    let (_admin, mut io) = controller(&machine);
    let (_other_admin, mut neighbour) = controller(&machine);
    let flush =
        || capsule(opcode::FLUSH, 1, Sgl::InCapsule { offset: 0, length: 0 }, &[(1, 1)], &[]);
    let mut answered = 0;
    loop {
        io.channel().change_keys();
        io.put(&flush());
        if io.pdu().is_none() {
            break;
        }
        answered += 1;
        assert!(answered <= CREDIT_MAX / CONTROL_RECORD_PRICE + 1, "it stays connected");
    }
    assert_eq!(neighbour.write(0, &pattern(1)), 0, "another host is served");
}
