//! VFIO with an IOMMU of type 1: containers and groups (Linux, Documentation/driver-api/vfio.rst).
//!
//! One [`Container`] is the address space of all drives, so that memory is pinned once. Without an IOMMU a wrong
//! address of a controller would overwrite memory, so that a device without one is refused.

mod ioctl;

use crate::host::address_of;
use crate::memory::{Mapping, Registers};
use crate::sigbus::BYTES_MAX;
use crate::transport::{Function, Reach, Signals, Space};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, pread, pwrite, read};
use std::fs;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use strake_block::{DeviceError, IoErrorKind};
use vfio_bindings::bindings::vfio::{
    VFIO_API_VERSION, VFIO_DEVICE_FLAGS_PCI, VFIO_DEVICE_FLAGS_RESET, VFIO_GROUP_FLAGS_VIABLE,
    VFIO_PCI_BAR0_REGION_INDEX, VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_ERR_IRQ_INDEX,
    VFIO_PCI_REQ_IRQ_INDEX, VFIO_REGION_INFO_FLAG_MMAP, VFIO_TYPE1v2_IOMMU,
};

/// Mass storage, non-volatile memory, NVM Express (PCI Code and ID Assignment, 1.9).
const CLASS_NVME: u32 = 0x01_08_02;
/// Registers of the configuration space (PCI Local Bus 3.0, section 6.1).
const CONFIG_COMMAND: u64 = 0x04;
const CONFIG_CLASS: u64 = 0x08;
/// Memory decoding, bus mastering, and INTx off.
const COMMAND_BITS: u16 = 1 << 1 | 1 << 2 | 1 << 10;
/// The addresses of a device if the kernel does not report them: those of the smallest usual IOMMU, without the range
/// below 4 GiB, which contains the addresses of interrupts.
const ADDRESSES: Range<u64> = 1 << 32..1 << 39;
/// Mappings of a container if the kernel does not report it (`dma_entry_limit` of vfio_iommu_type1).
const MAPPINGS: usize = 65535;
/// The minimum registers of a controller: those of the admin queue and of one pair.
const BAR_MIN: u64 = 0x2000;

/// Time limit for the end of the earlier use of a function: the shutdown of a controller, and a reset.
const GIVE_BACK_TIME: Duration = Duration::from_secs(10);

fn opened(path: &str) -> io::Result<OwnedFd> {
    Ok(open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?)
}

/// An address space, and the groups in it.
#[derive(Debug)]
pub struct Container {
    file: OwnedFd,
    attached: Mutex<Attached>,
    /// Notified when a function was given back.
    freed: Condvar,
}

/// The content of a container.
#[derive(Debug, Default)]
struct Attached {
    groups: Vec<Group>,
    /// Addresses of the open functions.
    functions: Vec<String>,
}

#[derive(Debug)]
struct Group {
    number: u32,
    file: OwnedFd,
    functions: usize,
}

impl Attached {
    /// Gives back a group that no function uses. The last group keeps the IOMMU with all mappings, and is released with
    /// the container.
    fn release(&mut self, number: u32) {
        if self.groups.len() > 1 {
            self.groups.retain(|group| group.functions > 0 || group.number != number);
        }
    }
}

impl Container {
    /// A container without groups.
    ///
    /// # Errors
    /// There is no VFIO, or it has no IOMMU of type 1.
    pub fn new() -> Result<Arc<Self>, DeviceError> {
        let path = "/dev/vfio/vfio";
        let fail = |what: &str| DeviceError::new(IoErrorKind::Device, path, what);
        let file = opened(path).map_err(|error| {
            fail("VFIO is not available; load vfio-pci, and check the rights on /dev/vfio")
                .with_source(error)
        })?;
        if ioctl::api_version(file.as_fd()).ok() != Some(VFIO_API_VERSION as i32) {
            return Err(fail("the kernel has another version of VFIO"));
        }
        if !ioctl::has_extension(file.as_fd(), VFIO_TYPE1v2_IOMMU) {
            return Err(fail(
                "the machine has no IOMMU that VFIO can use; enable VT-d or AMD-Vi in its firmware and add \
                 intel_iommu=on to the kernel command line, or leave the drive to the kernel driver",
            ));
        }
        Ok(Arc::new(Self { file, attached: Mutex::default(), freed: Condvar::new() }))
    }

