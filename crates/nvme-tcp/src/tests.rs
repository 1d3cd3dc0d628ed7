//! PDUs against the figures of the specification, there and back, and any bytes at all.

use crate::pdu::{
    self, COMMON_BYTES, Common, Digests, Frame, IC_BYTES, IcReq, IcResp, PduError, PduKind,
    Transfer, Use,
};
use crate::{FatalStatus, Framing, digest, framing};
use proptest::prelude::*;
use strake_nvme_wire::Status;
use strake_nvme_wire::command::{Cqe, Sgl, Sqe, admin};

const NONE: Digests = Digests { header: Use::Off, data: Use::Off };
const BOTH: Digests = Digests { header: Use::On, data: Use::On };

/// RFC 3720, section B.4 "CRC Examples": the same polynomial.
#[test]
fn digests_are_crc_32c() {
    assert_eq!(digest::of(&[0; 32]), [0xaa, 0x36, 0x91, 0x8a]);
    assert_eq!(digest::of(&[0xff; 32]), [0x43, 0xab, 0xa8, 0x62]);
    let counting: Vec<u8> = (0..32).collect();
    assert_eq!(digest::of(&counting), [0x4e, 0x79, 0xdd, 0x46]);
    assert_eq!(digest::of_all([&counting[..5], &counting[5..]]), digest::of(&counting));
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
    assert_eq!(pdu::capsule_resp(&cqe, BOTH)[..8], [5, 1, 24, 0, 28, 0, 0, 0]);
    let (bytes, _) = pdu::c2h_term_req(PduError::field(70000), &[]);
    let header = bytes.first_chunk().expect("it is longer");
    assert_eq!((bytes[0], pdu::term_req_of(header)), (3, (1, 70000)));
}

proptest! {
    /// Whatever the other side sends, parsers answer.
    #[test]
    fn random_bytes_are_read_or_refused(bytes in any::<[u8; 32]>(), both in any::<bool>()) {
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
        let mut asked = [0; IC_BYTES];
        asked[..32].copy_from_slice(&bytes);
        asked[..8].copy_from_slice(&[0, 0, 128, 0, 128, 0, 0, 0]);
        if let Ok(read) = IcReq::parse(&asked) {
            prop_assert_eq!(read.bytes()[..16].to_vec(), asked[..16].to_vec());
            prop_assert!(read.data_offset() <= 128 && read.data_offset().is_multiple_of(4));
        }
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

/// TCP, section 3.6.1: header, its digest, padding, data, its digest.
#[test]
fn data_in_several_places_is_framed_as_one() {
    let data: Vec<u8> = (0..48).collect();
    let transfer = Transfer { cid: 1, tag: 2, offset: 0, length: 48 };
    for (digests, lead) in [(NONE, 24), (NONE, 128), (BOTH, 28), (BOTH, 64)] {
        let header = transfer.data(PduKind::C2hData, digests, lead, 0);
        let on = |digest: Use, of: &[u8]| digest::of(of)[..digest.bytes()].to_vec();
        let mut expected = [&header[..], &on(digests.header, &header)].concat();
        expected.resize(lead, 0);
        expected.extend([&data[..], &on(digests.data, &data)].concat());
        assert_eq!(framing::whole(&header, digests, lead, &data), expected);
        let places = || data.chunks(20);
        let framing = Framing::<28, 4>::around(&header, digests, lead, places());
        assert_eq!(framing.parts(places()).collect::<Vec<_>>().concat(), expected);
        assert_eq!(framing.bytes() + data.len(), expected.len());
        let framing = Framing::<28, 52>::holding(&header, digests, lead, &data);
        assert_eq!(framing.parts([].into_iter()).collect::<Vec<_>>().concat(), expected);
        let (common, frame) =
            pdu::header(&expected, digests).expect("it is sound").expect("it is there");
        assert_eq!((common.kind, frame.lead, frame.data), (PduKind::C2hData, lead, 48));
        assert_eq!(pdu::header(&expected[..lead - 1], digests), Ok(None));
        assert_eq!(pdu::begin(&expected[..7], digests), Ok(None));
    }
    let header = transfer.r2t(BOTH);
    let mut bare = framing::whole(&header, BOTH, 0, &[]);
    assert_eq!(bare, [&header[..], &digest::of(&header)].concat());
    bare[9] ^= 1;
    assert_eq!(pdu::header(&bare, BOTH), Err(PduError::new(FatalStatus::HeaderDigest, 24)));
}

/// TCP, section 3.6.2.2, CPDA: a controller asks for padding by 4 to 128 bytes, so that data begin at byte 144 at most.
#[test]
fn commands_are_padded_as_the_controller_asks() {
    let command = Sqe::new(admin::IDENTIFY, 1, Sgl::Transport { length: 16 });
    let data = [7; 16];
    for (digests, alignment, lead) in [
        (NONE, 0, 72),
        (BOTH, 0, 76),
        (NONE, 16, 136),
        (BOTH, 17, 144),
        (NONE, 31, 128),
        (BOTH, 31, 128),
    ] {
        assert_eq!(pdu::lead(pdu::CAPSULE_CMD_BYTES, digests, alignment), lead);
        let header = pdu::capsule_cmd(&command, digests, lead, 16);
        let (flags, total) =
            (if digests == BOTH { 3 } else { 0 }, lead + 16 + digests.data.bytes());
        assert_eq!(header[..8], [4, flags, 72, lead as u8, total as u8, 0, 0, 0]);
        let mut expected = header.to_vec();
        expected.extend(&digest::of(&header)[..digests.header.bytes()]);
        expected.resize(lead, 0);
        expected.extend(data);
        expected.extend(&digest::of(&data)[..digests.data.bytes()]);
        let framing = Framing::<76, 20>::holding(&header, digests, lead, &data);
        assert_eq!(framing.parts([].into_iter()).collect::<Vec<_>>().concat(), expected);
        assert_eq!(framing::whole(&header, digests, lead, &data), expected);
        assert!(
            matches!(pdu::header(&expected, digests), Ok(Some((_, frame))) if frame.lead == lead)
        );
    }
}
