//! Persistent discovery: hosts are notified of changes.

mod common;

use common::{BLOCK, HOST, Host, Machine, SUBSYSTEM, export, until};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use strake_dev_mem::RamDevice;
use strake_export_nvmet::limits::{
    DISCOVERY_CONNECTIONS_MAX, DISCOVERY_CONNECTIONS_PER_ADDRESS_MAX, REFERRALS_MAX,
};
use strake_export_nvmet::{ExportErrorKind, Referral, Removal, TargetConfig, nqn};
use strake_nvme_wire::Sgl;
use strake_nvme_wire::discovered::{Channel, Entry, Kind};
use strake_nvme_wire::feature::event;
use strake_units::{BlockSize, Nanos};

const OTHER: &str = "nqn.2014-08.org.nvmexpress:uuid:other";

/// A discovery controller that reports these events.
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

/// Sends an Asynchronous Event Request.
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

/// The number of entries of the discovery log page; with `retain`, the event stays pending.
fn look(host: &mut Host, retain: u32) -> u64 {
    let length = 1024;
    let numd = length / 4 - 1;
    let words = [(10, numd << 16 | retain << 15 | 0x70)];
    host.send(0x02, Sgl::Transport { length }, &words, &[]);
    let (page, _, status) = host.finish();
    assert_eq!(status, 0);
    u64::from_le_bytes(page[8..16].try_into().expect("8 bytes"))
}

/// A host does not learn the names of subsystems to which it may not connect.
#[test]
fn discovery_names_to_a_host_only_what_it_may_connect_to() {
    let machine = Machine::start();
    let device = || Arc::new(RamDevice::new(16, BlockSize::B4096));
    let of = |nqn: &str, host: &str| strake_export_nvmet::Export {
        nqn: nqn.to_owned(),
        hosts: vec![host.to_owned()],
        ..export(device())
    };
    let longer = format!("{HOST}1");
    machine.target.add_export(&of(OTHER, &longer)).expect("a fresh name");
    let page = |name: &str| {
        let mut host = Host::asked(&machine);
        host.connect_as((name, nqn::DISCOVERY), 0, 0xffff, 0).expect("it may connect to one");
        host.enable();
        let length = 4096;
        let words = [(10, (length / 4 - 1) << 16 | 0x70)];
        host.send(0x02, Sgl::Transport { length }, &words, &[]);
        let (page, _, status) = host.finish();
        assert_eq!((status, page[8]), (0, 1), "{name} sees one subsystem");
        String::from_utf8_lossy(&page[1024..2048]).into_owned()
    };
    for (name, seen, hidden) in [(HOST, SUBSYSTEM, OTHER), (&longer, OTHER, SUBSYSTEM)] {
        let page = page(name);
        assert!(page.contains(seen) && !page.contains(hidden), "{name}: {page:?}");
    }
}

#[test]
fn a_host_is_notified_once_of_what_is_new_until_it_looks() {
    let machine = Machine::start();
    let mut host = discovery(&machine, event::DISCOVERY_CHANGED);
    let first = ask(&mut host);
    let second = ask(&mut host);
    add_other(&machine);
    assert_eq!(completion(&mut host), (first, 0x70_f002, 0));
    // No further event before the host has read the page; a read that retains the event does not count.
    remove_other(&machine);
    assert_eq!(look(&mut host, 1), 1);
    add_other(&machine);
    assert_eq!(look(&mut host, 0), 2);
    remove_other(&machine);
    assert_eq!(completion(&mut host), (second, 0x70_f002, 0));
    // Changes without an outstanding request are reported later.
    assert_eq!(look(&mut host, 0), 1);
    add_other(&machine);
    let third = ask(&mut host);
    assert_eq!(completion(&mut host), (third, 0x70_f002, 0));
}

