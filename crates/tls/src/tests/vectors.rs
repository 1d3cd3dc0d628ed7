//! What Python's `hmac` and the AES-GCM of its `cryptography` make of the formulas of RFC 8446, sections 4.2.11.2,
//! 4.4.4, 5.2, 7.1 and 7.2.

use crate::limits::{HEADER_BYTES, OVERHEAD_BYTES};
use crate::record::{Half, content};
use crate::schedule::{Stem, Transcript, finished_key, hkdf_of};
use ring::hkdf::Prk;
use ring::hmac;
use strake_nvme_auth::PskHash;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Two records of "capsule", then two with the keys that follow, of a secret whose bytes count up.
const RECORDS: [(PskHash, [&str; 4]); 2] = [
    (
        PskHash::Sha256,
        [
            "17030300184669974dde5a0a8a5e5fbcf3fc194f46332560ee0374a9c7",
            "1703030018369c4e6cd80e4c8463152944336dde0540a6777e051d50dd",
            "1703030018b9551f156c5ebfb291ab4b04b3fbfe5867407d542bb2e4c3",
            "17030300180c6115b36e6f480c03f951a583224950cf451417d4b3b1b6",
        ],
    ),
    (
        PskHash::Sha384,
        [
            "17030300182b560f4f6061d392b147a1f3b7fc56a949db45b1e5d74035",
            "1703030018fe700983b122683e3261c44cd8bbd7ba17f016f587d29777",
            "17030300184ff4d3f4f26afa61670d48dfa0b5c74ba08c610dfd3ec4d8",
            "1703030018ade9663dd86c5400a594062b8d30e6a38ef2bc8ad7448a7a",
        ],
    ),
];

#[test]
fn records_are_those_of_another_program() {
    for (hash, records) in RECORDS {
        let half = || {
            let secret: Vec<u8> = (0..hash.bytes() as u8).collect();
            Half::new(hash, Prk::new_less_safe(hkdf_of(hash), &secret)).expect("a key")
        };
        let (mut writer, mut reader) = (half(), half());
        for (at, expected) in records.iter().enumerate() {
            if at == 2 {
                writer.update().expect("a key");
                reader.update().expect("a key");
            }
            let mut record = [0; 7 + OVERHEAD_BYTES];
            record[HEADER_BYTES..][..7].copy_from_slice(b"capsule");
            assert_eq!(writer.seal(content::DATA, &mut record, 7), Ok(record.len()));
            assert_eq!(hex(&record), *expected, "{hash:?}, record {at}");
            let (kind, inside) = reader.open(&mut record).expect("it opens");
            assert_eq!((kind, &record[inside]), (content::DATA, &b"capsule"[..]));
        }
    }
}

/// The binder of a key of sevens for "hello"; the proofs of a client of the handshake and of a server after it, when
/// "agreed" was agreed on.
const SECRETS: [(PskHash, [&str; 3]); 2] = [
    (
        PskHash::Sha256,
        [
            "9557c0dd5baf467303c855f8adee9ba3141632d3e6803bc3d324524fec3c64c2",
            "c151687790c6b62e1590470ee809b2a35e7b8b9280526184764fe9abaaf5be94",
            "bb29712da8e43c18165fc6ef53dc558372522edd5ae6e571f91742de13d00c6a",
        ],
    ),
    (
        PskHash::Sha384,
        [
            "c819d476470329f4c6af8081dac929d3b2dfb8bdaa1ef14885e22556d35fe580b1ae619fd5437e7d01b5599db4ae23a7",
            "88fd71d541bd5c7f55fbb97d207f9ffe52ec86c32f41b754b22542fb7d2595e1ee4eb2faf659737cf9b0593267e8d45b",
            "a234f0e1ceadaa5763facd499bfcfe432b362f49e3e008cb773ff66f613b514b9eb4e23e0347f18106f9ff5cbb216761",
        ],
    ),
];

#[test]
fn secrets_are_those_of_another_program() {
    for (hash, expected) in SECRETS {
        let mut transcript = Transcript::new(hash);
        transcript.add(b"hello");
        let said = transcript.value();
        let early = Stem::of_key(hash, &[7; 48][..hash.bytes()]);
        let agreed = early.with_agreed(b"agreed").expect("a secret");
        let proof = |secrets: &Stem, label| {
            let secret = secrets.derive(label, said.as_ref()).expect("a secret");
            hex(hmac::sign(&finished_key(hash, &secret).expect("a key"), said.as_ref()).as_ref())
        };
        let binder = early.binder(&transcript).expect("a key");
        assert_eq!(hex(binder.as_ref()), expected[0]);
        assert_eq!(early.is_bound(&transcript, binder.as_ref()), Ok(true));
        assert_eq!(early.is_bound(&transcript, &binder.as_ref()[1..]), Ok(false));
        assert_eq!(proof(&agreed, "c hs traffic"), expected[1]);
        assert_eq!(proof(&agreed.master().expect("a secret"), "s ap traffic"), expected[2]);
    }
}
