//! What real tools make on a drive is refused by name.
//!
//! Strake tells what is on a drive by its own table (docs/decisions/0010-own-signatures.md). Here the tools that make
//! file systems, containers and partition tables make them, `blkid` says what it sees, and `array create` has to
//! refuse each by the right name. A tool that is not installed is left out, which is said; `scripts/setup.sh test`
//! installs them.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use strake_api::v1::{
    Array, CreateArrayRequest, FailMemberRequest, ListEventsRequest, ReaddMemberRequest,
    ReplaceMemberRequest,
};
use strake_control::{Control, ControlErrorKind, Options};
use strake_testkit::Folder;

/// Large enough for every tool: XFS wants 300 MB. The files are sparse.
const DRIVE_BYTES: u64 = 512 << 20;

/// The tests here start programs, and a drive is held by a lock on its open file, which a child shares until it has
/// become the program: another test that opens the same drive again in that moment would find it in use.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    // It guards nothing that a test which panicked could have left half done.
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

fn blank(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    // Removed first, so that nothing is left of what was there before.
    let _ = fs::remove_file(&path);
    let file = File::create(&path).expect("a file can be made");
    file.set_len(DRIVE_BYTES).expect("a sparse file can be made");
    path
}

fn blanks(folder: &Path, name: &str) -> Vec<PathBuf> {
    (0..4).map(|at| blank(folder, &format!("{name}{at}"))).collect()
}

fn start(state: &Path, options: Options) -> Control {
    Control::start(state, options).expect("the control plane starts")
}

/// Runs `command` in a shell with `$F` as the file and `$D` as a directory with a few files. System tools are where an
/// ordinary user's PATH does not look.
fn shell(command: &str, file: &Path, sources: &Path) -> Output {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    Command::new("timeout")
        .args(["60", "sh", "-c", command])
        .env("PATH", path)
        .env("F", file)
        .env("D", sources)
        .output()
        .expect("a shell can be started")
}

fn is_installed(tool: &str, here: &Path) -> bool {
    shell(&format!("command -v {tool}"), here, here).status.success()
}

/// What blkid calls what is on `file`; `None` when it sees nothing.
fn blkid(file: &Path) -> Option<String> {
    let output = shell("blkid -p -o export \"$F\" | grep -E '^(TYPE|PTTYPE)='", file, file);
    let text = String::from_utf8_lossy(&output.stdout).trim().replace('\n', " ");
    (!text.is_empty()).then_some(text)
}

