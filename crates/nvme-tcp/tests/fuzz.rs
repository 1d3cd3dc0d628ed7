//! Any bytes, and damaged good ones, as PDUs. What is understood can be said again and means the same.
//!
//! A failure prints its seed, which `STRAKE_FUZZ_SEED` runs again; `cargo xtask nightly` sets `STRAKE_FUZZ_RUNS`.

use strake_fuzz::{Chance, feed};
use strake_nvme_tcp::pdu::{
    CAPSULE_CMD_BYTES, CAPSULE_RESP_BYTES, COMMON_BYTES, DATA_BYTES, IC_BYTES, IcReq, IcResp,
    Transfer, Use, capsule_resp, completion_of, term_req_of,
};
use strake_nvme_tcp::{Common, Digests, PduKind, pdu};
use strake_nvme_wire::fabrics::Capabilities;
use strake_nvme_wire::feature;

const DIGESTS: [Digests; 4] = [
    Digests { header: Use::Off, data: Use::Off },
    Digests { header: Use::On, data: Use::Off },
    Digests { header: Use::Off, data: Use::On },
    Digests { header: Use::On, data: Use::On },
];

/// The first `N` of `bytes`, and zeros for those that are not there.
fn first<const N: usize>(bytes: &[u8]) -> [u8; N] {
    std::array::from_fn(|at| bytes.get(at).copied().unwrap_or(0))
}

/// A PDU: what is cut from it adds up to it, and its header fits what is read ahead.
fn read_pdu(bytes: &[u8], digests: Digests) {
    let beginning = first::<COMMON_BYTES>(bytes);
    let Ok(common) = Common::parse(&beginning) else { return };
    assert_eq!(common.bytes(), beginning);
    if let Ok(frame) = common.frame(digests) {
        let total = frame.lead + frame.data as usize + frame.data_digest.bytes();
        assert_eq!(total, common.bytes as usize, "{common:?} is {frame:?}");
        assert!(frame.header + frame.header_digest.bytes() <= frame.lead, "{frame:?}");
        assert!(frame.lead <= 255, "{frame:?}");
    }
    // Headers are complete only when all in front of their data is there.
    if let Ok(Some((_, frame))) = pdu::header(bytes, digests) {
        assert!(frame.lead <= bytes.len(), "{frame:?}");
        assert_eq!(pdu::header(&bytes[..frame.lead - 1], digests), Ok(None));
    }
    match common.kind {
        PduKind::IcReq => {
            if let Ok(asked) = IcReq::parse(&first::<IC_BYTES>(bytes)) {
                assert_eq!(IcReq::parse(&asked.bytes()), Ok(asked));
                assert!(asked.data_offset() <= 255);
            }
        }
        PduKind::IcResp => {
            if let Ok(granted) = IcResp::parse(&first::<IC_BYTES>(bytes)) {
                assert_eq!(IcResp::parse(&granted.bytes()), Ok(granted));
            }
        }
        PduKind::CapsuleCmd => {
            let command = pdu::command_of(&first::<CAPSULE_CMD_BYTES>(bytes));
            let capsule = pdu::capsule_cmd(&command, digests, 0, 0);
            assert_eq!(pdu::command_of(&capsule), command);
        }
        PduKind::CapsuleResp => {
            let cqe = completion_of(&first::<CAPSULE_RESP_BYTES>(bytes));
            assert_eq!(completion_of(&capsule_resp(&cqe, digests)), cqe);
            let _ = (cqe.status.to_string(), feature::queues_of(cqe.result as u32));
            let _ = Capabilities::parse(cqe.result);
        }
        PduKind::H2cData | PduKind::C2hData | PduKind::R2t => {
            let transfer = Transfer::parse(&first::<DATA_BYTES>(bytes));
            assert_eq!(Transfer::parse(&transfer.r2t(digests)), transfer);
        }
        PduKind::H2cTermReq | PduKind::C2hTermReq => {
            let _ = term_req_of(&first::<DATA_BYTES>(bytes));
        }
    }
}

fn read_pdus(bytes: &[u8]) {
    DIGESTS.iter().for_each(|digests| read_pdu(bytes, *digests));
}

/// The beginning of a PDU that could be one, with anything behind it.
fn invented(chance: &mut Chance) -> Vec<u8> {
    const HEADERS: [u8; 11] = [128, 128, 24, 24, 72, 24, 24, 24, 24, 24, 24];
    let length = chance.below(200);
    let rest = chance.bytes(length);
    let kind = chance.below(HEADERS.len());
    let (flags, offset) = (chance.below(16) as u8, chance.pick(&[0, 24, 28, 72, 76, 128, 255]));
    let total = (COMMON_BYTES + rest.len() + chance.below(8)) as u32;
    let [a, b, c, d] = total.to_le_bytes();
    [&[kind as u8, flags, HEADERS[kind], offset, a, b, c, d][..], &rest].concat()
}

#[test]
fn random_and_damaged_bytes_are_understood_or_refused() {
    feed(50_000, invented, read_pdus);
}
