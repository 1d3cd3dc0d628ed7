//! Converts text of events for lines, headers and environment variables.

use strake_api::v1::Event;

use crate::limits::TEXT_BYTES_MAX;

/// Converts `text` to one line: each character that would start another line, or change the display of a terminal or a
/// mail reader, becomes a space.
pub(crate) fn one_line(text: &str) -> String {
    let spaced: String = text.chars().map(|c| if breaks(c) { ' ' } else { c }).collect();
    spaced.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Returns true for control characters, the line and paragraph separators, and the characters that change the direction
/// of writing (Unicode Standard Annex 9, section 2).
fn breaks(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{061c}')
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns at most `bytes` of `text`, cut between characters, with a mark if text is missing.
pub(crate) fn cut(text: &str, bytes: usize) -> String {
    if text.len() <= bytes {
        return text.to_string();
    }
    let mut end = bytes;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{} [...]", &text[..end])
}

/// Returns `event` with no text longer than [`TEXT_BYTES_MAX`], so that the size of a queue of events is limited.
pub(crate) fn bounded(event: &Event) -> Event {
    let cut = |text: &str| cut(text, TEXT_BYTES_MAX);
    Event {
        number: event.number,
        time_us: event.time_us,
        severity: cut(&event.severity),
        kind: cut(&event.kind),
        object: cut(&event.object),
        member: event.member,
        what: cut(&event.what),
        cause: cut(&event.cause),
        next_action: cut(&event.next_action),
        actor: cut(&event.actor),
        // The remedy is as long as the text, whose length is limited in this case.
        remedy: if event.next_action.len() <= TEXT_BYTES_MAX {
            event.remedy.clone()
        } else {
            Vec::new()
        },
    }
}

/// Converts microseconds since 1970 to a date and time in UTC, with a resolution of one second.
///
/// The calendar arithmetic is `civil_from_days` of Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms".
pub(crate) fn utc(time_us: u64) -> String {
    let seconds = time_us / 1_000_000;
    let (days, in_day) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (in_day / 3_600, in_day / 60 % 60, in_day % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}
