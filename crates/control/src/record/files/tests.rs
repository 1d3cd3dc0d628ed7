use super::{Disk, Kernel, StateFolder, Step};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::{fs, io};

use crate::record::store::Store;
use strake_testkit::{Chance, Folder};

/// An executed step.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Done {
    Fill(PathBuf, Vec<u8>),
    Append(PathBuf, Vec<u8>),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
    MakeFolder(PathBuf),
    SyncFolder(PathBuf),
}

impl From<Step<'_>> for Done {
    fn from(step: Step<'_>) -> Self {
        match step {
            Step::Fill(path, bytes) => Self::Fill(path.into(), bytes.into()),
            Step::Append(path, bytes) => Self::Append(path.into(), bytes.into()),
            Step::Rename(from, to) => Self::Rename(from.into(), to.into()),
            Step::Remove(path) => Self::Remove(path.into()),
            Step::MakeFolder(path) => Self::MakeFolder(path.into()),
            Step::SyncFolder(path) => Self::SyncFolder(path.into()),
        }
    }
}

/// The result of steps that were not durable at the power loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// All are lost.
    Lost,
    /// All are kept, as after a kill -9.
    Kept,
    /// A subset is kept, drawn from this seed.
    Drawn(u64),
}

impl Fate {
    /// Both extremes, and a few in between.
    pub(crate) fn some() -> impl Iterator<Item = Self> {
        [Self::Lost, Self::Kept].into_iter().chain((1..=6).map(Self::Drawn))
    }

    /// True if the next step is kept.
    fn keeps(&mut self) -> bool {
        match self {
            Self::Lost => false,
            Self::Kept => true,
            Self::Drawn(seed) => {
                *seed = Chance::new(*seed).bits();
                *seed >> 63 == 1
            }
        }
    }
}

/// Executes steps on the file system, so that they can be read back, and records them. It computes the result of a
/// power loss after any step.
#[derive(Debug, Default)]
pub(crate) struct Forgetful(Mutex<Vec<Done>>);

impl Disk for Forgetful {
    fn carry_out(&self, step: Step<'_>) -> io::Result<()> {
        let mut done = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Kernel.carry_out(step)?;
        done.push(step.into());
        Ok(())
    }
}

/// The object of a name: a folder, or a file by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    Folder,
    File(usize),
}

/// A change of names before the synchronization of the folder.
#[derive(Clone, Debug)]
enum Change {
    New(PathBuf, Named),
    Moved(PathBuf, PathBuf, Named),
    Gone(PathBuf),
}

impl Change {
    fn is_in(&self, folder: &Path) -> bool {
        let (Self::New(path, _) | Self::Moved(_, path, _) | Self::Gone(path)) = self;
        path.parent() == Some(folder)
    }

    fn apply(self, names: &mut BTreeMap<PathBuf, Named>) {
        match self {
            Self::New(path, named) => drop(names.insert(path, named)),
            Self::Moved(from, to, named) => {
                names.remove(&from);
                names.insert(to, named);
            }
            Self::Gone(path) => drop(names.remove(&path)),
        }
    }
}

/// The present and the durable names and files of a file system.
#[derive(Default)]
struct Model {
    files: Vec<Vec<u8>>,
    now: BTreeMap<PathBuf, Named>,
    durable: BTreeMap<PathBuf, Named>,
    pending: Vec<Change>,
}

impl Model {
    /// Returns the file of this name, which is created if missing.
    fn file(&mut self, path: PathBuf) -> &mut Vec<u8> {
        let number = match self.now.get(&path) {
            Some(Named::File(number)) => *number,
            Some(Named::Folder) | None => {
                let number = self.files.len();
                self.files.push(Vec::new());
                self.change(Change::New(path, Named::File(number)));
                number
            }
        };
        &mut self.files[number]
    }

    fn change(&mut self, change: Change) {
        change.clone().apply(&mut self.now);
        self.pending.push(change);
    }

