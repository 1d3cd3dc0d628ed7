//! A place for files and sockets.

pub mod terminal;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// How many folders there were: two tests may use the same name at the same time.
static MADE: AtomicU32 = AtomicU32::new(0);

/// A folder that goes away with the test.
pub struct Folder(pub PathBuf);

impl Folder {
    /// A new folder for the test `name`.
    pub fn new(name: &str) -> Self {
        let nth = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("strake-cli-{name}-{}-{nth}", std::process::id());
        let path = std::env::temp_dir().join(name);
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
