//! What a backup may replace.

use crate::error::CliError;
use crate::limits::CONFIG_BYTES_MAX;
use serde_json::Value;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Refuses to write to `file` what is not to be replaced: drives in the configuration `document`, what is not a regular
/// file, and without `overwrite` what is not an earlier backup.
///
/// # Errors
/// When it is refused, or cannot be read.
pub fn check(file: &Path, document: &str, overwrite: bool) -> Result<(), CliError> {
    let shown = file.display();
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

/// Whether `file` has a configuration in it.
fn is_backup(file: &Path) -> io::Result<bool> {
    let mut bytes = Vec::new();
    File::open(file)?.take(CONFIG_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    let Ok(config) = serde_json::from_slice::<Value>(&bytes) else { return Ok(false) };
    Ok(config["version"].is_u64() && config["arrays"].is_array() && config["exports"].is_array())
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
            r#"{{"version":1,"arrays":[{{"drives":["{}","{}"]}}],"exports":[]}}"#,
            at("drive").display(),
            at("absent").display()
        );
        for (name, content) in [("drive", ""), ("notes", "keep"), ("old", &document)] {
            fs::write(at(name), content).expect("it is written");
        }
        fs::hard_link(at("drive"), at("hard")).expect("it is linked");
        symlink(at("drive"), at("soft")).expect("it is linked");
        symlink(at("old"), at("link")).expect("it is linked");
        let refused = |name: &str, overwrite| {
            check(&at(name), &document, overwrite).err().map(|error| error.text)
        };
        for name in ["drive", "absent", "hard", "soft"] {
            for overwrite in [false, true] {
                let why = refused(name, overwrite).expect("it is a drive");
                assert!(why.contains("is a drive of an array"), "{why}");
            }
        }
        assert!(refused("link", true).is_some_and(|why| why.contains("not a regular file")));
        assert!(refused("notes", false).is_some_and(|why| why.contains("--overwrite")));
        assert_eq!(refused("notes", true), None);
        assert_eq!((refused("old", false), refused("new", false)), (None, None));
    }
}
