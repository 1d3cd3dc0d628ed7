//! Authentication of hosts: successes and failures.

mod common;

use common::{BLOCK, BLOCKS, HOST, Host, Machine, SUBSYSTEM, capsule, connect_data, u32_of};
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use strake_dev_mem::RamDevice;
use strake_export_nvmet::{Keys, Reason, Rejection, Secret, TargetConfig, nqn};
use strake_nvme_auth::{Challenge, Group, Hash, Names, Side, respond};
use strake_nvme_tcp::pdu::{Digests, IcReq};
use strake_nvme_wire::Sgl;
use strake_units::{BlockSize, Nanos};

const SECRET: &str = "DHHC-1:00:BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwfLJNij:";
const OTHER: &str = "DHHC-1:00:CQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQlGwA0N:";

/// The constant part of authentication commands: SECP, SPSP1 and SPSP0.
const PROTOCOL: u32 = 0xe901_0100;
const TRANSACTION: u16 = 0x77;
const EXPONENT: [u8; 64] = [0x35; 64];

fn secret(text: &str) -> Secret {
    text.parse().expect("a secret")
}

/// A target at which the host must authenticate.
fn range_locked() -> Machine {
    let machine = Machine::start();
    let keys = Keys { host: secret(SECRET), controller: Some(secret(OTHER)) };
    machine.target.set_keys(HOST, Some(keys));
    machine
}

/// Sends an authentication message; returns the status of the command.
fn say(host: &mut Host, message: &[u8]) -> u16 {
    let length = message.len() as u32;
    let words = [(1, 5), (10, PROTOCOL), (11, length)];
    host.send(0x7f, Sgl::InCapsule { offset: 0, length }, &words, message);
    host.finish().2
}

/// Receives an authentication message.
fn hear(host: &mut Host, room: u32) -> (Vec<u8>, u16) {
    let words = [(1, 6), (10, PROTOCOL), (11, room)];
    host.send(0x7f, Sgl::Transport { length: room }, &words, &[]);
    let (message, _, status) = host.finish();
    (message, status)
}

fn lead(kind: u8, id: u8) -> Vec<u8> {
    let [low, high] = TRANSACTION.to_le_bytes();
    vec![kind, id, 0, 0, low, high]
}

fn offer(hash: Hash, group: Group) -> Vec<u8> {
    let mut out = [lead(0, 0), vec![0, 1, 1, 0, 1, 1]].concat();
    let mut ids = [0; 60];
    (ids[0], ids[30]) = (hash as u8, group as u8);
    out.extend(ids);
    out
}

/// The reply of a host with a secret to a challenge, and the response that it expects if it requests mutual
/// authentication.
fn reply(challenge: &[u8], known: &str, asks: bool) -> (Vec<u8>, Vec<u8>) {
    let hash = Hash::of(challenge[8]).expect("a hash function");
    let group = Group::of(challenge[9]).expect("a group");
    let (public, session) = match group {
        Group::Null => (Vec::new(), None),
        group => {
            let theirs = &challenge[16 + hash.bytes()..][..group.bytes()];
            (group.public(&EXPONENT).expect("a value"), group.shared(theirs, &EXPONENT))
        }
    };
    let names = Names { host: HOST.to_owned(), subsystem: SUBSYSTEM.to_owned() };
    let own = vec![0x42; hash.bytes()];
    let asked = |value, sequence| Challenge {
        hash,
        value,
        session: session.as_deref(),
        sequence,
        transaction: TRANSACTION,
    };
    let ours = asked(&challenge[16..16 + hash.bytes()], u32_of(&challenge[12..]));
    let response = respond(Side::Host, &secret(known), &names, &ours);
    let expected = respond(Side::Controller, &secret(OTHER), &names, &asked(&own, 5));
    let mut out = [lead(1, 2), vec![hash.bytes() as u8, 0, u8::from(asks), 0]].concat();
    out.extend((public.len() as u16).to_le_bytes());
    out.extend(if asks { 5_u32 } else { 0 }.to_le_bytes());
    out.extend_from_slice(&response);
    out.extend(if asks { own } else { vec![0; hash.bytes()] });
    out.extend(public);
    (out, expected.to_vec())
}

