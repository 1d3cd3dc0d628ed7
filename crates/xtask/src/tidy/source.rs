//! One Rust source file, cut into the views the checks need.

use super::lex::{self, Class};

/// A source file and what the lexer found in it.
#[derive(Debug, Clone)]
pub struct Source {
    /// Path relative to the repository, with forward slashes.
    pub path: String,
    /// The file as it is.
    pub text: String,
    /// The file with comments and literals blanked: what rules about code search.
    pub code: String,
    /// The class of every byte of `text`.
    pub classes: Vec<Class>,
    /// For every line, whether it belongs to a test.
    test_lines: Vec<bool>,
}

impl Source {
    /// Lexes `text`. A file is a test file when its path says so; see [`Source::mark_as_test`] for files that
    /// become tests because of how they are declared elsewhere.
    pub fn new(path: &str, text: &str) -> Source {
        let classes = lex::classify(text);
        let code = lex::blank(text, &classes, &[Class::Comment, Class::Literal]);
        let test_lines = if is_test_path(path) {
            vec![true; text.lines().count() + 1]
        } else {
            test_lines(&code)
        };
        Source { path: path.to_string(), text: text.to_string(), code, classes, test_lines }
    }

    /// The code without comments and without white space: what a format hash is taken of.
    pub fn essence(&self) -> String {
        let uncommented =
            self.text.char_indices().filter(|(at, _)| self.classes[*at] != Class::Comment);
        uncommented.map(|(_, c)| c).filter(|c| !c.is_whitespace()).collect()
    }

    /// The literals outside of tests, each with its line.
    pub fn literals(&self) -> impl Iterator<Item = (usize, &str)> {
        let mut at = 0;
        let runs = self.classes.chunk_by(|a, b| a == b).map(move |run| {
            let (start, class) = (at, run[0]);
            at += run.len();
            (start, at, class)
        });
        let literals = runs.filter(|(_, _, class)| *class == Class::Literal);
        let literals = literals.map(|(start, end, _)| {
            (lex::line_of(&self.text, start), self.text.get(start..end).unwrap_or_default())
        });
        literals.filter(|(line, _)| !self.is_test_line(*line))
    }

    /// True when line `line`, counted from 1, belongs to a test.
    pub fn is_test_line(&self, line: usize) -> bool {
        self.test_lines.get(line.saturating_sub(1)).copied().unwrap_or(false)
    }

    /// True when the whole file is a test.
    pub fn is_test_file(&self) -> bool {
        self.test_lines.iter().all(|&test| test)
    }

    /// Declares the whole file a test.
    pub fn mark_as_test(&mut self) {
        self.test_lines.fill(true);
    }

    /// The folder name of the crate, for paths below `crates/`.
    pub fn crate_folder(&self) -> Option<&str> {
        self.path.strip_prefix("crates/")?.split('/').next()
    }

    /// Path prefixes of modules this file declares under `#[cfg(test)] mod NAME;`.
    pub fn test_modules(&self) -> Vec<String> {
        let folder = self.module_folder();
        let mut modules = Vec::new();
        for at in test_attributes(&self.code) {
            let item = &self.code[at..lex::item_end(&self.code, at)];
            let declared = item.strip_suffix(';').and_then(|head| head.rsplit_once("mod "));
            if let Some((_, name)) = declared {
                modules.push(format!("{folder}/{}", name.trim()));
            }
        }
        modules
    }

    /// The folder in which the modules declared by this file live.
    fn module_folder(&self) -> String {
        let (folder, file) = self.path.rsplit_once('/').unwrap_or(("", &self.path));
        match file {
            "lib.rs" | "main.rs" | "mod.rs" => folder.to_string(),
            _ => self.path.trim_end_matches(".rs").to_string(),
        }
    }
}

fn is_test_path(path: &str) -> bool {
    let mut parts = path.split('/');
    let file = parts.next_back().unwrap_or_default();
    file == "tests.rs"
        || file.ends_with("_tests.rs")
        || parts.any(|p| p == "tests" || p == "benches" || p == "examples")
}

/// Offsets of attributes that make the next item exist in tests only.
fn test_attributes(code: &str) -> impl Iterator<Item = usize> + '_ {
    ["#[cfg(test)]", "#[cfg(all(test"]
        .into_iter()
        .flat_map(|needle| code.match_indices(needle).map(|(at, _)| at))
}

fn test_lines(code: &str) -> Vec<bool> {
    let mut lines = vec![false; code.lines().count() + 1];
    for at in test_attributes(code) {
        let after_attribute = code[at..].find(")]").map_or(code.len(), |n| at + n + 2);
        let end = lex::item_end(code, after_attribute);
        let last = lex::line_of(code, end).min(lines.len());
        lines[lex::line_of(code, at) - 1..last].fill(true);
    }
    lines
}
