//! Successful opens, rejected opens, and their messages.

use super::*;
use crate::{Access, Direct, NoticeKind, Polling};
use strake_units::BlockSize;

fn refusal(path: &Path, options: OpenOptions) -> (IoErrorKind, String) {
    let error = UringDevice::open(path, options).expect_err("this must not open");
    (error.kind, error.to_string())
}

#[test]
fn things_that_are_no_drives_are_refused_by_name() {
    let check = |path: &Path, kind: IoErrorKind, words: &str| {
        let (found, text) = refusal(path, OpenOptions::default());
        assert_eq!(found, kind, "{text}");
        assert!(text.contains(words), "{text}");
        assert!(text.contains(&path.display().to_string()), "{text}");
    };
    let socket = Scratch::path();
    let _listener = std::os::unix::net::UnixListener::bind(&socket.0).expect("a socket");
    let empty = Scratch::path();
    std::fs::write(&empty.0, b"").expect("an empty file");
    let short = Scratch::path();
    std::fs::write(&short.0, [0; 511]).expect("a short file");
    check(&std::env::temp_dir(), IoErrorKind::Unsupported, "a directory");
    check(Path::new("/dev/null"), IoErrorKind::Unsupported, "a character device");
    check(&socket.0, IoErrorKind::Unsupported, "a socket");
    check(Path::new("/nonexistent/drive"), IoErrorKind::Gone, "nothing at this path");
    check(&empty.0, IoErrorKind::OutOfRange, "less than one block");
    check(&short.0, IoErrorKind::OutOfRange, "less than one block");
}

#[test]
fn a_file_opens_once() {
    let file = Scratch::file(1 << 20);
    let first = open(&file.0);
    let (_, text) = refusal(&file.0, OpenOptions::default());
    assert!(text.contains("in use"), "{text}");
    let reading = OpenOptions { access: Access::ReadOnly, ..Default::default() };
    assert!(refusal(&file.0, reading).1.contains("in use"));
    let queue = queue(&first, 1);
    drop(first);
    assert!(refusal(&file.0, reading).1.contains("in use"), "an open queue holds the file");
    drop(queue);
    open(&file.0);
}

#[test]
fn a_mounted_disk_is_refused_with_the_reason() {
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("Linux has this");
    let disk =
        mounts.lines().filter_map(|line| line.split(' ').next()).find(|d| d.starts_with("/dev/"));
    let Some(disk) = disk else {
        skipped("the refusal of a mounted disk", "no disk is mounted");
        return;
    };
    // The open is read-only, so that an unexpected success does no harm.
    let options = OpenOptions { access: Access::ReadOnly, ..Default::default() };
    let (_, text) = refusal(Path::new(disk), options);
    if text.contains("may not be opened") || text.contains("nothing at this path") {
        skipped("the refusal of a mounted disk", text);
        return;
    }
    assert!(text.contains("in use") && text.contains("mounted at /"), "{text}");
}

#[test]
fn read_only_devices_read_and_refuse_to_write() {
    let file = Scratch::file(1 << 20);
    let options = OpenOptions { access: Access::ReadOnly, ..Default::default() };
    let (device, _) = UringDevice::open(&file.0, options).expect("the file opens");
    let (second, _) = UringDevice::open(&file.0, options).expect("readers share");
    assert!(device.info().read_only);
    assert_eq!(device.info().identity, second.info().identity);
    let mut queue = queue(&device, 1);
    let range = LbaRange::new(Lba(0), 1);
    assert_eq!(run(&mut *queue, read(0, 4096)).1, Ok(()));
    let data = buffer(1, 4096);
    let refused = Err(IoErrorKind::ReadOnly);
    assert_eq!(run(&mut *queue, write(0, data, Durability::Normal)).1, refused);
    assert_eq!(run(&mut *queue, Op::Deallocate { range }).1, refused);
    let durability = Durability::Normal;
    assert_eq!(run(&mut *queue, Op::WriteZeroes { range, durability }).1, refused);
}

#[test]
fn what_could_not_be_had_is_said() {
    let file = Scratch::file(1 << 20);
    let options = OpenOptions { polling: Polling::WhenAvailable, ..Default::default() };
    let (device, notices) = UringDevice::open(&file.0, options).expect("the file opens");
    let said = notices.iter().any(|notice| notice.kind == NoticeKind::NotPolled);
    assert_eq!(said, !device.shared().polled);
    for notice in &notices {
        assert!(notice.to_string().contains(&*file.0.to_string_lossy()), "{notice}");
    }
}

#[test]
fn direct_io_is_used_demanded_or_declined() {
    let check = |direct: Direct| {
        let file = Scratch::file(1 << 20);
        let options = OpenOptions { direct, ..Default::default() };
        UringDevice::open(&file.0, options).map(|(device, notices)| {
            let said = notices.iter().any(|notice| notice.kind == NoticeKind::Buffered);
            (device.shared().direct.is_some(), said)
        })
    };
    assert_eq!(check(Direct::No).expect("buffered always works"), (false, false));
    let (direct, said) = check(Direct::Auto).expect("one of the two works");
    assert_ne!(direct, said, "a fallback is said, and nothing else is");
    match check(Direct::Yes) {
        Ok(found) => assert_eq!(found, (true, false)),
        Err(error) => assert!(!direct && error.kind == IoErrorKind::Unsupported, "{error}"),
    }
}

#[test]
fn block_sizes_follow_the_caller_and_the_file_system() {
    let check = |asked: Option<BlockSize>, want: BlockSize| {
        let file = Scratch::file(1 << 20);
        let options = OpenOptions { block_size: asked, direct: Direct::No, ..Default::default() };
        let (device, _) = UringDevice::open(&file.0, options).expect("the file opens");
        assert_eq!(device.info().block_size, want);
        assert_eq!(device.info().bytes(), 1 << 20);
    };
    check(None, BlockSize::B4096);
    check(Some(BlockSize::B512), BlockSize::B512);
    check(Some(BlockSize::B4096), BlockSize::B4096);
}

#[test]
fn sparse_files_are_new_and_take_no_space() {
    use std::os::unix::fs::MetadataExt;
    let file = Scratch::file(10 << 30);
    let found = std::fs::metadata(&file.0).expect("it was made");
    assert_eq!(found.len(), 10 << 30);
    assert!(found.blocks() < 100);
    let again = create_sparse(&file.0, 1 << 20).expect_err("it exists");
    assert!(again.to_string().contains("exists"), "{again}");
    assert_eq!(std::fs::metadata(&file.0).expect("untouched").len(), 10 << 30);
    let other = Scratch::path();
    assert!(create_sparse(&other.0, 0).is_err());
    assert!(create_sparse(&other.0, u64::MAX).is_err());
    assert!(!other.0.exists(), "a failure leaves nothing behind");
    assert!(create_sparse(Path::new("/nonexistent/x"), 1).is_err());
}