/// Connects a queue whose host must authenticate.
fn connect(machine: &Machine, queue: u16, controller: u16) -> (Host, u16) {
    let mut host = Host::asked(machine);
    let result = host.connect(queue, controller, 0).expect("the name is on the list");
    assert_eq!(result >> 16, 0b10, "proof is asked for");
    (host, result as u16)
}

/// Runs the whole authentication.
fn prove(host: &mut Host, hash: Hash, group: Group, asks: bool) {
    assert_eq!(say(host, &offer(hash, group)), 0);
    let (challenge, status) = hear(host, 4096);
    assert_eq!((status, challenge.len(), &challenge[..2]), (0, 4096, &[1, 1][..]));
    let (message, expected) = reply(&challenge, SECRET, asks);
    assert_eq!(say(host, &message), 0);
    let (success, status) = hear(host, 4096);
    assert_eq!((status, &success[..2], success[8]), (0, &[1, 3][..], u8::from(asks)));
    if asks {
        assert_eq!(success[16..16 + hash.bytes()], expected, "the controller proves itself");
        assert_eq!(say(host, &[lead(1, 4), vec![0; 10]].concat()), 0);
    }
}

/// Fails unless the authentication fails here with this reason, and the connection is closed.
fn is_refused(host: &mut Host, why: u8) {
    let (message, status) = hear(host, 4096);
    assert_eq!((status, &message[..2], &message[6..8]), (0, &[0, 0xf1][..], &[1, why][..]));
    assert!(host.pdu().is_none(), "the connection is closed");
}

#[test]
fn a_host_that_offers_no_accepted_group_is_refused() {
    let machine = range_locked();
    for group in [Group::Null, Group::Ffdhe8192] {
        let (mut host, _) = connect(&machine, 0, 0xffff);
        assert_eq!(say(&mut host, &offer(Hash::Sha256, group)), 0);
        is_refused(&mut host, 5);
    }
}

#[test]
fn a_host_that_proves_who_it_is_is_served() {
    let machine = range_locked();
    let ways = [
        (Hash::Sha256, Group::Ffdhe2048, false),
        (Hash::Sha512, Group::Ffdhe3072, true),
        (Hash::Sha384, Group::Ffdhe2048, true),
    ];
    for (hash, group, asks) in ways {
        let (mut admin, id) = connect(&machine, 0, 0xffff);
        prove(&mut admin, hash, group, asks);
        admin.enable();
        let (mut io, _) = connect(&machine, 1, id);
        prove(&mut io, hash, group, asks);
        let data = vec![hash as u8; 2 * BLOCK];
        assert_eq!(io.write(0, &data), 0);
        assert_eq!(io.read(0, 2), (data, 0));
    }
}

#[test]
fn nothing_is_answered_without_proof_and_no_host_is_kept_out() {
    let machine = range_locked();
    let (mut admin, id) = connect(&machine, 0, 0xffff);
    admin.send(0x06, Sgl::Transport { length: 4096 }, &[(10, 1)], &[]);
    assert_eq!(admin.finish().2, 0x191, "Identify");
    admin.send(0x7f, Sgl::Transport { length: 0 }, &[(1, 4), (11, 0x1c)], &[]);
    assert_eq!(admin.finish().2, 0x191, "Property Get");
    assert_eq!(admin.connect(0, 0xffff, 0), Err(0x0c), "Connect again");
    // A host that has not authenticated cannot connect an I/O queue.
    assert_eq!(Host::asked(&machine).connect(1, id, 0), Err(0x182));
    assert_eq!(machine.target.exports()[0].connections, 0, "no seat is taken");
    let mut discovery = Host::asked(&machine);
    assert!(discovery.connect_as((HOST, nqn::DISCOVERY), 0, 0xffff, 0).is_ok());
}

