//! A text that names requests.

use std::fmt;

use strake_api::v1::TextPart;
use strake_api::v1::text_part::Part;

use crate::commands::{ApiCommand, command_of};

/// A text for operators, in two forms: as words, and as parts. In the parts, requests are data.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Text {
    /// The whole text. Requests are spelled as commands.
    pub words: String,
    /// The same text in parts, for the API.
    pub parts: Vec<TextPart>,
}

/// A new text with `words`.
pub fn say(words: impl Into<String>) -> Text {
    Text::default().say(words)
}

impl Text {
    /// Appends `words`.
    #[must_use]
    pub fn say(mut self, words: impl Into<String>) -> Self {
        let words = words.into();
        if !words.is_empty() {
            self.words.push_str(&words);
            self.parts.push(TextPart { part: Some(Part::Words(words)), part_bytes: 0 });
        }
        self
    }

    /// Appends the command that sends `request`.
    #[must_use]
    pub fn run(mut self, request: impl ApiCommand) -> Self {
        let part = request.part();
        self.words.push_str(&command_of(&part));
        let part_bytes = part.encoded_len() as u32;
        self.parts.push(TextPart { part: Some(part), part_bytes });
        self
    }

    /// Appends the text `other`.
    #[must_use]
    pub fn then(mut self, other: Self) -> Self {
        self.words.push_str(&other.words);
        self.parts.extend(other.parts);
        self
    }

    /// Changes the requests of the text.
    #[must_use]
    pub fn amended(self, mut change: impl FnMut(&mut Part)) -> Self {
        let mut text = Self::default();
        for mut part in self.parts.into_iter().filter_map(|part| part.part) {
            change(&mut part);
            text.words.push_str(&command_of(&part));
            let is_request = !matches!(part, Part::Words(_));
            let part_bytes = if is_request { part.encoded_len() as u32 } else { 0 };
            text.parts.push(TextPart { part: Some(part), part_bytes });
        }
        text
    }

    /// Joins `texts`, separated by `between`.
    pub fn join(texts: impl IntoIterator<Item = Self>, between: &str) -> Self {
        let joined = |all: Self, next| all.say(between).then(next);
        texts.into_iter().reduce(joined).unwrap_or_default()
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

impl From<String> for Text {
    fn from(words: String) -> Self {
        say(words)
    }
}

impl From<&str> for Text {
    fn from(words: &str) -> Self {
        say(words)
    }
}

impl<T: ApiCommand> From<T> for Text {
    fn from(request: T) -> Self {
        Self::default().run(request)
    }
}

/// Whether a text names a request.
#[must_use]
pub fn has_request(parts: &[TextPart]) -> bool {
    parts.iter().any(|part| !matches!(part.part, None | Some(Part::Words(_))))
}

/// A text of the API as the command line prints it. If the text has no parts, as from an older daemon, the result is
/// `otherwise`. If this version does not know a part, or a field of a part, the result is `otherwise` with a note about
/// the newer version.
#[must_use]
pub fn shown(parts: &[TextPart], otherwise: &str) -> String {
    let is_whole = |size: u32, part: &Part| size == 0 || size as usize == part.encoded_len();
    let known = |text: &TextPart| {
        text.part.as_ref().filter(|part| is_whole(text.part_bytes, part)).map(command_of)
    };
    match parts.iter().map(known).collect::<Option<String>>() {
        Some(words) if words.is_empty() => otherwise.to_owned(),
        Some(words) => words,
        None => format!("{otherwise} (written by a newer version of strake)"),
    }
}
