//! Protocol violations of a target, and their effects.

use strake_block::{Completion, IoErrorKind, Token};
use strake_nvme_tcp::pdu::{self, PduKind, Transfer, flag};
use strake_nvme_wire::{Cqe, Status};

use super::{BLOCK, BOTH, NONE, Rig, facts};
use crate::error::{Breach, Reason};
use crate::path_manager::Request;

/// One read and one announced write are in flight; then the target sends bytes about one of them.
fn breach(of: impl Fn(&mut Rig, u16, u16), expected: Breach) {
    let mut rig = Rig::new();
    rig.read(1, 0, 2);
    let read = rig.command().cid();
    rig.write(2, 0, &[7; 4 * BLOCK]);
    let write = rig.command().cid();
    of(&mut rig, read, write);
    rig.is_broken_by(expected);
}

#[test]
fn answers_to_nothing_end_the_association() {
    breach(|rig, read, _| rig.answer(read ^ 3, Status::SUCCESS), Breach::NoSuchCommand);
    breach(|rig, read, _| rig.answer(read ^ 0x8000, Status::SUCCESS), Breach::NoSuchCommand);
    breach(|rig, _, _| rig.answer(0xffff, Status::SUCCESS), Breach::NoSuchCommand);
    breach(|rig, _, _| rig.data(0x03ff, 0, 0, &[0; BLOCK]), Breach::NoSuchCommand);
    breach(|rig, _, _| rig.ask(0x03ff, 0, 4096), Breach::NoSuchCommand);
    breach(
        |rig, read, _| {
            rig.answer(read, Status::INTERNAL);
            assert_eq!(rig.failed(), IoErrorKind::Device);
            rig.answer(read, Status::INTERNAL);
        },
        Breach::NoSuchCommand,
    );
}

#[test]
fn data_that_does_not_belong_there_ends_the_association() {
    breach(|rig, read, _| rig.data(read, 4096, 0, &[0; BLOCK]), Breach::Offset);
    breach(|rig, read, _| rig.data(read, 0, 0, &[0; 3 * BLOCK]), Breach::Length);
    breach(|rig, _, write| rig.data(write, 0, 0, &[0; BLOCK]), Breach::WrongDirection);
    breach(|rig, read, _| rig.data(read, 0, flag::LAST, &[0; BLOCK]), Breach::Short);
    breach(|rig, read, _| rig.data(read, 0, flag::SUCCESS, &[0; BLOCK]), Breach::Short);
    breach(|rig, read, _| rig.answer(read, Status::SUCCESS), Breach::Short);
    breach(|rig, _, write| rig.answer(write, Status::SUCCESS), Breach::Short);
    breach(
        |rig, read, _| {
            let mut pdu = rig.data_pdu(read, 0, 0, &[0; BLOCK]);
            pdu[16..20].copy_from_slice(&8192_u32.to_le_bytes());
            rig.say(&pdu);
        },
        Breach::Length,
    );
}

#[test]
fn requests_for_data_that_no_command_has_end_the_association() {
    breach(|rig, read, _| rig.ask(read, 0, 4096), Breach::WrongDirection);
    breach(|rig, _, write| rig.ask(write, 4096, 4096), Breach::Offset);
    breach(|rig, _, write| rig.ask(write, 0, 0), Breach::Length);
    breach(|rig, _, write| rig.ask(write, 0, 5 * BLOCK as u32), Breach::Length);
    breach(
        |rig, _, write| {
            let ask = |offset| Transfer { cid: write, tag: 1, offset, length: 4096 }.r2t(NONE);
            let both = [ask(0), ask(4096)].concat();
            rig.say(&both);
        },
        Breach::TooEarly,
    );
}

#[test]
fn an_answer_before_the_data_was_sent_ends_the_association() {
    breach(
        |rig, _, write| {
            let ask = Transfer { cid: write, tag: 1, offset: 0, length: 16_384 }.r2t(NONE);
            let cqe = Cqe { result: 0, head: 0, cid: write, status: Status::SUCCESS };
            let both = [&ask[..], &pdu::capsule_resp(&cqe, NONE)[..]].concat();
            rig.say(&both);
        },
        Breach::TooEarly,
    );
}

#[test]
fn broken_pdus_end_the_association() {
    breach(
        |rig, _, _| {
            let data = Transfer { cid: 0, tag: 0, offset: 0, length: 4 };
            let mut pdu = data.data(PduKind::H2cData, NONE, 24, 0).to_vec();
            pdu.extend_from_slice(&[0; 4]);
            rig.say(&pdu);
        },
        Breach::Unexpected,
    );
    let mut rig = Rig::new();
    rig.read(1, 0, 1);
    rig.say(&[0xaa; 64]);
    assert!(matches!(rig.requests.next(), Ok(Request::Lost(1, Reason::Broken(Breach::Pdu(_))))));

    let mut rig = Rig::with(facts(), BOTH, 8192);
    rig.read(1, 0, 1);
    let cid = rig.command().cid();
    let mut pdu = rig.data_pdu(cid, 0, 0, &[0; BLOCK]);
    pdu[24] ^= 1;
    rig.say(&pdu);
    rig.is_broken_by(Breach::HeaderDigest);
}

#[test]
fn the_reason_of_a_target_that_leaves_is_reported() {
    let mut rig = Rig::new();
    rig.read(1, 0, 1);
    let error = strake_nvme_tcp::PduError::field(24);
    let (bytes, length) = pdu::c2h_term_req(error, &[]);
    rig.say(&bytes[..length]);
    rig.is_lost_because(Reason::Ended(1, 24));
}

/// Arbitrary bytes, after commands of every kind: the only permitted effect is the end of the association.
#[test]
fn random_bytes_never_panic_or_end_a_read_well() {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    for _ in 0..2000 {
        let mut rig = Rig::new();
        rig.read(1, 0, 2);
        rig.write(2, 0, &[7; 4 * BLOCK]);
        let cid = rig.command().cid();
        let mut bytes = match random() % 3 {
            0 => rig.data_pdu(cid, 0, flag::LAST, &[1; 2 * BLOCK]),
            1 => Transfer { cid: cid ^ 1, tag: 0, offset: 0, length: 4096 }.r2t(NONE).to_vec(),
            _ => {
                let status = Status::SUCCESS;
                pdu::capsule_resp(&Cqe { result: 0, head: 0, cid, status }, NONE).to_vec()
            }
        };
        for _ in 0..1 + random() % 3 {
            let at = random() as usize % bytes.len().min(32);
            bytes[at] ^= 1 << (random() % 8);
        }
        rig.say(&bytes);
        rig.poll();
        let well = |done: &Completion| done.token == Token(1) && done.result.is_ok();
        let says_so = bytes[1] & flag::SUCCESS != 0;
        assert!(says_so || !rig.done.iter().any(well), "not all of it came: {bytes:?}");
    }
}
