//! Just enough of a Rust lexer to tell code from comments from literals.
//!
//! The checks are textual, and a text search that trips over a word in a comment or in a string would be
//! useless. The rules of the language that matter here are in the Rust Reference, chapters "Comments" and
//! "Tokens": block comments nest, raw strings end at a quote followed by as many `#` as they began with, and
//! an apostrophe starts either a character literal or a lifetime.

/// What a byte of a source file belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Code, white space included.
    Code,
    /// A comment, documentation included.
    Comment,
    /// The inside and the quotes of a string or character literal.
    Literal,
}

/// The class of every byte of `text`. Text that is not Rust yields some answer and never panics.
pub fn classify(text: &str) -> Vec<Class> {
    let bytes = text.as_bytes();
    let mut classes = vec![Class::Code; bytes.len()];
    let mut at = 0;
    while at < bytes.len() {
        let (class, end) = token(text, at);
        let end = end.clamp(at + 1, bytes.len());
        classes[at..end].fill(class);
        at = end;
    }
    classes
}

/// A copy of `text` in which every byte whose class is in `blanked` is a space; lines stay where they are.
pub fn blank(text: &str, classes: &[Class], blanked: &[Class]) -> String {
    let keep = |(byte, class): (u8, &Class)| match byte {
        b'\n' => '\n',
        _ if blanked.contains(class) || !byte.is_ascii() => ' ',
        _ => byte as char,
    };
    text.bytes().zip(classes).map(keep).collect()
}

/// The class of the token at `at` and the offset of its end; anything not of interest is one byte of code.
fn token(text: &str, at: usize) -> (Class, usize) {
    let bytes = text.as_bytes();
    let rest = &bytes[at..];
    match rest[0] {
        b'/' if rest.starts_with(b"//") => (Class::Comment, line_end(bytes, at)),
        b'/' if rest.starts_with(b"/*") => (Class::Comment, block_comment_end(bytes, at)),
        b'"' => (Class::Literal, string_end(bytes, at)),
        b'r' if raw_string_may_start(bytes, at) => match raw_string_end(bytes, at) {
            Some(end) => (Class::Literal, end),
            None => (Class::Code, at + 1),
        },
        b'\'' => match char_end(text, at) {
            Some(end) => (Class::Literal, end),
            None => (Class::Code, at + 1),
        },
        _ => (Class::Code, at + 1),
    }
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|&b| b == b'\n').map_or(bytes.len(), |n| at + n)
}

fn block_comment_end(bytes: &[u8], at: usize) -> usize {
    let mut depth = 0;
    let mut i = at;
    while i < bytes.len() {
        if bytes[i..].starts_with(b"/*") {
            depth += 1;
            i += 2;
        } else if bytes[i..].starts_with(b"*/") {
            depth -= 1;
            i += 2;
            if depth == 0 {
                return i;
            }
        } else {
            i += 1;
        }
    }
    bytes.len()
}

fn string_end(bytes: &[u8], at: usize) -> usize {
    let mut i = at + 1;
    while i < bytes.len() {
        match bytes[i] {
            b'\\' => i += 2,
            b'"' => return i + 1,
            _ => i += 1,
        }
    }
    bytes.len()
}

/// True unless the `r` at `at` is the end of a longer identifier; `b` and `c` may stand before it.
fn raw_string_may_start(bytes: &[u8], at: usize) -> bool {
    let before = |n: usize| at.checked_sub(n).map(|i| bytes[i]);
    match before(1) {
        Some(b'b' | b'c') => !before(2).is_some_and(is_word),
        Some(other) => !is_word(other),
        None => true,
    }
}

fn raw_string_end(bytes: &[u8], at: usize) -> Option<usize> {
    let hashes = bytes[at + 1..].iter().take_while(|&&b| b == b'#').count();
    let open = at + 1 + hashes;
    if bytes.get(open) != Some(&b'"') {
        return None;
    }
    let mut close = vec![b'"'];
    close.resize(1 + hashes, b'#');
    let body = &bytes[open + 1..];
    let end = body.windows(close.len()).position(|window| window == close);
    Some(end.map_or(bytes.len(), |n| open + 1 + n + close.len()))
}

/// The end of a character literal, or `None` when the apostrophe starts a lifetime.
fn char_end(text: &str, at: usize) -> Option<usize> {
    let rest = &text[at + 1..];
    let first = rest.chars().next()?;
    if first == '\\' {
        // The escaped character itself may be an apostrophe, so the search starts after it.
        return rest.get(2..)?.find('\'').map(|n| at + 1 + 2 + n + 1);
    }
    rest[first.len_utf8()..].starts_with('\'').then(|| at + 1 + first.len_utf8() + 1)
}

/// True for bytes that may be part of an identifier.
pub fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Offsets at which `word` stands in `code` with no identifier character on either side of it.
pub fn find_words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let bytes = code.as_bytes();
    let starts_in_word = word.bytes().next().is_some_and(is_word);
    let ends_in_word = word.bytes().last().is_some_and(is_word);
    code.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let joined_before = starts_in_word && at > 0 && is_word(bytes[at - 1]);
        let joined_after = ends_in_word && bytes.get(at + word.len()).copied().is_some_and(is_word);
        !joined_before && !joined_after
    })
}

/// The offset just after the item that starts at `at`: after its closing brace, or after its semicolon.
pub fn item_end(code: &str, at: usize) -> usize {
    match body_start(code, at) {
        Some(open) => brace_end(code, open),
        None => code[at..].find(';').map_or(code.len(), |n| at + n + 1),
    }
}

/// The offset of the brace that opens the body of the item at `at`, unless a semicolon comes first.
pub fn body_start(code: &str, at: usize) -> Option<usize> {
    let mut depth = 0i32;
    for (n, byte) in code.as_bytes()[at..].iter().enumerate() {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b'{' if depth <= 0 => return Some(at + n),
            b';' if depth <= 0 => return None,
            _ => {}
        }
    }
    None
}

/// The offset just after the brace that closes the one at `open`.
pub fn brace_end(code: &str, open: usize) -> usize {
    let mut depth = 0i32;
    for (n, byte) in code.as_bytes()[open..].iter().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return open + n + 1;
        }
    }
    code.len()
}

/// The line of a byte offset, counted from 1.
pub fn line_of(text: &str, offset: usize) -> usize {
    1 + text.as_bytes()[..offset].iter().filter(|&&b| b == b'\n').count()
}
