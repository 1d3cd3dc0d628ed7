//! A text that names requests.

use std::fmt;

use strake_api::v1::TextPart;
use strake_api::v1::text_part::Part;

use crate::typed::{Typed, command_of};

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
            self.parts.push(TextPart { part: Some(Part::Words(words)) });
        }
        self
    }

    /// The text, then the command that sends `request`.
    #[must_use]
    pub fn run(mut self, request: impl Typed) -> Self {
        let part = request.part();
        self.words.push_str(&command_of(&part));
        self.parts.push(TextPart { part: Some(part) });
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

impl<T: Typed> From<T> for Text {
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
/// from an older daemon, or when this version does not know one of them.
#[must_use]
pub fn shown(parts: &[TextPart], otherwise: &str) -> String {
    let words = parts.iter().map(|part| part.part.as_ref().map(command_of)).collect();
    let words: Option<String> = words;
    words.filter(|words| !words.is_empty()).unwrap_or_else(|| otherwise.to_owned())
}
