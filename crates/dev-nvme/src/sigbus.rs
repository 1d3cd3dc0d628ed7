//! Registers that become unreachable without ending the process.
//!
//! An access to mapped registers raises SIGBUS once the kernel has revoked them: after the drive was pulled, and while
//! memory decoding is off (Linux, `vfio_pci_mmap_fault`). The handler maps memory of ones over all registers of the
//! drive, in one system call. It never maps zeroes: a status of zeroes would mean that the controller is disabled, so
//! that its commands could be answered as failed. The keeper recognizes zeroes that the bus returns. All registers are
//! replaced at once: the loss of a single doorbell would not be noticed.
//!
//! A fault at any other address goes to the previous handler, which usually ends the process.

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::pwrite;
use rustix::mm::{MapFlags, ProtFlags, mmap};
use std::ffi::{c_int, c_void};
use std::io;
use std::mem::{MaybeUninit, transmute};
use std::os::fd::OwnedFd;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Maximum number of controllers of a process.
const ENTRIES: usize = 256;
/// Maximum bytes of mapped registers of a controller: doorbells of more queues than a driver creates.
pub(crate) const BYTES_MAX: usize = 1 << 20;

/// A range of addresses of registers. An entry is free if `bytes` is 0.
struct Entry {
    start: AtomicUsize,
    bytes: AtomicUsize,
    is_taken: AtomicBool,
    was_cut: AtomicBool,
}

impl Entry {
    const fn free() -> Self {
        Self {
            start: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            is_taken: AtomicBool::new(false),
            was_cut: AtomicBool::new(false),
        }
    }

    /// Returns the range, if it contains the address.
    fn range_of(&self, address: usize) -> Option<(usize, usize)> {
        // Partner: `Watch::new`.
        let bytes = self.bytes.load(Ordering::Acquire);
        let start = self.start.load(Ordering::Relaxed);
        (address.wrapping_sub(start) < bytes).then_some((start, bytes))
    }
}

static ENTRIES_OF_ALL: [Entry; ENTRIES] = [const { Entry::free() }; ENTRIES];

/// The data of the handler, created before it is installed.
struct Handler {
    /// A file of ones.
    ones: OwnedFd,
    previous: libc::sigaction,
}

static HANDLER: OnceLock<io::Result<Handler>> = OnceLock::new();

/// Creates a file with [`BYTES_MAX`] bytes of ones.
fn file_of_ones() -> io::Result<OwnedFd> {
    let file = memfd_create("strake-ones", MemfdFlags::CLOEXEC)?;
    ftruncate(&file, BYTES_MAX as u64)?;
    let ones = vec![0xff; BYTES_MAX];
    match pwrite(&file, &ones, 0)? {
        BYTES_MAX => Ok(file),
        _ => Err(io::ErrorKind::StorageFull.into()),
    }
}

/// Installs the handler, once.
fn handler() -> io::Result<&'static Handler> {
    static INSTALLED: OnceLock<bool> = OnceLock::new();
    let made = HANDLER.get_or_init(|| {
        let mut previous = MaybeUninit::zeroed();
        // SAFETY: without a new action the call only writes the present action to `previous`, which is large enough.
        let asked = unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), previous.as_mut_ptr()) };
        if asked != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: all zeroes are a `sigaction`, and the call has filled it in.
        Ok(Handler { ones: file_of_ones()?, previous: unsafe { previous.assume_init() } })
    });
    let made = made.as_ref().map_err(|error| io::Error::new(error.kind(), error.to_string()))?;
    let is_installed = *INSTALLED.get_or_init(|| {
        // SAFETY: all zeroes are a `sigaction`: no flags, an empty mask.
        let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
        action.sa_sigaction = caught as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: `caught` has the type of a handler with SA_SIGINFO and performs only permitted operations
        // (signal-safety(7)); its data are in `HANDLER` already.
        unsafe { libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) == 0 }
    });
    if is_installed { Ok(made) } else { Err(io::Error::other("no handler for SIGBUS")) }
}

/// Maps ones over a range of registers without a gap in time (mmap(2), MAP_FIXED). Writes have no effect then.
///
/// # Safety
/// The range is a whole mapping of registers, which are accessed only as volatile words.
unsafe fn cover(ones: &OwnedFd, (start, bytes): (usize, usize)) -> rustix::io::Result<()> {
    let (protection, flags) =
        (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::FIXED);
    // SAFETY: the caller promises that nothing but registers is in the range. It stays mapped, readable and writable.
    unsafe { mmap(start as *mut c_void, bytes, protection, flags, ones, 0) }.map(drop)
}

