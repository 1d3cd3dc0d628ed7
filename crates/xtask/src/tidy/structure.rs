//! Import cycles between the modules of a crate, and types with many methods: printed on every run, and no worse than
//! the limits here.
//!
//! A module is a file. It imports another one when a path in its code leads there: behind `crate`, `super`, `self` or
//! the name of a submodule. What a module only makes visible (`pub use`) it does not import: a facade does that.

use std::collections::{BTreeMap, BTreeSet};

use super::finding::Finding;
use super::lex;
use super::repo::Repo;
use super::source::Source;

/// Most modules in one import cycle.
const CYCLE_MAX: usize = 8;
/// Crates that are above it, and how far. Lower the number with every change for the better.
const CYCLES: [(&str, usize); 1] = [("engine", 50)];

/// Most methods of one type, in all its `impl` blocks.
const METHODS_MAX: usize = 60;
/// Types that are above it, with their crates, and how far: the same holds.
const METHODS: [(&str, &str, usize); 1] = [("engine", "Shard", 194)];

/// How many types are printed.
const TOP: usize = 5;

/// Checks every crate.
pub fn check(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, sources) in crates(repo) {
        let mut report = |message| {
            let path = format!("crates/{name}/src");
            findings.push(Finding { path, line: 0, rule: "structure", message });
        };
        let limit = CYCLES.iter().find(|(at, _)| *at == name).map_or(CYCLE_MAX, |(_, most)| *most);
        let cycle = largest_cycle(&sources);
        if cycle.len() > limit {
            let (count, modules) = (cycle.len(), cycle.join(", "));
            report(format!("{count} modules import each other, the limit is {limit}: {modules}"));
        }
        for (count, ty) in methods(&sources) {
            let listed = METHODS.iter().find(|(at, of, _)| *at == name && *of == ty);
            let limit = listed.map_or(METHODS_MAX, |(.., most)| *most);
            if count > limit {
                report(format!("`{ty}` has {count} methods, the limit is {limit}"));
            }
        }
    }
    findings
}

/// The printed part of `tidy`.
pub fn report(repo: &Repo) -> String {
    let mut text = String::from("largest import cycle of a crate (modules of all)\n");
    let mut types = Vec::new();
    for (name, sources) in crates(repo) {
        let cycle = largest_cycle(&sources).len();
        if cycle > 1 {
            text += &format!("  {cycle:5} of {:3}  {name}\n", sources.len());
        }
        types.extend(methods(&sources).into_iter().map(|(count, ty)| (count, name, ty)));
    }
    types.sort_by(|a, b| b.cmp(a));
    text += "types with the most methods\n";
    let top = types.iter().take(TOP);
    text.extend(top.map(|(count, name, ty)| format!("  {count:5}  {name} {ty}\n")));
    text
}

/// The sources of each crate that are no tests.
pub(super) fn crates(repo: &Repo) -> BTreeMap<&str, Vec<&Source>> {
    let mut crates = BTreeMap::<&str, Vec<&Source>>::new();
    for source in repo.sources.iter().filter(|source| !source.is_test_file()) {
        let Some(name) = source.crate_folder() else { continue };
        if source.path.starts_with(&format!("crates/{name}/src/")) {
            crates.entry(name).or_default().push(source);
        }
    }
    crates
}

/// The path of a module below its crate: empty for the root.
pub(super) fn module_of(source: &Source) -> Vec<&str> {
    let inside = source.path.splitn(4, '/').nth(3).unwrap_or_default().trim_end_matches(".rs");
    let parts: Vec<&str> = inside.split('/').collect();
    match parts[..] {
        ["lib" | "main"] => Vec::new(),
        [ref folders @ .., "mod"] => folders.to_vec(),
        _ => parts,
    }
}

/// Each import of one module of a crate by another: the source of the importing one, and both paths.
pub(super) fn edges<'a>(
    sources: &[&'a Source],
) -> impl Iterator<Item = (&'a Source, Vec<&'a str>, Vec<&'a str>)> {
    let modules: Vec<Vec<&str>> = sources.iter().map(|source| module_of(source)).collect();
    let names: BTreeSet<&[&str]> = modules.iter().map(Vec::as_slice).collect();
    let mut edges = Vec::new();
    for (source, module) in sources.iter().zip(&modules) {
        let to = imports(source, module, &names).into_iter();
        edges.extend(to.map(|to| (*source, module.clone(), to)));
    }
    edges.into_iter()
}

