//! Parsers of values with units, and words of the interface.

use clap::ValueEnum;
use std::convert::Infallible;
use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;
use std::time::Duration;
use strake_qos::RequestRate;
use strake_units::{ByteSize, SizeError};

/// Parses a size that fits in 32 bits, such as `128KiB`.
///
/// # Errors
/// Describes the error in `text`.
pub fn size_u32(text: &str) -> Result<u32, String> {
    let ByteSize(bytes) = text.parse::<ByteSize>().map_err(|e| e.to_string())?;
    u32::try_from(bytes)
        .map_err(|_| format!("{} is too large; the size must be less than 4GiB", ByteSize(bytes)))
}

/// Parses a strip size. The daemon checks which sizes are valid.
///
/// # Errors
/// Describes the error in `text`, and the valid sizes.
pub fn strip(text: &str) -> Result<u32, String> {
    const VALID: &str = "a strip is a power of two from 4KiB to 1MiB, such as 64KiB";
    match size_u32(text) {
        // The interface uses 0 for the default.
        Ok(0) => Err(VALID.to_owned()),
        Ok(bytes) => Ok(bytes),
        Err(why) => Err(format!("{why}; {VALID}")),
    }
}

/// Parses a time: a whole number with the unit `ms`, `s`, `m` or `h`. A number without a unit is in seconds.
///
/// # Errors
/// Describes the error in `text`.
pub fn duration(text: &str) -> Result<Duration, String> {
    const HELP: &str = "a time is a whole number with ms, s, m or h, such as 90s";
    let units = [("ms", 1), ("", 1_000), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];
    time(text, &units, HELP).map(Duration::from_millis)
}

/// Parses a time of at least a second, and returns seconds. The text is a whole number with `s`, `m`, `h`, `d` or `w`.
/// This function can parse every output of [`strake_wording::every`] but `off`.
///
/// # Errors
/// Describes the error in `text`.
pub fn span(text: &str) -> Result<u64, String> {
    const HELP: &str = "a time is a whole number with s, m, h, d or w, such as 24h";
    let units = [("s", 1), ("m", 60), ("h", 3_600), ("d", 24 * 3_600), ("w", 7 * 24 * 3_600)];
    match time(text, &units, HELP)? {
        0 => Err("the time must be at least 1s".to_owned()),
        seconds => Ok(seconds),
    }
}

/// Parses a time between two scrubs, and returns seconds. The text is a whole number with `s`, `h`, `d` or `w`, or
/// `off` for 0. This function can parse every output of [`strake_wording::every`].
///
/// # Errors
/// Describes the error in `text`.
pub fn every(text: &str) -> Result<u64, String> {
    const HELP: &str =
        "a time between scrubs is a whole number with s, h, d or w, such as 30d, or off";
    let units = [("s", 1), ("h", 3_600), ("d", 24 * 3_600), ("w", 7 * 24 * 3_600)];
    match text {
        "off" => Ok(0),
        text => match time(text, &units, HELP)? {
            0 => Err("to disable scheduled scrubs, write off".to_owned()),
            seconds => Ok(seconds),
        },
    }
}

/// Parses a whole number with one of `units`, and multiplies the number by the factor of the unit.
fn time(text: &str, units: &[(&str, u64)], help: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| help.to_owned())?;
    let (_, factor) = units.iter().find(|(name, _)| *name == unit).ok_or(help)?;
    let all = number.checked_mul(*factor);
    all.ok_or_else(|| "the time is too long".to_owned())
}

/// Drives, separated by commas. After a backslash, a comma or a backslash is a part of the drive's name, as in the
/// output of [`strake_wording::escaped`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drives(pub Vec<String>);

impl FromStr for Drives {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let (mut all, mut drive, mut chars) = (Vec::new(), String::new(), text.chars().peekable());
        while let Some(c) = chars.next() {
            match c {
                ',' => all.push(std::mem::take(&mut drive)),
                '\\' => drive.push(chars.next_if(|c| [',', '\\'].contains(c)).unwrap_or(c)),
                c => drive.push(c),
            }
        }
        all.push(drive);
        Ok(Self(all))
    }
}

/// A size of a volume: absolute, or a change of the present size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewSize {
    /// The new size.
    To(ByteSize),
    /// Larger by this size.
    Plus(ByteSize),
    /// Smaller by this size.
    Minus(ByteSize),
}

impl FromStr for NewSize {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        match (text.strip_prefix('+'), text.strip_prefix('-')) {
            (Some(size), _) => size.parse().map(Self::Plus),
            (_, Some(size)) => size.parse().map(Self::Minus),
            _ => text.parse().map(Self::To),
        }
    }
}

impl fmt::Display for NewSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::To(size) => write!(f, "{size}"),
            Self::Plus(size) => write!(f, "+{size}"),
            Self::Minus(size) => write!(f, "-{size}"),
        }
    }
}