    fn attached(&self) -> MutexGuard<'_, Attached> {
        self.attached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the device of a group, which joins the container. Waits while the function is being given back, because
    /// two drivers of one controller would interfere.
    fn device(self: &Arc<Self>, number: u32, address: &str) -> io::Result<(Claim, OwnedFd)> {
        let is_open = |attached: &mut Attached| attached.functions.iter().any(|own| own == address);
        let waited = self.freed.wait_timeout_while(self.attached(), GIVE_BACK_TIME, is_open);
        let (mut attached, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            return Err(io::Error::other("it is open already"));
        }
        let at = match attached.groups.iter().position(|group| group.number == number) {
            Some(at) => at,
            None => {
                let file = self.join(number, attached.groups.is_empty())?;
                attached.groups.push(Group { number, file, functions: 0 });
                attached.groups.len() - 1
            }
        };
        let device = ioctl::device(attached.groups[at].file.as_fd(), address)
            .inspect_err(|_| attached.release(number))?;
        attached.groups[at].functions += 1;
        attached.functions.push(address.to_owned());
        Ok((Claim { container: Arc::clone(self), number, address: address.to_owned() }, device))
    }

    /// Waits until the function at `address` is given back. Returns false after a time limit.
    pub(crate) fn await_closed(&self, address: &str) -> bool {
        let is_open = |attached: &mut Attached| attached.functions.iter().any(|own| own == address);
        let waited = self.freed.wait_timeout_while(self.attached(), GIVE_BACK_TIME, is_open);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Opens a group and joins it to the container, which receives its IOMMU with the first group.
    fn join(&self, number: u32, is_first: bool) -> io::Result<OwnedFd> {
        let file = opened(&format!("/dev/vfio/{number}"))?;
        if ioctl::group_flags(file.as_fd())? & VFIO_GROUP_FLAGS_VIABLE == 0 {
            let what = "another device of its IOMMU group has a driver of the kernel";
            return Err(io::Error::other(what));
        }
        ioctl::set_container(file.as_fd(), self.file.as_fd())?;
        if is_first {
            ioctl::set_iommu(self.file.as_fd(), VFIO_TYPE1v2_IOMMU)?;
        }
        Ok(file)
    }
}

/// An open function. Dropping it gives the function back; the last function of a group also gives the group back.
#[derive(Debug)]
struct Claim {
    container: Arc<Container>,
    number: u32,
    address: String,
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut attached = self.container.attached();
        attached.functions.retain(|address| *address != self.address);
        let number = self.number;
        attached.groups.iter_mut().filter(|group| group.number == number).for_each(|group| {
            group.functions -= 1;
        });
        attached.release(number);
        drop(attached);
        self.container.freed.notify_all();
    }
}

impl Space for Container {
    fn reach(&self) -> Reach {
        let info = ioctl::iommu_info(self.file.as_fd()).unwrap_or_default();
        let usable = info.ranges.into_iter().map(|range| {
            // The lower limit excludes the addresses of interrupts on x86, the upper limit those beyond a process.
            range.start.max(ADDRESSES.start)..range.end.min(1 << 47)
        });
        let largest = usable.max_by_key(|range| range.end.saturating_sub(range.start));
        let addresses = largest.filter(|range| range.start < range.end).unwrap_or(ADDRESSES);
        Reach { addresses, mappings_max: info.mappings_max.unwrap_or(MAPPINGS) }
    }

    fn map(&self, address: usize, bytes: usize, iova: u64) -> io::Result<()> {
        ioctl::map(self.file.as_fd(), (address, bytes), iova)
    }

    fn unmap(&self, iova: u64, bytes: usize) -> io::Result<()> {
        ioctl::unmap(self.file.as_fd(), iova, bytes)
    }
}

/// A controller that is bound to vfio-pci.
#[derive(Debug)]
pub struct VfioFunction {
    device: OwnedFd,
    registers: Arc<Registers>,
    /// The offsets of the registers and of the configuration space in the device's file.
    bar: u64,
    config: u64,
    can_reset: bool,
    /// Signalled when the device must be given back, and after an error of the device.
    requested: OwnedFd,
    failed: OwnedFd,
    // Dropped after the device.
    _claim: Claim,
}

/// Whether the device whose configuration space is at `config` of its file is on the bus. The class and the revision
/// are read: vfio-pci returns the vendor and the device from a copy, also for a pulled device (Linux,
/// `init_pci_cap_basic_perm` in drivers/vfio/pci/vfio_pci_config.c).
fn is_on_bus(device: BorrowedFd<'_>, config: u64) -> bool {
    let mut class = [0; 4];
    match pread(device, &mut class, config + CONFIG_CLASS) {
        // A device that is not on the bus does not answer, which reads as ones.
        Ok(_) => class != [0xff; 4],
        Err(Errno::NODEV) => false,
        // Any other error proves nothing.
        Err(_) => true,
    }
}

/// The IOMMU group of a device.
fn group_of(address: &str) -> io::Result<u32> {
    let group = fs::read_link(Path::new("/sys/bus/pci/devices").join(address).join("iommu_group"))?;
    let number =
        group.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse().ok());
    number.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

