//! The only writer of state files: every change of a persistent file uses a [`StateFolder`].
//!
//! A change counts when it survives a power loss. Therefore the content of a file is made durable before its name.
//! Changes of names (new, renamed and removed files) are durable when their folder is synchronized, and only then is a
//! change acknowledged. Each change is a sequence of a few [`Step`]s. Tests execute them on a layer that drops, at a
//! power loss, everything that was not durable ([`Disk`]).

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::OFlags;
use rustix::io::Errno;

/// One operation on the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step<'a> {
    /// Creates or truncates a file, writes these bytes, and makes them durable, but not its name.
    Fill(&'a Path, &'a [u8]),
    /// Appends bytes to a file, which is created if missing, and makes them durable, but not its name.
    Append(&'a Path, &'a [u8]),
    /// Renames a file, which replaces an existing file of this name.
    Rename(&'a Path, &'a Path),
    /// Removes a file.
    Remove(&'a Path),
    /// Creates a folder.
    MakeFolder(&'a Path),
    /// Makes the changes of names in a folder durable.
    SyncFolder(&'a Path),
}

/// The executor of steps.
pub(crate) trait Disk: fmt::Debug + Send + Sync {
    /// Executes one step.
    ///
    /// # Errors
    /// The errors of the file system.
    fn carry_out(&self, step: Step<'_>) -> io::Result<()>;
}

/// The file system itself.
#[derive(Debug)]
pub(crate) struct Kernel;

impl Disk for Kernel {
    fn carry_out(&self, step: Step<'_>) -> io::Result<()> {
        match step {
            Step::Fill(path, bytes) => fill(path, bytes),
            Step::Append(path, bytes) => append(path, bytes),
            Step::Rename(from, to) => fs::rename(from, to),
            Step::Remove(path) => fs::remove_file(path),
            Step::MakeFolder(path) => DirBuilder::new().mode(0o700).create(path),
            Step::SyncFolder(path) => File::open(path)?.sync_all(),
        }
    }
}

/// Opens a file of the state directory. A symbolic link is refused: with it, a write of the daemon would change a file
/// elsewhere, and a read would disclose one.
///
/// # Errors
/// The errors of the file system, and a link.
pub(crate) fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let opened = options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed()).open(path);
    opened.map_err(|error| match error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) {
        true => io::Error::other("it is a symbolic link; replace the link by the file"),
        false => error,
    })
}

/// Opens a file of the state directory for reads, as [`open`].
///
/// # Errors
/// As [`open`].
pub(crate) fn open_to_read(path: &Path) -> io::Result<File> {
    open(path, File::options().read(true))
}