/// The tool, the words our name for it has, and how it is made. A small image is copied into the drive's start, as
/// installers do.
const MADE: [(&str, &str, &str); 40] = [
    ("mkfs.ext2", "an ext2 ", "mkfs.ext2 -q $F"),
    ("mkfs.ext3", "an ext3 ", "mkfs.ext3 -q $F"),
    ("mkfs.ext4", "an ext4 ", "mkfs.ext4 -q $F"),
    ("mkfs.ext4", "journal of an ext", "mkfs.ext4 -q -O journal_dev $F"),
    ("mkfs.xfs", "XFS", "mkfs.xfs -q $F"),
    ("mkfs.btrfs", "btrfs", "mkfs.btrfs -q $F"),
    ("mkfs.f2fs", "F2FS", "mkfs.f2fs $F"),
    ("mkfs.f2fs", "F2FS", "mkfs.f2fs $F && dd if=/dev/zero of=$F bs=4096 count=1 conv=notrunc"),
    ("mkfs.ntfs", "NTFS", "mkfs.ntfs -F -f $F"),
    ("mkfs.exfat", "exFAT", "mkfs.exfat $F"),
    ("mkfs.vfat", "FAT", "mkfs.vfat -F 12 $F 4096"),
    ("mkfs.vfat", "FAT", "mkfs.vfat -F 16 $F"),
    ("mkfs.vfat", "FAT", "mkfs.vfat -F 32 $F"),
    ("mkfs.minix", "Minix", "mkfs.minix -1 $F"),
    ("mkfs.minix", "Minix", "mkfs.minix -2 $F"),
    ("mkfs.minix", "Minix", "mkfs.minix -3 $F"),
    ("mkfs.bfs", "BFS", "mkfs.bfs $F"),
    ("mkfs.cramfs", "cramfs", "mkfs.cramfs $D $F.i && dd if=$F.i of=$F conv=notrunc"),
    ("mksquashfs", "squashfs", "mksquashfs $D $F.i -noappend && dd if=$F.i of=$F conv=notrunc"),
    ("mkfs.erofs", "EROFS", "mkfs.erofs $F.i $D && dd if=$F.i of=$F conv=notrunc"),
    ("genisoimage", "ISO 9660", "genisoimage -quiet -o $F.i $D && dd if=$F.i of=$F conv=notrunc"),
    ("mkfs.udf", "UDF", "mkfs.udf $F"),
    ("mkfs.nilfs2", "NILFS2", "mkfs.nilfs2 $F"),
    (
        "mkfs.nilfs2",
        "NILFS2",
        "mkfs.nilfs2 $F && dd if=/dev/zero of=$F bs=4096 count=1 conv=notrunc",
    ),
    ("mkfs.jfs", "JFS", "mkfs.jfs -q $F"),
    ("mkfs.reiserfs", "ReiserFS", "mkfs.reiserfs -q -f $F"),
    ("mkfs.ocfs2", "OCFS2", "mkfs.ocfs2 -M local $F"),
    ("mkfs.gfs2", "GFS2", "mkfs.gfs2 -O -p lock_nolock $F"),
    ("mkswap", "swap", "mkswap $F"),
    ("mkswap", "swap", "mkswap -p 65536 $F"),
    (
        "cryptsetup",
        "LUKS",
        "printf p | cryptsetup luksFormat --type luks1 --pbkdf-force-iterations 1000 $F -",
    ),
    (
        "cryptsetup",
        "LUKS",
        "printf p | cryptsetup luksFormat --type luks2 --pbkdf pbkdf2 --pbkdf-force-iterations 1000 $F -",
    ),
    (
        "cryptsetup",
        "LUKS",
        "printf p | cryptsetup luksFormat --type luks2 --pbkdf pbkdf2 --pbkdf-force-iterations 1000 $F - \
         && dd if=/dev/zero of=$F bs=4096 count=1 conv=notrunc",
    ),
    ("make-bcache", "bcache", "make-bcache -B $F"),
    (
        "pvcreate",
        "LVM2",
        "l=$(losetup -f --show $F) && { pvcreate -q --devices $l $l; s=$?; losetup -d $l; exit $s; }",
    ),
    ("sfdisk", "MBR", "echo ,1M | sfdisk $F"),
    ("sfdisk", "GPT", "printf 'label: gpt\\n,1M\\n' | sfdisk $F"),
    (
        "sfdisk",
        "GPT",
        "printf 'label: gpt\\n' | sfdisk $F && dd if=/dev/zero of=$F bs=4096 count=1 conv=notrunc",
    ),
    ("sfdisk", "Sun", "printf 'label: sun\\n' | sfdisk $F"),
    ("sfdisk", "SGI", "printf 'label: sgi\\n' | sfdisk $F"),
];

/// Why `create` refused a mirror of `file` and an empty drive; `None` when it took them; nothing undoes that.
fn refusal(control: &Control, file: &Path, empty: &Path) -> Option<String> {
    let request = CreateArrayRequest {
        name: "tank".into(),
        level: "1".into(),
        drives: [file, empty].map(|path| path.display().to_string()).to_vec(),
        ..Default::default()
    };
    let error = control.create_array(&request).err()?;
    assert_eq!(error.kind, ControlErrorKind::Refused, "{error}");
    Some(error.what)
}