/// A quota in bytes; 0, in words `none`, is no quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota(pub u64);

impl FromStr for Quota {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(0));
        }
        match text.parse::<ByteSize>() {
            Ok(ByteSize(0)) => Err("to remove the quota, write none".to_owned()),
            Ok(ByteSize(bytes)) => Ok(Self(bytes)),
            Err(why) => Err(format!("{why}; or none")),
        }
    }
}

/// I/Os per second, with decimal units; 0, in words `none`, is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoRate(pub u64);

impl FromStr for IoRate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(0));
        }
        match text.parse::<RequestRate>() {
            Ok(RequestRate(rate)) => Ok(Self(rate)),
            Err(why) => Err(format!("{why}; or none")),
        }
    }
}

/// A member of an array: its position, or its drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberChoice {
    /// The position, from 0.
    Position(u32),
    /// The path of the drive, another name of the drive, or the UUID of the member.
    Drive(String),
}

impl FromStr for MemberChoice {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        match text.bytes().all(|byte| byte.is_ascii_digit()) {
            true => text.parse().map(Self::Position),
            false => Ok(Self::Drive(text.to_owned())),
        }
    }
}

/// Name of a choice in the API: the same word as on the command line.
#[must_use]
pub fn word(choice: &impl ValueEnum) -> String {
    choice.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

#[cfg(test)]
mod tests {
    use super::{Drives, NewSize, Quota, every, strip};
    use strake_units::ByteSize;

    #[test]
    fn every_error_of_a_strip_size_states_the_valid_sizes() {
        assert_eq!(strip("64k"), Ok(64 << 10));
        for wrong in ["0", "banana", "-1", "8GiB", "99999999999999999999"] {
            let why = strip(wrong).expect_err("it is no strip");
            assert!(why.contains("from 4KiB to 1MiB"), "{wrong}: {why}");
        }
    }

    #[test]
    fn sizes_of_volumes_are_absolute_or_changes() {
        assert_eq!("10G".parse(), Ok(NewSize::To(ByteSize(10 << 30))));
        assert_eq!("+10G".parse(), Ok(NewSize::Plus(ByteSize(10 << 30))));
        assert_eq!("-10G".parse(), Ok(NewSize::Minus(ByteSize(10 << 30))));
        for bad in ["", "+", "-", "--1G", "+-1G", "--dry-run", "1.5G"] {
            assert!(bad.parse::<NewSize>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_quota_is_removed_by_a_word_and_not_by_zero() {
        assert_eq!("none".parse(), Ok(Quota(0)));
        assert_eq!("8k".parse(), Ok(Quota(8192)));
        let why = "0".parse::<Quota>().expect_err("it is ambiguous");
        assert!(why.contains("write none"), "{why}");
    }

    #[test]
    fn times_between_scrubs_have_a_unit() {
        let check = |text: &str, want: Option<u64>| assert_eq!(every(text).ok(), want, "{text}");
        check("off", Some(0));
        check("1h", Some(3_600));
        check("30d", Some(2_592_000));
        check("2w", Some(1_209_600));
        for bad in ["", "0d", "30", "d", "-1d", "1m", "99999999999999999999d", "9999999999999999w"]
        {
            check(bad, None);
        }
    }

    /// The history of the bug: an interval that is not a whole number of hours was recorded in seconds, which this
    /// parser refused.
    #[test]
    fn intervals_of_a_record_are_read_back_exhaustive() {
        let day = 24 * 3_600;
        let hours = (0..=u64::MAX / 3_600).step_by(1 << 40).map(|hours| hours * 3_600);
        for seconds in (0..=2 * day).chain(hours).chain(u64::MAX - day..=u64::MAX) {
            assert_eq!(every(&strake_wording::every(seconds)), Ok(seconds));
        }
    }

    #[test]
    fn lists_of_drives_are_read_back_exhaustive() {
        let check = |text: &str, drives: &[&str]| {
            assert_eq!(text.parse(), Ok(Drives(drives.iter().map(|&d| d.into()).collect())));
        };
        check("a,b", &["a", "b"]);
        check(r"/by-label/a\x20b,c", &[r"/by-label/a\x20b", "c"]);
        check(r"/a\,b,c\\,d\", &["/a,b", r"c\", r"d\"]);
        // Every pair of names of up to three of these characters.
        let mut names = vec![String::new()];
        for at in 0..1 + 4 + 16 {
            names.extend([',', '\\', '\'', 'x'].map(|c| format!("{}{c}", names[at])));
        }
        for (one, other) in names.iter().flat_map(|one| names.iter().map(move |o| (one, o))) {
            check(
                &strake_wording::escaped(&[one.clone(), other.clone()]),
                &[one.as_str(), other.as_str()],
            );
        }
    }
}