    fn carry_out(&mut self, done: Done) {
        match done {
            Done::Fill(path, bytes) => *self.file(path) = bytes,
            Done::Append(path, bytes) => self.file(path).extend(bytes),
            Done::Rename(from, to) => {
                let named = self.now[&from];
                self.change(Change::Moved(from, to, named));
            }
            Done::Remove(path) => self.change(Change::Gone(path)),
            Done::MakeFolder(path) => self.change(Change::New(path, Named::Folder)),
            Done::SyncFolder(folder) => {
                let pending = std::mem::take(&mut self.pending);
                let (synced, left) = pending.into_iter().partition(|one| one.is_in(&folder));
                self.pending = left;
                let synced: Vec<Change> = synced;
                synced.into_iter().for_each(|one| one.apply(&mut self.durable));
            }
        }
    }

    /// Applies the step in progress at the power loss. Any part of the bytes of a file may be kept.
    fn cut(&mut self, done: Done, fate: &mut Fate) {
        match done {
            Done::Fill(path, bytes) => {
                let file = self.file(path);
                file.clear();
                file.extend(bytes.into_iter().take_while(|_| fate.keeps()));
            }
            Done::Append(path, bytes) => {
                let bytes: Vec<u8> = bytes.into_iter().take_while(|_| fate.keeps()).collect();
                self.file(path).extend(bytes);
            }
            Done::SyncFolder(_) => {}
            done @ (Done::Rename(..) | Done::Remove(_) | Done::MakeFolder(_)) => {
                self.carry_out(done);
            }
        }
    }
}

/// Files and their content after a power loss.
pub(crate) type Left = BTreeMap<PathBuf, Vec<u8>>;

impl Forgetful {
    /// Creates a layer over an existing folder with durable content.
    pub(crate) fn over(folder: &Path) -> Self {
        let mut done = vec![Done::MakeFolder(folder.into())];
        done.extend(folder.parent().map(|parent| Done::SyncFolder(parent.into())));
        for entry in fs::read_dir(folder).expect("it is there") {
            let path = entry.expect("it can be read").path();
            if path.is_dir() {
                done.extend(Self::over(&path).0.into_inner().expect("nobody panicked"));
            } else {
                let bytes = fs::read(&path).expect("it can be read");
                done.push(Done::Fill(path, bytes));
            }
        }
        done.push(Done::SyncFolder(folder.into()));
        Self(Mutex::new(done))
    }

    /// Returns the number of steps so far.
    pub(crate) fn steps(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Returns the content of `folder` after a power loss after `steps` steps, during the next step.
    pub(crate) fn left(&self, folder: &Path, steps: usize, mut fate: Fate) -> Left {
        let done = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut model = Model::default();
        let mut done = done.into_iter();
        done.by_ref().take(steps).for_each(|one| model.carry_out(one));
        if let Some(one) = done.next() {
            model.cut(one, &mut fate);
        }
        let Model { files, mut durable, pending, .. } = model;
        pending.into_iter().filter(|_| fate.keeps()).for_each(|one| one.apply(&mut durable));
        let is_there = |path: &Path| {
            let above = path.ancestors().skip(1).take_while(|above| above.starts_with(folder));
            above.into_iter().all(|above| durable.get(above) == Some(&Named::Folder))
        };
        let found = durable.iter().filter(|(path, _)| is_there(path));
        found
            .filter_map(|(path, named)| match named {
                Named::File(number) => {
                    let name = path.strip_prefix(folder).ok()?.to_owned();
                    Some((name, files[*number].clone()))
                }
                Named::Folder => None,
            })
            .collect()
    }

    /// Writes the content after a power loss after all steps into a new folder at `to`.
    pub(crate) fn leave(&self, folder: &Path, to: &Path, fate: Fate) {
        for (name, bytes) in self.left(folder, self.steps(), fate) {
            let path = to.join(name);
            fs::create_dir_all(path.parent().expect("it is in a folder")).expect("it can be made");
            fs::write(path, bytes).expect("it can be written");
        }
    }
}

/// A folder that is removed with the test. It contains a state folder, not created yet, on a forgetting layer.
struct Bench {
    /// Removed with the test.
    _folder: Folder,
    state: StateFolder,
    disk: Arc<Forgetful>,
}

impl Bench {
    fn new(name: &str) -> Self {
        let folder = Folder::new(&format!("strake-files-{name}"));
        let disk = Arc::new(Forgetful::default());
        let state = StateFolder::on(&folder.join("state"), Arc::clone(&disk) as _);
        Self { _folder: folder, state, disk }
    }

