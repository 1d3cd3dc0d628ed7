//! Lengths of files and functions: printed on every run, judged by people.

use super::lex;
use super::repo::Repo;
use super::source::Source;

/// How many of the longest are printed.
const TOP: usize = 10;
/// The figures STYLE.md aims at: function lines at the 90th percentile, and the most without a reason.
const FUNCTION_GOAL: (usize, usize) = (35, 70);
const FILE_GOAL: usize = 450;

/// One function and its length in lines of code, blank lines and comments left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Name without its path.
    pub name: String,
    /// Where it starts, counted from 1.
    pub line: usize,
    /// Lines of code from `fn` to the closing brace.
    pub lines: usize,
}

/// Every function with a body in `source`, tests left out unless the whole file is one.
pub fn functions(source: &Source) -> Vec<Function> {
    let mut found = Vec::new();
    for at in lex::find_words(&source.code, "fn") {
        let rest = source.code[at + 2..].trim_start();
        let name: String = rest.bytes().take_while(|&b| lex::is_word(b)).map(char::from).collect();
        let line = lex::line_of(&source.code, at);
        // A function pointer type has no name; a method of a trait may have no body.
        let Some(open) = lex::body_start(&source.code, at).filter(|_| !name.is_empty()) else {
            continue;
        };
        let body = &source.code[at..lex::brace_end(&source.code, open)];
        let lines = body.lines().filter(|text| !text.trim().is_empty()).count();
        found.push(Function { name, line, lines });
    }
    found
}

/// The printed part of `tidy`.
pub fn report(repo: &Repo) -> String {
    let (tests, production): (Vec<&Source>, Vec<&Source>) =
        repo.sources.iter().partition(|s| s.is_test_file());
    let mut files: Vec<(usize, &str)> =
        production.iter().map(|s| (s.text.lines().count(), s.path.as_str())).collect();
    let mut all: Vec<(usize, String)> = Vec::new();
    for source in &production {
        for function in functions(source).into_iter().filter(|f| !source.is_test_line(f.line)) {
            all.push((
                function.lines,
                format!("{}:{} {}", source.path, function.line, function.name),
            ));
        }
    }
    files.sort_by(|a, b| b.cmp(a));
    all.sort_by(|a, b| b.cmp(a));
    let file_sizes: Vec<usize> = files.iter().map(|(n, _)| *n).collect();
    let function_sizes: Vec<usize> = all.iter().map(|(n, _)| *n).collect();
    let mut text = String::from("longest files (lines)\n");
    text.extend(files.iter().take(TOP).map(|(n, name)| format!("  {n:5}  {name}\n")));
    text += "longest functions (lines of code)\n";
    text.extend(all.iter().take(TOP).map(|(n, name)| format!("  {n:5}  {name}\n")));
    text += &summary("files", &file_sizes, FILE_GOAL);
    text += &summary("functions", &function_sizes, FUNCTION_GOAL.0);
    let past = function_sizes.iter().filter(|n| **n > FUNCTION_GOAL.1).count();
    text += &format!("functions past {} lines: {past}\n", FUNCTION_GOAL.1);
    let lines = |sources: &[&Source]| sources.iter().map(|s| s.text.lines().count()).sum::<usize>();
    text += &format!("production: {} files, {} lines; ", production.len(), lines(&production));
    text + &format!("tests: {} files, {} lines\n", tests.len(), lines(&tests))
}

/// `sizes` is in descending order.
fn summary(what: &str, sizes: &[usize], goal: usize) -> String {
    let at = |percent: usize| sizes.get(sizes.len() * (100 - percent) / 100).copied().unwrap_or(0);
    let longest = sizes.first().copied().unwrap_or(0);
    format!("{what}: {} median {} p90 {} (aim {goal}) max {longest}\n", sizes.len(), at(50), at(90))
}
