//! The first bytes of a host, whole and in pieces.

use super::{Agreement, Directory, Handshake, Next, Refusal, Step, Welcome};
use proptest::prelude::*;
use strake_nvme_auth::{Exchange, Fresh, Groups, Keys, Names, Secret};
use strake_nvme_tcp::framing;
use strake_nvme_tcp::pdu::{self, Digests, IcReq, Use};
use strake_nvme_wire::fabrics::{Connect, ConnectData, FlowControl, Part};
use strake_nvme_wire::{Sgl, Sqe, Status};

/// Admits every host, or none.
struct Door(Result<u16, Refusal>);

impl Directory for Door {
    type Claim = ();
    type Admission = ();

    fn connect(&self, _: &Connect, data: &ConnectData) -> Result<Welcome<()>, Refusal> {
        assert_eq!(data.host_id, [3; 16]);
        self.0.map(|controller| Welcome { controller, claim: (), proof: None })
    }

    fn settle(&self, (): ()) -> Result<(), Refusal> {
        Ok(())
    }

    fn failed_handshake(&self, (): &()) {}
}

/// Requires every host to authenticate.
struct Guard;

impl Directory for Guard {
    type Claim = ();
    type Admission = ();

    fn connect(&self, _: &Connect, _: &ConnectData) -> Result<Welcome<()>, Refusal> {
        let names = Names { host: "host".to_owned(), subsystem: "subsystem".to_owned() };
        let keys = Keys { host: Secret::from([7; 32]), controller: None };
        let fresh = Fresh { challenge: [1; 64], exponent: [2; 64], sequence: 3 };
        let proof = Some(Exchange::new(names, vec![keys], fresh, Groups::default()));
        Ok(Welcome { controller: 1, claim: (), proof })
    }

    fn settle(&self, (): ()) -> Result<(), Refusal> {
        Ok(())
    }

    fn failed_handshake(&self, (): &()) {}
}

const BOTH: Digests = Digests { header: Use::On, data: Use::On };

fn asked(digests: Digests) -> IcReq {
    IcReq { alignment: 0, digests, r2ts_max: 0 }
}

fn connect(digests: Digests) -> Vec<u8> {
    let mut data = vec![0; 1024];
    data[..16].fill(3);
    let mut sqe = [0; 64];
    sqe[..5].copy_from_slice(&[0x7f, 0x40, 9, 0, 1]);
    sqe[24..40].copy_from_slice(&Sgl::InCapsule { offset: 0, length: 1024 }.bytes());
    sqe[44] = 31;
    sqe[46] = 4;
    let lead = 72 + digests.header.bytes();
    let header = pdu::capsule_cmd(&Sqe(sqe), digests, lead, 1024);
    framing::whole(&header, digests, lead, &data)
}

/// The outcome of `input` as one piece: the bytes for the host, and the agreement if there is one.
fn check(input: &[u8], door: &Door) -> (Vec<u8>, Option<Agreement>) {
    let (mut handshake, mut out, mut at) = (Handshake::default(), Vec::new(), 0);
    loop {
        let Step { taken, next } = handshake.step(&input[at..], door, &mut out);
        at += taken;
        match next {
            Next::More if taken == 0 => return (out, None),
            Next::More => {}
            Next::Close => return (out, None),
            Next::Serve((), agreement, final_reply) => {
                out.extend(final_reply);
                return (out, Some(agreement));
            }
        }
    }
}

#[test]
fn a_host_is_let_in_with_what_it_asked_for() {
    for digests in [Digests::default(), BOTH] {
        let input = [asked(digests).bytes().to_vec(), connect(digests)].concat();
        let (out, agreement) = check(&input, &Door(Ok(0x102)));
        let agreement = agreement.expect("it is let in");
        assert_eq!((agreement.digests, agreement.entries), (digests, 32));
        assert_eq!(agreement.flow_control, FlowControl::Off);
        assert_eq!(out.len(), 128 + 24 + digests.header.bytes());
        assert_eq!(out[128 + 8..128 + 10], [2, 1], "the controller");
        assert_eq!(out[128 + 16..128 + 18], [0xff, 0xff], "no flow control");
        for cut in 0..input.len() {
            let (_, agreement) = check(&input[..cut], &Door(Ok(1)));
            assert_eq!(agreement, None, "{cut} bytes are not enough");
        }
    }
}

#[test]
fn a_host_that_is_refused_is_notified_why() {
    let input = [asked(BOTH).bytes().to_vec(), connect(BOTH)].concat();
    let door = Door(Err(Refusal::of(Part::Data, ConnectData::HOST_AT)));
    let (out, agreement) = check(&input, &door);
    assert_eq!(agreement, None);
    assert_eq!(out[128 + 8..128 + 12], [0, 2, 1, 0], "byte 512 of the data");
    assert_eq!(out[128 + 22..128 + 24], (Status::INVALID_PARAMETERS.word()).to_le_bytes());
}

/// The acceptor executes these steps on its worker.
#[test]
fn a_host_that_must_authenticate_is_proving_after_its_connect() {
    let (mut handshake, mut out) = (Handshake::default(), Vec::new());
    let mut input = [asked(BOTH).bytes().to_vec(), connect(BOTH)].concat();
    while !input.is_empty() {
        assert!(!handshake.is_proving());
        let Step { taken, .. } = handshake.step(&input, &Guard, &mut out);
        assert!(taken > 0, "the input is complete");
        input.drain(..taken);
    }
    assert!(handshake.is_proving());
}

#[test]
fn damage_on_the_way_is_noticed() {
    let whole = [asked(BOTH).bytes().to_vec(), connect(BOTH)].concat();
    let mut header = whole.clone();
    header[128 + 20] ^= 1;
    let (out, agreement) = check(&header, &Door(Ok(1)));
    assert_eq!((agreement, out[128], out[136]), (None, 3, 3), "a request to end, for the digest");
    let mut data = whole;
    data[128 + 76 + 700] ^= 1;
    let (out, agreement) = check(&data, &Door(Ok(1)));
    assert_eq!((agreement, out[128]), (None, 5));
    assert_eq!(out[128 + 22..128 + 24], Status::TRANSIENT_TRANSPORT.word().to_le_bytes());
}

proptest! {
    #[test]
    fn random_bytes_are_answered_or_refused(
        prefix in any::<bool>(), bytes in prop::collection::vec(any::<u8>(), 0..1200),
    ) {
        let first = if prefix { asked(BOTH).bytes().to_vec() } else { Vec::new() };
        let (_, agreement) = check(&[first, bytes].concat(), &Door(Ok(1)));
        prop_assert_eq!(agreement, None);
    }
}
