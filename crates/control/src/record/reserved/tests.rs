use super::{FOLDER, ReservationFile};
use crate::record::files::{Disk, Kernel, StateFolder, Step};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::{fs, io};
use strake_export_nvmet::limits::REGISTRANTS_MAX;
use strake_export_nvmet::{Held, Ledger, Registrant, ReservationType, Reservations};
use strake_testkit::Folder;

/// A state directory that is removed with the test.
struct State(Folder);

impl State {
    fn new(name: &str) -> Self {
        Self(Folder::new(&format!("strake-reserved-{name}")))
    }

    fn file(&self, array: &str) -> ReservationFile {
        let (array, export) = (array.to_owned(), "tank".to_owned());
        ReservationFile { state: StateFolder::of(&self.0), array, export, rights: Arc::default() }
    }

    /// Returns the file on a layer that cannot make the folders selected by `ill` durable.
    fn failing(&self, ill: fn(&Path) -> bool) -> ReservationFile {
        let state = StateFolder::on(&self.0, Arc::new(Ill(ill)));
        ReservationFile { state, ..self.file("a") }
    }
}

/// A layer that cannot make these folders durable.
#[derive(Debug)]
struct Ill(fn(&Path) -> bool);

impl Disk for Ill {
    fn carry_out(&self, step: Step<'_>) -> io::Result<()> {
        match step {
            Step::SyncFolder(folder) if (self.0)(folder) => {
                Err(io::Error::other("the drive is ill"))
            }
            step => Kernel.carry_out(step),
        }
    }
}

fn registrant(number: u8) -> Registrant {
    Registrant {
        host: [number; 16],
        name: format!("host {number}"),
        key: u64::MAX - u64::from(number),
    }
}

fn sample(held: Option<Held>) -> Reservations {
    let registrants = vec![registrant(1), registrant(2)];
    Reservations { generation: 7, persists: true, held, registrants }
}

#[test]
fn what_is_written_is_read() {
    let state = State::new("read");
    let file = state.file("a");
    assert_eq!(file.read(), Ok(None));
    assert_eq!(file.write(None), Ok(()), "there is nothing to remove");
    for kind in ReservationType::ALL {
        let holder = (!kind.is_held_by_all()).then_some([2; 16]);
        let reservations = sample(Some(Held { kind, holder }));
        file.write(Some(&reservations)).expect("it can be written");
        assert_eq!(state.file("a").read(), Ok(Some(reservations)), "{kind:?}");
    }
    let nothing = Reservations { persists: true, ..Reservations::default() };
    file.write(Some(&nothing)).expect("it can be written");
    assert_eq!(file.read(), Ok(Some(nothing)), "that all of it is to last");
    let mode = fs::metadata(file.path()).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "keys are for nobody else");
    assert_eq!(state.file("b").read(), Ok(None), "another array has its own");
    file.write(None).expect("it can be removed");
    assert_eq!((file.read(), file.path().exists()), (Ok(None), false));
}

/// The largest file can be read again, for all names of registrants. A too small limit would admit no host after a
/// restart.
#[test]
fn as_many_registrants_as_there_may_be_are_read_again() {
    let state = State::new("many");
    let file = state.file("a");
    // The longest name (NVM Express Base, section 4.7), of characters with the longest form in JSON.
    let name = "\u{1}".repeat(223);
    let registrant = |number: usize| Registrant {
        host: (number as u128 + 1).to_be_bytes(),
        name: name.clone(),
        key: u64::MAX,
    };
    let registrants = (0..REGISTRANTS_MAX).map(registrant).collect();
    let held = Some(Held { kind: ReservationType::ExclusiveAccessAll, holder: None });
    let reservations = Reservations { generation: u32::MAX, persists: true, held, registrants };
    assert_eq!(reservations.check(), Ok(()));
    file.write(Some(&reservations)).expect("it can be written");
    assert!(file.read() == Ok(Some(reservations)));
}

