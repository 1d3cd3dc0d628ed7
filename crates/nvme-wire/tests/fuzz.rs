//! Parses random bytes, and damaged valid ones, with every parser. A parsed value has the same meaning after encoding
//! and parsing it again.
//!
//! A failure prints its seed, which `STRAKE_FUZZ_SEED` runs again; `cargo xtask nightly` sets `STRAKE_FUZZ_RUNS`.

use strake_fuzz::{Chance, feed};
use strake_nvme_wire::command::SQE_BYTES;
use strake_nvme_wire::discovered::{Entry, Header};
use strake_nvme_wire::fabrics::{
    CONNECT_DATA_BYTES, Configuration, Connect, ConnectData, Property, message_bytes,
};
use strake_nvme_wire::identified::{ControllerFacts, NamespaceFacts, uuid_of, zeroes_bytes_max};
use strake_nvme_wire::identify::Page;
use strake_nvme_wire::log::{DISCOVERY_BYTES, Family, Portal, Security, discovery_entry};
use strake_nvme_wire::nvm::{Blocks, Dataset, RANGE_BYTES, RANGES_MAX, Range, opcode};
use strake_nvme_wire::reservation::{Action, KEYS_BYTES, Keys, Report};
use strake_nvme_wire::{Sqe, feature, log, nqn};

/// The first `N` of `bytes`, padded with zeros.
fn first<const N: usize>(bytes: &[u8]) -> [u8; N] {
    std::array::from_fn(|at| bytes.get(at).copied().unwrap_or(0))
}

/// Parses a command as every type.
fn read_command(sqe: &Sqe) {
    if let Ok(sgl) = sqe.sgl() {
        let again = Sqe::new(sqe.opcode(), sqe.nsid(), sgl).named(sqe.cid());
        assert_eq!((again.sgl(), again.cid(), again.nsid()), (Ok(sgl), sqe.cid(), sqe.nsid()));
        let blocks = Blocks::parse(sqe);
        assert!((1..=1 << 16).contains(&blocks.count), "{blocks:?}");
        let again = Blocks::parse(&blocks.command(opcode::READ, 1, sgl));
        assert_eq!((again.start, again.count), (blocks.start, blocks.count));
        let dataset = Dataset::parse(sqe);
        assert!((1..=RANGES_MAX as u32).contains(&dataset.ranges), "{dataset:?}");
        assert_eq!(Dataset::parse(&dataset.command(1, sgl)), dataset);
        if let Some(action) = Action::parse(sqe) {
            assert_eq!(Action::parse(&action.command(1, sgl)), Some(action));
            assert!(action.data_bytes() as usize <= KEYS_BYTES);
        }
    }
    if let Some(connect) = Connect::parse(sqe) {
        assert_eq!(Connect::parse(&connect.command()), Some(connect));
    }
    if let Some(property) = Property::parse(sqe) {
        assert_eq!(Property::parse(&property.set()), Some(property));
    }
    assert!((4..=4 << 32).contains(&Report::parse(sqe).length));
    let request = log::Request::parse(sqe);
    assert!(request.length >= 4 && request.length <= 4 << 32, "{request:?}");
    let _ = (message_bytes(sqe), Configuration(sqe.dword(12)).is_possible());
    if let Some(granted) = feature::queues_granted(sqe.dword(11), 16) {
        assert!((1..=16).contains(&feature::queues_of(granted)), "{granted:#x}");
    }
}

/// Parses data as names, pages and ranges.
fn read_data(bytes: &[u8]) {
    let data = ConnectData::parse(&first::<CONNECT_DATA_BYTES>(bytes));
    assert_eq!(ConnectData::parse(&data.bytes()).bytes(), data.bytes());
    for field in [&data.subsystem, &data.host] {
        if let Ok(name) = nqn::parse(field) {
            assert!(name.len() < nqn::FIELD_BYTES && nqn::check(name).is_ok());
        }
    }
    let page: Page = first(bytes);
    let facts = ControllerFacts::parse(&page);
    assert!(facts.serial.len() <= 20 && facts.model.len() <= 40, "{facts:?}");
    let _ = (NamespaceFacts::parse(&page), uuid_of(&page), zeroes_bytes_max(&page));
    let keys = Keys::parse(&first::<KEYS_BYTES>(bytes));
    assert_eq!(Keys::parse(&keys.bytes()), keys);
    let range = Range::parse(&first::<RANGE_BYTES>(bytes));
    assert_eq!(Range::parse(&range.bytes()), range);
    read_discovery(&first(bytes));
}

/// Parses a part of a discovery log: its texts must be safe to display.
fn read_discovery(part: &[u8; DISCOVERY_BYTES]) {
    let header = Header::parse(part);
    assert_eq!(part[..8], header.generation.to_le_bytes());
    if let Ok(entry) = Entry::parse(part) {
        let hidden = |c: char| c.is_control() || c.is_whitespace();
        for text in [&entry.nqn, &entry.address, &entry.service] {
            assert!(text.len() <= 256 && !text.contains(hidden), "{entry:?}");
        }
    }
}

/// A discovery entry, which its test damages.
fn entry(chance: &mut Chance) -> Vec<u8> {
    let family = chance.pick(&[Family::Ipv4, Family::Ipv6]);
    let security = chance.pick(&[Security::None, Security::Tls]);
    let portal = Portal { family, address: "192.0.2.7", port: "4420", security };
    let mut entry = discovery_entry("nqn.2014-08.org.example:tank", &portal);
    for at in [0, 2, 3, 32, 256, 280, 512, 520, 767] {
        if chance.one_in(8) {
            entry[at] = chance.bits() as u8;
        }
    }
    entry.to_vec()
}

fn read_all(bytes: &[u8]) {
    read_command(&Sqe(first::<SQE_BYTES>(bytes)));
    // The corpus has commands behind the common headers of their PDUs.
    read_command(&Sqe(first::<SQE_BYTES>(bytes.get(8..).unwrap_or_default())));
    read_data(bytes);
}

#[test]
fn random_and_damaged_bytes_are_understood_or_refused() {
    feed(50_000, entry, read_all);
}