#[test]
fn a_host_without_a_secret_is_refused() {
    let machine = range_locked();
    for group in [Group::Ffdhe2048, Group::Ffdhe3072] {
        let (mut host, _) = connect(&machine, 0, 0xffff);
        say(&mut host, &offer(Hash::Sha256, group));
        let (challenge, _) = hear(&mut host, 4096);
        assert_eq!(say(&mut host, &reply(&challenge, OTHER, false).0), 0);
        is_refused(&mut host, 1);
    }
    assert_eq!(machine.target.exports()[0].connections, 0);
    // A response is valid for one challenge.
    let (mut first, _) = connect(&machine, 0, 0xffff);
    say(&mut first, &offer(Hash::Sha256, Group::Ffdhe2048));
    let (challenge, _) = hear(&mut first, 4096);
    let (message, _) = reply(&challenge, SECRET, false);
    let (mut second, _) = connect(&machine, 0, 0xffff);
    say(&mut second, &offer(Hash::Sha256, Group::Ffdhe2048));
    hear(&mut second, 4096);
    assert_eq!(say(&mut second, &message), 0);
    is_refused(&mut second, 1);
}

/// nvmet-auth: repeated negotiation, steps out of order, an invalid SC_C.
#[test]
fn nvmet_auth_a_conversation_out_of_order() {
    let machine = range_locked();
    let good = offer(Hash::Sha256, Group::Ffdhe2048);
    let mut secure = good.clone();
    secure[6] = 1;
    let success = [lead(1, 4), vec![0; 10]].concat();
    for (messages, why) in [
        (&[&good, &good][..], 7),
        (&[&good, &good, &good], 7),
        (&[&success], 7),
        (&[&secure], 3),
        (&[&offer(Hash::Sha256, Group::Ffdhe2048)[..40].to_vec()], 6),
    ] {
        let (mut host, _) = connect(&machine, 0, 0xffff);
        for message in messages {
            assert_eq!(say(&mut host, message), 0);
        }
        is_refused(&mut host, why);
    }
    let (mut host, _) = connect(&machine, 0, 0xffff);
    is_refused(&mut host, 7);
}

/// Contradictory lengths, another protocol, no buffer: the command fails, and too many failures close the connection.
#[test]
fn commands_of_authentication_are_bounded() {
    let machine = range_locked();
    let (mut host, _) = connect(&machine, 0, 0xffff);
    let message = offer(Hash::Sha256, Group::Ffdhe2048);
    let length = message.len() as u32;
    let carried = Sgl::InCapsule { offset: 0, length };
    for (sgl, words, status) in [
        (carried, [(1, 5), (10, PROTOCOL), (11, length + 1)], 0x0f),
        (carried, [(1, 5), (10, 0), (11, length)], 0x02),
        (Sgl::InCapsule { offset: 4, length }, [(1, 5), (10, PROTOCOL), (11, length)], 0x0f),
        (Sgl::Transport { length }, [(1, 5), (10, PROTOCOL), (11, length)], 0x11),
    ] {
        host.send(0x7f, sgl, &words, &message);
        assert_eq!(host.finish().2, status, "{words:?}");
    }
    for room in [0, 1 << 20] {
        host.send(
            0x7f,
            Sgl::Transport { length: room },
            &[(1, 6), (10, PROTOCOL), (11, room)],
            &[],
        );
        assert_eq!(host.finish().2, 0x0f, "room for {room} bytes");
    }
    assert_eq!(say(&mut host, &message), 0, "all that was no part of the conversation");
    assert_eq!(hear(&mut host, 16).1, 0x02, "no room for a challenge");
    assert!(host.pdu().is_none(), "the connection is closed");

    let (mut flood, _) = connect(&machine, 0, 0xffff);
    let mut answered = 0;
    loop {
        let words = [(1, 4), (11, 0x1c)];
        let capsule = capsule(0x7f, 1, Sgl::Transport { length: 0 }, &words, &[]);
        if flood.stream.write_all(&capsule).is_err() {
            break;
        }
        let Some(_) = flood.pdu() else { break };
        answered += 1;
    }
    assert!((8..=16).contains(&answered), "{answered}");
}

