//! One table per type: text in, value or error out.

use super::*;

#[test]
fn sizes_parse_or_say_why_not() {
    let check = |text: &str, want: Result<u64, SizeError>| {
        assert_eq!(text.parse::<ByteSize>().map(|s| s.0), want, "{text:?}");
    };
    check("0", Ok(0));
    check("4096", Ok(4096));
    check("64KiB", Ok(65_536));
    check("64 kib", Ok(65_536));
    check("2TiB", Ok(2 << 40));
    check("500GB", Ok(500_000_000_000));
    check("16777216TiB", Err(SizeError::TooLarge));
    check("99999999999999999999", Err(SizeError::TooLarge));
    // The history: a letter alone was refused, although qemu-img and fio take it as a power of 1024.
    for (at, letter) in ["k", "m", "g", "t", "p"].iter().enumerate() {
        let bytes = 3_u64 << (10 * (at + 1));
        for unit in [letter.to_string(), format!("{letter}i"), format!("{letter}ib")] {
            check(&format!("3{unit}"), Ok(bytes));
            check(&format!("3{}", unit.to_uppercase()), Ok(bytes));
        }
    }
    check("4KB", Ok(4_000));
    check("64Q", Err(SizeError::UnknownUnit));
    check("64i", Err(SizeError::UnknownUnit));
    check("64.KiB", Err(SizeError::UnknownUnit));
    // The history: the message named the unit, which was right.
    for text in ["1.5GiB", "0.5MiB", "0,5MiB", ".5MiB", "1.5"] {
        check(text, Err(SizeError::Fraction));
    }
    check("-1", Err(SizeError::NotANumber));
    check("", Err(SizeError::NotANumber));
    check("KiB", Err(SizeError::NotANumber));
}

#[test]
fn sizes_print_in_iec_units() {
    let check = |bytes: u64, want: &str| assert_eq!(ByteSize(bytes).to_string(), want);
    check(0, "0 B");
    check(1023, "1023 B");
    check(65_536, "64 KiB");
    check(1_610_612_736, "1.50 GiB");
    check(u64::MAX, "16384 PiB");
}

#[test]
fn names_are_safe_words() {
    let check = |text: &str, want: Result<(), NameError>| {
        assert_eq!(text.parse::<Name>().map(|_| ()), want, "{text:?}");
    };
    check("tank", Ok(()));
    check("0.a_b-C", Ok(()));
    check("", Err(NameError::Empty));
    check("a/b", Err(NameError::BadCharacter('/')));
    check("t\u{1F980}", Err(NameError::BadCharacter('\u{1F980}')));
    check("-rf", Err(NameError::BadStart));
    check("..", Err(NameError::BadStart));
    check(&"x".repeat(63), Ok(()));
    check(&"x".repeat(300), Err(NameError::TooLong { bytes: 300 }));
}

#[test]
fn identifiers_round_trip() {
    let uuid = Uuid::from_random([0xab; 16]);
    assert_eq!(uuid.to_string(), "abababab-abab-4bab-abab-abababababab");
    assert_eq!(uuid.to_string().parse(), Ok(uuid));
    for bad in ["", "abababab-abab-4bab-abab-ababababab", "abababab+abab-4bab-abab-abababababab"] {
        assert_eq!(bad.parse::<Uuid>(), Err(NameError::NotAnIdentifier), "{bad:?}");
    }
}

#[test]
fn ranges_never_wrap() {
    let far = LbaRange::new(Lba(u64::MAX - 1), 8);
    assert!(!far.fits(u64::MAX));
    assert_eq!(far.end(), Lba(u64::MAX));
    assert!(LbaRange::new(Lba(0), 8).overlaps(LbaRange::new(Lba(7), 1)));
    assert!(!LbaRange::new(Lba(0), 8).overlaps(LbaRange::new(Lba(8), 1)));
}

#[test]
fn block_sizes_are_512_or_4096() {
    assert_eq!(BlockSize::from_bytes(512), Some(BlockSize::B512));
    assert_eq!(BlockSize::from_bytes(520), None);
    assert_eq!(BlockSize::B4096.blocks_in(8192), Some(2));
    assert_eq!(BlockSize::B4096.blocks_in(512), None);
}