/// The modules of the largest cycle, by name; none when no two import each other.
fn largest_cycle(sources: &[&Source]) -> Vec<String> {
    let modules: Vec<Vec<&str>> = sources.iter().map(|source| module_of(source)).collect();
    let at = |module: &Vec<&str>| modules.iter().position(|other| other == module);
    let mut edges = vec![BTreeSet::new(); modules.len()];
    for (_, from, to) in self::edges(sources) {
        if let (Some(from), Some(to)) = (at(&from), at(&to)) {
            edges[from].insert(to);
        }
    }
    let reached: Vec<BTreeSet<usize>> = (0..edges.len()).map(|at| reach(&edges, at)).collect();
    let cycle = |at: usize| -> Vec<usize> {
        reached[at].iter().copied().filter(|other| reached[*other].contains(&at)).collect()
    };
    let largest = (0..edges.len()).map(cycle).max_by_key(Vec::len).unwrap_or_default();
    let name = |at: &usize| match modules[*at].as_slice() {
        [] => "the root".to_owned(),
        parts => parts.join("::"),
    };
    if largest.len() > 1 { largest.iter().map(name).collect() } else { Vec::new() }
}

/// What can be reached from `from`, itself only over others.
fn reach(edges: &[BTreeSet<usize>], from: usize) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut left = vec![from];
    while let Some(at) = left.pop() {
        left.extend(edges[at].iter().copied().filter(|next| reached.insert(*next)));
    }
    reached
}

/// The modules of the same crate that paths in a module's code lead to.
fn imports<'a>(
    source: &'a Source,
    module: &[&'a str],
    names: &BTreeSet<&[&'a str]>,
) -> BTreeSet<Vec<&'a str>> {
    let inside = names.iter().filter(|path| path.len() == module.len() + 1);
    let inside = inside.filter(|path| path.starts_with(module)).filter_map(|path| path.last());
    let mut words = BTreeMap::from([("crate", Vec::new()), ("self", module.to_vec())]);
    words.insert("super", module[..module.len().saturating_sub(1)].to_vec());
    words.extend(inside.map(|word| (*word, [module, &[*word]].concat())));
    let mut found = BTreeSet::new();
    for (word, from) in words {
        for at in lex::find_words(&source.code, word) {
            let rest = &source.code[at + word.len()..];
            let is_path = rest.starts_with("::") && !source.code[..at].ends_with([':', '.']);
            if !is_path || is_facade(&source.code[..at]) {
                continue;
            }
            if source.is_test_line(lex::line_of(&source.code, at)) {
                continue;
            }
            follow(rest, from.clone(), &mut |path| {
                let prefixes = (0..=path.len()).rev().map(|n| &path[..n]);
                let to = prefixes.into_iter().find(|path| names.contains(path)).unwrap_or(module);
                if to != module {
                    found.insert(to.to_vec());
                }
            });
        }
    }
    found
}

/// True when `before`, the code in front of a path, begins a `pub use`.
fn is_facade(before: &str) -> bool {
    let statement = before.rsplit([';', '}']).next().unwrap_or_default();
    let words = || lex::find_words(statement, "use");
    words().next().is_some() && statement.trim_start().starts_with("pub")
}

/// Calls `found` with each path that `rest`, what stands behind the word that led to `from`, leads to.
fn follow<'a>(rest: &'a str, mut from: Vec<&'a str>, found: &mut dyn FnMut(&[&'a str])) {
    let Some(rest) = rest.strip_prefix("::") else {
        found(&from);
        return;
    };
    if let Some(list) = rest.strip_prefix('{') {
        for item in items(list) {
            let end = item.bytes().take_while(|b| lex::is_word(*b)).count();
            let mut path = from.clone();
            if &item[..end] != "self" {
                path.push(&item[..end]);
            }
            follow(&item[end..], path, found);
        }
        return;
    }
    let end = rest.bytes().take_while(|b| lex::is_word(*b)).count();
    match &rest[..end] {
        "super" => {
            from.pop();
        }
        "" => {
            found(&from);
            return;
        }
        word => from.push(word),
    }
    follow(&rest[end..], from, found);
}