    /// Checks the content of a file after a power loss now, for several results of steps that are not durable.
    fn check(&self, name: &str, wanted: Option<&[u8]>) {
        for fate in Fate::some() {
            let left = self.disk.left(self.state.path(), self.disk.steps(), fate);
            assert_eq!(left.get(Path::new(name)).map(Vec::as_slice), wanted, "{name}: {fate:?}");
        }
    }
}

#[test]
fn what_was_changed_stays_changed_over_a_power_cut() {
    let bench = Bench::new("changed");
    let state = &bench.state;
    state.make().expect("it can be made");
    for bytes in [&b"one"[..], b"two"] {
        state.replace("file", bytes).expect("there is room");
        bench.check("file", Some(bytes));
    }
    let whole: [&[u8]; 2] = [b"first\n", b"first\nsecond\n"];
    for (line, whole) in [&b"first\n"[..], b"second\n"].into_iter().zip(whole) {
        state.append("log", line).expect("there is room");
        bench.check("log", Some(whole));
    }
    state.rename("log", "old").expect("it is there");
    state.append("log", b"third\n").expect("there is room");
    bench.check("old", Some(whole[1]));
    bench.check("log", Some(b"third\n"));
    state.mark("mark").expect("there is room");
    bench.check("mark", Some(b""));
    let within = state.folder("within");
    within.make().expect("it can be made");
    within.replace("file", b"deep").expect("there is room");
    bench.check("within/file", Some(b"deep"));
    for name in ["file", "mark", "never there"] {
        state.remove(name).expect("it can be removed");
        bench.check(name, None);
    }
    within.remove("file").expect("it can be removed");
    bench.check("within/file", None);
}

/// A layer that temporarily cannot make folders durable.
#[derive(Debug, Default)]
pub(crate) struct Ill(AtomicBool);

impl Ill {
    /// From now on, folders can be made durable or not.
    pub(crate) fn refuse(&self, refuses: bool) {
        self.0.store(refuses, Ordering::Relaxed);
    }
}

impl Disk for Ill {
    fn carry_out(&self, step: Step<'_>) -> io::Result<()> {
        match step {
            Step::SyncFolder(_) if self.0.load(Ordering::Relaxed) => {
                Err(io::Error::other("the drive is ill"))
            }
            step => Kernel.carry_out(step),
        }
    }
}

/// The history of the bug: if a directory could not be synchronized, its events were appended again with every attempt.
#[test]
fn what_could_not_be_appended_is_there_once_after_the_next_try() {
    let bench = Bench::new("again");
    let disk = Arc::new(Ill::default());
    let state = StateFolder::on(bench.state.path(), Arc::clone(&disk) as _);
    state.make().expect("it can be made");
    for (number, wanted) in [(1, "one\n"), (2, "one\none\n")] {
        disk.refuse(true);
        for _ in 0..3 {
            state.append("log", b"one\n").expect_err("the folder cannot be synced");
        }
        disk.refuse(false);
        state.append("log", b"one\n").expect("there is room");
        let text = fs::read_to_string(state.file("log")).expect("it is there");
        assert_eq!(text, wanted, "{number}");
    }
}

/// The history of the bug: a daemon created its directory and ended before the name was durable. The next daemon found
/// the directory, and a power loss later removed it with all its records.
#[test]
fn a_directory_that_was_there_is_made_durable_when_it_is_opened() {
    let bench = Bench::new("made-before");
    bench.disk.carry_out(Step::MakeFolder(bench.state.path())).expect("it can be made");
    let (store, config) = Store::open_in(bench.state.clone()).expect("it opens");
    let prepared = store.prepare(&config).expect("there is room");
    prepared.commit().expect("it is recorded");
    for fate in Fate::some() {
        let left = bench.disk.left(bench.state.path(), bench.disk.steps(), fate);
        assert!(left.contains_key(Path::new("state.json")), "{fate:?}");
    }
}

/// The power fails at every step, with several results of steps that are not durable.
#[test]
fn a_file_holds_the_old_or_the_new_at_every_cut_exhaustive() {
    let bench = Bench::new("cuts");
    bench.state.make().expect("it can be made");
    bench.state.replace("file", b"the old").expect("there is room");
    let first = bench.disk.steps();
    bench.state.replace("file", b"the new one").expect("there is room");
    let mut seen = Vec::new();
    for steps in first..=bench.disk.steps() {
        for fate in Fate::some() {
            let mut left = bench.disk.left(bench.state.path(), steps, fate);
            let file = left.remove(Path::new("file")).expect("there is always one");
            assert!([&b"the old"[..], b"the new one"].contains(&&file[..]), "{steps} {fate:?}");
            seen.push(file);
        }
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 2, "cuts find both");
    drop(bench.state.prepare("file", b"never placed").expect("there is room"));
    bench.check("file", Some(b"the new one"));
}

/// State that was not synchronized must be lost, or the other tests prove nothing.
#[test]
fn the_layer_forgets_what_was_not_made_durable() {
    let bench = Bench::new("forgets");
    let lost = |name: &str| {
        let left = bench.disk.left(bench.state.path(), bench.disk.steps(), Fate::Lost);
        left.get(Path::new(name)).map(Vec::len)
    };
    let state = &bench.state;
    state.make().expect("it can be made");
    let file = state.file("file");
    bench.disk.carry_out(Step::Fill(&file, b"one")).expect("there is room");
    assert_eq!(lost("file"), None, "nobody made its name durable");
    state.sync().expect("it is there");
    assert_eq!(lost("file"), Some(3));
    state.prepare("file", b"longer").and_then(super::Next::place).expect("there is room");
    assert_eq!(lost("file"), Some(3), "nor that of what replaced it");
    state.unlink("file").expect("it is there");
    assert_eq!(lost("file"), Some(3), "nor its removal");
    let within = state.folder("within");
    bench.disk.carry_out(Step::MakeFolder(within.path())).expect("it can be made");
    within.replace("file", b"deep").expect("there is room");
    assert_eq!(lost("within/file"), None, "its folder has no name that lasts");
}

/// Devices and folders that cannot be made durable prove that the synchronization is requested.
#[test]
fn the_file_system_is_asked_to_make_bytes_and_names_durable() {
    for step in [
        Step::Fill(Path::new("/dev/null"), b"x"),
        Step::Append(Path::new("/dev/null"), b"x"),
        Step::SyncFolder(Path::new("/proc")),
    ] {
        let error = Kernel.carry_out(step).expect_err("it cannot be made durable");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{step:?}: {error}");
    }
}

/// Without the check, a link in the state directory would let a write of the daemon change a file elsewhere.
#[test]
fn links_in_the_state_directory_are_refused_and_not_followed() {
    let (dir, elsewhere) = (Folder::new("strake-links"), Folder::new("strake-links"));
    elsewhere.put("target", "kept");
    let before = elsewhere.get("target");
    let target = elsewhere.join("target");
    std::os::unix::fs::symlink(&target, dir.join("link")).expect("a link can be made");
    let state = StateFolder::of(&dir);
    let path = dir.join("link");
    for step in [Step::Fill(&path, b"new"), Step::Append(&path, b"new")] {
        let error = Kernel.carry_out(step).expect_err("it is a link");
        assert!(error.to_string().contains("symbolic link"), "{error}");
    }
    assert!(
        state.read("link", 100).is_err_and(|error| error.to_string().contains("replace the link"))
    );
    assert_eq!(elsewhere.get("target"), before);
    // A dangling link creates no file.
    std::os::unix::fs::symlink(elsewhere.join("absent"), dir.join("dangling")).expect("it can");
    assert!(Kernel.carry_out(Step::Fill(&dir.join("dangling"), b"new")).is_err());
    assert!(!elsewhere.join("absent").exists());
    // The lock names its owner, so it is a write too.
    std::os::unix::fs::symlink(&target, dir.join("lock")).expect("a link can be made");
    let refused = Store::open(&dir).expect_err("the lock is a link");
    assert!(refused.to_string().contains("symbolic link"), "{refused}");
    assert_eq!(elsewhere.get("target"), before);
    // A rename replaces the link and not its target.
    Kernel.carry_out(Step::Fill(&dir.join("next"), b"new")).expect("it is a new file");
    Kernel.carry_out(Step::Rename(&dir.join("next"), &path)).expect("it can be renamed");
    assert_eq!(elsewhere.get("target"), before);
}
