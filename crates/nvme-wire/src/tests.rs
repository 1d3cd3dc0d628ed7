//! Bytes against the tables of the specifications, there and back, and any bytes at all.

use crate::command::{Cqe, SQE_BYTES, Sgl, Sqe, admin};
use crate::fabrics::{self, Configuration, Connect, ConnectData, FlowControl, Property, Width};
use crate::identify::{self, ControllerKind, CopyLimits, Deallocated};
use crate::log::{Access, AccessGroup, Does, Names};
use crate::pdu::{
    self, COMMON_BYTES, Common, Digests, Frame, IC_BYTES, IcReq, IcResp, PduError, PduKind,
    Transfer, Use,
};
use crate::{FatalStatus, Status, digest, log, nqn, nvm};
use proptest::prelude::*;

const NONE: Digests = Digests { header: Use::Off, data: Use::Off };
const BOTH: Digests = Digests { header: Use::On, data: Use::On };

fn sqe(fill: &[(usize, &[u8])]) -> Sqe {
    let mut bytes = [0; SQE_BYTES];
    for (at, value) in fill {
        bytes[*at..at + value.len()].copy_from_slice(value);
    }
    Sqe(bytes)
}

/// RFC 3720, section B.4 "CRC Examples": the same polynomial.
#[test]
fn digests_are_crc_32c() {
    assert_eq!(digest::of(&[0; 32]), [0xaa, 0x36, 0x91, 0x8a]);
    assert_eq!(digest::of(&[0xff; 32]), [0x43, 0xab, 0xa8, 0x62]);
    let counting: Vec<u8> = (0..32).collect();
    assert_eq!(digest::of(&counting), [0x4e, 0x79, 0xdd, 0x46]);
    let split = digest::Digest::default().and(&counting[..5]).and(&counting[5..]);
    assert_eq!(split.bytes(), digest::of(&counting));
}

/// TCP, Figures 22 and 23.
#[test]
fn a_connection_is_asked_for_and_granted() {
    let asked = IcReq { alignment: 3, digests: BOTH, r2ts_max: 7 };
    let bytes = asked.bytes();
    assert_eq!(bytes[..16], [0, 0, 128, 0, 128, 0, 0, 0, 0, 0, 3, 3, 7, 0, 0, 0]);
    assert!(bytes[16..].iter().all(|&byte| byte == 0));
    assert_eq!(IcReq::parse(&bytes), Ok(asked));
    assert_eq!(asked.data_offset(), 32, "24 bytes, a digest, padded to 16");
    let granted = IcResp { digests: BOTH, data_bytes_max: 0x2_0000 }.bytes();
    assert_eq!(granted[..16], [1, 0, 128, 0, 128, 0, 0, 0, 0, 0, 0, 3, 0, 0, 2, 0]);

    let wrong = |at: usize, value: u8| {
        let mut bytes = bytes;
        bytes[at] = value;
        IcReq::parse(&bytes)
    };
    assert_eq!(wrong(8, 1), Err(PduError::new(FatalStatus::Unsupported, 8)), "another format");
    assert_eq!(wrong(10, 32), Err(PduError::field(10)));
    assert_eq!(wrong(11, 4), Err(PduError::field(11)));
}

fn framed(
    kind: u8,
    flags: u8,
    hlen: u8,
    pdo: u8,
    plen: u32,
    digests: Digests,
) -> Result<Frame, PduError> {
    let mut bytes = [kind, flags, hlen, pdo, 0, 0, 0, 0];
    bytes[4..].copy_from_slice(&plen.to_le_bytes());
    Common::parse(&bytes)?.frame(digests)
}

/// TCP, sections 3.6.1 and 3.6.2.
#[test]
fn pdus_are_cut_where_their_headers_say() {
    let bare =
        Frame { header: 72, lead: 72, data: 0, header_digest: Use::Off, data_digest: Use::Off };
    assert_eq!(framed(4, 0, 72, 0, 72, NONE), Ok(bare));
    assert_eq!(framed(4, 0, 72, 72, 72 + 512, NONE), Ok(Frame { data: 512, ..bare }));
    let digested = Frame { lead: 76, header_digest: Use::On, ..bare };
    assert_eq!(framed(4, 1, 72, 0, 76, BOTH), Ok(digested));
    let full = Frame { data: 512, data_digest: Use::On, ..digested };
    assert_eq!(framed(4, 3, 72, 76, 76 + 512 + 4, BOTH), Ok(full));
    let padded = Frame { lead: 128, ..full };
    assert_eq!(framed(4, 3, 72, 128, 128 + 512 + 4, BOTH), Ok(padded));
}