/// The items of a list of paths, up to its closing brace.
fn items(list: &str) -> Vec<&str> {
    let (mut items, mut depth, mut start) = (Vec::new(), 0_usize, 0);
    for (at, byte) in list.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth > 0 => depth -= 1,
            b',' | b'}' if depth == 0 => {
                items.push(list[start..at].trim());
                start = at + 1;
                if byte == b'}' {
                    break;
                }
            }
            _ => {}
        }
    }
    items.retain(|item| !item.is_empty());
    items
}

/// The methods of each type of a crate, in all `impl` blocks that are of no trait.
fn methods(sources: &[&Source]) -> Vec<(usize, String)> {
    let mut counts = BTreeMap::<String, usize>::new();
    for source in sources {
        for at in lex::find_words(&source.code, "impl") {
            let Some(open) = lex::body_start(&source.code, at) else { continue };
            let head = &source.code[at + 4..open];
            let is_item = source.code[..at].rsplit('\n').next().is_none_or(|l| l.trim().is_empty());
            if !is_item
                || head.contains(" for ")
                || source.is_test_line(lex::line_of(&source.code, at))
            {
                continue;
            }
            let body = &source.code[open..lex::brace_end(&source.code, open)];
            // A type of function pointers has no name behind `fn`.
            let named = lex::find_words(body, "fn").filter(|at| body[at + 2..].starts_with(' '));
            *counts.entry(type_of(head)).or_default() += named.count();
        }
    }
    counts.into_iter().map(|(ty, count)| (count, ty)).collect()
}

/// The type that an `impl` block is of: `head` is what stands between `impl` and the brace.
fn type_of(head: &str) -> String {
    let mut rest = head.trim_start();
    if rest.starts_with('<') {
        let mut depth = 0_usize;
        let end = rest.char_indices().find(|(_, c)| {
            match c {
                '<' => depth += 1,
                '>' => depth -= 1,
                _ => {}
            }
            depth == 0
        });
        rest = end.map_or("", |(at, _)| rest[at + 1..].trim_start());
    }
    rest.bytes().take_while(|b| lex::is_word(*b)).map(char::from).collect()
}

#[cfg(test)]
mod tests {
    use super::{largest_cycle, methods};
    use crate::tidy::source::Source;

    fn cycle(files: &[(&str, &str)]) -> String {
        let sources: Vec<Source> = files
            .iter()
            .map(|(path, text)| Source::new(&format!("crates/a/src/{path}"), text))
            .collect();
        largest_cycle(&sources.iter().collect::<Vec<_>>()).join(" ")
    }

    #[test]
    fn modules_that_import_each_other_are_a_cycle() {
        let root = ("lib.rs", "mod one; mod two; pub use one::One;");
        let one = ("one.rs", "use crate::two::{Two, deep::{self, Deep}};");
        assert_eq!(cycle(&[root, one, ("two.rs", "")]), "");
        assert_eq!(cycle(&[root, one, ("two.rs", "fn f() { crate::one::f(); }")]), "one two");
        assert_eq!(cycle(&[root, one, ("two.rs", "use super::one;")]), "one two");
        assert_eq!(
            cycle(&[root, one, ("two/deep.rs", "use super::super::one::f;")]),
            "one two::deep"
        );
        let root = ("lib.rs", "mod two; use two::Two; struct One;");
        assert_eq!(cycle(&[root, ("two.rs", "use crate::One;")]), "the root two");
    }

    #[test]
    fn a_facade_and_a_test_are_no_imports() {
        let facade = ("one.rs", "mod part; pub(crate) use self::part::Part; pub use part::f;");
        assert_eq!(cycle(&[facade, ("one/part.rs", "use super::One;")]), "");
        let test = "#[cfg(test)]\nmod tests {\n    use crate::one::f;\n}\n";
        assert_eq!(cycle(&[("one.rs", "use crate::two;"), ("two.rs", test)]), "");
    }

    #[test]
    fn methods_are_counted_over_all_blocks_of_a_type() {
        let text = "impl<T: A<B>> One<T> {\n    fn a() {}\n    fn b() {}\n}\nimpl A for One { fn c() {} }\n\
                    impl One {\n    fn d(f: impl Fn() -> u8) {}\n}\n";
        let source = Source::new("crates/a/src/lib.rs", text);
        assert_eq!(methods(&[&source]), [(3, "One".to_owned())]);
    }
}
