//! The service of the package, which starts the daemon with its own user and configuration.

use crate::connect::socket_for;
use std::path::Path;

/// Name of the unit, packaging/straked.service.
const UNIT: &str = "straked.service";

/// State directory of the service, `StateDirectory=` of its unit.
pub const STATE: &str = "/var/lib/strake";

/// Folder of the socket of the service, `RuntimeDirectory=` of its unit.
pub const RUNTIME: &str = "/run/strake";

/// The folder that exists if systemd is the service manager (sd_booted(3)).
const BOOTED: &str = "/run/systemd/system";

/// Folders with units, the folder with the highest priority first (systemd.unit(5)).
const FOLDERS: [&str; 5] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

/// The command that starts the service.
pub const START: &str = "systemctl start straked";

/// Returns whether the service is installed and its daemon would listen on `socket`.
#[must_use]
pub fn is_installed_for(socket: &Path) -> bool {
    socket_for(true, None).as_deref() == Some(socket)
        && Path::new(BOOTED).is_dir()
        && is_in(&FOLDERS.map(Path::new))
}

/// Returns whether the first unit in `folders` can be started. A link to /dev/null prevents the start.
fn is_in(folders: &[&Path]) -> bool {
    let mut units = folders.iter().map(|folder| folder.join(UNIT));
    let first = units.find(|unit| unit.symlink_metadata().is_ok());
    first.is_some_and(|unit| {
        let is_masked = unit.read_link().is_ok_and(|to| to == Path::new("/dev/null"));
        !is_masked && unit.exists()
    })
}

#[cfg(test)]
mod tests {
    use super::{UNIT, is_in, is_installed_for};
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;
    use strake_testkit::Folder;

    #[test]
    fn the_first_unit_decides_and_a_masked_one_is_not_installed() {
        let (etc, usr) = (Folder::new("strake-cli-etc"), Folder::new("strake-cli-usr"));
        let folders: [&Path; 2] = [&etc, &usr];
        assert!(!is_in(&folders), "there is none");
        fs::write(usr.join(UNIT), "[Service]\n").expect("it is written");
        assert!(is_in(&folders));
        symlink("/dev/null", etc.join(UNIT)).expect("it is linked");
        assert!(!is_in(&folders), "it is masked");
        assert!(!is_installed_for(Path::new("/elsewhere/straked.sock")));
    }
}