/// Every corrupted file is refused, because a wrong registrant or key could admit a host that must be excluded.
#[test]
fn exhaustive_no_byte_that_is_another_one_is_taken_for_good() {
    let state = State::new("bytes");
    let file = state.file("a");
    let held = Held { kind: ReservationType::WriteExclusive, holder: Some([1; 16]) };
    let reservations = sample(Some(held));
    file.write(Some(&reservations)).expect("it can be written");
    let good = fs::read_to_string(file.path()).expect("it is text");
    for at in 0..good.len() {
        for to in *b"0 z}" {
            let mut bytes = good.clone().into_bytes();
            bytes[at] = to;
            let text = String::from_utf8(bytes).expect("it is text yet");
            if let Ok(read) = file.parse(text.as_bytes()) {
                assert_eq!(read, reservations, "{to} at {at}");
            }
        }
        assert!(
            file.parse(&good.as_bytes()[..at]).is_err() || good[at..].trim().is_empty(),
            "cut at {at}"
        );
    }
    assert!(state.file("b").parse(good.as_bytes()).is_err(), "it is another array's");
    fs::write(file.path(), &good[..good.len() / 2]).expect("it can be cut short");
    let why = file.read().expect_err("it cannot be understood");
    for part in ["a.json", "strake export release tank", "the hosts to exclude are unknown"] {
        assert!(why.contains(part), "{why} does not say {part}");
    }
    file.put_aside().expect("it can be put aside");
    assert_eq!(file.read(), Ok(None));
}

#[test]
fn what_cannot_be_written_changes_nothing() {
    let state = State::new("full");
    let file = state.file("a");
    let before = sample(None);
    file.write(Some(&before)).expect("it can be written");
    // A folder blocks the temporary file, because permissions would not stop a test that runs as root.
    fs::create_dir(file.path().with_extension("json.next")).expect("it can be made");
    let held = Held { kind: ReservationType::ExclusiveAccess, holder: Some([1; 16]) };
    assert!(file.write(Some(&sample(Some(held)))).is_err());
    assert_eq!(file.read(), Ok(Some(before)));
}

/// Once the new file is in its place only the folder remains to be synced. If that fails hosts are informed that
/// nothing has changed, and the next start would have found that it had.
#[test]
fn what_is_not_durable_is_put_back() {
    let state = State::new("folder");
    let file = state.file("a");
    let held = Held { kind: ReservationType::ExclusiveAccess, holder: Some([1; 16]) };
    let (before, after) = (sample(None), sample(Some(held)));
    let failing = state.failing(|folder| folder.ends_with(FOLDER));
    let check_refused = |wanted, found: Option<&Reservations>| {
        let why = failing.write(wanted).expect_err("it is not durable");
        for part in ["a.json", "the drive is ill", "is unknown"] {
            assert!(why.contains(part), "{why} does not say {part}");
        }
        assert_eq!(file.read(), Ok(found.cloned()));
    };
    fs::create_dir_all(file.folder().path()).expect("it can be made");
    check_refused(Some(&before), None);
    file.write(Some(&before)).expect("it can be written");
    check_refused(Some(&after), Some(&before));
    check_refused(None, Some(&before));
}

/// The folder itself is to be found after a loss of power. When that could not be made sure of, the second change found
/// it there, was answered, and could be lost with it.
#[test]
fn nothing_is_durable_in_a_folder_that_is_not() {
    let state = State::new("entry");
    let failing = state.failing(|folder| !folder.ends_with(FOLDER));
    for time in 1..=2 {
        let why = failing.write(Some(&sample(None))).expect_err("the folder is not durable");
        assert!(why.contains("the drive is ill"), "time {time}: {why}");
    }
    let file = state.file("a");
    assert_eq!(file.read(), Ok(None));
    file.write(Some(&sample(None))).expect("it can be written");
}

/// What cannot be looked for is not taken for something that is gone.
#[test]
fn a_record_that_cannot_be_looked_for_is_not_gone() {
    let state = State::new("unseen");
    // The state directory is now a file: permissions would not stop a test that runs as root.
    let path = state.0.join("file");
    let file = ReservationFile { state: StateFolder::of(&path), ..state.file("a") };
    fs::write(&path, "").expect("it can be written");
    assert!(file.write(None).is_err());
}
