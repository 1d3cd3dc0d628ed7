//! Tests of levels as operators write them and as labels record them.

use crate::level::PARITY_MAX;
use crate::{Level, LevelError, LevelRequest};

const NAMED: [(Level, &str); 9] = [
    (Level::Raid0, "0"),
    (Level::Raid1, "1"),
    (Level::Raid10, "10"),
    (Level::Raid5, "5"),
    (Level::Raid6, "6"),
    (Level::Raid73, "7.3"),
    (Level::Raid50, "50"),
    (Level::Raid60, "60"),
    (Level::Raid70, "70"),
];

fn every_level() -> impl Iterator<Item = Level> {
    NAMED.into_iter().map(|(level, _)| level).chain((4..=PARITY_MAX).map(Level::Parity))
}

#[test]
fn every_level_reads_what_it_prints() {
    for level in every_level() {
        assert_eq!(level.to_string().parse(), Ok(level));
    }
    for (level, text) in NAMED {
        assert_eq!(level.to_string(), text);
        assert_eq!(format!("RAID{text}").parse(), Ok(level));
        assert_eq!(format!(" raid {text} ").parse(), Ok(level));
    }
    assert_eq!(format!("{:>5}|{:<5}", Level::Raid6, Level::Parity(4)), "    6|n+4  ");
}

#[test]
fn texts_parse_or_say_why_not() {
    let check = |text: &str, want: Result<(Level, Option<u8>), LevelError>| {
        let got = text.parse::<LevelRequest>().map(|r| (r.level, r.data_strips));
        assert_eq!(got, want, "{text:?}");
    };
    check("n+4", Ok((Level::Parity(4), None)));
    check("N + 32", Ok((Level::Parity(32), None)));
    check("8+4", Ok((Level::Parity(4), Some(8))));
    check("6+2", Ok((Level::Raid6, Some(6))));
    check("n+1", Ok((Level::Raid5, None)));
    check("n+3", Ok((Level::Raid73, None)));
    check("n+0", Err(LevelError::ParityOutOfRange { parity: 0 }));
    check("n+33", Err(LevelError::ParityOutOfRange { parity: 33 }));
    check("n+4000", Err(LevelError::ParityOutOfRange { parity: 255 }));
    for text in
        ["", "raid", "7", "01", "6.0", "2", "n", "+", "n+", "+4", "n+-4", "n++4", "n+4+4", "x+4"]
    {
        check(text, Err(LevelError::Unknown));
    }
    let error = "8+4".parse::<Level>().expect_err("a level has no N");
    assert_eq!(error, LevelError::DataStripsGiven { data_strips: 8 });
}

#[test]
fn codes_are_unique_stable_and_checked() {
    for level in every_level() {
        assert_eq!(Level::from_code(level.code(), level.parity_strips()), Some(level));
    }
    let known: Vec<(u8, u8)> = every_level().map(|l| (l.code(), l.parity_strips())).collect();
    for code in 0..=255 {
        for parity in 0..=255 {
            let level = Level::from_code(code, parity);
            assert_eq!(level.is_some(), known.contains(&(code, parity)), "{code} {parity}");
        }
    }
    // Labels on drives contain these numbers.
    let codes: Vec<u8> = NAMED.into_iter().map(|(level, _)| level.code()).collect();
    assert_eq!(codes, [0, 1, 10, 5, 6, 73, 50, 60, 70]);
    assert_eq!(Level::Parity(4).code(), 100);
}
