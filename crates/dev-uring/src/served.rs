//! File systems that another process or host serves: a request to one of their files may wait for that server.
//!
//! This is the only list of its kind: all code that must not wait for such a file uses it.

use rustix::fs::fstatfs;
use std::os::fd::AsFd;
use std::path::Path;

/// The magic numbers of statfs(2) of file systems that a process, another host or a cluster serves, with their names
/// (`include/uapi/linux/magic.h` and the headers of the file systems).
const SERVED: [(u32, &str); 16] = [
    (0x6573_5546, "FUSE"), // also virtiofs
    (0x6573_5543, "FUSE control"),
    (0x0000_6969, "NFS"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB"),
    (0x0000_517b, "SMB"),
    (0x0102_1997, "9p"),
    (0x00c3_6400, "Ceph"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x0bd0_0bd0, "Lustre"),
    (0x2003_0528, "OrangeFS"),
    (0x786f_4256, "vboxsf"),
    (0x0116_1970, "GFS2"),
    (0x7461_636f, "OCFS2"),
];

/// The name of the file system with this magic number, if it is a served one.
const fn name_of(magic: u32) -> Option<&'static str> {
    let mut at = 0;
    while at < SERVED.len() {
        if SERVED[at].0 == magic {
            return Some(SERVED[at].1);
        }
        at += 1;
    }
    None
}

/// The name of the file system of an open file, if a process (FUSE), another host (NFS, CIFS, 9p) or a cluster serves
/// it. Requests to such a file may wait during their submission, and so may its close. `None` for local file systems,
/// and if the kernel does not report it.
///
/// This call itself may wait for the server; data cores do not call it.
pub fn served_by(file: impl AsFd) -> Option<&'static str> {
    // The type of the field differs between architectures; magic numbers have 32 bits.
    fstatfs(file).ok().and_then(|found| name_of(found.f_type as u32))
}

/// As [`served_by`], for the file at `path`.
#[must_use]
pub fn served_at(path: &Path) -> Option<&'static str> {
    rustix::fs::statfs(path).ok().and_then(|found| name_of(found.f_type as u32))
}

#[cfg(test)]
mod tests {
    use super::{SERVED, name_of, served_at};
    use std::path::Path;

    #[test]
    fn file_systems_that_others_serve_are_known_by_number() {
        for (magic, name) in SERVED {
            assert_eq!(name_of(magic), Some(name));
        }
        // ext4, XFS, tmpfs, btrfs, overlay (linux/magic.h).
        for local in [0xef53, 0x5846_5342, 0x0102_1994, 0x9123_683e, 0x794c_7630] {
            assert_eq!(name_of(local), None);
        }
        assert_eq!(served_at(Path::new("/proc")), None);
        assert_eq!(served_at(Path::new("/nonexistent")), None);
    }
}
