//! Compares bytes with the tables of the specifications, checks round trips, and parses random bytes.

use crate::command::{Cqe, SQE_BYTES, Sgl, Sqe, admin};
use crate::fabrics::{self, Configuration, Connect, ConnectData, FlowControl, Property, Width};
use crate::identify::{self, ControllerKind, CopyLimits, Deallocated};
use crate::log::{Access, AccessGroup, Does, Names};
use crate::{Status, log, nqn, nvm};
use proptest::prelude::*;

fn sqe(fill: &[(usize, &[u8])]) -> Sqe {
    let mut bytes = [0; SQE_BYTES];
    for (at, value) in fill {
        bytes[*at..at + value.len()].copy_from_slice(value);
    }
    Sqe(bytes)
}

#[test]
fn completions_travel_there_and_back() {
    let cqe = Cqe { result: 0xa0b, head: 9, cid: 0x102, status: Status::OUT_OF_RANGE };
    let bytes = cqe.bytes();
    // Generic status 80h, do not retry: bits 1 and up of the last word (Base, Figure 94).
    assert_eq!(bytes, [0x0b, 0x0a, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 2, 1, 0, 0x81]);
    assert_eq!(Cqe::parse(&bytes), cqe);
    assert!(!cqe.status.is_success());
    assert!(Status::of_word(1).is_success(), "the phase is no part of the status");
}

/// Base, Figures 391 and 392.
#[test]
fn a_connect_is_read() {
    let command = sqe(&[
        (0, &[0x7f, 0x40, 1, 0, 1]),
        (40, &[0, 0, 3, 0, 127, 0, 4, 0, 0x88, 0x13, 0, 0]),
        (32, &[0, 4, 0, 0, 0, 0, 0, 1]),
    ]);
    let connect = Connect {
        format: 0,
        queue: 3,
        size: 127,
        flow_control: FlowControl::Off,
        keep_alive_ms: 5000,
    };
    assert_eq!(Connect::parse(&command), Some(connect));
    assert_eq!(command.sgl(), Ok(Sgl::InCapsule { offset: 0, length: 1024 }));
    assert_eq!(Connect::parse(&sqe(&[(0, &[0x7f, 0x40, 1, 0, 4])])), None, "a Property Get");

    let mut data = [0; fabrics::CONNECT_DATA_BYTES];
    data[..16].fill(7);
    data[16..18].copy_from_slice(&[0xff, 0xff]);
    data[256..260].copy_from_slice(b"nqn.");
    data[512..517].copy_from_slice(b"nqn.a");
    let data = ConnectData::parse(&data);
    assert_eq!((data.host_id, data.controller), ([7; 16], fabrics::ANY_CONTROLLER));
    assert_eq!(nqn::parse(&data.host), Ok("nqn.a"));
    assert_eq!(nqn::parse(&data.subsystem), Err(nqn::NqnError::NoPrefix));
}

/// CVE-2023-6121: names of 256 bytes that have no end.
#[test]
fn names_without_an_end_are_refused() {
    let mut field = [b'a'; nqn::FIELD_BYTES];
    field[..4].copy_from_slice(b"nqn.");
    assert_eq!(nqn::parse(&field), Err(nqn::NqnError::TooLong));
    field[224] = 0;
    assert_eq!(nqn::parse(&field), Err(nqn::NqnError::TooLong), "224 bytes");
    field[223] = 0;
    assert_eq!(nqn::parse(&field).map(str::len), Ok(223));
    assert_eq!(nqn::check("nqn.a b"), Err(nqn::NqnError::NotText));
    assert_eq!(nqn::check(nqn::DISCOVERY), Ok(()));
}

/// Base, Figures 33, 34, 46 and 47.
#[test]
fn properties_and_what_they_say() {
    let set = sqe(&[(0, &[0x7f, 0x40]), (44, &[0x14]), (48, &[1, 0, 0x46])]);
    let property = Property { offset: 0x14, width: Width::Four, value: 0x46_0001 };
    assert_eq!(Property::parse(&set), Some(property));
    assert_eq!(Property::parse(&sqe(&[(40, &[2])])), None, "a width of sixteen bytes");
    let configuration = Configuration(0x46_0001);
    assert!(configuration.is_enabled() && configuration.is_possible());
    assert!(!configuration.is_shutdown());
    assert!(Configuration(0x4001).is_shutdown());
    assert!(!Configuration(0x46_0081).is_possible(), "pages of 8 KiB");
    assert_eq!(fabrics::capabilities(128, 30), 0x20_1e01_007f);
}

