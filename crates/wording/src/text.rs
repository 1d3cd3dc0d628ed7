//! A text that names requests.

use std::fmt;

use strake_api::v1::TextPart;
use strake_api::v1::text_part::Part;

use crate::commands::{ApiCommand, command_of};

/// A text for operators: its words, and the same in parts, in which requests are data.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Text {
    /// The whole text, with requests as the command line spells them.
    pub words: String,
    /// The same as the interface carries it.
    pub parts: Vec<TextPart>,
}

/// A text that begins with `words`.
pub fn say(words: impl Into<String>) -> Text {
    Text::default().say(words)
}

impl Text {
    /// The text, then `words`.
    #[must_use]
    pub fn say(mut self, words: impl Into<String>) -> Self {
        let words = words.into();
        if !words.is_empty() {
            self.words.push_str(&words);
            self.parts.push(TextPart { part: Some(Part::Words(words)), part_bytes: 0 });
        }
        self
    }

    /// The text, then the command that sends `request`.
    #[must_use]
    pub fn run(mut self, request: impl ApiCommand) -> Self {
        let part = request.part();
        self.words.push_str(&command_of(&part));
        let part_bytes = part.encoded_len() as u32;
        self.parts.push(TextPart { part: Some(part), part_bytes });
        self
    }

    /// The text, then `other`.
    #[must_use]
    pub fn then(mut self, other: Self) -> Self {
        self.words.push_str(&other.words);
        self.parts.extend(other.parts);
        self
    }

    /// All of `texts`, with `between` them.
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

/// A text of the interface as the command line prints it: the words of `parts`; or `otherwise`, when there are none, as
/// from an older daemon. So it is when this version does not know one of them, or a field of it; the text says so then.
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
