//! Opening a drive: rejects unsuitable paths, locks the drive, and determines its properties.

use crate::device::{self, Access, Direct, OpenOptions, Polling, Shared};
use crate::error::{Notice, NoticeKind};
use crate::limits::{CLOSE_PATIENCE, IO_BYTES_MAX, OWED_PATIENCE, ZEROES_BYTES};
use crate::reaper::{self, Key};
use crate::served::served_by;
use crate::size::block_bytes;
use crate::slot::Learned;
use crate::sysfs::{self, BlockSysfs};
use crate::wait::control_wait_for;
use rustix::fs::{
    AtFlags, FallocateFlags, FileType, FlockOperation, Mode, OFlags, Stat, StatxFlags, fallocate,
    flock, fstat, ioctl_blksszget, open as open_file, stat, statx,
};
use rustix::io::{Errno, pread};
use std::mem::ManuallyDrop;
use std::os::fd::OwnedFd;
use std::path::Path;
use strake_block::{BufMut, DeallocateReads, DeviceError, IoErrorKind, VolatileCache};
use strake_units::BlockSize;

/// The alignment of buffers and offsets that direct I/O requires, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Alignment {
    pub(crate) memory: u32,
    pub(crate) offset: u32,
}

/// The supported kinds of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    File,
    Block,
}

/// An open in progress, with its notices.
struct Opening<'a> {
    path: &'a Path,
    name: String,
    options: OpenOptions,
    notices: Vec<Notice>,
}

pub(crate) fn open(
    path: &Path,
    options: OpenOptions,
) -> Result<(Shared, Vec<Notice>), DeviceError> {
    let name = path.display().to_string();
    let mut opening = Opening { path, name, options, notices: Vec::new() };
    let shared = opening.run()?;
    Ok((shared, opening.notices))
}

