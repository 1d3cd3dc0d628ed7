//! Files that say what a modelled drive is like.
//!
//! JSON with the fields of [`Profile`], times in nanoseconds; `docs/benchmarks/README.md` explains them. A field that
//! is left out is 0, which means no time, no limit, no disturbance; one that does not exist is refused, because a
//! misspelled limit would be no limit.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use strake_dev_mem::{Modelled, NullDevice};
use strake_units::{BlockSize, Nanos};

pub use strake_dev_mem::Profile;

/// The published drive, as a file to begin one's own with.
pub const SN861: &str = include_str!("../profiles/sn861.json");

/// A PCIe 6 drive as published.
pub const M9650: &str = include_str!("../profiles/9650.json");

/// Why a profile cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileFileError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub why: String,
}

impl fmt::Display for ProfileFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        write!(
            f,
            "the profile {path} cannot be used: {}; begin with the output of strake bench profile",
            self.why
        )
    }
}

impl std::error::Error for ProfileFileError {}

/// A profile as a file holds it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    name: String,
    /// Where the figures are from.
    source: String,
    read_latency_ns: u64,
    read_latency_tail_ns: u64,
    write_latency_ns: u64,
    write_latency_tail_ns: u64,
    flush_latency_ns: u64,
    read_iops: u64,
    write_iops: u64,
    read_bytes_per_s: u64,
    write_bytes_per_s: u64,
    read_cost_to_writes_percent: u32,
    write_cost_to_reads_percent: u32,
    latency_spread_percent: u32,
    seed: u64,
    queue_depth: Option<u32>,
}

/// Reads the profile in the file at `path`.
///
/// # Errors
/// When it cannot be read, is no profile, or contradicts itself.
pub fn load(path: &Path) -> Result<Profile, ProfileFileError> {
    let failed = |why: String| ProfileFileError { path: path.to_owned(), why };
    let text = std::fs::read_to_string(path).map_err(|e| failed(e.to_string()))?;
    parse(&text).map_err(failed)
}

/// Reads a profile.
///
/// # Errors
/// What is wrong with it, in words.
pub fn parse(text: &str) -> Result<Profile, String> {
    let file: File = serde_json::from_str(text).map_err(|e| e.to_string())?;
    if file.name.is_empty() {
        return Err("it has no name, and results are to say what they are of".to_owned());
    }
    let or_usual = |tail: u64, usual: u64| Nanos(if tail == 0 { usual } else { tail });
    let profile = Profile {
        // Lives as long as the program does, as the name of a built-in profile: one or two are read in a run.
        name: file.name.leak(),
        read_latency: Nanos(file.read_latency_ns),
        read_latency_tail: or_usual(file.read_latency_tail_ns, file.read_latency_ns),
        write_latency: Nanos(file.write_latency_ns),
        write_latency_tail: or_usual(file.write_latency_tail_ns, file.write_latency_ns),
        flush_latency: Nanos(file.flush_latency_ns),
        read_iops: file.read_iops,
        write_iops: file.write_iops,
        read_bytes_per_s: file.read_bytes_per_s,
        write_bytes_per_s: file.write_bytes_per_s,
        read_cost_to_writes_percent: file.read_cost_to_writes_percent,
        write_cost_to_reads_percent: file.write_cost_to_reads_percent,
        latency_spread_percent: file.latency_spread_percent,
        seed: file.seed,
        queue_depth: file.queue_depth.unwrap_or(Profile::INSTANT.queue_depth),
    };
    // The drive itself knows best what contradicts itself.
    let drive = Modelled::new(NullDevice::new(1, BlockSize::B4096), profile);
    drive.map(|_| profile).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{M9650, Profile, SN861, load, parse};
    use strake_units::Nanos;

    #[test]
    fn the_file_says_what_the_built_in_profile_says() {
        assert_eq!(parse(SN861), Ok(Profile::SN861));
        assert_eq!(parse(M9650), Ok(Profile::M9650));
    }

    #[test]
    fn what_is_left_out_is_no_limit() {
        let profile = parse(r#"{"name": "mine", "read_latency_ns": 500}"#).expect("sound");
        let expected = Profile {
            name: "mine",
            read_latency: Nanos(500),
            read_latency_tail: Nanos(500),
            ..Profile::INSTANT
        };
        assert_eq!(profile, expected);
    }

    #[test]
    fn what_is_wrong_is_refused_with_a_reason() {
        for (text, why) in [
            ("", "EOF"),
            ("{}", "name"),
            (r#"{"name": "x", "read_ipos": 5}"#, "read_ipos"),
            (r#"{"name": "x", "read_iops": -5}"#, "invalid value"),
            (r#"{"name": "x", "queue_depth": 0}"#, "depth"),
            (r#"{"name": "x", "read_latency_ns": 9, "read_latency_tail_ns": 8}"#, "tail"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
        let error = load(Path::new("/nowhere/x.json")).expect_err("there is no such file");
        assert!(error.to_string().contains("/nowhere/x.json"), "{error}");
    }
}