/// CVE-2023-6356, CVE-2025-21927, CVE-2021-28361 and their kind: every length is checked against every other.
#[test]
fn lengths_that_do_not_fit_are_refused() {
    for (what, got, offset) in [
        ("an unknown type", framed(8, 0, 24, 0, 24, NONE), 0),
        ("a header of 255 bytes", framed(4, 1, 255, 0, 255, BOTH), 2),
        ("a header that is too short", framed(6, 0, 23, 0, 23, NONE), 2),
        ("shorter than its header", framed(6, 0, 24, 24, 23, NONE), 4),
        ("no data where there must be some", framed(6, 4, 24, 24, 24, NONE), 4),
        ("data inside the header", framed(4, 0, 72, 64, 584, NONE), 3),
        ("data over the digest of the header", framed(4, 3, 72, 72, 588, BOTH), 3),
        ("data at an odd place", framed(4, 0, 72, 73, 585, NONE), 3),
        ("data behind the end", framed(4, 0, 72, 200, 100, NONE), 4),
        ("no room for the digest of data", framed(4, 3, 72, 76, 78, BOTH), 4),
        ("a digest that was not agreed on", framed(4, 1, 72, 0, 76, NONE), 1),
        ("no digest although it was agreed on", framed(4, 0, 72, 0, 72, BOTH), 1),
        ("a digest of data that is not there", framed(4, 3, 72, 0, 76, BOTH), 1),
        ("a response with more behind it", framed(5, 0, 24, 0, 28, NONE), 4),
        ("an endless quotation", framed(2, 0, 24, 0, 24 + 129, NONE), 4),
    ] {
        assert_eq!(got, Err(PduError::field(offset)), "{what}");
    }
}

