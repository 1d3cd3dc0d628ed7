//! Formats outlive code, so a source that defines one changes together with its document.
//!
//! A document carries one line per source: `<!-- format: PATH fnv1a64 HEX -->`. The hash is taken of the
//! source without comments and white space. It detects a change that was not documented; it is no
//! protection against an attacker, so a 64-bit FNV-1a is enough.

use super::finding::Finding;
use super::repo::Repo;
use super::source::Source;

/// A set of sources and the document that describes them.
struct Contract {
    /// Folder of the sources.
    folder: &'static str,
    /// Ending of their names.
    ending: &'static str,
    /// Sources elsewhere that define a part of it: constants and codes that recovery reads.
    also: &'static [&'static str],
    /// Sources of that folder that define no format.
    except: &'static [&'static str],
    /// The document.
    document: &'static str,
}

const CONTRACTS: [Contract; 3] = [
    Contract {
        folder: "crates/ondisk/src/",
        ending: ".rs",
        also: &[
            "crates/engine/src/recorded.rs",
            "crates/engine/src/settling.rs",
            "crates/parity/src/code.rs",
            "crates/parity/src/gf.rs",
            "crates/raid/src/band.rs",
            "crates/raid/src/geometry.rs",
            "crates/raid/src/level.rs",
            "crates/raid/src/lib.rs",
            "crates/raid/src/region.rs",
            "crates/raid/src/stripe_map.rs",
        ],
        except: &["lib.rs", "error.rs", "pool.rs"],
        document: "docs/on-disk.md",
    },
    Contract {
        folder: "crates/ondisk/src/pool",
        ending: ".rs",
        also: &[
            "crates/volume/src/layout.rs",
            "crates/volume-map/src/codec.rs",
            "crates/volume-map/src/image.rs",
            "crates/volume-map/src/root.rs",
            "crates/volume-map/src/log.rs",
            "crates/volume-map/src/record.rs",
        ],
        except: &[],
        document: "docs/on-disk-pools.md",
    },
    Contract {
        folder: "crates/api/proto/",
        ending: ".proto",
        also: &[],
        except: &[],
        document: "docs/api.md",
    },
];

const ALGORITHM: &str = "fnv1a64";

/// Compares the hashes recorded in the documents with the sources.
pub fn check(repo: &Repo) -> Vec<Finding> {
    CONTRACTS.iter().flat_map(|contract| check_contract(contract, repo)).collect()
}

/// The lines that belong into the documents, each below the name of its document.
pub fn lines_to_paste(repo: &Repo) -> String {
    let mut text = String::new();
    for contract in &CONTRACTS {
        text += &format!("{}\n", contract.document);
        for (path, hash) in sources(contract, repo) {
            text += &format!("{}\n", line(&path, hash));
        }
    }
    text
}

fn check_contract(contract: &Contract, repo: &Repo) -> Vec<Finding> {
    let sources = sources(contract, repo);
    let Some(document) = repo.files.get(contract.document) else {
        let message = format!("is missing, but {}*{} needs it", contract.folder, contract.ending);
        return if sources.is_empty() { Vec::new() } else { vec![at(contract, 0, message)] };
    };
    let recorded = recorded(document);
    let mut findings = Vec::new();
    for (path, hash) in &sources {
        match recorded.iter().find(|record| record.path == *path) {
            None => findings.push(at(
                contract,
                0,
                format!("describe {path} and add: {}", line(path, *hash)),
            )),
            Some(record) if record.hash != Some(*hash) => findings.push(at(
                contract,
                record.line,
                format!(
                    "{path} has changed: make this document true again, then record: {}",
                    line(path, *hash)
                ),
            )),
            Some(_) => {}
        }
    }
    for record in
        recorded.iter().filter(|record| sources.iter().all(|(path, _)| *path != record.path))
    {
        let message =
            format!("{} is not a format source; see crates/xtask/src/tidy/formats.rs", record.path);
        findings.push(at(contract, record.line, message));
    }
    findings
}

fn at(contract: &Contract, line: usize, message: String) -> Finding {
    Finding { path: contract.document.to_string(), line, rule: "formats", message }
}

fn line(path: &str, hash: u64) -> String {
    format!("<!-- format: {path} {ALGORITHM} {hash:016x} -->")
}

/// Paths and hashes of the sources of a contract, in order of path.
fn sources(contract: &Contract, repo: &Repo) -> Vec<(String, u64)> {
    let belongs = |path: &str| {
        contract.also.contains(&path)
            || path.strip_prefix(contract.folder).is_some_and(|name| {
                name.ends_with(contract.ending) && !contract.except.contains(&name)
            })
    };
    let rust = repo.sources.iter().filter(|s| belongs(&s.path) && !s.is_test_file());
    let rust = rust.map(|source| (source.path.clone(), fnv1a64(source.essence().as_bytes())));
    let other = repo.files.iter().filter(|(path, _)| belongs(path));
    // Comments and literals of the other formats look like those of Rust, so the same lexer serves.
    let other = other
        .map(|(path, text)| (path.clone(), fnv1a64(Source::new(path, text).essence().as_bytes())));
    rust.chain(other).collect()
}

struct Record {
    line: usize,
    path: String,
    hash: Option<u64>,
}

fn recorded(document: &str) -> Vec<Record> {
    let mut records = Vec::new();
    for (n, text) in document.lines().enumerate() {
        let inside =
            text.trim().strip_prefix("<!-- format:").and_then(|rest| rest.strip_suffix("-->"));
        let Some(inside) = inside else { continue };
        let mut words = inside.split_whitespace();
        let path = words.next().unwrap_or_default().to_string();
        let hash = match (words.next(), words.next(), words.next()) {
            (Some(ALGORITHM), Some(hex), None) => u64::from_str_radix(hex, 16).ok(),
            _ => None,
        };
        records.push(Record { line: n + 1, path, hash });
    }
    records
}

/// FNV-1a, 64 bit (draft-eastlake-fnv, section 2).
pub fn fnv1a64(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}
