//! The one writer of state files: every file that outlasts the daemon is changed through a [`StateFolder`].
//!
//! A change counts when it outlasts a loss of power. So the bytes of a file are durable before its name is, and what
//! was done to names (a new file, a renamed one, a removed one) is durable when their folder is; only then is anything
//! acknowledged. Each change is a sequence of a few [`Step`]s. Tests carry them out on a layer that forgets, at a power
//! cut, what was not made durable ([`Disk`]).

use std::fmt;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the file system is asked to do at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step<'a> {
    /// Has a file, made or emptied, hold these bytes, and makes them durable. Not its name.
    Fill(&'a Path, &'a [u8]),
    /// Puts bytes behind those of a file, made when it is not there, and makes them durable. Not its name.
    Append(&'a Path, &'a [u8]),
    /// Gives a file another name, that of any file which has it already.
    Rename(&'a Path, &'a Path),
    /// Removes a file.
    Remove(&'a Path),
    /// Makes a folder.
    MakeFolder(&'a Path),
    /// Makes durable what was done to the names in a folder.
    SyncFolder(&'a Path),
}

/// What carries out steps.
pub(crate) trait Disk: fmt::Debug + Send + Sync {
    /// Carries out one.
    ///
    /// # Errors
    /// Those of the file system.
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

fn fill(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = File::options();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// What was written before an error is taken back as far as that goes.
fn append(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::options().append(true).create(true).mode(0o600).open(path)?;
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
    /// The folder at `path` of this machine.
    pub(crate) fn of(path: &Path) -> Self {
        Self::on(path, Arc::new(Kernel))
    }

    /// The folder at `path`, whose changes `disk` carries out.
    pub(crate) fn on(path: &Path, disk: Arc<dyn Disk>) -> Self {
        Self { path: path.to_owned(), disk }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A folder in it.
    pub(crate) fn folder(&self, name: &str) -> Self {
        Self { path: self.path.join(name), disk: Arc::clone(&self.disk) }
    }

    /// Where the file `name` is, for those who read it.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Makes the folder, and those it is in, unless they are there.
    ///
    /// # Errors
    /// When one cannot be made, or its name is not durable.
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

    /// Makes durable that the folder is there: the process that made it may have ended before that.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn sync_name(&self) -> io::Result<()> {
        let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        self.disk.carry_out(Step::SyncFolder(parent.unwrap_or(Path::new("."))))
    }

    /// Makes durable what was done to names in it.
    ///
    /// # Errors
    /// Those of the file system: what becomes of those names is unknown then.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.disk.carry_out(Step::SyncFolder(&self.path))
    }

    /// Writes what `name` is to hold beside it, durably.
    ///
    /// # Errors
    /// When there is no room for it, for one; nothing has changed then.
    pub(crate) fn prepare(&self, name: &str, bytes: &[u8]) -> io::Result<Next> {
        let (folder, to) = (self.clone(), self.file(name));
        let next = Next { folder, from: self.file(&format!("{name}.next")), to, placed: false };
        // Dropped on an error: a rest of it would only take space where there is none.
        next.folder.disk.carry_out(Step::Fill(&next.from, bytes))?;
        Ok(next)
    }

    /// Has the file `name` hold these bytes: before a power cut it holds the old ones or these, after it has returned
    /// these.
    ///
    /// # Errors
    /// Those of [`prepare`](Self::prepare), [`Next::place`] and [`sync`](Self::sync).
    pub(crate) fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.prepare(name, bytes)?.place()?;
        self.sync()
    }

    /// Has the file `name`, usually empty, be there.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn mark(&self, name: &str) -> io::Result<()> {
        self.disk.carry_out(Step::Fill(&self.file(name), b""))?;
        self.sync()
    }

    /// Puts bytes behind those of the file `name`.
    ///
    /// # Errors
    /// Those of the file system. Nothing was put there then, so that it can be tried again.
    pub(crate) fn append(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let path = self.file(name);
        if !path.try_exists()? {
            self.disk.carry_out(Step::Fill(&path, b""))?;
        }
        // Before the bytes, which would be there twice after a second try. Also for a file that was there: the process
        // that made it may have ended before this.
        self.sync()?;
        self.disk.carry_out(Step::Append(&path, bytes))
    }

    /// Gives a file another name.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.carry_out(Step::Rename(&self.file(from), &self.file(to)))?;
        self.sync()
    }

    /// Removes a file, if it is there. Nothing is durable before the [`sync`](Self::sync).
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn unlink(&self, name: &str) -> io::Result<()> {
        match self.disk.carry_out(Step::Remove(&self.file(name))) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// Removes a file for good. Also makes sure of an earlier removal of which it is unknown whether it was durable.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        self.unlink(name)?;
        self.sync()
    }
}

/// What a file is to hold, durable beside it. Dropping it forgets it.
#[derive(Debug)]
#[must_use = "it takes effect when it is placed and the folder synced"]
pub(crate) struct Next {
    folder: StateFolder,
    from: PathBuf,
    to: PathBuf,
    placed: bool,
}

impl Next {
    /// Where it lies until then.
    pub(crate) fn path(&self) -> &Path {
        &self.from
    }

    /// Puts it in the place of the file. Nothing is durable before the [`sync`](StateFolder::sync) of the folder.
    ///
    /// # Errors
    /// Those of the file system; the file is as it was then.
    pub(crate) fn place(mut self) -> io::Result<()> {
        self.folder.disk.carry_out(Step::Rename(&self.from, &self.to))?;
        self.placed = true;
        Ok(())
    }
}

impl Drop for Next {
    fn drop(&mut self) {
        if !self.placed {
            // What is left behind is overwritten by the next one.
            let _ = self.folder.disk.carry_out(Step::Remove(&self.from));
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