/// TCP, sections 3.6.2.8 to 3.6.2.10.
#[test]
fn transfers_travel_there_and_back() {
    let transfer = Transfer { cid: 0x1234, tag: 5, offset: 0x2000, length: 0x1000 };
    let r2t = transfer.r2t(NONE);
    assert_eq!(
        r2t,
        [9, 0, 24, 0, 24, 0, 0, 0, 0x34, 0x12, 5, 0, 0, 0x20, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0]
    );
    assert_eq!(Transfer::parse(&r2t), transfer);
    let data = transfer.data(PduKind::C2hData, BOTH, 28, pdu::flag::LAST);
    assert_eq!(data[..8], [7, 0b111, 24, 28, 0x20, 0x10, 0, 0]);
    assert_eq!(Transfer::parse(&data), transfer);
    let (bytes, length) = pdu::c2h_term_req(PduError::field(3), &[0xab; 200]);
    assert_eq!(length, 24 + 128);
    assert_eq!(bytes[..16], [3, 0, 24, 0, 152, 0, 0, 0, 1, 0, 3, 0, 0, 0, 0, 0]);
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
    let capsule = pdu::capsule_resp(&cqe, BOTH);
    assert_eq!(capsule[..8], [5, 1, 24, 0, 28, 0, 0, 0]);
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

    let page = identify::Namespace {
        blocks: 0x1_0000_0001,
        block_log2: 12,
        deallocated: Deallocated::Zeroes,
        write_protected: true,
        optimal_blocks: 128,
        copy: CopyLimits { sources: 256, source_blocks: 0x304, blocks: 0x506 },
        group: 0x102,
        reservations: 0xfe,
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
        (&page[384..400], &page[400..417]),
        (&b"Strake instance:"[..], &[5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 0][..])
    );
    assert_eq!(identify::active_namespaces([1, 7])[..12], [1, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(identify::active_namespaces(0..2000)[4092..], [0xff, 3, 0, 0], "1024 fit");
    let page = identify::descriptors(&[9; 16]);
    assert_eq!((page[..4].to_vec(), page[4..20].to_vec()), (vec![3, 16, 0, 0], vec![9; 16]));
    assert_eq!(page[20..26], [4, 1, 0, 0, 0, 0]);
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
    /// Whatever a host sends, parsers answer.
    #[test]
    fn random_bytes_are_read_or_refused(
        bytes in any::<[u8; 32]>(), tail in any::<[u8; 32]>(), both in any::<bool>(),
    ) {
        let digests = if both { BOTH } else { NONE };
        let mut first = [0; COMMON_BYTES];
        first.copy_from_slice(&bytes[..COMMON_BYTES]);
        if let Ok(common) = Common::parse(&first) {
            prop_assert_eq!(common.bytes(), first);
            if let Ok(frame) = common.frame(digests) {
                // What the frame says adds up to the PDU.
                let digest = frame.data_digest.bytes();
                prop_assert_eq!(frame.lead as u64 + u64::from(frame.data) + digest as u64, u64::from(common.bytes));
                prop_assert!(frame.lead <= 255 && frame.header + frame.header_digest.bytes() <= frame.lead);
            }
        }
        let mut command = [0; SQE_BYTES];
        command[..32].copy_from_slice(&bytes);
        command[32..].copy_from_slice(&tail);
        let command = Sqe(command);
        if let Ok(sgl) = command.sgl() {
            prop_assert_eq!(sgl.bytes()[8..12].to_vec(), command.0[32..36].to_vec());
        }
        let _ = (Connect::parse(&command), Property::parse(&command), log::Request::parse(&command));
        let _ = (nvm::Blocks::parse(&command), nvm::Dataset::parse(&command), nvm::Copy::parse(&command));
        let mut asked = [0; IC_BYTES];
        asked[..32].copy_from_slice(&bytes);
        asked[..8].copy_from_slice(&[0, 0, 128, 0, 128, 0, 0, 0]);
        if let Ok(read) = IcReq::parse(&asked) {
            prop_assert_eq!(read.bytes()[..16].to_vec(), asked[..16].to_vec());
            prop_assert!(read.data_offset() <= 128 && read.data_offset().is_multiple_of(4));
        }
        let mut field = [0; nqn::FIELD_BYTES];
        field[..32].copy_from_slice(&tail);
        let _ = nqn::parse(&field);
    }

    /// Headers of data are read as they were written.
    #[test]
    fn random_transfers_travel_there_and_back(
        cid in any::<u16>(), tag in any::<u16>(), offset in any::<u32>(), length in 1..=1_u32 << 20,
    ) {
        let transfer = Transfer { cid, tag, offset, length };
        for digests in [NONE, BOTH] {
            let bytes = transfer.data(PduKind::H2cData, digests, 28, pdu::flag::LAST);
            prop_assert_eq!(Transfer::parse(&bytes), transfer);
            let mut first = [0; COMMON_BYTES];
            first.copy_from_slice(&bytes[..COMMON_BYTES]);
            let frame = Common::parse(&first).and_then(|common| common.frame(digests));
            prop_assert_eq!(frame.map(|frame| (frame.lead, frame.data)), Ok((28, length)));
        }
    }
}

/// What a host sends is what a controller reads.
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

/// TCP, sections 3.6.2.3 and 3.6.2.6.
#[test]
fn what_a_controller_grants_is_read_or_refused() {
    let granted = IcResp { digests: BOTH, data_bytes_max: 4096 };
    assert_eq!(IcResp::parse(&granted.bytes()), Ok(granted));
    let wrong = |at: usize, value: u8| {
        let mut bytes = granted.bytes();
        bytes[at] = value;
        IcResp::parse(&bytes)
    };
    assert_eq!(wrong(8, 1), Err(PduError::new(FatalStatus::Unsupported, 8)));
    assert_eq!(wrong(10, 32), Err(PduError::field(10)));
    assert_eq!(wrong(11, 4), Err(PduError::field(11)));
    assert_eq!(wrong(12, 2), Err(PduError::field(12)), "no multiple of four");
    assert_eq!(wrong(13, 0), Err(PduError::field(12)), "less than 4096");

    let command = Sqe::new(admin::IDENTIFY, 1, Sgl::Transport { length: 4096 });
    let lead = pdu::lead(pdu::CAPSULE_CMD_BYTES, BOTH, 3);
    assert_eq!(lead, 80, "72 bytes, a digest, padded to 16");
    let capsule = pdu::capsule_cmd(&command, BOTH, lead, 512);
    let common = Common::parse(capsule.first_chunk().expect("it is longer")).expect("a PDU");
    let frame = common.frame(BOTH).expect("it can be cut");
    assert_eq!((frame.lead, frame.data, frame.data_digest), (80, 512, Use::On));
    let capsule = pdu::capsule_cmd(&command, BOTH, lead, 0);
    let common = Common::parse(capsule.first_chunk().expect("it is longer")).expect("a PDU");
    assert_eq!(common.frame(BOTH).map(|frame| (frame.lead, frame.data)), Ok((76, 0)));
    assert_eq!(pdu::command_of(&capsule), command);
    let cqe = Cqe { result: 1 << 40, head: 3, cid: 8, status: Status::WRITE_FAULT };
    assert_eq!(pdu::completion_of(&pdu::capsule_resp(&cqe, NONE)), cqe);
    let (bytes, _) = pdu::h2c_term_req(PduError::field(70000), &[]);
    let header = bytes.first_chunk().expect("it is longer");
    assert_eq!((bytes[0], pdu::term_req_of(header)), (2, (1, 70000)));
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
        instance: [6; 16],
    };
    let facts = NamespaceFacts::parse(&reported.page());
    assert_eq!(facts.instance, Some([6; 16]));
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