#[test]
fn keys_are_those_of_the_moment_of_connecting() {
    let machine = range_locked();
    let (mut admin, _) = connect(&machine, 0, 0xffff);
    prove(&mut admin, Hash::Sha256, Group::Ffdhe2048, false);
    machine.target.set_keys(HOST, Some(Keys { host: secret(OTHER), controller: None }));
    admin.enable();
    let (mut late, _) = connect(&machine, 0, 0xffff);
    say(&mut late, &offer(Hash::Sha256, Group::Ffdhe2048));
    let (challenge, _) = hear(&mut late, 4096);
    assert_eq!(say(&mut late, &reply(&challenge, SECRET, false).0), 0);
    is_refused(&mut late, 1);
    machine.target.set_keys(HOST, None);
    let (_admin, mut io) = machine.controller();
    assert_eq!(io.read(0, 1), (vec![0; BLOCK], 0));
}

#[test]
fn replaced_keys_are_accepted_until_they_are_withdrawn() {
    let machine = range_locked();
    let old = Keys { host: secret(SECRET), controller: None };
    let new = Keys { host: secret(OTHER), controller: None };
    let fails = |known: &str| {
        let (mut host, _) = connect(&machine, 0, 0xffff);
        say(&mut host, &offer(Hash::Sha256, Group::Ffdhe2048));
        let (challenge, _) = hear(&mut host, 4096);
        say(&mut host, &reply(&challenge, known, false).0);
        hear(&mut host, 4096).0[..2] != [1, 3]
    };
    machine.target.set_proof_keys(HOST, vec![new.clone(), old]);
    assert_eq!([fails(SECRET), fails(OTHER)], [false, false]);
    machine.target.set_keys(HOST, Some(new));
    assert_eq!([fails(SECRET), fails(OTHER)], [true, false]);
}

/// A host that does not continue is disconnected at the time limit of the handshake.
#[test]
fn a_host_that_does_not_prove_itself_in_time_is_let_go() {
    let config =
        TargetConfig { handshake_time_max: Nanos(50 * Nanos::MILLI.0), ..TargetConfig::default() };
    let machine = Machine::set_up(Arc::new(RamDevice::new(BLOCKS, BlockSize::B4096)), config);
    machine.target.set_keys(HOST, Some(Keys { host: secret(SECRET), controller: None }));
    let (mut host, _) = connect(&machine, 0, 0xffff);
    say(&mut host, &offer(Hash::Sha256, Group::Ffdhe2048));
    assert!(host.pdu().is_none(), "the connection is closed");
}

/// A failure is recorded when it is detected: the host need not wait for the completion.
#[test]
fn a_host_that_does_not_prove_who_it_is_is_reported_once() {
    let machine = range_locked();
    for hears in [true, false] {
        let (mut host, _) = connect(&machine, 0, 0xffff);
        assert_eq!(say(&mut host, &offer(Hash::Sha256, Group::Ffdhe2048)), 0);
        let (challenge, _) = hear(&mut host, 4096);
        let (message, _) = reply(&challenge, OTHER, false);
        assert_eq!(say(&mut host, &message), 0);
        if hears {
            is_refused(&mut host, 1);
        }
    }
    let (mut host, _) = connect(&machine, 0, 0xffff);
    prove(&mut host, Hash::Sha256, Group::Ffdhe2048, false);
    let from = Some(std::net::IpAddr::from([127, 0, 0, 1]));
    let expected = Rejection { from, reason: Reason::Unproven, host: HOST.to_owned(), count: 2 };
    assert_eq!(machine.target.take_rejections(Nanos(1)), [expected]);
}

