//! Keys that other programs made.

use super::{Identity, Psk, PskHash, TlsKey, TlsKeyError};
use crate::proof::Names;
use proptest::prelude::*;

/// The example of TCP, section 3.6.1.5.
const EXAMPLE: &str = "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";
/// 48 bytes, counted up.
const LONG: &str =
    "NVMeTLSkey-1:02:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vcSEgBQ==:";
/// 32 bytes, counted up.
const COUNTED: &str = "NVMeTLSkey-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
const AS_IT_IS: &str =
    "NVMeTLSkey-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vcSEgBQ==:";

const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6";
const SUBSYSTEM: &str = "nqn.2014-08.org.nvmexpress:uuid:36ebf5a9-1df9-47b3-a6d0-e9ba32e428a2";

/// A key, the beginning of its identity and what is behind the names, and what TLS is given: Python's `hmac` on the
/// formulas of TCP, section 3.6.1, and of RFC 5869 and RFC 8446. The program gave the identities of libnvme's own tests
/// (`test/psk.c`) too. The last ones are what nvme-cli made before its labels had lengths.
const VECTORS: [(&str, &str, &str, &str); 8] = [
    (
        EXAMPLE,
        "NVMe1R01",
        " E7SfPmB1H5RQCPDO/jPElNLoNkv7agzvJauAf6yCO9E=",
        "5a21fd02f19a9eaec7b166edabff907304b7625b7927d7398f9d654dff4087f7",
    ),
    (EXAMPLE, "NVMe0R01", "", "8e981666c96a88ef69f6e6a0460ff77ba9039e3d38cbdeee264c4de09d75d246"),
    (
        LONG,
        "NVMe1R02",
        " TiXWt23cmeG7t6OYH+PLSOT917omsUlNlFaJaUy97SxBr9VjIqw20n0AlKuthAzp",
        "f219071f8754ced07adf81cf69bc9cd2484dca47b48cb8e906d4cf219c920376f84a43c632f86fd3da2eb98f700aa365",
    ),
    (
        LONG,
        "NVMe0R02",
        "",
        "979f0d26cc075126bec2b7ad852ecf3cda6419078749234199e46615e2a4b2c69729b79e6a620b9a16c593b3e080d9b8",
    ),
    (
        AS_IT_IS,
        "NVMe1R02",
        " jKlYLfUK3Ddiokg44gDmfPUQJHUk51tmV6Xa/nHjbMPDB0B5LEvnV5oIgmBs1xgj",
        "36f4ae7d8d840a2b517c579e6a4e24a1b3f5e00e4b2056895cef5d9afcb41d48285e82149ed6795667a1ef073bcd139f",
    ),
    (EXAMPLE, "NVMe0R01", "", "be4ef89f73206dc2b64f95a33f73318a0064758aa0dab40f38f269c336b359c5"),
    (
        EXAMPLE,
        "NVMe1R01",
        " 784yr0+Smfy2PtrzNKX2MKuuRLLE5iehfelFUZozXoM=",
        "c730c74e327cc78140397f570a5613d8437bbec49a56e4b9cd9e889325b65f0c",
    ),
    (
        LONG,
        "NVMe0R02",
        "",
        "b35b777ba245c29eff698bfc0d26f7f71cf0c043142452bcb2f6d7af9144eab1be29aa881f2e1b98045054394188e04d",
    ),
];

fn key(text: &str) -> TlsKey {
    text.parse().expect("a key")
}

fn names() -> Names {
    Names { host: HOST.into(), subsystem: SUBSYSTEM.into() }
}