#[test]
fn what_real_tools_make_is_refused_by_name() {
    let _alone = alone();
    let folder = Folder::new("strake-signatures");
    let sources = folder.join("sources");
    fs::create_dir_all(&sources).expect("a directory can be made");
    fs::write(sources.join("file"), vec![7; 300_000]).expect("a file can be written");
    let control = start(&folder.join("state"), Options::default());
    let mut compared = 0;
    for (number, (tool, words, command)) in MADE.iter().enumerate() {
        if !is_installed(tool, &folder) {
            skipped(command, &format!("{tool} is not installed"));
            continue;
        }
        // Another file each time: the control plane keeps drives open for a while.
        let file = blank(&folder, &format!("drive{number}"));
        let made = shell(command, &file, &sources);
        if !made.status.success() {
            // Making it needs something of this machine, such as a free loop device.
            skipped(command, &String::from_utf8_lossy(&made.stderr));
            continue;
        }
        let seen = blkid(&file);
        let empty = blank(&folder, &format!("empty{number}"));
        let refused = refusal(&control, &file, &empty);
        let named = refused.as_ref().is_some_and(|what| what.contains(words));
        assert!(named, "{command}: blkid sees {seen:?}, we say {refused:?}, not {words:?}");
        compared += 1;
    }
    println!("compared {compared} of {}", MADE.len());
    assert!(compared > 0, "not even mkfs.ext4 is here; run scripts/setup.sh test");
    assert!(control.stop().is_empty());
}

/// A record at a byte offset.
type Record = (u64, Vec<u8>);

/// A Linux md superblock of major version 1 for the given place (include/uapi/linux/raid/md_p.h).
fn md1(at: u64) -> Vec<Record> {
    let mut block = vec![0; 1024];
    block[..8].copy_from_slice(&[0xfc, 0x4e, 0x2b, 0xa9, 1, 0, 0, 0]);
    block[16..32].fill(0x5a); // the array's UUID
    block[144..152].copy_from_slice(&(at / 512).to_le_bytes());
    let words = block[..256]
        .chunks_exact(4)
        .map(|w| u64::from(u32::from_le_bytes([w[0], w[1], w[2], w[3]])));
    let sum: u64 = words.sum();
    let folded = ((sum & 0xffff_ffff) + (sum >> 32)) as u32;
    block[216..220].copy_from_slice(&folded.to_le_bytes());
    vec![(at, block)]
}

/// Version 0.90, in the byte order of `order`.
fn md0(order: fn(u32) -> [u8; 4]) -> Vec<Record> {
    let mut block = vec![0; 4096];
    for (word, value) in [(0, 0xa92b_4efc), (1, 0), (2, 90), (5, 0x5a5a_5a5a)] {
        block[word * 4..word * 4 + 4].copy_from_slice(&order(value));
    }
    vec![((DRIVE_BYTES & !65_535) - 65_536, block)]
}

/// Uberblocks of one ZFS label, of which blkid wants to see several.
fn zfs(label: u64, order: fn(u64) -> [u8; 8]) -> Vec<Record> {
    (0..16).map(|n| (label + (128 << 10) + n * 1024, order(0x00ba_b10c).to_vec())).collect()
}

