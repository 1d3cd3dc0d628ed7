use super::{Channel, Entry, EntryError, Header, Kind, Transport};
use crate::log::{DISCOVERY_BYTES, Family, Portal, Security, discovery_entry, discovery_header};
use crate::nqn::NqnError;

type Bytes = [u8; DISCOVERY_BYTES];

fn composed() -> Bytes {
    let (family, security) = (Family::Ipv4, Security::None);
    let portal = Portal { family, address: "192.0.2.7", port: "4420", security };
    discovery_entry("nqn.x", &portal)
}

/// Parses an entry after `change`.
fn check(change: impl Fn(&mut Bytes), expected: Result<Entry, EntryError>) {
    let mut bytes = composed();
    change(&mut bytes);
    assert_eq!(Entry::parse(&bytes), expected);
}

fn usual() -> Entry {
    Entry {
        kind: Kind::Subsystem,
        transport: Transport::Tcp,
        channel: Channel::NotRequired,
        nqn: "nqn.x".to_owned(),
        address: "192.0.2.7".to_owned(),
        service: "4420".to_owned(),
    }
}

#[test]
fn what_our_target_composes_is_read() {
    check(|_| {}, Ok(usual()));
    let header = Header::parse(&discovery_header(7, 3));
    assert_eq!(header, Header { generation: 7, records: 3, format: 0 });
}

/// The entry of a subsystem that requires TLS.
#[test]
fn a_secure_channel_that_is_required_is_seen() {
    let (family, security) = (Family::Ipv4, Security::Tls);
    let portal = Portal { family, address: "192.0.2.7", port: "4420", security };
    let entry = Entry::parse(&discovery_entry("nqn.x", &portal)).expect("an entry of ours");
    assert_eq!(entry.channel, Channel::Required);
}

#[test]
fn entries_of_every_kind_are_distinguished() {
    check(|b| b[2] = 1, Ok(Entry { kind: Kind::Referral, ..usual() }));
    check(|b| b[2] = 3, Ok(Entry { kind: Kind::Itself, ..usual() }));
    check(|b| b[0] = 1, Ok(Entry { transport: Transport::Rdma, ..usual() }));
    check(|b| b[0] = 254, Ok(Entry { transport: Transport::Other(254), ..usual() }));
    check(|b| b[3] = 0b100, Ok(Entry { channel: Channel::NotSpecified, ..usual() }));
    check(|b| b[3] = 0b001, Ok(Entry { channel: Channel::Required, ..usual() }));
    // Linux's target pads with zeros.
    check(|b| b[36..64].fill(0), Ok(usual()));
}

/// A terminal interprets control characters, and some invisible characters reverse the text direction.
#[test]
fn texts_that_do_more_than_to_be_read_are_refused() {
    check(|b| b[513] = 0x1b, Err(EntryError::Place));
    check(|b| b[512] = b' ', Err(EntryError::Place));
    check(|b| b[33] = 0x80, Err(EntryError::Place));
    check(|b| b[261] = 0x07, Err(EntryError::Name(NqnError::NotText)));
    let reversed = "nqn.\u{202e}x";
    check(
        |b| b[256..256 + reversed.len()].copy_from_slice(reversed.as_bytes()),
        Err(EntryError::NameHidden),
    );
}

#[test]
fn names_without_end_and_unknown_kinds_are_refused() {
    check(|b| b[256..512].fill(b'n'), Err(EntryError::Name(NqnError::TooLong)));
    check(|b| b[256..512].fill(0), Err(EntryError::Name(NqnError::NoPrefix)));
    check(|b| b[2] = 0, Err(EntryError::Kind(0)));
    check(|b| b[2] = 9, Err(EntryError::Kind(9)));
    check(|b| b[3] = 0b11, Err(EntryError::Channel));
}

/// An address may fill its field; the bytes behind the field do not belong to it.
#[test]
fn an_address_ends_with_its_field() {
    let long = "a".repeat(256);
    check(|b| b[512..].fill(b'a'), Ok(Entry { address: long.clone(), ..usual() }));
}
