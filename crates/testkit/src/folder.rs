//! Temporary folders.

use std::fs::{self, File};
use std::ops::Deref;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder of a test, which is removed with everything in it when this is dropped.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// A new folder whose name begins with `name`, under its canonical path. No two have the same name, in this process
    /// or in another.
    ///
    /// # Panics
    /// When the folder for temporary files cannot be written.
    #[must_use]
    pub fn new(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("{name}-{}-{number}", process::id()));
        // A process before this one with the same number may have been killed.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a temporary folder can be made");
        Self(path.canonicalize().expect("it was just made"))
    }

    /// Makes a sparse file, as a drive: the path.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn sparse(&self, name: &str, bytes: u64) -> PathBuf {
        let path = self.join(name);
        let file = File::create(&path).expect("a file can be made");
        file.set_len(bytes).expect("a sparse file can be made");
        path
    }

    /// Writes a line to a file, and makes the folders that the file is in.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn put(&self, file: &str, line: &str) {
        put(&self.join(file), line);
    }

    /// The text of a file, without white space around it.
    ///
    /// # Panics
    /// When it cannot be read.
    #[must_use]
    pub fn get(&self, file: &str) -> String {
        fs::read_to_string(self.join(file)).expect("it can be read").trim().to_owned()
    }

    /// Makes a link at `at` to `to`, and the folders that the link is in.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn link(&self, at: &str, to: &str) {
        link(&self.join(to), &self.join(at));
    }
}

pub(crate) fn put(file: &Path, line: &str) {
    fs::create_dir_all(file.parent().expect("it is in a folder")).expect("a folder can be made");
    fs::write(file, format!("{line}\n")).expect("a file can be written");
}

pub(crate) fn link(target: &Path, at: &Path) {
    fs::create_dir_all(at.parent().expect("it is in a folder")).expect("a folder can be made");
    symlink(target, at).expect("a link can be made");
}

impl Deref for Folder {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<Path> for Folder {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left behind is temporary, and the next one has another name.
        let _ = fs::remove_dir_all(&self.0);
    }
}