/// Makers need the kernel's md or ZFS, firmware or a cluster; what they write is written here by hand, and blkid says
/// whether it is where the real thing would be.
#[test]
fn raid_members_written_by_hand_are_refused_by_name_and_seen_by_blkid() {
    let _alone = alone();
    let folder = Folder::new("strake-raid");
    let control = start(&folder.join("state"), Options::default());
    let judged = is_installed("blkid", &folder);
    let mut number = 0;
    let mut check = |words: &str, blkid_name: &str, records: &[Record]| {
        number += 1;
        let file = blank(&folder, &format!("drive{number}"));
        let handle = File::options().write(true).open(&file).expect("it opens");
        for (at, bytes) in records {
            handle.write_all_at(bytes, *at).expect("it can be written");
        }
        let seen = blkid(&file);
        if judged {
            let wanted = seen.as_ref().is_some_and(|seen| seen.contains(blkid_name));
            assert!(wanted, "{words} {number}: blkid sees {seen:?}, not {blkid_name}");
        }
        let empty = blank(&folder, &format!("empty{number}"));
        let refused = refusal(&control, &file, &empty);
        assert!(refused.as_ref().is_some_and(|what| what.contains(words)), "{words}: {refused:?}");
    };
    check("Linux md", "linux_raid_member", &md0(u32::to_le_bytes));
    check("Linux md", "linux_raid_member", &md0(u32::to_be_bytes));
    check("Linux md", "linux_raid_member", &md1(DRIVE_BYTES - 8192));
    check("Linux md", "linux_raid_member", &md1(0));
    check("Linux md", "linux_raid_member", &md1(4096));
    for label in [0, 256 << 10, DRIVE_BYTES - (512 << 10), DRIVE_BYTES - (256 << 10)] {
        check("ZFS", "zfs_member", &zfs(label, u64::to_le_bytes));
        check("ZFS", "zfs_member", &zfs(label, u64::to_be_bytes));
    }
    let intel = b"Intel Raid ISM Cfg Sig. 1.3.00".to_vec();
    check("Intel", "isw_raid_member", &[(DRIVE_BYTES - 1024, intel)]);
    let ddf = [&b"\xde\x11\xde\x11\0\0\0\0"[..], &[b'x'; 24], b"02.00.00"].concat();
    check("DDF", "ddf_raid_member", &[(DRIVE_BYTES - 512, ddf)]);
    let mut drbd = vec![0; 4096];
    drbd[60..64].copy_from_slice(&0x8374_026b_u32.to_be_bytes());
    check("DRBD", "drbd", &[(DRIVE_BYTES - 4096, drbd)]);
    check("BlueStore", "ceph_bluestore", &[(0, b"bluestore block device".to_vec())]);
    check("VMFS", "VMFS_volume_member", &[(1 << 20, b"\x0d\xd0\x01\xc0".to_vec())]);
    check("VMFS", "VMFS", &[(2 << 20, b"\x5e\xf1\xab\x2f".to_vec())]);
    let mut bitlocker = vec![0; 512];
    bitlocker[..11].copy_from_slice(b"\xeb\x58\x90-FVE-FS-");
    bitlocker[160..176]
        .copy_from_slice(b"\x3b\xd6\x67\x49\x29\x2e\xd8\x4a\x83\x99\xf6\xa3\x39\xe3\xd0\x01");
    // Where its meta data is, which begins with the same magic.
    bitlocker[176..184].copy_from_slice(&8192_u64.to_le_bytes());
    bitlocker[510..].copy_from_slice(&[0x55, 0xaa]);
    check("BitLocker", "BitLocker", &[(0, bitlocker), (8192, b"-FVE-FS-".to_vec())]);
    assert!(control.stop().is_empty());
}

/// What people do to a drive that they take for a free one, and the words we have for it. Most of it spares a label in
/// one ring or both.
const MADE_OVER: [(&str, &str, &str); 13] = [
    ("mkfs.ext4", "an ext4 ", "mkfs.ext4 -q -F -E nodiscard $F"),
    ("mkfs.xfs", "XFS", "mkfs.xfs -q -f -K $F"),
    ("mkfs.btrfs", "btrfs", "mkfs.btrfs -q -f -K $F"),
    ("mkfs.f2fs", "F2FS", "mkfs.f2fs -f -t 0 $F"),
    ("mkfs.ntfs", "NTFS", "mkfs.ntfs -F -f $F"),
    ("mkfs.vfat", "FAT", "mkfs.vfat -I -F 32 $F"),
    ("mkfs.gfs2", "GFS2", "mkfs.gfs2 -O -K -p lock_nolock $F"),
    ("mkswap", "swap", "mkswap -f $F"),
    ("sgdisk", "GPT", "sgdisk --zap-all $F; sgdisk --new=1:0:0 $F"),
    ("sfdisk", "GPT", "printf 'label: gpt\n,1M\n' | sfdisk --force $F"),
    ("sfdisk", "MBR", "printf 'label: dos\n,1M\n' | sfdisk --force $F"),
    (
        "pvcreate",
        "LVM2",
        "l=$(losetup -f --show $F) && { pvcreate -q -ff -y --devices $l $l; s=$?; losetup -d $l; exit $s; }",
    ),
    (
        "cryptsetup",
        "LUKS",
        "printf p | cryptsetup -q luksFormat --type luks2 --pbkdf pbkdf2 --pbkdf-force-iterations 1000 $F -",
    ),
];