fn fill(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = File::options();
    let mut file = open(path, options.write(true).create(true).truncate(true).mode(0o600))?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Appends bytes to a file. After an error, the partial write is removed if possible.
fn append(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = open(path, File::options().append(true).create(true).mode(0o600))?;
    let before = file.metadata()?.len();
    let written = file.write_all(bytes).and_then(|()| file.sync_data());
    if written.is_err() {
        let _ = file.set_len(before);
    }
    written
}

/// The state directory, or a folder in it.
#[derive(Clone, Debug)]
pub(crate) struct StateFolder {
    path: PathBuf,
    disk: Arc<dyn Disk>,
}

impl StateFolder {
    /// Creates the folder value of `path` on this host.
    pub(crate) fn of(path: &Path) -> Self {
        Self::on(path, Arc::new(Kernel))
    }

    /// Creates the folder value of `path` with changes through `disk`.
    pub(crate) fn on(path: &Path, disk: Arc<dyn Disk>) -> Self {
        Self { path: path.to_owned(), disk }
    }

    /// Returns the path of the folder.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns a folder inside this folder.
    pub(crate) fn folder(&self, name: &str) -> Self {
        Self { path: self.path.join(name), disk: Arc::clone(&self.disk) }
    }

    /// Returns the path of the file `name`, for reads.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Reads the file `name`; `None` if it does not exist.
    ///
    /// # Errors
    /// The file cannot be read, or has more than `bytes_max` bytes.
    pub(crate) fn read(&self, name: &str, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
        let file = match open_to_read(&self.file(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let mut bytes = Vec::new();
        file.take(bytes_max + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > bytes_max {
            return Err(io::Error::other(format!("it has more than {bytes_max} bytes")));
        }
        Ok(Some(bytes))
    }

    /// Creates the folder and its parents, unless they exist.
    ///
    /// # Errors
    /// If a folder cannot be created, or its name cannot be made durable.
    pub(crate) fn make(&self) -> io::Result<()> {
        let absent = |path: &&Path| !path.as_os_str().is_empty() && !path.is_dir();
        let absent: Vec<&Path> = self.path.ancestors().take_while(absent).collect();
        for path in absent.into_iter().rev() {
            match self.disk.carry_out(Step::MakeFolder(path)) {
                // Another process was faster.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
                made => made?,
            }
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            self.disk.carry_out(Step::SyncFolder(parent.unwrap_or(Path::new("."))))?;
        }
        Ok(())
    }

    /// Makes the name of the folder durable, because the process that created it may have ended before.
    ///
    /// # Errors
    /// The errors of the file system.
    pub(crate) fn sync_name(&self) -> io::Result<()> {
        let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        self.disk.carry_out(Step::SyncFolder(parent.unwrap_or(Path::new("."))))
    }

    /// Makes the changes of names in the folder durable.
    ///
    /// # Errors
    /// The errors of the file system. The state of the names is then unknown.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.disk.carry_out(Step::SyncFolder(&self.path))
    }

    /// Writes the new content of `name` durably to a temporary file.
    ///
    /// # Errors
    /// For example, if there is no space. Nothing has changed then.
    pub(crate) fn prepare(&self, name: &str, bytes: &[u8]) -> io::Result<Next> {
        let (folder, to) = (self.clone(), self.file(name));
        let next = Next { folder, from: self.file(&format!("{name}.next")), to, placed: false };
        // On an error, the partial file is removed to free its space.
        next.folder.disk.carry_out(Step::Fill(&next.from, bytes))?;
        Ok(next)
    }

    /// Replaces the content of the file `name`. After a power loss during the call, the file has the old or the new
    /// content; after the call, it has the new content.
    ///
    /// # Errors
    /// The errors of [`prepare`](Self::prepare), [`Next::place`] and [`sync`](Self::sync).
    pub(crate) fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.prepare(name, bytes)?.place()?;
        self.sync()
    }

    /// Creates the empty file `name`.
    ///
    /// # Errors
    /// The errors of the file system.
    pub(crate) fn mark(&self, name: &str) -> io::Result<()> {
        self.disk.carry_out(Step::Fill(&self.file(name), b""))?;
        self.sync()
    }

    /// Appends bytes to the file `name`.
    ///
    /// # Errors
    /// The errors of the file system. Nothing was appended then, so the caller can try again.
    pub(crate) fn append(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let path = self.file(name);
        if !path.try_exists()? {
            self.disk.carry_out(Step::Fill(&path, b""))?;
        }
        // The name is made durable first, because a failure after the append would cause a second append. This includes
        // existing files, because the process that created the file may have ended before.
        self.sync()?;
        self.disk.carry_out(Step::Append(&path, bytes))
    }

    /// Renames a file.
    ///
    /// # Errors
    /// The errors of the file system.
    pub(crate) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.carry_out(Step::Rename(&self.file(from), &self.file(to)))?;
        self.sync()
    }

    /// Removes a file, if it exists. The removal is durable only after [`sync`](Self::sync).
    ///
    /// # Errors
    /// The errors of the file system.
    pub(crate) fn unlink(&self, name: &str) -> io::Result<()> {
        match self.disk.carry_out(Step::Remove(&self.file(name))) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// Removes a file durably. Also makes an earlier removal durable.
    ///
    /// # Errors
    /// The errors of the file system.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        self.unlink(name)?;
        self.sync()
    }
}

/// The new content of a file in a durable temporary file. The drop removes the temporary file.
#[derive(Debug)]
#[must_use = "it takes effect when it is placed and the folder synced"]
pub(crate) struct Next {
    folder: StateFolder,
    from: PathBuf,
    to: PathBuf,
    placed: bool,
}

impl Next {
    /// Returns the path of the temporary file.
    pub(crate) fn path(&self) -> &Path {
        &self.from
    }

    /// Replaces the file. The change is durable only after the [`sync`](StateFolder::sync) of the folder.
    ///
    /// # Errors
    /// The errors of the file system. The file is then unchanged.
    pub(crate) fn place(mut self) -> io::Result<()> {
        self.folder.disk.carry_out(Step::Rename(&self.from, &self.to))?;
        self.placed = true;
        Ok(())
    }
}

impl Drop for Next {
    fn drop(&mut self) {
        if !self.placed {
            // The next temporary file overwrites a remaining one.
            let _ = self.folder.disk.carry_out(Step::Remove(&self.from));
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