impl VfioFunction {
    /// Opens the device at `address`, which is bound to vfio-pci. The kernel resets the device.
    ///
    /// # Errors
    /// The device is not bound, is in use, has no IOMMU, or is no NVMe controller.
    pub fn open(address: &str, container: &Arc<Container>) -> Result<Self, DeviceError> {
        let fail = |what: &str| DeviceError::new(IoErrorKind::Device, address, what);
        if address_of(address).as_deref() != Some(address) {
            return Err(fail("is no PCI address, such as 0000:01:00.0"));
        }
        let group = group_of(address).map_err(|error| {
            fail("has no IOMMU group: enable the IOMMU of the machine, or leave the drive to the kernel driver")
                .with_source(error)
        })?;
        // Variables are dropped in reverse order: after an error, the device is closed before it can be opened again.
        let (claim, device) = container.device(group, address).map_err(|error| {
            let what = match error.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::BUSY) => {
                    "is in use by another program, such as a virtual machine; stop that first"
                }
                _ => "cannot be opened; bind it to vfio-pci, and check the rights on /dev/vfio",
            };
            fail(what).with_source(error)
        })?;
        let (flags, _) = ioctl::device_info(device.as_fd())
            .map_err(|error| fail("says nothing").with_source(error))?;
        if flags & VFIO_DEVICE_FLAGS_PCI == 0 {
            return Err(fail("is no PCI device"));
        }
        Self::set_up(claim, device, flags)
            .map_err(|error| fail("cannot be used").with_source(error))
    }

    /// The claim is dropped last, also after an error.
    fn set_up(claim: Claim, device: OwnedFd, flags: u32) -> io::Result<Self> {
        let config = ioctl::region(device.as_fd(), VFIO_PCI_CONFIG_REGION_INDEX)?;
        let bar = ioctl::region(device.as_fd(), VFIO_PCI_BAR0_REGION_INDEX)?;
        if bar.flags & VFIO_REGION_INFO_FLAG_MMAP == 0 || bar.size < BAR_MIN {
            return Err(io::Error::other("its registers cannot be mapped"));
        }
        let mut class = [0; 4];
        pread(&device, &mut class, config.offset + CONFIG_CLASS)?;
        if u32::from_le_bytes(class) >> 8 != CLASS_NVME {
            return Err(io::Error::other("it is no NVMe controller"));
        }
        let bytes = (bar.size as usize).min(BYTES_MAX);
        let mapping = Mapping::of_device(device.as_fd(), bar.offset, bytes)?;
        let flags_of_events = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let function = Self {
            registers: Registers::of_device(mapping)?,
            bar: bar.offset,
            config: config.offset,
            can_reset: flags & VFIO_DEVICE_FLAGS_RESET != 0,
            requested: eventfd(0, flags_of_events)?,
            failed: eventfd(0, flags_of_events)?,
            device,
            _claim: claim,
        };
        function.turn_on()?;
        for (index, event) in [
            (VFIO_PCI_REQ_IRQ_INDEX, &function.requested),
            (VFIO_PCI_ERR_IRQ_INDEX, &function.failed),
        ] {
            // Platforms without these events never report them.
            let _ = ioctl::set_event(function.device.as_fd(), index, event.as_raw_fd());
        }
        Ok(function)
    }

    /// Turns memory decoding and bus mastering on.
    fn turn_on(&self) -> io::Result<()> {
        let mut command = [0; 2];
        pread(&self.device, &mut command, self.config + CONFIG_COMMAND)?;
        let command = u16::from_le_bytes(command) | COMMAND_BITS;
        pwrite(&self.device, &command.to_le_bytes(), self.config + CONFIG_COMMAND)?;
        Ok(())
    }

    fn has_rung(event: &OwnedFd) -> bool {
        // Reading an eventfd without a write fails.
        read(event, &mut [0; 8]).is_ok()
    }
}

impl Function for VfioFunction {
    fn registers(&self) -> &Arc<Registers> {
        &self.registers
    }

    fn reset(&self) -> io::Result<()> {
        // This also runs without a reset: memory decoding may be off.
        let reset = match self.can_reset {
            true => ioctl::reset(self.device.as_fd()),
            false => Err(io::ErrorKind::Unsupported.into()),
        };
        self.turn_on()?;
        self.registers.restore(self.device.as_fd(), self.bar).and(reset)
    }

    fn is_present(&self) -> bool {
        is_on_bus(self.device.as_fd(), self.config)
    }

    fn signals(&self) -> Signals {
        Signals {
            is_requested: Self::has_rung(&self.requested),
            has_failed: Self::has_rung(&self.failed),
        }
    }
}

#[cfg(test)]
mod tests;
