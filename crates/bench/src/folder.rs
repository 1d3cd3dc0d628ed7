//! A folder of a run's own, which goes away.

use std::path::{Path, PathBuf};

/// Deleted with all that is in it when dropped.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// A new one among the system's temporary files.
    ///
    /// # Errors
    /// When there can be none.
    pub fn new(name: &str) -> Result<Self, String> {
        let path = std::env::temp_dir().join(format!("strake-bench-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|e| format!("cannot make {}: {e}", path.display()))?;
        Ok(Self(path))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left behind is temporary, and there is no caller to report it to.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