/// Referrals are listed behind the local subsystems (Base, section 3.1.2.3), and their changes are reported.
#[test]
fn a_host_is_notified_of_other_discovery_services() {
    let machine = Machine::start();
    let refer = |last: u8, nqn: &str| Referral {
        address: SocketAddr::from(([192, 0, 2, last], 8009)),
        nqn: nqn.to_owned(),
    };
    let set = |referrals: &[Referral]| machine.target.set_referrals(referrals.to_vec());
    let mut host = discovery(&machine, event::DISCOVERY_CHANGED);
    let asked = ask(&mut host);
    set(&[refer(1, nqn::DISCOVERY), refer(2, "nqn.2014-08.org.example:own")]).expect("two");
    assert_eq!(completion(&mut host), (asked, 0x70_f002, 0));
    assert_eq!(look(&mut host, 0), 3);
    let asked = ask(&mut host);
    set(&[refer(1, nqn::DISCOVERY), refer(2, "nqn.2014-08.org.example:own")]).expect("the same");
    for entry in [
        refer(1, "no name"),
        Referral { address: SocketAddr::from(([0; 4], 8009)), ..refer(1, nqn::DISCOVERY) },
        Referral { address: SocketAddr::from(([192, 0, 2, 1], 0)), ..refer(1, nqn::DISCOVERY) },
    ] {
        let error = set(&[entry]).expect_err("of no use to a host");
        assert_eq!(error.kind, ExportErrorKind::BadReferral);
    }
    let many = vec![refer(1, nqn::DISCOVERY); REFERRALS_MAX + 1];
    assert_eq!(set(&many).expect_err("too many").kind, ExportErrorKind::BadReferral);
    assert_eq!(look(&mut host, 0), 3, "nothing of that counts, and none of it is told");
    let entries = page(&mut host, 3);
    assert_eq!(
        [&entries[1], &entries[2]].map(|e| (e.kind, e.channel)),
        [(Kind::Referral, Channel::NotSpecified), (Kind::Referral, Channel::NotSpecified)]
    );
    assert_eq!((entries[1].address.as_str(), entries[1].service.as_str()), ("192.0.2.1", "8009"));
    assert_eq!(entries[2].nqn, "nqn.2014-08.org.example:own");
    set(&[]).expect("none");
    assert_eq!(completion(&mut host), (asked, 0x70_f002, 0));
    assert_eq!(look(&mut host, 0), 1);
    // There is no referral to the address of the connection, in any notation.
    let SocketAddr::V4(here) = machine.target.address() else { panic!("it has one of IPv4") };
    let mapped = SocketAddr::from((here.ip().to_ipv6_mapped(), here.port()));
    let itself = [SocketAddr::V4(here), mapped]
        .map(|address| Referral { address, ..refer(1, nqn::DISCOVERY) });
    set(&[itself.to_vec(), vec![refer(1, nqn::DISCOVERY)]].concat()).expect("three");
    assert_eq!(look(&mut host, 0), 2);
    assert_eq!(page(&mut host, 2)[1].address, "192.0.2.1");
}

/// The entries of the discovery log page, as hosts parse them.
fn page(host: &mut Host, count: u32) -> Vec<Entry> {
    let length = (1 + count) * 1024;
    let words = [(10, (length / 4 - 1) << 16 | 1 << 15 | 0x70)];
    host.send(0x02, Sgl::Transport { length }, &words, &[]);
    let (page, _, status) = host.finish();
    assert_eq!(status, 0);
    let (parts, []) = page.as_chunks::<1024>() else { panic!("whole entries") };
    parts[1..].iter().map(|part| Entry::parse(part).expect("an entry of ours")).collect()
}

#[test]
fn a_host_that_did_not_ask_is_not_notified() {
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

/// Discovery requires no authentication, so it must not take connection slots of authenticated hosts.
#[test]
fn discovery_leaves_places_to_hosts() {
    let machine = Machine::start();
    let visit = |from: Ipv4Addr| {
        let mut host = Host::dial_from(&machine, from);
        host.ask();
        let connected = host.connect_as((HOST, nqn::DISCOVERY), 0, 0xffff, 0);
        connected.map(|_| host)
    };
    let (near, far) = (Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 0, 0, 2));
    let busy = Some(0x181);
    let mut all: Vec<Host> = (0..DISCOVERY_CONNECTIONS_PER_ADDRESS_MAX)
        .map(|_| visit(far).expect("there is room"))
        .collect();
    assert_eq!(visit(far).err(), busy, "one too many of an address");
    all.push(visit(near).expect("another address"));
    drop(all);
    until("there is room again", || visit(far).is_ok());
    let mut all: Vec<Host> = (0..DISCOVERY_CONNECTIONS_MAX)
        .map(|number| {
            let from =
                Ipv4Addr::new(127, 0, 1, (number / DISCOVERY_CONNECTIONS_PER_ADDRESS_MAX) as u8);
            let mut discovery_connection = visit(from);
            // Closed connections may still have their slots.
            until("there is room", || {
                discovery_connection.is_ok() || {
                    discovery_connection = visit(from);
                    false
                }
            });
            discovery_connection.expect("it was seen")
        })
        .collect();
    assert!(visit(near).is_ok(), "few addresses do not close discovery for another one");
    assert!(all[0].pdu().is_none(), "the oldest of their connections is closed instead");
    let (_admin, mut io) = machine.controller();
    assert_eq!(io.write(0, &[1; BLOCK]), 0, "hosts are served");
}

/// A silent connection is closed, even if its host requested no keep-alive timeout (Base, section 3.9).
#[test]
fn a_silent_discovery_connection_is_closed() {
    let config =
        TargetConfig { visit_silence_max: Nanos(50 * Nanos::MILLI.0), ..TargetConfig::default() };
    let machine = Machine::set_up(Arc::new(RamDevice::new(16, BlockSize::B4096)), config);
    let mut host = Host::asked(&machine);
    host.connect_as((HOST, nqn::DISCOVERY), 0, 0xffff, 0).expect("discovery");
    assert!(host.pdu().is_none(), "it is closed");
    let (mut admin, _io) = machine.controller();
    admin.send(0x18, Sgl::Transport { length: 0 }, &[], &[]);
    assert_eq!(admin.finish().2, 0, "a host that asked for no time has all it wants");
}
