//! A place for files and sockets.

pub mod terminal;

use std::path::PathBuf;

/// A folder that goes away with the test.
pub struct Folder(pub PathBuf);

impl Folder {
    /// A new folder for the test `name`.
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("strake-cli-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("the temporary folder is writable");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
