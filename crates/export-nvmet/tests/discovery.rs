//! Discovery that lasts: hosts are told when there is something new.

mod common;

use common::{HOST, Host, Machine, export};
use std::sync::Arc;
use strake_dev_mem::RamDevice;
use strake_export_nvmet::{Removal, nqn};
use strake_nvme_wire::Sgl;
use strake_nvme_wire::feature::event;
use strake_units::BlockSize;

const OTHER: &str = "nqn.2014-08.org.nvmexpress:uuid:other";

/// A discovery controller that tells of these events.
fn discovery(machine: &Machine, events: u32) -> Host {
    let mut host = Host::asked(machine);
    host.connect_as((HOST, nqn::DISCOVERY), 0, 0xffff, 120_000).expect("discovery");
    host.enable();
    host.send(0x09, Sgl::Transport { length: 0 }, &[(10, 0x0b), (11, events)], &[]);
    assert_eq!(host.finish().2, 0, "Set Features");
    host
}

fn add_other(machine: &Machine) {
    let device = Arc::new(RamDevice::new(16, BlockSize::B4096));
    let export = strake_export_nvmet::Export { nqn: OTHER.to_owned(), ..export(device) };
    machine.target.add_export(&export).expect("a fresh name");
}

fn remove_other(machine: &Machine) {
    machine.target.remove_export(OTHER, 1, Removal::Force).expect("it is there");
}

/// Asks to be told.
fn ask(host: &mut Host) -> u16 {
    host.send(0x0c, Sgl::Transport { length: 0 }, &[], &[])
}

/// The next completion: the command, its result and its status word.
fn completion(host: &mut Host) -> (u16, u64, u16) {
    let pdu = host.pdu().expect("the connection stays");
    assert_eq!(pdu.kind, 5, "a completion");
    let cqe = strake_nvme_wire::Cqe::parse(&pdu.header[..].try_into().expect("16 bytes"));
    (cqe.cid, cqe.result, cqe.status.word() >> 1 & 0x7ff)
}

/// Subsystems that discovery names; `retain` leaves an event unanswered.
fn look(host: &mut Host, retain: u32) -> u64 {
    let length = 1024;
    let numd = length / 4 - 1;
    let words = [(10, numd << 16 | retain << 15 | 0x70)];
    host.send(0x02, Sgl::Transport { length }, &words, &[]);
    let (page, _, status) = host.finish();
    assert_eq!(status, 0);
    u64::from_le_bytes(page[8..16].try_into().expect("8 bytes"))
}

#[test]
fn a_host_is_told_once_of_what_is_new_until_it_looks() {
    let machine = Machine::start();
    let mut host = discovery(&machine, event::DISCOVERY_CHANGED);
    let first = ask(&mut host);
    let second = ask(&mut host);
    add_other(&machine);
    assert_eq!(completion(&mut host), (first, 0x70_f002, 0));
    // Nothing more before it has looked; a look that retains the event is none.
    remove_other(&machine);
    assert_eq!(look(&mut host, 1), 1);
    add_other(&machine);
    assert_eq!(look(&mut host, 0), 2);
    remove_other(&machine);
    assert_eq!(completion(&mut host), (second, 0x70_f002, 0));
    // What happens while nothing is asked for is told later.
    assert_eq!(look(&mut host, 0), 1);
    add_other(&machine);
    let third = ask(&mut host);
    assert_eq!(completion(&mut host), (third, 0x70_f002, 0));
}

#[test]
fn a_host_that_did_not_want_to_know_is_not_told() {
    let machine = Machine::start();
    let mut host = discovery(&machine, 0);
    let asked = ask(&mut host);
    add_other(&machine);
    assert_eq!(look(&mut host, 0), 2, "the first answer is to this");
    host.send(0x18, Sgl::Transport { length: 0 }, &[], &[]);
    assert_ne!(completion(&mut host).0, asked, "Keep Alive");
    let mut admin = Host::asked(&machine);
    admin.connect(0, 0xffff, 0).expect("a controller");
    admin.enable();
    let words = [(10, 0x0b), (11, event::DISCOVERY_CHANGED)];
    admin.send(0x09, Sgl::Transport { length: 0 }, &words, &[]);
    assert_eq!(admin.finish().2, 0);
    let asked = ask(&mut admin);
    remove_other(&machine);
    admin.send(0x18, Sgl::Transport { length: 0 }, &[], &[]);
    assert_ne!(
        completion(&mut admin).0,
        asked,
        "discovery's news are not of a controller with namespaces"
    );
}