fn hex(psk: &Psk) -> String {
    psk.secret.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn tls_is_given_what_other_programs_compute() {
    for (text, kind, behind, expected) in VECTORS {
        let identity = format!("{kind} {HOST} {SUBSYSTEM}{behind}");
        let identity = Identity::parse(identity.as_bytes()).expect("an identity");
        assert_eq!((identity.host, identity.subsystem), (HOST, SUBSYSTEM));
        let found: Vec<String> = key(text).meant_by(&identity).iter().map(hex).collect();
        assert!(found.iter().any(|found| found == expected), "{kind}{behind}: {found:?}");
    }
}

#[test]
fn a_host_offers_what_the_specification_says_with_the_newer_identity_first() {
    for (text, most) in [(EXAMPLE, &VECTORS[..2]), (LONG, &VECTORS[2..4])] {
        let offers = key(text).offers(&names());
        let expected = most.iter().map(|(_, _, _, secret)| (*secret).to_owned());
        assert_eq!(offers.iter().map(hex).collect::<Vec<_>>(), expected.collect::<Vec<_>>());
        assert!(offers.iter().all(|offer| offer.secret.len() == offer.hash.bytes()));
    }
    assert_eq!(key(AS_IT_IS).offers(&names())[0].hash, PskHash::Sha384);
}

#[test]
fn an_identity_of_another_key_is_not_meant() {
    let offer = &key(LONG).offers(&names())[0];
    let identity = Identity::parse(offer.identity.as_bytes()).expect("an identity");
    assert_eq!(key(LONG).meant_by(&identity).len(), 1);
    assert!(key(AS_IT_IS).meant_by(&identity).is_empty());
    let longest = "n".repeat(223);
    let names = Names { host: longest.clone(), subsystem: longest };
    assert_eq!(key(LONG).offers(&names).len(), 1, "names too long for the older identity");
}

#[test]
fn a_key_is_read_as_it_is_written_and_never_shown() {
    for text in [EXAMPLE, LONG, AS_IT_IS] {
        assert_eq!(*key(text).reveal(), text);
        assert_eq!(format!("{:?}", key(text)), "TlsKey { .. }");
    }
    let made = TlsKey::from(std::array::from_fn(|at| at as u8));
    assert_eq!(*made.reveal(), COUNTED);
    let offer = &made.offers(&names())[0];
    assert_eq!((offer.hash, key(COUNTED)), (PskHash::Sha256, made));
    let shown = format!("{offer:?}");
    assert!(!shown.contains("secret") && !shown.contains(&hex(offer)[..4]), "{shown}");
}

#[test]
fn texts_that_are_no_keys_are_refused_with_the_reason() {
    let wrong_sum = EXAMPLE.replace("9LrZ", "9LrY");
    let table = [
        ("", TlsKeyError::Format),
        ("DHHC-1:00:AAAA:", TlsKeyError::Format),
        ("NVMeTLSkey-1:01:VRLbtnN9", TlsKeyError::Format),
        ("NVMeTLSkey-1:01:*:", TlsKeyError::Format),
        ("NVMeTLSkey-1:03:AAAA:", TlsKeyError::Transform),
        ("NVMeTLSkey-1:01::", TlsKeyError::Length),
        (&EXAMPLE.replace(":01:", ":02:"), TlsKeyError::Length),
        (&LONG.replace(":02:", ":01:"), TlsKeyError::Length),
        (&wrong_sum, TlsKeyError::Checksum),
    ];
    for (text, expected) in table {
        assert_eq!(text.parse::<TlsKey>(), Err(expected), "{text}");
    }
}

#[test]
fn what_is_no_identity_of_a_host_is_refused() {
    for text in ["", "NVMe0R01", "NVMe0R01 h", "NVMe0R01 h s d", "NVMe1R01 h s", "NVMe0G01 h s"] {
        assert_eq!(Identity::parse(text.as_bytes()), None, "{text}");
    }
    for text in
        ["NVMe0R00 h s", "NVMe0R03 h s", "NVMe2R01 h s d", "NVMe1R01 h s d e", "NV\u{e9}Me0R h s"]
    {
        assert_eq!(Identity::parse(text.as_bytes()), None, "{text}");
    }
    assert_eq!(Identity::parse(b"NVMe0R01 h \xff"), None);
}

proptest! {
    #[test]
    fn random_identities_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        if let Some(identity) = Identity::parse(&bytes) {
            prop_assert!(key(EXAMPLE).meant_by(&identity).len() <= 2);
        }
    }
}
