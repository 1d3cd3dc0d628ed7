//! Values that have a unit.

use std::time::Duration;
use strake_units::ByteSize;

/// A size that fits in 32 bits, such as `128KiB`.
///
/// # Errors
/// Says what is wrong with `text`.
pub fn size_u32(text: &str) -> Result<u32, String> {
    let ByteSize(bytes) = text.parse::<ByteSize>().map_err(|e| e.to_string())?;
    u32::try_from(bytes).map_err(|_| format!("{} is too large here", ByteSize(bytes)))
}

/// A time: a whole number with `ms`, `s`, `m` or `h`; seconds without a unit.
///
/// # Errors
/// Says what is wrong with `text`.
pub fn duration(text: &str) -> Result<Duration, String> {
    const HELP: &str = "a time is a whole number with ms, s, m or h, such as 90s";
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| HELP.to_owned())?;
    let factor_ms: u64 = match unit {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(HELP.to_owned()),
    };
    number
        .checked_mul(factor_ms)
        .map(Duration::from_millis)
        .ok_or_else(|| "the time is longer than 64 bits can count".to_owned())
}