/// Everything that a program sends which knows the name of a host and not its secret: the target computes its own
/// value of the group for the challenge, and the common one for the reply.
fn false_proof() -> Vec<u8> {
    let send = |cid, message: &[u8]| {
        let length = message.len() as u32;
        let words = [(1, 5), (10, PROTOCOL), (11, length)];
        capsule(0x7f, cid, Sgl::InCapsule { offset: 0, length }, &words, message)
    };
    let group = Group::Ffdhe3072;
    let mut reply = [lead(1, 2), vec![32, 0, 0, 0]].concat();
    reply.extend((group.bytes() as u16).to_le_bytes());
    reply.extend([0; 4 + 2 * 32]);
    reply.extend(group.public(&EXPONENT).expect("a value"));
    let words = [(1, 1), (10, 0), (11, 31), (12, 0)];
    let data = connect_data((HOST, SUBSYSTEM), 0xffff);
    let hears = [(1, 6), (10, PROTOCOL), (11, 4096)];
    [
        IcReq { alignment: 0, digests: Digests::default(), r2ts_max: 0 }.bytes().to_vec(),
        capsule(0x7f, 1, Sgl::InCapsule { offset: 0, length: 1024 }, &words, &data),
        send(2, &offer(Hash::Sha256, group)),
        capsule(0x7f, 3, Sgl::Transport { length: 4096 }, &hears, &[]),
        send(4, &reply),
        capsule(0x7f, 5, Sgl::Transport { length: 4096 }, &hears, &[]),
    ]
    .concat()
}

/// The thread that accepts connections must not compute for its peers: that once took up to tens of milliseconds at a
/// time. Over plain TCP, only authentication starts the worker.
#[test]
fn a_worker_computes_the_proofs() {
    let machine = range_locked();
    let (mut admin, _) = connect(&machine, 0, 0xffff);
    prove(&mut admin, Hash::Sha256, Group::Ffdhe2048, false);
    let tasks = std::fs::read_dir("/proc/self/task").expect("this process has threads");
    let mut names = tasks.flatten().map(|task| std::fs::read_to_string(task.path().join("comm")));
    let is_worker = |name: &String| name.trim_end() == "strake-nvmet-st";
    assert!(names.any(|name| name.is_ok_and(|name| is_worker(&name))), "no worker computes");
}

/// Programs that never prove anything do not keep a host from its turn.
#[test]
fn a_host_proves_itself_while_programs_of_other_addresses_never_do() {
    let machine = range_locked();
    let (bytes, stop) = (false_proof(), AtomicBool::new(false));
    thread::scope(|scope| {
        let floods = (2..6).map(|last| {
            let (machine, bytes, stop) = (&machine, &bytes, &stop);
            scope.spawn(move || {
                let mut proofs = 0;
                while !stop.load(Ordering::Relaxed) {
                    let mut stream = Host::dial_from(machine, [127, 0, 0, last].into()).stream;
                    // The target may close the connection at any time.
                    let sent = stream.write_all(bytes);
                    let heard = sent.and_then(|()| stream.read_to_end(&mut Vec::new()));
                    proofs += u32::from(heard.is_ok());
                }
                proofs
            })
        });
        let floods: Vec<_> = floods.collect();
        for _ in 0..20 {
            let (mut admin, _) = connect(&machine, 0, 0xffff);
            prove(&mut admin, Hash::Sha256, Group::Ffdhe3072, false);
            admin.enable();
        }
        stop.store(true, Ordering::Relaxed);
        let proofs: u32 = floods.into_iter().map(|flood| flood.join().expect("no panic")).sum();
        assert!(proofs > 0, "the floods are answered");
    });
}
