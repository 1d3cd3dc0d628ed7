//! Each check on a made-up repository: one that keeps the rule, and ones that break it.

use std::collections::BTreeSet;

use crate::scenarios;

use super::repo::{Dependency, Package, Repo, parse_packages};
use super::source::Source;
use super::{RULES, check, formats, layers, lex, sizes};

const TABLE: &str = "\
```
crate | layer | may depend on | third parties
pure  | L0    | -             | blake3
high  | L4    | pure          | recorded
```
";

const DOC: &str =
    "//! **What it is.** x\n//! **What it must never do.** x\n//! **Where to start.** x\n";

/// A repository with a pure crate `pure` and a crate `high` above it that keeps every rule.
fn sound() -> Repo {
    let clippy: String = super::crates::PURE_CLIPPY_PATHS
        .iter()
        .map(|path| format!("path = \"{path}\"\n"))
        .collect();
    let manifest = "[package]\n[lints]\nworkspace = true\n";
    let mut repo = Repo::default();
    for folder in ["high", "pure"] {
        repo.packages.push(Package { folder: folder.to_string(), dependencies: Vec::new() });
        repo.add(
            &format!("crates/{folder}/src/lib.rs"),
            &format!("{DOC}#![forbid(unsafe_code)]\n"),
        );
        repo.add(&format!("crates/{folder}/Cargo.toml"), manifest);
    }
    repo.add("crates/pure/clippy.toml", &clippy);
    repo.add("ARCHITECTURE.md", TABLE);
    repo.add(
        "docs/decisions/0002-dependencies.md",
        "| `blake3` | 1 |\n| `serde` | 1 |\nProse names `rand`.\n",
    );
    repo.add("docs/scenarios.md", &catalogue("none yet"));
    repo
}

/// A catalogue with every scenario, in which `shown` stands behind F01, the third line.
fn catalogue(shown: &str) -> String {
    let row = |id: String| {
        let shown = if id == "F01" { shown } else { "none yet" };
        format!("| {id} | x | {shown} |\n")
    };
    let rows: String = scenarios::ids().into_iter().map(row).collect();
    format!("| id | meaning | shown by |\n|---|---|---|\n{rows}")
}

/// Adds or replaces a file.
fn with(mut repo: Repo, path: &str, text: &str) -> Repo {
    repo.sources.retain(|source| source.path != path);
    repo.add(path, text);
    repo.settle();
    repo
}

fn without(mut repo: Repo, path: &str) -> Repo {
    repo.sources.retain(|source| source.path != path);
    repo.files.remove(path);
    repo
}

/// A repository in which crate `folder` depends on `name`.
fn depending(folder: &str, name: &str, kind: Option<&str>) -> Repo {
    let mut repo = sound();
    let dependency = Dependency { name: name.to_string(), kind: kind.map(str::to_string) };
    for package in repo.packages.iter_mut().filter(|package| package.folder == folder) {
        package.dependencies.push(dependency.clone());
    }
    repo
}

fn high(code: &str) -> Repo {
    with(sound(), "crates/high/src/part.rs", code)
}

fn pure(code: &str) -> Repo {
    with(sound(), "crates/pure/src/part.rs", code)
}

fn table(rows: &str) -> Repo {
    with(
        sound(),
        "ARCHITECTURE.md",
        &TABLE.replace("high  | L4    | pure          | recorded\n", rows),
    )
}

/// The rules and lines that are broken.
fn broken(repo: &Repo) -> Vec<(&'static str, usize)> {
    check(repo).into_iter().map(|finding| (finding.rule, finding.line)).collect()
}

/// Repositories that break exactly one rule in one place: (rule, line, repository).
fn bad_examples() -> Vec<(&'static str, usize, Repo)> {
    let mut examples = bad_crates();
    examples.extend(bad_code());
    examples.extend(bad_documents());
    examples.extend(bad_catalogues());
    examples
}

fn bad_crates() -> Vec<(&'static str, usize, Repo)> {
    let lib = "crates/high/src/lib.rs";
    vec![
        ("layers", 0, depending("pure", "strake-high", None)),
        ("layers", 0, depending("pure", "strake-high", Some("build"))),
        ("layers", 0, depending("pure", "serde", None)),
        ("layers", 5, table("high | L4 | pure |\n | extra\n")),
        ("decisions", 0, depending("high", "rand", None)),
        ("decisions", 0, depending("high", "left-pad", Some("dev"))),
        ("decisions", 0, depending("high", "blake", Some("build"))),
        (
            "crate-doc",
            1,
            with(
                sound(),
                lib,
                "//! **What it is.** **Where to start.**\n#![forbid(unsafe_code)]\n",
            ),
        ),
        ("unsafe", 1, with(sound(), lib, DOC)),
        ("unsafe", 1, with(sound(), lib, &format!("{DOC}// #![forbid(unsafe_code)]\n"))),
        ("unsafe", 1, with(sound(), "crates/high/src/bin/tool.rs", "fn main() {}\n")),
        (
            "lints",
            0,
            with(sound(), "crates/high/Cargo.toml", "[lints]\n[dependencies]\nworkspace = true\n"),
        ),
        ("pure-clippy", 0, without(sound(), "crates/pure/clippy.toml")),
        (
            "pure-clippy",
            0,
            with(sound(), "crates/pure/clippy.toml", "path = \"std::time::Instant\"\n"),
        ),
    ]
}

fn bad_code() -> Vec<(&'static str, usize, Repo)> {
    vec![
        ("pure", 2, pure("\nfn f() { let now = Instant::now(); }\n")),
        ("pure", 1, pure("use std::collections::HashMap;\n")),
        ("pure", 1, pure("fn f() { std::env::var(\"X\"); }\n")),
        ("pure", 1, pure("use rand::Rng;\n")),
        ("globs", 1, high("use super::*;\n")),
        ("globs", 2, high("\npub use crate::{inner::*, Other};\n")),
        ("globs", 1, high("#[cfg(not(test))] use super::*;\n")),
        ("tests", 3, high("#[cfg(test)]\nmod tests {\n#[ignore = \"slow\"]\nfn f() {}\n}\n")),
        ("tests", 1, high("#[should_panic(expected = \"x\")]\nfn f() {}\n")),
        ("sleep", 1, high("fn f() { std::thread::sleep(d); }\n")),
        ("sleep", 1, with(sound(), "crates/high/src/tests.rs", "fn f() { thread::sleep(d); }\n")),
        ("unfinished", 1, high("fn f() { todo!() }\n")),
        ("unfinished", 1, high("fn f() { unimplemented!(\"later\") }\n")),
        ("ascii", 2, high("\n// an arrow \u{2192} and another \u{2192}\n")),
        ("ascii", 1, high("const X: &str = \"\u{b5}s\";\n")),
        ("ascii", 1, with(sound(), "crates/high/src/tests.rs", "// \u{b5}s\n")),
        ("columns", 2, high(&format!("\n// {}\n", "x".repeat(118)))),
    ]
}

fn bad_documents() -> Vec<(&'static str, usize, Repo)> {
    let ondisk = |document: &str| {
        let repo = with(sound(), "crates/ondisk/src/label.rs", "pub struct Label(u32);\n");
        with(repo, "docs/on-disk.md", document)
    };
    let undocumented = with(sound(), "crates/api/proto/strake.proto", "syntax = \"proto3\";\n");
    let architecture = |text: &str| with(sound(), "ARCHITECTURE.md", &format!("{TABLE}{text}\n"));
    vec![
        ("formats", 0, undocumented),
        ("formats", 0, ondisk("nothing recorded\n")),
        (
            "formats",
            1,
            ondisk("<!-- format: crates/ondisk/src/label.rs fnv1a64 0123456789abcdef -->\n"),
        ),
        (
            "formats",
            1,
            ondisk(&recorded_label("pub struct Label(u32);").replace("fnv1a64", "crc32")),
        ),
        (
            "formats",
            2,
            ondisk(&format!(
                "{}\n<!-- format: gone.rs fnv1a64 0 -->\n",
                recorded_label("pub struct Label(u32);")
            )),
        ),
        ("references", 6, architecture("`tidy layer`")),
        ("references", 6, architecture("`crates/high/src/lib.rs::no_such_test`")),
        ("references", 6, architecture("`crates/high/src/gone.rs::f`")),
        ("doc-paths", 2, walk("\n`crates/high/src/gone.rs`")),
        ("doc-paths", 1, walk("`crates/high/src/part.rs::gone`")),
        ("doc-paths", 1, walk("`part.rs::Shard::gone`")),
        ("doc-paths", 1, walk("`lib.rs`")),
        ("doc-paths", 1, walk("`art.rs`")),
        ("doc-paths", 1, with(walk(""), "docs/guarantees.md", "`part.rs::only_in_a_comment`")),
        ("conflicts", 2, with(sound(), "README.md", "One.\n<<<<<<< HEAD\n")),
        ("words", 2, with(sound(), "README.md", "A host connects.\nSomebody connects.\n")),
        ("words", 3, with(sound(), "docs/page.md", "\n\nA drive of another\nmachine.\n")),
        ("words", 2, high("// A host.\nconst A: &str = \"told\";\n")),
        ("words", 2, high("const A: &str = \"it \\\n    goes \\\n    on\";\n")),
        ("commands", 2, high("\nconst A: &str = \"first (strake array show {name})\";\n")),
        ("commands", 1, high("const A: &str = \"as a spare: strake \\\n    spare add\";\n")),
        ("flags", 2, high("\nconst A: &str = \"choose another address with --listen\";\n")),
        ("flags", 1, high("const A: &str = \"give a key (--tls-key-file \\\n    FILE)\";\n")),
        ("flags", 1, high("const A: &str = \"nvme connect takes one; name it with --drive\";\n")),
        ("flags", 1, with(sound(), "crates/daemon/src/run.rs", "const A: &str = \"--socket\";\n")),
        ("words", 1, with(sound(), "crates/cli/src/args.rs", "/// Somebody.\nconst A: u8 = 0;\n")),
        ("words", 2, with(sound(), "crates/api/a.proto", "message A {\n  // Somebody.\n}\n")),
        ("structure", 0, high(&format!("impl A {{{}}}\n", "\n    fn f() {}".repeat(61)))),
        ("rows", 0, with(divided("front"), "crates/high/src/back.rs", "use crate::front::A;\n")),
        ("rows", 0, divided("gone")),
        ("words", 1, high("fn is_told() {}\n")),
        ("words", 2, high("#[cfg(test)]\n// Somebody is `told`.\nfn f() {}\n")),
        ("words", 2, high("#[cfg(test)]\nfn NobodyElse() {}\n")),
    ]
}

/// A crate of two modules whose first page has `back` in the row before `front`.
fn divided(front: &str) -> Repo {
    let table = format!(
        "//! | modules | what |\n//! |---|---|\n//! | `back` | a |\n//! | `{front}` | b |\n"
    );
    let (repo, lib) = (sound(), "crates/high/src/lib.rs");
    let page = repo.sources.iter().find(|source| source.path == lib).map(|source| &source.text);
    let text = format!("{}{table}mod back;\nmod front;\n", page.expect("it has a first page"));
    let repo = with(repo, lib, &text);
    let repo = with(repo, "crates/high/src/back.rs", "pub struct B;\n");
    with(repo, "crates/high/src/front.rs", "pub struct A;\nuse crate::back::B;\n")
}

fn bad_catalogues() -> Vec<(&'static str, usize, Repo)> {
    let page = |text: &str| with(sound(), "docs/scenarios.md", text);
    let claim = |shown: &str| page(&catalogue(shown));
    let whole = catalogue("none yet");
    let named = with(sound(), "crates/high/src/tests.rs", "#[test]\nfn f01_crash() {}\n");
    vec![
        ("scenarios", 0, without(sound(), "docs/scenarios.md")),
        ("scenarios", 0, page(&whole.replace("| F02 | x | none yet |\n", ""))),
        ("scenarios", 5, page(&whole.replace("| F02 |", "| F02 | x | none yet |\n| F02 |"))),
        ("scenarios", 1, page(&format!("| F99 | x | none yet |\n{whole}"))),
        ("scenarios", 3, claim("")),
        ("scenarios", 3, claim("`crates/high/src/gone.rs::f`")),
        ("scenarios", 3, claim("`crates/high/src/lib.rs::f`")),
        ("scenarios", 3, claim("`tests/e2e/gone.sh`")),
        ("scenarios", 2, named),
    ]
}

/// A repository whose walk through the code says `text`.
fn walk(text: &str) -> Repo {
    with(
        high("// fn only_in_a_comment\nstruct Shard;\nimpl Shard {\n    fn turn(&self) {}\n}\n"),
        "docs/io-path.md",
        text,
    )
}

/// The line that `hash-docs` prints for a label source with this code.
fn recorded_label(code: &str) -> String {
    let repo = with(Repo::default(), "crates/ondisk/src/label.rs", code);
    let lines = formats::lines_to_paste(&repo);
    lines
        .lines()
        .find(|line| line.contains("label.rs"))
        .map(str::to_string)
        .expect("the source is listed")
}

#[test]
fn a_sound_repository_has_no_findings() {
    assert_eq!(check(&sound()), []);
}

#[test]
fn each_bad_example_breaks_its_rule_and_no_other() {
    for (n, (rule, line, repo)) in bad_examples().into_iter().enumerate() {
        let lines: BTreeSet<(&str, usize)> = broken(&repo).into_iter().collect();
        assert_eq!(lines, BTreeSet::from([(rule, line)]), "example {n} of {rule}");
    }
}

#[test]
fn every_rule_has_a_failing_example() {
    let shown: BTreeSet<&str> = bad_examples().into_iter().map(|(rule, _, _)| rule).collect();
    let all: BTreeSet<&str> = RULES.iter().map(|(rule, _)| *rule).collect();
    assert_eq!(shown, all);
}

#[test]
fn good_code_near_the_rules_is_left_alone() {
    let good = [
        depending("high", "strake-pure", None),
        depending("pure", "strake-high", Some("dev")),
        depending("pure", "blake3", None),
        depending("pure", "serde", Some("build")),
        pure(
            "// Instant::now is what this crate never calls; see std::time.\nconst X: &str = \"HashMap\";\n",
        ),
        pure(
            "#[cfg(test)]\nmod tests {\n    use super::*;\n    use std::collections::HashMap;\n}\n",
        ),
        pure("fn f(instant: u64, operand: u64, brand: u64) {}\n"),
        high("use core::arch::x86_64::*;\nuse crate::Kind::*;\n"),
        high(
            "const A: &str = \"nvme connect --tls (smartctl --all \\\n    {x}, systemctl disable --now x) -- --\";\n",
        ),
        high("// --socket\n#[cfg(test)]\nmod tests {\n    const A: &str = \"--socket\";\n}\n"),
        with(sound(), "crates/daemon/src/args.rs", "const A: &str = \"--socket\";\n"),
        with(sound(), "crates/cli/src/part.rs", "const A: &str = \"strake status --output\";\n"),
        high("fn f(a: &'static str) -> char { '\"' }\n// it's a todo!() in words\n"),
        with(sound(), "crates/high/src/tests.rs", "const X: &str = \"\u{b5}s\";\nuse super::*;\n"),
        with(
            with(sound(), "crates/high/src/a.rs", "#[cfg(test)]\nmod doubles;\n"),
            "crates/high/src/a/doubles.rs",
            "use super::*;\n",
        ),
        with(sound(), "crates/high/src/part.rs", &format!("// {}\n", "x".repeat(117))),
        walk(
            "`part.rs`, `src/part.rs::Shard`, `crates/high/src/part.rs::turn`, `part.rs::Shard::turn`",
        ),
        walk("`turn` alone and\n```\ngone.rs::f\n```\n"),
        with(sound(), "README.md", "Its `told` state.\n```\nwhoever\n```\nA machine. Of another\n"),
        with(sound(), "docs/page.md", "Written by a program; do not edit. Somebody\n"),
        with(sound(), "STYLE.md", "| somebody | the host |\n"),
        with(sound(), "docs/page.md", "See [a page](guide/somebody.md) and [more](told.md).\n"),
        with(sound(), "docs/events.md", "| `a` | info | Somebody came. |\n"),
        with(
            with(
                with(sound(), "tests/e2e/crash.sh", "exit 0\n"),
                "crates/high/src/tests.rs",
                "#[test]\nfn f01_crash() {}\nfn f02_helper() {}\n",
            ),
            "docs/scenarios.md",
            &catalogue("`crates/high/src/tests.rs::f01_crash`, `tests/e2e/crash.sh`"),
        ),
    ];
    for (n, repo) in good.into_iter().enumerate() {
        assert_eq!(check(&repo), [], "example {n}");
    }
}

#[test]
fn an_arrow_that_points_up_is_refused_even_when_the_table_lists_it() {
    let repo = with(
        sound(),
        "ARCHITECTURE.md",
        &TABLE.replace("| -             | blake3", "| high | blake3"),
    );
    assert_eq!(broken(&repo), [("layers", 3)]);
}

#[test]
fn a_repository_without_the_table_fails() {
    let repo = without(sound(), "ARCHITECTURE.md");
    assert!(
        check(&repo)
            .iter()
            .any(|finding| finding.path == "ARCHITECTURE.md" && finding.rule == "layers")
    );
}

#[test]
fn a_crate_and_its_row_need_each_other() {
    assert_eq!(broken(&table("")), [("layers", 0)]);
    assert_eq!(broken(&table("high | L4 | pure | -\ngone | L4 | - | -\n")), [("layers", 5)]);
    assert_eq!(broken(&table("high | L4 | gone | -\n")), [("layers", 4)]);
    assert_eq!(broken(&table("high | L9 | pure | -\n")), [("layers", 0), ("layers", 4)]);
}

#[test]
fn a_format_hash_follows_the_code_and_not_its_comments() {
    let line = recorded_label("pub struct Label(u32);");
    assert_eq!(line, recorded_label("// A label.\npub struct  Label( u32 );\n"));
    assert_ne!(line, recorded_label("pub struct Label(u64);"));
    assert_ne!(
        recorded_label("const MAGIC: &str = \"a\";"),
        recorded_label("const MAGIC: &str = \"b\";")
    );
}

#[test]
fn fnv_matches_its_published_vectors() {
    // draft-eastlake-fnv, appendix with test vectors for the 64-bit FNV-1a.
    for (text, hash) in [
        ("", 0xcbf2_9ce4_8422_2325),
        ("a", 0xaf63_dc4c_8601_ec8c),
        ("foobar", 0x8594_4171_f739_67e8),
    ] {
        assert_eq!(formats::fnv1a64(text.as_bytes()), hash, "{text:?}");
    }
}

#[test]
fn the_lexer_tells_code_from_comments_and_literals() {
    // In the second text `c` marks code, `/` a comment and `s` a literal.
    let cases = [
        ("a // b\nc", "cc////cc"),
        ("/*/**/*/a", "////////c"),
        ("\"a\\\"b\"c", "ssssssc"),
        ("r#\"a\"b\"#c", "ssssssssc"),
        ("br\"a\\\"c", "csssssc"),
        ("r#type", "cccccc"),
        ("var\"a\"", "cccsss"),
        ("'a'b", "sssc"),
        ("'\\''b", "ssssc"),
        ("<'a>'b'", "ccccsss"),
        ("'\\u{1}'a", "sssssssc"),
        ("\"never closed", "sssssssssssss"),
        ("/* never closed", "///////////////"),
    ];
    for (text, expected) in cases {
        let class = |class: &lex::Class| match class {
            lex::Class::Code => 'c',
            lex::Class::Comment => '/',
            lex::Class::Literal => 's',
        };
        let found: String = lex::classify(text).iter().map(class).collect();
        assert_eq!(found, expected, "{text:?}");
    }
}

#[test]
fn functions_are_measured_by_their_lines_of_code() {
    let text = "\
fn short() {}
trait T {
    fn absent(&self);
}
impl T for [u8; { 2 }] {
    fn long<F: Fn(u8) -> u8>(&self, pointer: fn(u8) -> u8)
    where
        F: Send,
    {
        // A comment and a blank line do not count.

        let brace = '{';
    }
}
";
    let found = sizes::functions(&Source::new("crates/high/src/part.rs", text));
    let found: Vec<(&str, usize, usize)> =
        found.iter().map(|f| (f.name.as_str(), f.line, f.lines)).collect();
    assert_eq!(found, [("short", 1, 1), ("long", 6, 6)]);
}

#[test]
fn the_answer_of_cargo_metadata_is_understood() {
    let json = r#"{"packages": [{"name": "strake-raid", "version": "1.0.0", "dependencies": [
        {"name": "strake-units", "kind": null}, {"name": "proptest", "kind": "dev"}]}], "version": 1}"#;
    let packages = parse_packages(json).expect("well-formed");
    let kinds: Vec<(Option<&str>, Option<&str>)> =
        packages[0].dependencies.iter().map(|d| (d.ours(), d.kind.as_deref())).collect();
    assert_eq!(packages[0].folder, "raid");
    assert_eq!(kinds, [(Some("units"), None), (None, Some("dev"))]);
    assert!(parse_packages("{}").is_err());
}

#[test]
fn development_arrows_are_listed() {
    assert_eq!(
        layers::development_arrows(&depending("pure", "strake-high", Some("dev"))),
        ["pure -> high"]
    );
    assert!(layers::development_arrows(&depending("high", "strake-pure", None)).is_empty());
}
