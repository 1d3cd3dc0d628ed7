//! The repository as plain data: what the checks look at.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::Command;

use serde::Deserialize;

use super::source::Source;

/// Everything the checks read, loaded once.
#[derive(Debug, Default)]
pub struct Repo {
    /// Every Rust source below `crates/` that is not generated, in order of path.
    pub sources: Vec<Source>,
    /// Every package of the workspace, in order of folder.
    pub packages: Vec<Package>,
    /// Every other text file the checks read, by path: documents, manifests, clippy.toml, .proto, scripts.
    pub files: BTreeMap<String, String>,
}

/// One package of the workspace and what it depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    /// Folder below `crates/`.
    pub folder: String,
    /// Dependencies as the manifest states them.
    pub dependencies: Vec<Dependency>,
}

/// One line of a manifest's dependency tables.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Dependency {
    /// The package depended on, whatever name it is imported under.
    pub name: String,
    /// `None` for a normal dependency, otherwise `dev` or `build`.
    pub kind: Option<String>,
}

impl Dependency {
    /// The folder of one of our own crates, or `None` for a third party.
    pub fn ours(&self) -> Option<&str> {
        self.name.strip_prefix("strake-")
    }
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<MetadataPackage>,
}

#[derive(Deserialize)]
struct MetadataPackage {
    name: String,
    dependencies: Vec<Dependency>,
}

/// What is read outside of the folders.
const ROOT_FILES: [&str; 6] =
    ["ARCHITECTURE.md", "CONTRIBUTING.md", "Cargo.toml", "README.md", "SECURITY.md", "STYLE.md"];

impl Repo {
    /// Reads the repository at `root`.
    ///
    /// # Errors
    /// When a file cannot be read or `cargo metadata` cannot be run or understood.
    pub fn load(root: &Path) -> io::Result<Repo> {
        let mut repo =
            Repo { packages: parse_packages(&cargo_metadata(root)?)?, ..Repo::default() };
        for folder in ["crates", "docs", "tests"] {
            repo.read_folder(root, folder)?;
        }
        for name in ROOT_FILES {
            if let Ok(text) = std::fs::read_to_string(root.join(name)) {
                repo.files.insert(name.to_string(), text);
            }
        }
        repo.settle();
        Ok(repo)
    }

    /// Adds one file by its path; sources are lexed, everything else is kept as text.
    pub fn add(&mut self, path: &str, text: &str) {
        if path.ends_with(".rs") {
            self.sources.push(Source::new(path, text));
        } else {
            self.files.insert(path.to_string(), text.to_string());
        }
    }

    /// Sorts the sources and marks those that are declared as tests by another file.
    pub fn settle(&mut self) {
        self.sources.sort_by(|a, b| a.path.cmp(&b.path));
        let modules: Vec<String> = self.sources.iter().flat_map(Source::test_modules).collect();
        for source in &mut self.sources {
            let stem = source.path.trim_end_matches(".rs");
            let inside = |m: &String| {
                stem.strip_prefix(m.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            if modules.iter().any(inside) {
                source.mark_as_test();
            }
        }
    }

    /// The source at `path`, if there is one.
    pub fn source(&self, path: &str) -> Option<&Source> {
        self.sources.iter().find(|source| source.path == path)
    }

    fn read_folder(&mut self, root: &Path, folder: &str) -> io::Result<()> {
        let mut entries: Vec<_> = match std::fs::read_dir(root.join(folder)) {
            Ok(entries) => entries.collect::<io::Result<_>>()?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let name = entry.file_name();
            let path = format!("{folder}/{}", name.to_string_lossy());
            if entry.file_type()?.is_dir() {
                if name != "target" && name != "generated" {
                    self.read_folder(root, &path)?;
                }
            } else if is_text_of_interest(&path) {
                self.add(&path, &std::fs::read_to_string(entry.path())?);
            }
        }
        Ok(())
    }
}

fn is_text_of_interest(path: &str) -> bool {
    [".rs", ".md", ".toml", ".proto", ".sh"].iter().any(|ending| path.ends_with(ending))
}

fn cargo_metadata(root: &Path) -> io::Result<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root)
        .output()?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    String::from_utf8(output.stdout).map_err(io::Error::other)
}

/// The packages in the answer of `cargo metadata` (The Cargo Book, "cargo metadata", format version 1).
pub fn parse_packages(json: &str) -> io::Result<Vec<Package>> {
    let metadata: Metadata = serde_json::from_str(json).map_err(io::Error::other)?;
    let mut packages: Vec<Package> = metadata
        .packages
        .into_iter()
        .map(|package| Package {
            folder: package.name.trim_start_matches("strake-").to_string(),
            dependencies: package.dependencies,
        })
        .collect();
    packages.sort_by(|a, b| a.folder.cmp(&b.folder));
    Ok(packages)
}
