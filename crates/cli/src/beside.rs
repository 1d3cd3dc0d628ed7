//! Where the other programs of Strake are.

use std::path::PathBuf;

/// The program `name` next to this one, or else the one that the search path has.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    let beside = std::env::current_exe().ok().and_then(|me| Some(me.parent()?.join(name)));
    beside.filter(|path| path.is_file()).unwrap_or_else(|| PathBuf::from(name))
}
