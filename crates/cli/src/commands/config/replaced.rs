//! What a backup may replace.

use crate::error::CliError;
use crate::limits::CONFIG_BYTES_MAX;
use serde_json::Value;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Refuses to write to `file` what is not to be replaced: drives in the configuration `document`, what is not a regular
/// file, a file of the daemon's `state` directory, and without `overwrite` what is not an earlier backup.
///
/// # Errors
/// When it is refused, or cannot be read.
pub fn check(file: &Path, document: &str, state: &Path, overwrite: bool) -> Result<(), CliError> {
    let shown = file.display();
    if is_within(file, state) {
        let what = format!(
            "{shown} is in the state directory of the daemon, {}; choose another file",
            state.display()
        );
        return Err(CliError::usage(what));
    }
    if drives(document).iter().any(|drive| is_same(file, Path::new(drive))) {
        let what = format!("{shown} is a drive of an array or a spare; choose another file");
        return Err(CliError::usage(what));
    }
    let failed = |e: io::Error| CliError::io(format_args!("cannot read {shown}"), &e);
    match fs::symlink_metadata(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
        Ok(about) if !about.is_file() => {
            let what = format!("{shown} is not a regular file; choose another file");
            return Err(CliError::usage(what));
        }
        Ok(_) => {}
    }
    if overwrite || is_backup(file).map_err(failed)? {
        return Ok(());
    }
    Err(CliError::usage(format!(
        "{shown} exists and is not a backup of the configuration; choose another file, or replace it: strake config \
         backup {shown} --overwrite"
    )))
}

/// Paths of the drives of arrays, and of spares, in a configuration.
fn drives(document: &str) -> Vec<String> {
    let Ok(config) = serde_json::from_str::<Value>(document) else { return Vec::new() };
    let mut paths = Vec::new();
    for key in ["arrays", "spares"] {
        collect_paths(&config[key], &mut paths);
    }
    paths
}

fn collect_paths(value: &Value, paths: &mut Vec<String>) {
    match value {
        Value::String(text) if text.starts_with('/') => paths.push(text.clone()),
        Value::Array(values) => values.iter().for_each(|value| collect_paths(value, paths)),
        Value::Object(fields) => fields.values().for_each(|value| collect_paths(value, paths)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Whether both paths are one, or lead to one file.
fn is_same(file: &Path, drive: &Path) -> bool {
    if std::path::absolute(file).is_ok_and(|file| file == drive) {
        return true;
    }
    let (Ok(file), Ok(drive)) = (fs::metadata(file), fs::metadata(drive)) else { return false };
    (file.dev(), file.ino()) == (drive.dev(), drive.ino())
}

/// Whether `file` is in the folder `state`, or in one below it.
fn is_within(file: &Path, state: &Path) -> bool {
    let (Ok(file), Ok(state)) = (std::path::absolute(file), fs::metadata(state)) else {
        return false;
    };
    let Some(Ok(folder)) = file.parent().map(fs::canonicalize) else { return false };
    let is_state = |about: fs::Metadata| (about.dev(), about.ino()) == (state.dev(), state.ino());
    folder.ancestors().any(|folder| fs::metadata(folder).is_ok_and(is_state))
}

/// Whether `file` has a backup in it. `state.json` and its copies have no mark: they hold the secrets.
fn is_backup(file: &Path) -> io::Result<bool> {
    let mut bytes = Vec::new();
    File::open(file)?.take(CONFIG_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    let Ok(config) = serde_json::from_slice::<Value>(&bytes) else { return Ok(false) };
    Ok(config["backup"] == true)
}

#[cfg(test)]
mod tests {
    use super::check;
    use std::fs;
    use std::os::unix::fs::symlink;
    use strake_testkit::Folder;

    /// A backup replaced a member of a serving array: the data were lost with the next stop.
    #[test]
    fn a_backup_replaces_only_backups_and_never_a_drive() {
        let folder = Folder::new("strake-backup");
        let at = |name: &str| folder.join(name);
        let document = format!(
            r#"{{"backup":true,"version":1,"arrays":[{{"drives":["{}","{}"]}}],"exports":[]}}"#,
            at("drive").display(),
            at("absent").display()
        );
        let unmarked = document.replace(r#""backup":true,"#, "");
        for (name, content) in
            [("drive", ""), ("notes", "keep"), ("old", &document), ("copy", &unmarked)]
        {
            fs::write(at(name), content).expect("it is written");
        }
        fs::hard_link(at("drive"), at("hard")).expect("it is linked");
        symlink(at("drive"), at("soft")).expect("it is linked");
        symlink(at("old"), at("link")).expect("it is linked");
        let state = at("state");
        let refused = |name: &str, overwrite| {
            check(&at(name), &document, &state, overwrite).err().map(|error| error.text)
        };
        for name in ["drive", "absent", "hard", "soft"] {
            for overwrite in [false, true] {
                let why = refused(name, overwrite).expect("it is a drive");
                assert!(why.contains("is a drive of an array"), "{why}");
            }
        }
        assert!(refused("link", true).is_some_and(|why| why.contains("not a regular file")));
        for name in ["notes", "copy"] {
            assert!(refused(name, false).is_some_and(|why| why.contains("--overwrite")), "{name}");
        }
        assert_eq!(refused("notes", true), None);
        assert_eq!((refused("old", false), refused("new", false)), (None, None));
    }

    /// A backup replaced the configuration of the daemon, and its secrets were gone.
    #[test]
    fn a_backup_never_replaces_a_file_of_the_state_directory() {
        let folder = Folder::new("strake-backup-state");
        let (state, link) = (folder.join("state"), folder.join("link"));
        fs::create_dir_all(state.join("reservations")).expect("it is made");
        symlink(&state, &link).expect("it is linked");
        for within in [&state, &link] {
            for name in ["state.json", "new", "reservations/new"] {
                for overwrite in [false, true] {
                    let refused = check(&within.join(name), "{}", &state, overwrite);
                    let why = refused.expect_err("it is in the state directory").text;
                    assert!(why.contains("state directory of the daemon"), "{why}");
                }
            }
        }
        assert!(check(&folder.join("new"), "{}", &state, false).is_ok());
    }
}