/// The handler. It makes one system call, takes no lock and no memory; rustix returns errors, so that `errno` is kept.
extern "C" fn caught(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // Set before the handler was installed.
    let Some(Ok(handler)) = HANDLER.get() else { return };
    // SAFETY: the kernel passes a valid `siginfo_t` to a handler with SA_SIGINFO.
    let code = unsafe { (*info).si_code };
    // The address of a signal from another process is meaningless.
    if code > 0 {
        // SAFETY: a SIGBUS of the kernel has an address.
        let address = unsafe { (*info).si_addr() } as usize;
        for entry in &ENTRIES_OF_ALL {
            let Some(range) = entry.range_of(address) else { continue };
            // Partner: `Watch::was_cut`.
            entry.was_cut.store(true, Ordering::Release);
            // SAFETY: a range in the table is a whole mapping of registers.
            if unsafe { cover(&handler.ones, range) }.is_ok() {
                // The store is repeated, because the keeper may have mapped the registers between the two lines.
                entry.was_cut.store(true, Ordering::Release);
                return;
            }
        }
    }
    pass_on(&handler.previous, signal, info, context);
}

/// Performs the action of the previous handler.
fn pass_on(
    previous: &libc::sigaction,
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) {
    // SAFETY: the kernel passes a valid `siginfo_t` to a handler with SA_SIGINFO.
    let was_sent = unsafe { (*info).si_code } <= 0;
    match previous.sa_sigaction {
        libc::SIG_IGN if was_sent => {}
        // The process ends as without this handler: by the repeated access, or by the signal. To ignore the signal does
        // not help an access.
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: all zeroes are a `sigaction`: the default action.
            let action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
            // SAFETY: the default action needs nothing. The signal is delivered when the handler returns.
            unsafe {
                libc::sigaction(signal, &raw const action, ptr::null_mut());
                libc::raise(signal);
            }
        }
        address if previous.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: the address was installed as a handler with three arguments.
            let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                unsafe { transmute(address) };
            handler(signal, info, context);
        }
        address => {
            // SAFETY: the address was installed as a handler with one argument.
            let handler: extern "C" fn(c_int) = unsafe { transmute(address) };
            handler(signal);
        }
    }
}

/// A range of registers whose loss the process survives, as long as this object exists.
#[derive(Debug)]
pub(crate) struct Watch {
    index: usize,
}

impl Watch {
    /// Watches a mapping of registers. The call must precede the first access.
    ///
    /// # Errors
    /// The handler cannot be installed, or the limit of watched ranges is reached.
    pub(crate) fn new(start: usize, bytes: usize) -> io::Result<Self> {
        handler()?;
        if bytes > BYTES_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let is_free = |entry: &Entry| !entry.is_taken.swap(true, Ordering::AcqRel);
        let index = ENTRIES_OF_ALL.iter().position(is_free);
        let index = index.ok_or_else(|| io::Error::other("too many controllers are open"))?;
        let entry = &ENTRIES_OF_ALL[index];
        entry.was_cut.store(false, Ordering::Relaxed);
        entry.start.store(start, Ordering::Relaxed);
        // Partner: `range_of`.
        entry.bytes.store(bytes, Ordering::Release);
        Ok(Self { index })
    }

    /// Whether an access has raised SIGBUS since the registers were last mapped.
    pub(crate) fn was_cut(&self) -> bool {
        // Partner: `caught`.
        ENTRIES_OF_ALL[self.index].was_cut.load(Ordering::Acquire)
    }

    /// Records whether the registers are cut.
    pub(crate) fn set_cut(&self, was_cut: bool) {
        ENTRIES_OF_ALL[self.index].was_cut.store(was_cut, Ordering::Release);
    }

    /// Maps ones over the registers now.
    pub(crate) fn cover(&self) -> io::Result<()> {
        let entry = &ENTRIES_OF_ALL[self.index];
        let range = (entry.start.load(Ordering::Relaxed), entry.bytes.load(Ordering::Relaxed));
        // SAFETY: a range in the table is a whole mapping of registers.
        Ok(unsafe { cover(&handler()?.ones, range) }?)
    }
}

impl Drop for Watch {
    /// The entry is freed before the range is unmapped, because a later mapping there has another owner.
    fn drop(&mut self) {
        let entry = &ENTRIES_OF_ALL[self.index];
        entry.bytes.store(0, Ordering::Release);
        entry.is_taken.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
