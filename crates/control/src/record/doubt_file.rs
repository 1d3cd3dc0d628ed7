//! What may be wrong with the contents of arrays, in a file of the state directory for each array. The file outlasts an
//! unload and a destruction: the contents are the same when the array is back.

use std::io;

use serde::{Deserialize, Serialize};
use strake_engine::ScrubFinding;

use crate::record::files::StateFolder;
use crate::record::scrub_file::Entry;

/// Version of the files that this program writes.
const VERSION: u32 = 1;

/// Largest file that is read: all findings that are listed, and all ranges.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// What may be wrong with the contents of an array.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Doubt {
    /// Bytes of the array, as offset and length in ascending order, that were or may have been computed wrongly.
    pub(crate) suspect: Vec<(u64, u64)>,
    /// When the array was started after the first crash in mode `none` since its redundancy was verified, in
    /// microseconds since 1970; 0 if there was none.
    pub(crate) unverified_us: u64,
    /// What the last whole scrub found and did not repair, and what earlier scrubs found in stripes that it could not
    /// check.
    pub(crate) findings: Vec<ScrubFinding>,
    /// Whether scrubs found more than is listed.
    pub(crate) unlisted: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Page {
    version: u32,
    suspect: Vec<(u64, u64)>,
    unverified_us: u64,
    findings: Vec<Entry>,
    unlisted: bool,
}

fn name(uuid: &str) -> String {
    format!("doubt-{uuid}.json")
}

/// What is recorded of array `uuid`.
///
/// # Errors
/// When there is a file that cannot be read or understood.
pub(crate) fn read(state: &StateFolder, uuid: &str) -> Result<Doubt, String> {
    let text = state.read(&name(uuid), FILE_BYTES_MAX).map_err(|e| e.to_string())?;
    let Some(text) = text else { return Ok(Doubt::default()) };
    let page: Page = serde_json::from_slice(&text).map_err(|e| e.to_string())?;
    if page.version != VERSION {
        return Err(format!(
            "it has version {}, this program writes version {VERSION}",
            page.version
        ));
    }
    let findings: Option<Vec<_>> = page.findings.iter().map(Entry::finding).collect();
    let findings = findings.ok_or("it has words that are unknown to this program")?;
    let Page { suspect, unverified_us, unlisted, .. } = page;
    Ok(Doubt { suspect, unverified_us, findings, unlisted })
}

/// Records what may be wrong with the contents of array `uuid`, durably.
///
/// # Errors
/// When the state directory refuses.
pub(crate) fn write(state: &StateFolder, uuid: &str, doubt: &Doubt) -> io::Result<()> {
    if *doubt == Doubt::default() {
        return state.remove(&name(uuid));
    }
    let Doubt { suspect, unverified_us, findings, unlisted } = doubt;
    let page = Page {
        version: VERSION,
        suspect: suspect.clone(),
        unverified_us: *unverified_us,
        findings: findings.iter().map(Entry::of).collect(),
        unlisted: *unlisted,
    };
    state.replace(&name(uuid), &serde_json::to_vec(&page)?)
}