impl Opening<'_> {
    fn fail(&self, kind: IoErrorKind, what: impl Into<String>) -> DeviceError {
        DeviceError::new(kind, self.name.clone(), what)
    }

    fn notice(&mut self, kind: NoticeKind, what: impl Into<String>) {
        self.notices.push(Notice { kind, device: self.name.clone(), what: what.into() });
    }

    fn run(&mut self) -> Result<Shared, DeviceError> {
        let (kind, before) = self.look()?;
        let key = match kind {
            Kind::Block => Key::of_block(&before),
            Kind::File => Key::of_file(&before),
        };
        reaper::wait_for(key, OWED_PATIENCE).map_err(|owed| device::busy(&self.name, owed))?;
        let sysfs = match kind {
            Kind::Block => BlockSysfs::of(before.st_rdev),
            Kind::File => BlockSysfs::of(before.st_dev),
        };
        let read_only = self.read_only(kind, &sysfs);
        let (file, read_only, direct) = self.open_file(kind, read_only, &before)?;
        let now = fstat(&file).map_err(|errno| self.os("cannot be examined", errno))?;
        if (now.st_dev, now.st_ino, now.st_rdev) != (before.st_dev, before.st_ino, before.st_rdev) {
            return Err(
                self.fail(IoErrorKind::Gone, "was replaced while it was being opened; try again")
            );
        }
        self.lock(kind, &file, read_only)?;
        let bytes = match kind {
            Kind::Block => block_bytes(&file),
            Kind::File => Some(now.st_size as u64),
        };
        let bytes = bytes.ok_or_else(|| self.fail(IoErrorKind::Device, "has no size"))?;
        let served = kind == Kind::File && served_by(&file).is_some();
        let direct = if direct { self.alignment(&file, bytes)? } else { None };
        let block_size = self.block_size(kind, &file, direct)?;
        self.check_size(bytes, block_size)?;
        let deallocate = self.deallocate(kind, &file, bytes, read_only, &sysfs);
        let polled = self.polled(direct.is_some(), &sysfs);
        Ok(Shared {
            identity: match kind {
                Kind::Block => sysfs.identity(),
                Kind::File => format!("file:{}:{}", now.st_dev, now.st_ino),
            },
            name: self.name.clone(),
            file_bytes: if kind == Kind::File { now.st_size as u64 } else { 0 },
            block_size,
            io_bytes_max: IO_BYTES_MAX,
            io_bytes_optimal: if kind == Kind::Block { sysfs.io_bytes_optimal() } else { 0 },
            cache: match kind {
                Kind::Block if direct.is_some() => sysfs.cache(),
                Kind::Block | Kind::File => VolatileCache::Present,
            },
            deallocate,
            fast_zeroes: kind == Kind::File || sysfs.fast_zeroes(),
            read_only,
            direct,
            polled,
            learned: Learned::default(),
            zeroes: BufMut::alone(ZEROES_BYTES).freeze(),
            arenas: Vec::new(),
            key,
            served,
            remote: kind == Kind::Block && sysfs.is_remote(),
            file: ManuallyDrop::new(file),
        })
    }

    fn os(&self, what: &str, errno: Errno) -> DeviceError {
        self.fail(IoErrorKind::Device, what).with_source(errno.into())
    }

    /// Examines the path before opening it, because opening a pipe waits and opening some character devices has side
    /// effects.
    fn look(&self) -> Result<(Kind, Stat), DeviceError> {
        let found = stat(self.path).map_err(|errno| match errno {
            Errno::NOENT => self.fail(IoErrorKind::Gone, "there is nothing at this path"),
            _ => self.os("cannot be examined", errno),
        })?;
        let what = match FileType::from_raw_mode(found.st_mode) {
            FileType::RegularFile => return Ok((Kind::File, found)),
            FileType::BlockDevice => return Ok((Kind::Block, found)),
            FileType::Directory => "a directory",
            FileType::CharacterDevice => "a character device",
            FileType::Fifo => "a pipe",
            FileType::Socket => "a socket",
            FileType::Symlink | FileType::Unknown => "of unknown type",
        };
        let what = format!("is {what}; only regular files and block devices can be drives");
        Err(self.fail(IoErrorKind::Unsupported, what))
    }

    fn read_only(&mut self, kind: Kind, sysfs: &BlockSysfs) -> bool {
        match self.options.access {
            Access::ReadOnly => true,
            Access::ReadWrite if kind == Kind::Block && sysfs.is_write_protected() => {
                self.notice(NoticeKind::ReadOnly, "the drive is write-protected and is only read");
                true
            }
            Access::ReadWrite => false,
        }
    }

    /// Opens with the requested properties as far as possible; returns the file, whether it is read-only, and whether
    /// it is direct.
    fn open_file(
        &mut self,
        kind: Kind,
        read_only: bool,
        found: &Stat,
    ) -> Result<(OwnedFd, bool, bool), DeviceError> {
        let direct = self.options.direct != Direct::No;
        match self.open_when_closed(kind, read_only, direct, found) {
            Ok(file) => Ok((file, read_only, direct)),
            Err(Errno::INVAL | Errno::OPNOTSUPP) if direct => {
                self.without_direct("its file system does not support O_DIRECT")?;
                match self.try_open(kind, read_only, false) {
                    Ok(file) => Ok((file, read_only, false)),
                    Err(errno) => Err(self.refusal(errno, found)),
                }
            }
            Err(Errno::ROFS) if !read_only => {
                self.notice(NoticeKind::ReadOnly, "its file system is read-only; it is only read");
                self.open_file(kind, true, found)
            }
            Err(errno) => Err(self.refusal(errno, found)),
        }
    }

    /// Opens, and waits if the kernel has not yet released a block device whose earlier use has just ended.
    fn open_when_closed(
        &self,
        kind: Kind,
        read_only: bool,
        direct: bool,
        found: &Stat,
    ) -> Result<OwnedFd, Errno> {
        let mut wait = control_wait_for(CLOSE_PATIENCE);
        loop {
            match self.try_open(kind, read_only, direct) {
                Err(Errno::BUSY)
                    if reaper::closed_lately(Key::of_block(found)) && wait().is_some() => {}
                done => return done,
            }
        }
    }

    fn try_open(&self, kind: Kind, read_only: bool, direct: bool) -> Result<OwnedFd, Errno> {
        let mut flags = OFlags::CLOEXEC;
        flags |= if read_only { OFlags::RDONLY } else { OFlags::RDWR };
        if direct {
            flags |= OFlags::DIRECT;
        }
        if kind == Kind::Block {
            // On a block device and without O_CREAT, this flag claims the device: mounts, md, dm and other exclusive
            // users exclude each other (open(2)).
            flags |= OFlags::EXCL;
        }
        open_file(self.path, flags, Mode::empty())
    }

    /// Falls back to buffered I/O, or fails if direct I/O is required.
    fn without_direct(&mut self, why: &str) -> Result<(), DeviceError> {
        if self.options.direct == Direct::Yes {
            let what = format!("{why}, and direct I/O was demanded");
            return Err(self.fail(IoErrorKind::Unsupported, what));
        }
        let what = format!(
            "{why}: I/O goes through the page cache, which costs memory and a copy; flushes still reach the disk"
        );
        self.notice(NoticeKind::Buffered, what);
        Ok(())
    }

    fn refusal(&self, errno: Errno, found: &Stat) -> DeviceError {
        let (kind, what) = match errno {
            Errno::BUSY => {
                let user = sysfs::users(found.st_rdev)
                    .unwrap_or_else(|| "another process holds it exclusively".to_owned());
                (IoErrorKind::Device, format!("is in use: {user}; release it first"))
            }
            Errno::ACCESS | Errno::PERM => {
                let what = "may not be opened by this user; run as root or change its permissions, and if these \
                            permit it, name its folder in the option write-dirs of straked; if its file system was \
                            mounted after the start of straked, restart straked";
                (IoErrorKind::Device, what.to_owned())
            }
            Errno::NXIO | Errno::NODEV | Errno::NOENT | Errno::NOMEDIUM => {
                (IoErrorKind::Gone, "has no device behind it".to_owned())
            }
            _ => (IoErrorKind::Device, "cannot be opened".to_owned()),
        };
        self.fail(kind, what).with_source(errno.into())
    }

    /// Locks a file against a second daemon, or a second open in this process. A block device needs no lock, because
    /// its open is exclusive.
    fn lock(&mut self, kind: Kind, file: &OwnedFd, read_only: bool) -> Result<(), DeviceError> {
        if kind == Kind::Block {
            return Ok(());
        }
        let operation = if read_only {
            FlockOperation::NonBlockingLockShared
        } else {
            FlockOperation::NonBlockingLockExclusive
        };
        match flock(file, operation) {
            Ok(()) => Ok(()),
            Err(Errno::WOULDBLOCK) => {
                let what = "is in use: another process (or this one) has opened it as a drive";
                Err(self.fail(IoErrorKind::Device, what))
            }
            Err(errno) => {
                let what = format!(
                    "its file system cannot lock files ({errno}); make sure that nothing else uses it"
                );
                self.notice(NoticeKind::NotLocked, what);
                Ok(())
            }
        }
    }

    /// The alignment for direct I/O: as the kernel reports it (`STATX_DIOALIGN`, Linux 6.1) or as a trial read shows.
    fn alignment(&mut self, file: &OwnedFd, bytes: u64) -> Result<Option<Alignment>, DeviceError> {
        let reported =
            statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok().filter(|found| {
                StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::DIOALIGN)
            });
        let align = match reported {
            Some(found) => {
                Alignment { memory: found.stx_dio_mem_align, offset: found.stx_dio_offset_align }
            }
            None => try_alignments(file, bytes),
        };
        if align.memory == 0 || align.offset == 0 || align.offset > 4096 {
            self.drop_direct(file)?;
            return Ok(None);
        }
        Ok(Some(align))
    }

    /// Clears `O_DIRECT` of an open file that does not support it.
    fn drop_direct(&mut self, file: &OwnedFd) -> Result<(), DeviceError> {
        self.without_direct("it does not support direct I/O in blocks of 4096 bytes")?;
        let flags =
            rustix::fs::fcntl_getfl(file).map_err(|errno| self.os("has no flags", errno))?;
        rustix::fs::fcntl_setfl(file, flags - OFlags::DIRECT)
            .map_err(|errno| self.os("cannot be switched to buffered I/O", errno))
    }

    fn block_size(
        &self,
        kind: Kind,
        file: &OwnedFd,
        direct: Option<Alignment>,
    ) -> Result<BlockSize, DeviceError> {
        let unsupported = |what: String| self.fail(IoErrorKind::Unsupported, what);
        let least = match kind {
            Kind::Block => {
                let bytes = ioctl_blksszget(file).map_err(|e| self.os("has no block size", e))?;
                return match (BlockSize::from_bytes(bytes), self.options.block_size) {
                    (None, _) => {
                        Err(unsupported(format!("has blocks of {bytes} bytes; 512 and 4096 work")))
                    }
                    (Some(has), Some(asked)) if has != asked => {
                        Err(unsupported(format!("has blocks of {has} bytes, not {asked}")))
                    }
                    (Some(has), _) => Ok(has),
                };
            }
            Kind::File => direct.map_or(1, |align| align.offset),
        };
        match self.options.block_size {
            Some(asked) if asked.bytes() < least => Err(unsupported(format!(
                "its file system needs direct I/O in blocks of {least} bytes, not {asked}"
            ))),
            Some(asked) => Ok(asked),
            None if direct.is_some() && least <= 512 => Ok(BlockSize::B512),
            None => Ok(BlockSize::B4096),
        }
    }

    fn check_size(&mut self, bytes: u64, size: BlockSize) -> Result<(), DeviceError> {
        if bytes < u64::from(size.bytes()) {
            let what = format!("holds {bytes} bytes, less than one block of {size}");
            return Err(self.fail(IoErrorKind::OutOfRange, what));
        }
        let tail = bytes % u64::from(size.bytes());
        if tail > 0 {
            let what = format!("its last {tail} bytes are less than a block and stay unused");
            self.notice(NoticeKind::TailUnused, what);
        }
        Ok(())
    }

    fn deallocate(
        &mut self,
        kind: Kind,
        file: &OwnedFd,
        bytes: u64,
        read_only: bool,
        sysfs: &BlockSysfs,
    ) -> DeallocateReads {
        let can = match kind {
            Kind::File | Kind::Block if read_only => return DeallocateReads::Unsupported,
            Kind::Block => sysfs.gives_back(),
            // A hole beyond the end changes nothing and shows whether the file system supports holes.
            Kind::File => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(file, flags, bytes.next_multiple_of(4096), 4096)
                    .map_err(|_| "its file system has no holes".to_owned())
            }
        };
        let Err(why) = can else { return DeallocateReads::Zeroes };
        let what = format!("space of deleted data cannot be given back: {why}");
        self.notice(NoticeKind::NoDeallocate, what);
        DeallocateReads::Unsupported
    }

    fn polled(&mut self, direct: bool, sysfs: &BlockSysfs) -> bool {
        let why = match self.options.polling {
            Polling::Interrupts => return false,
            Polling::WhenAvailable if !direct => "polling needs direct I/O",
            Polling::WhenAvailable if !sysfs.can_poll() => {
                "the drive has no polling queues (nvme.poll_queues= gives NVMe drives some)"
            }
            Polling::WhenAvailable => return true,
        };
        self.notice(NoticeKind::NotPolled, format!("completions come by interrupt: {why}"));
        false
    }
}

/// Determines the alignment of direct I/O by trial reads. They show only the offset alignment; memory is then aligned
/// in the same way, which is always sufficient.
fn try_alignments(file: &OwnedFd, bytes: u64) -> Alignment {
    let mut buf = BufMut::alone(4096);
    let mut works =
        |len: usize| bytes >= len as u64 && pread(file, &mut buf.as_mut_slice()[..len], 0).is_ok();
    match (works(512), works(4096)) {
        (true, _) => Alignment { memory: 512, offset: 512 },
        (false, true) => Alignment { memory: 4096, offset: 4096 },
        (false, false) => Alignment { memory: 0, offset: 0 },
    }
}
