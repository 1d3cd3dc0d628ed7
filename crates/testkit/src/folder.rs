//! Temporary folders.

use std::fs::{self, File};
use std::ops::Deref;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder of a test. Dropping it removes the folder with its content.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Creates a folder with the prefix `name` under its canonical path. The name is unique in this process and among
    /// all processes.
    ///
    /// # Panics
    /// The folder for temporary files cannot be written.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self::below(&std::env::temp_dir(), name)
    }

    /// Creates a folder as [`new`](Self::new) does, in memory if the host has such a file system. For tests that write
    /// so often that the drive of the host would limit them.
    ///
    /// # Panics
    /// No folder can be created.
    #[must_use]
    pub fn in_memory(name: &str) -> Self {
        let memory = Path::new("/dev/shm");
        let is_usable = memory.metadata().is_ok_and(|about| about.is_dir());
        if is_usable { Self::below(memory, name) } else { Self::new(name) }
    }

    fn below(parent: &Path, name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("{name}-{}-{number}", process::id()));
        // A killed process with the same process identifier may have left the folder.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a temporary folder can be made");
        Self(path.canonicalize().expect("it was just made"))
    }

    /// Creates a sparse file, as a drive, and returns its path.
    ///
    /// # Panics
    /// The file cannot be created.
    pub fn sparse(&self, name: &str, bytes: u64) -> PathBuf {
        let path = self.join(name);
        let file = File::create(&path).expect("a file can be made");
        file.set_len(bytes).expect("a sparse file can be made");
        path
    }

    /// Writes a line to a file, and creates the folders of the file.
    ///
    /// # Panics
    /// The file cannot be written.
    pub fn put(&self, file: &str, line: &str) {
        put(&self.join(file), line);
    }

    /// Returns the text of a file, without white space around it.
    ///
    /// # Panics
    /// The file cannot be read.
    #[must_use]
    pub fn get(&self, file: &str) -> String {
        fs::read_to_string(self.join(file)).expect("it can be read").trim().to_owned()
    }

    /// Creates a link at `at` to `to`, and the folders of the link.
    ///
    /// # Panics
    /// The link cannot be created.
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
        // A remaining folder is temporary, and the next folder has another name.
        let _ = fs::remove_dir_all(&self.0);
    }
}