/// Base, Figure 275, and NVM, Figure 97.
#[test]
fn identify_pages_have_their_fields_where_hosts_look() {
    let page = identify::Controller {
        serial: "0123",
        model: "Strake array",
        firmware: "0.1.0",
        id: 0x102,
        kind: ControllerKind::Io,
        nqn: "nqn.2014-08.x:y",
        version: 0x1_0400,
        transfer_pages_log2: 8,
        commands_max: 128,
        events: 0,
        event_requests_max: 4,
        failures_max: 64,
        namespaces_max: 3,
        commands: identify::optional::WRITE_ZEROES,
        compare_and_write: true,
        copy_formats: 1,
        write_cache: true,
        in_capsule_bytes: 8192,
        disconnects: true,
    }
    .page();
    assert_eq!(page[4..24], *b"0123                ");
    assert_eq!(page[24..36], *b"Strake array");
    assert_eq!((page[77], page[78], page[79], page[111], page[259]), (8, 2, 1, 1, 3));
    assert_eq!(page[80..84], [0, 4, 1, 0]);
    assert_eq!((page[512], page[513], page[514], page[516], page[520]), (0x66, 0x44, 128, 3, 8));
    assert_eq!((page[525], page[534], page[535]), (0b101, 1, 0), "VWC, OCFS");
    assert_eq!((page[522..524].to_vec(), page[532..534].to_vec()), (vec![1, 0], vec![0, 0]));
    assert_eq!((page[76], page[342], page[343]), (0b1010, 10, 0b100_0101), "CMIC, ANATT, ANACAP");
    assert_eq!((page[261], page[262]), (0b110, 63), "LPA, ELPE");
    assert_eq!((page[344], page[348], page[540]), (3, 3, 3), "ANAGRPMAX, NANAGRPID, MNAN");
    assert_eq!(page[536..540], [1, 0, 0x30, 0]);
    assert_eq!(page[768..784], *b"nqn.2014-08.x:y\0");
    assert_eq!(page[1792..1800], [4, 2, 0, 0, 1, 0, 0, 0], "516 and 1 units of 16 bytes");
    assert_eq!(page[1803..1807], [1, 1, 0, 0], "MSDBD, OFCS");

    let page = identify::Namespace {
        blocks: 0x1_0000_0001,
        block_log2: 12,
        deallocated: Deallocated::Zeroes,
        write_protected: true,
        optimal_blocks: 128,
        copy: CopyLimits { sources: 256, source_blocks: 0x304, blocks: 0x506 },
        group: 0x102,
        reservations: 0xfe,
        nguid: [4; 16],
        instance: [5; 16],
    }
    .page();
    for at in [0, 8, 16] {
        assert_eq!(page[at..at + 8], [1, 0, 0, 0, 1, 0, 0, 0]);
    }
    assert_eq!((page[24], page[30], page[33], page[99], page[130]), (0x10, 1, 1, 1, 12));
    assert_eq!(page[31], 0xfe, "RESCAP");
    assert_eq!((page[64], page[66], page[72]), (127, 127, 127));
    assert_eq!(page[74..81], [4, 3, 6, 5, 0, 0, 255], "MSSRL, MCL, MSRC");
    assert_eq!(page[92..96], [2, 1, 0, 0]);
    assert_eq!(
        (&page[103..121], page[121]),
        (&[&[0][..], &[4; 16], &[0]].concat()[..], 0),
        "NGUID"
    );
    assert_eq!(
        (&page[384..400], &page[400..417]),
        (&b"Strake instance:"[..], &[5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 0][..])
    );
    assert_eq!(identify::active_namespaces([1, 7])[..12], [1, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(identify::active_namespaces(0..2000)[4092..], [0xff, 3, 0, 0], "1024 fit");
    let page = identify::descriptors(&[9; 16]);
    assert_eq!((page[..4].to_vec(), page[4..20].to_vec()), (vec![3, 16, 0, 0], vec![9; 16]));
    let nguid = [9, 9, 9, 9, 9, 9, 9, 9, 10, 9, 9, 9, 9, 9, 9, 9];
    assert_eq!((page[20..24].to_vec(), page[24..40].to_vec()), (vec![2, 16, 0, 0], nguid.to_vec()));
    assert_eq!(page[40..46], [4, 1, 0, 0, 0, 0]);
}

/// An NGUID with the OUI of a vendor would claim that the vendor made the namespace.
#[test]
fn the_oui_of_a_derived_nguid_is_local_and_all_else_is_the_uuid() {
    for byte in 0..=u8::MAX {
        let mut uuid = [0xa5; 16];
        uuid[8] = byte;
        let nguid = identify::nguid_of(&uuid);
        assert_eq!(nguid[8] & 0b11, 0b10, "locally administered, individual");
        assert_eq!(nguid[8] >> 2, byte >> 2);
        assert_eq!((&nguid[..8], &nguid[9..]), (&uuid[..8], &uuid[9..]));
    }
}

/// Base, Figures 206 and 207.
#[test]
fn failures_and_health_are_where_hosts_look() {
    let failure = log::Failure {
        number: 5,
        queue: 2,
        cid: 0x102,
        status: Status::OUT_OF_RANGE,
        block: 0x304,
        namespace: 7,
    };
    let entry = failure.bytes();
    assert_eq!(entry[..16], [5, 0, 0, 0, 0, 0, 0, 0, 2, 0, 2, 1, 0, 0x81, 0xff, 0xff]);
    assert_eq!((entry[16], entry[17], entry[24], entry[29]), (4, 3, 7, 3));
    let health = log::Health {
        writes_refused: true,
        read_bytes: 512_001,
        written_bytes: 512_000,
        reads: 3,
        writes: 4,
        media_errors: 5,
        failures: 6,
    };
    let page = health.page();
    assert_eq!((page[0], page[3]), (8, 100));
    assert_eq!([32, 48, 64, 80, 160, 176].map(|at| page[at]), [2, 1, 3, 4, 5, 6]);
}

/// Base, sections 5.16.1.5, 5.16.1.6 and 5.16.1.13.
#[test]
fn pages_of_changes_commands_and_access_are_as_hosts_read_them() {
    let page = log::changed_namespaces([3, 0x102]);
    assert_eq!(page[..12], [3, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(log::changed_namespaces(1..=1024)[4092..], [0, 4, 0, 0]);
    let too_many = log::changed_namespaces(1..=1025);
    assert_eq!((&too_many[..4], &too_many[4092..]), (&[0xff; 4][..], &[0; 4][..]));

    let group = |number, access| AccessGroup { number, changes: 9, access, namespace: number };
    let groups = [group(1, Access::Optimized), group(2, Access::Inaccessible)];
    let page = log::access(5, &groups, Names::Given);
    assert_eq!(page[..16], [5, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    let second = [2, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0];
    assert_eq!((page.len(), page[32], &page[48..52]), (88, 1, &[1, 0, 0, 0][..]));
    assert_eq!((&page[52..72], &page[84..]), (&second[..], &[2, 0, 0, 0][..]));
    let page = log::commands(&[2], &[(1, Does::Changes), (0xff, Does::Nothing)]);
    assert_eq!((page[8], page[1028], page[2044]), (1, 3, 1));
    assert_eq!(page.iter().filter(|&&byte| byte > 0).count(), 3);
    let page = log::access(5, &groups, Names::LeftOut);
    assert_eq!((page.len(), page[20], page[48]), (80, 0, 2));
    for names in [Names::Given, Names::LeftOut] {
        let page = log::access(5, &groups, names);
        assert_eq!(log::access_in(&page, 1), Some(Access::Optimized));
        assert_eq!(log::access_in(&page, 2), Some(Access::Inaccessible));
        assert_eq!(log::access_in(&page, 3), None, "there is no such group");
        assert_eq!(log::access_in(&page[..page.len() - 40], 2), None, "it is cut off");
    }
    let mut page = log::access(5, &groups, Names::LeftOut);
    for (code, access) in [(2, Access::NonOptimized), (4, Access::Lost), (7, Access::Changing)] {
        page[32] = 0xf0 | code;
        assert_eq!(log::access_in(&page, 1), Some(access), "other bits are left for later use");
    }
    page[20..24].fill(0xff);
    assert_eq!(log::access_in(&page, 2), None, "more namespaces than there can be");
}

/// Base, Figures 203 to 205, 263 and 264.
#[test]
fn log_pages_are_asked_for_and_reported() {
    let command =
        sqe(&[(0, &[admin::GET_LOG_PAGE]), (40, &[0x70, 0, 0xff, 1, 2, 0]), (48, &[0, 4])]);
    let request = log::Request {
        page: 0x70,
        offset: 0x400,
        length: (0x2_01ff + 1) * 4,
        retains_event: false,
        specific: 0,
    };
    assert_eq!(log::Request::parse(&command), request);
    let asked = log::Request { retains_event: true, specific: 5, ..request };
    assert_eq!(log::Request::parse(&asked.command()), asked);
    let (family, security) = (log::Family::Ipv4, log::Security::None);
    let portal = log::Portal { family, address: "192.0.2.7", port: "4420", security };
    let entry = log::discovery_entry("nqn.x", &portal);
    assert_eq!(entry[..10], [3, 1, 2, 2, 1, 0, 0xff, 0xff, 32, 0]);
    assert_eq!(entry[32..38], *b"4420  ");
    assert_eq!(entry[256..262], *b"nqn.x\0");
    assert_eq!(entry[512..522], *b"192.0.2.7 ");
    let security = log::Security::Tls;
    let secured = log::discovery_entry("nqn.x", &log::Portal { security, ..portal });
    assert_eq!((entry[3], entry[768], secured[3], secured[768]), (2, 0, 1, 2));
    let portal = log::Portal { security: log::Security::NotSpecified, ..portal };
    let entry = log::discovery_referral("nqn.y", &portal);
    assert_eq!(entry[..10], [3, 1, 1, 0, 0, 0, 0xff, 0xff, 32, 0]);
    assert_eq!((&entry[256..262], &entry[512..522]), (&b"nqn.y\0"[..], &b"192.0.2.7 "[..]));
    let header = log::discovery_header(3, 2);
    assert_eq!((header[0], header[8], header[16]), (3, 2, 0));
}

#[test]
fn blocks_and_ranges_are_read() {
    let command = sqe(&[(40, &[8, 7, 6, 5, 4, 3, 2, 1]), (48, &[0xff, 0, 0, 0x40])]);
    let blocks = nvm::Blocks::parse(&command);
    assert_eq!((blocks.start, blocks.count), (0x0102_0304_0506_0708, 256));
    assert!(blocks.force_unit_access && !blocks.directive);
    let range = nvm::Range::parse(&[0, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(range, nvm::Range { start: 0x0100_0000_0000_0001, count: 9 });
}

proptest! {
    /// Parsers return a value or an error for any bytes.
    #[test]
    fn random_bytes_are_read_or_refused(
        bytes in any::<[u8; 32]>(), tail in any::<[u8; 32]>(),
    ) {
        let mut command = [0; SQE_BYTES];
        command[..32].copy_from_slice(&bytes);
        command[32..].copy_from_slice(&tail);
        let command = Sqe(command);
        if let Ok(sgl) = command.sgl() {
            prop_assert_eq!(sgl.bytes()[8..12].to_vec(), command.0[32..36].to_vec());
        }
        let _ = (Connect::parse(&command), Property::parse(&command), log::Request::parse(&command));
        let _ = (nvm::Blocks::parse(&command), nvm::Dataset::parse(&command), nvm::Copy::parse(&command));
        let mut field = [0; nqn::FIELD_BYTES];
        field[..32].copy_from_slice(&tail);
        let _ = nqn::parse(&field);
    }
}

/// A controller parses the commands that a host builds.
#[test]
fn commands_are_built_and_read_back() {
    let sgl = Sgl::Transport { length: 8192 };
    let blocks =
        nvm::Blocks { start: 5 << 40, count: 65536, force_unit_access: true, directive: false };
    let sqe = blocks.command(nvm::opcode::WRITE, 3, sgl).named(0x1234);
    assert_eq!((sqe.opcode(), sqe.cid(), sqe.nsid()), (nvm::opcode::WRITE, 0x1234, 3));
    assert_eq!((nvm::Blocks::parse(&sqe), sqe.sgl()), (blocks, Ok(sgl)));

    let dataset = nvm::Dataset { ranges: 1, deallocate: true };
    let in_capsule = Sgl::InCapsule { offset: 0, length: 16 };
    assert_eq!(nvm::Dataset::parse(&dataset.command(1, in_capsule)), dataset);
    let range = nvm::Range { start: 7 << 33, count: 9 };
    assert_eq!(nvm::Range::parse(&range.bytes()), range);

    let copy = nvm::Copy {
        to: 5 << 33,
        sources: 256,
        format: 3,
        force_unit_access: true,
        directive: false,
    };
    assert_eq!(nvm::Copy::parse(&copy.command(1, in_capsule)), copy);
    let source = nvm::SourceRange { start: 7 << 33, count: 1 << 16 };
    assert_eq!(nvm::SourceRange::parse(&source.bytes()), source);
    assert_eq!(source.bytes()[16..20], [0xff, 0xff, 0, 0], "NLB: less one");

    let connect = Connect {
        format: 0,
        queue: 4,
        size: 127,
        flow_control: FlowControl::Off,
        keep_alive_ms: 5000,
    };
    assert_eq!(Connect::parse(&connect.command()), Some(connect));
    let data = ConnectData {
        host_id: [9; 16],
        controller: 2,
        subsystem: nqn::field("nqn.a").expect("a name"),
        host: nqn::field("nqn.b").expect("a name"),
    };
    assert_eq!(ConnectData::parse(&data.bytes()), data);
    let property = Property { offset: fabrics::property::CC, width: Width::Four, value: 0x46_0001 };
    assert_eq!(Property::parse(&property.set()), Some(property));
    assert_eq!(property.get().fabrics_type(), fabrics::kind::PROPERTY_GET);
    assert!(Configuration::ENABLED.is_enabled() && Configuration::ENABLED.is_possible());
    assert!(Configuration::SHUTDOWN.is_shutdown() && Configuration::SHUTDOWN.is_possible());
    let capabilities = fabrics::Capabilities::parse(fabrics::capabilities(128, 3));
    assert_eq!((capabilities.entries_max, capabilities.ready_half_seconds), (128, 3));
    let asked = crate::feature::queues_asked(4);
    let granted = crate::feature::queues_granted(asked, 3).expect("a number");
    assert_eq!(crate::feature::queues_of(granted), 3);
}

/// Base, Figures 275 and 277; NVM, Figure 97.
#[test]
fn identified_things_are_read_as_they_were_sent() {
    use crate::identified::{ControllerFacts, NamespaceFacts, uuid_of, zeroes_bytes_max};
    let mut page = [0; 4096];
    page[4..24].copy_from_slice(b"  serial\xff           ");
    page[77] = 5;
    page[525] = 1;
    page[1792] = 6;
    page[1800] = 2;
    let facts = ControllerFacts::parse(&page);
    assert_eq!((facts.serial.as_str(), facts.transfer_pages_log2), ("serial", 5));
    assert_eq!((facts.in_capsule_bytes, facts.in_capsule_offset), (32, 32));
    assert!(facts.write_cache);

    let reported = identify::Namespace {
        blocks: 77,
        block_log2: 12,
        deallocated: Deallocated::Zeroes,
        write_protected: true,
        optimal_blocks: 16,
        copy: CopyLimits { sources: 1, source_blocks: 2, blocks: 3 },
        group: 1,
        reservations: 0,
        nguid: [3; 16],
        instance: [6; 16],
    };
    let facts = NamespaceFacts::parse(&reported.page());
    assert_eq!((facts.nguid, facts.instance), ([3; 16], Some([6; 16])));
    assert_eq!(NamespaceFacts::parse(&[6; 4096]).instance, None, "a target of somebody else");
    assert_eq!((facts.blocks, facts.block_log2, facts.metadata_bytes), (77, 12, 0));
    assert_eq!((facts.deallocated, facts.write_protected), (Deallocated::Zeroes, true));
    assert_eq!(facts.optimal_blocks, 16);
    assert_eq!(uuid_of(&identify::descriptors(&[7; 16])), Some([7; 16]));
    assert_eq!(uuid_of(&[0; 4096]), None);
    assert_eq!(uuid_of(&[1; 4096]), None, "a list without end and without a UUID");
    let limits = identify::CommandSetLimits {
        zeroes_pages_log2: 14,
        ..identify::CommandSetLimits::default()
    };
    assert_eq!(zeroes_bytes_max(&limits.page()), Some(64 << 20));
    assert_eq!(zeroes_bytes_max(&[0; 4096]), None);
    assert_eq!(zeroes_bytes_max(&[255; 4096]), Some(u64::MAX));
}