fn tank(control: &Control) -> Array {
    control.run(|m| m.array("tank")).expect("it is known")
}

fn stop(control: Control) {
    assert!(control.stop().is_empty());
}

fn create_tank(control: &Control, drives: &[PathBuf]) {
    let request = CreateArrayRequest {
        name: "tank".into(),
        level: "6".into(),
        drives: drives.iter().map(|path| path.display().to_string()).collect(),
        ..Default::default()
    };
    control.create_array(&request).expect("it is created");
}

/// Reports what a test leaves out, and why. Written to the standard error itself: the test harness hides what a passing
/// test prints.
fn skipped(command: &str, why: &str) {
    use std::io::Write as _;
    writeln!(std::io::stderr(), "skipped: {command}: {}", why.trim()).expect("there is an output");
}

/// Makes an array, lets `command` loose on its member 1 while it does not run, and looks at the result.
fn check_made_over(folder: &Path, number: usize, (words, command): (&str, &str)) -> bool {
    let state = folder.join(format!("state{number}"));
    let drives = blanks(folder, &format!("drive{number}."));
    let control = start(&state, Options::default());
    create_tank(&control, &drives);
    stop(control);
    let made = shell(command, &drives[1], folder);
    if !made.status.success() {
        skipped(command, &String::from_utf8_lossy(&made.stderr));
        return false;
    }
    let control = start(&state, Options::default());
    let waits = tank(&control);
    assert_eq!(waits.states, ["offline"], "{command}: {}", waits.reason);
    assert!(waits.reason.contains("waits for member 1"), "{command}: {}", waits.reason);
    // Where the tool left no label, the drive is foreign, and nothing shows that it was a member.
    let known = waits.reason.contains(&drives[1].display().to_string());
    assert!(!known || waits.reason.contains(words), "{command}: {}", waits.reason);
    stop(control);
    let options = Options { assemble_timeout: Some(Duration::ZERO), ..Options::default() };
    let control = start(&state, options);
    assert!(tank(&control).states.contains(&"degraded".to_owned()), "{command}");
    (0..3).for_each(|_| control.tick().expect("it answers"));
    let member = &tank(&control).members[1];
    assert_eq!(member.state, "missing", "{command}: it was taken back by itself");
    assert!(!member.returned, "{command}");
    assert!(!known || member.cause.contains(words), "{command}: {}", member.cause);
    let path = drives[1].display().to_string();
    let readd =
        ReaddMemberRequest { name: "tank".into(), drive: path.clone(), ..Default::default() };
    let refused = control.readd_member(&readd).expect_err("it is another's now");
    assert_eq!(refused.kind, ControlErrorKind::Refused, "{command}: {refused}");
    assert!(!known || refused.what.contains(words), "{command}: {refused}");
    replace_made_over(&control, path, words, command);
    stop(control);
    // What was made over it is gone, so that it is trusted again.
    let control = start(&state, Options::default());
    assert_ne!(tank(&control).states, ["offline"], "{command}: {}", tank(&control).reason);
    stop(control);
    drives.iter().for_each(|path| drop(fs::remove_file(path)));
    known
}

fn replace_made_over(control: &Control, drive: String, words: &str, command: &str) {
    let mut replace =
        ReplaceMemberRequest { name: "tank".into(), member: 1, drive, ..Default::default() };
    let refused = control.replace_member(&replace).expect_err("it holds something");
    assert!(refused.what.contains(words), "{command}: {refused}");
    replace.overwrite = true;
    control.replace_member(&replace).expect("its content is not needed");
    tick_until(control, "the end of the rebuild", || tank(control).members[1].state == "in_sync");
}

/// Does rounds of upkeep until `done`, as the daemon does while time passes.
fn tick_until(control: &Control, what: &str, done: impl Fn() -> bool) {
    for _ in 0..100_000 {
        if done() {
            return;
        }
        control.tick().expect("it answers");
        std::thread::yield_now();
    }
    panic!("{what} does not happen: {:?}", tank(control).states);
}

/// A drive was thought to be free, and given a file system, while its array did not run. Its labels lie in two rings
/// and outlived that; believed, they would have made the array serve inode tables as data.
#[test]
fn a_member_that_was_overwritten_is_not_used() {
    let _alone = alone();
    let folder = Folder::new("strake-made-over");
    let mut outlived = 0;
    for (number, (tool, words, command)) in MADE_OVER.into_iter().enumerate() {
        if !is_installed(tool, &folder) {
            skipped(command, &format!("{tool} is not installed"));
            continue;
        }
        outlived += usize::from(check_made_over(&folder, number, (words, command)));
    }
    println!("labels outlived {outlived} of {} tools", MADE_OVER.len());
    assert!(outlived > 0, "not even mkfs.ext4 is here; run scripts/setup.sh test");
}

/// The same while the array runs: the drive was pulled, used elsewhere, and put back.
#[test]
fn a_member_pulled_and_made_into_something_else_is_not_taken_back() {
    let _alone = alone();
    let folder = Folder::new("strake-pulled");
    let drives = blanks(&folder, "drive");
    let control = start(&folder.join("state"), Options::default());
    create_tank(&control, &drives);
    let away = folder.join("away");
    fs::rename(&drives[2], &away).expect("it can be moved");
    tick_until(&control, "the loss", || tank(&control).members[2].state == "missing");
    let made = shell("mkfs.ext4 -q -F -E nodiscard $F", &away, &folder);
    assert!(made.status.success(), "run scripts/setup.sh test");
    fs::rename(&away, &drives[2]).expect("it can be moved");
    let reported = || {
        let events = control.events().list(&ListEventsRequest::default()).expect("it is listed");
        events.into_iter().find(|e| e.kind == "member_returned")
    };
    tick_until(&control, "the news", || reported().is_some());
    let event = reported().expect("it was told");
    assert!(event.cause.contains("an ext4 file system"), "{}", event.cause);
    let member = &tank(&control).members[2];
    assert_eq!((member.state.as_str(), member.returned), ("missing", false));
    assert!(member.cause.contains("an ext4 file system"), "{}", member.cause);
    stop(control);
}

/// A member failed by hand keeps its drive open; given a file system, it is not put in its own place again unasked.
#[test]
fn a_failed_member_made_into_something_else_is_not_replaced_by_itself() {
    let _alone = alone();
    let folder = Folder::new("strake-failed");
    let drives = blanks(&folder, "drive");
    let control = start(&folder.join("state"), Options::default());
    create_tank(&control, &drives);
    let accept = vec!["redundancy".to_owned()];
    let fail = FailMemberRequest { name: "tank".into(), member: 1, accept, ..Default::default() };
    control.fail_member(&fail).expect("it fails");
    let made = shell("mkfs.ext4 -q -F -E nodiscard $F", &drives[1], &folder);
    assert!(made.status.success(), "run scripts/setup.sh test");
    let path = drives[1].display().to_string();
    replace_made_over(&control, path, "an ext4 ", "mkfs.ext4");
    stop(control);
}
