//! The calls of VFIO, as safe functions (Linux, include/uapi/linux/vfio.h).
//!
//! Two facts make the calls safe. Every call with a memory argument receives a structure that this module owns, with
//! its size in the field `argsz`, beyond which the kernel does not write. And only [`map`] gives memory of this process
//! to the kernel for later use: the window is responsible for what a device does with mapped memory; it keeps the
//! memory for as long and never borrows it meanwhile.

use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, ioctl, opcode};
use std::ffi::c_void;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use vfio_bindings::bindings::vfio::{
    VFIO_BASE, VFIO_DMA_MAP_FLAG_READ, VFIO_DMA_MAP_FLAG_WRITE, VFIO_IOMMU_INFO_CAPS,
    VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE, VFIO_IOMMU_TYPE1_INFO_DMA_AVAIL,
    VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_IRQ_SET_DATA_EVENTFD, VFIO_TYPE, vfio_device_info,
    vfio_group_status, vfio_iommu_type1_dma_map, vfio_region_info,
};

/// Numbers of the calls, from `VFIO_BASE` on.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Number {
    GetApiVersion = 0,
    CheckExtension = 1,
    SetIommu = 2,
    GroupGetStatus = 3,
    GroupSetContainer = 4,
    GroupGetDevice = 6,
    DeviceGetInfo = 7,
    DeviceGetRegionInfo = 8,
    DeviceSetIrqs = 10,
    DeviceReset = 11,
    IommuGetInfo = 12,
    MapDma = 13,
    UnmapDma = 14,
}

/// A call with its argument: a number, or the address of a structure.
struct Call {
    number: Number,
    argument: *mut c_void,
}

// SAFETY: the numbers are those of VFIO, and the two functions below pass the correct argument to each call. The kernel
// may write to it. The output is the returned number of the call.
unsafe impl Ioctl for Call {
    type Output = i32;

    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        opcode::none(VFIO_TYPE, VFIO_BASE as u8 + self.number as u8)
    }

    fn as_ptr(&mut self) -> *mut c_void {
        self.argument
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut c_void) -> rustix::io::Result<i32> {
        Ok(out)
    }
}

/// A call whose argument is a number.
fn call(file: BorrowedFd<'_>, number: Number, value: usize) -> io::Result<i32> {
    debug_assert!(matches!(
        number,
        Number::GetApiVersion | Number::CheckExtension | Number::SetIommu | Number::DeviceReset
    ));
    let argument = std::ptr::without_provenance_mut(value);
    // SAFETY: these calls take a number and touch no memory of this process.
    Ok(unsafe { ioctl(file, Call { number, argument }) }?)
}

/// A call whose argument is a structure. The caller passes the structure of the call, with its size.
fn call_with<T: Copy>(file: BorrowedFd<'_>, number: Number, argument: &mut T) -> io::Result<i32> {
    let argument = std::ptr::from_mut(argument).cast();
    // SAFETY: the kernel reads and writes only the structure, which is borrowed exclusively. It consists of numbers, so
    // that any bytes that the kernel writes are a valid value.
    Ok(unsafe { ioctl(file, Call { number, argument }) }?)
}

const fn size_of_argument<T>() -> u32 {
    size_of::<T>() as u32
}

pub(super) fn api_version(container: BorrowedFd<'_>) -> io::Result<i32> {
    call(container, Number::GetApiVersion, 0)
}

pub(super) fn has_extension(container: BorrowedFd<'_>, extension: u32) -> bool {
    call(container, Number::CheckExtension, extension as usize).is_ok_and(|answer| answer > 0)
}

pub(super) fn set_iommu(container: BorrowedFd<'_>, kind: u32) -> io::Result<()> {
    call(container, Number::SetIommu, kind as usize).map(drop)
}

pub(super) fn group_flags(group: BorrowedFd<'_>) -> io::Result<u32> {
    let mut status = vfio_group_status { argsz: size_of_argument::<vfio_group_status>(), flags: 0 };
    call_with(group, Number::GroupGetStatus, &mut status).map(|_| status.flags)
}

pub(super) fn set_container(group: BorrowedFd<'_>, container: BorrowedFd<'_>) -> io::Result<()> {
    call_with(group, Number::GroupSetContainer, &mut container.as_raw_fd()).map(drop)
}

/// Opens a device of a group by its address.
pub(super) fn device(group: BorrowedFd<'_>, address: &str) -> io::Result<OwnedFd> {
    let mut name = [0_u8; 64];
    if address.len() >= name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    name[..address.len()].copy_from_slice(address.as_bytes());
    let file: RawFd = call_with(group, Number::GroupGetDevice, &mut name)?;
    // SAFETY: the call returned a new descriptor without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}

/// Returns the flags of a device, and the number of its regions.
pub(super) fn device_info(device: BorrowedFd<'_>) -> io::Result<(u32, u32)> {
    let mut info =
        vfio_device_info { argsz: size_of_argument::<vfio_device_info>(), ..Default::default() };
    call_with(device, Number::DeviceGetInfo, &mut info).map(|_| (info.flags, info.num_regions))
}

pub(super) fn region(device: BorrowedFd<'_>, index: u32) -> io::Result<vfio_region_info> {
    let mut info = vfio_region_info {
        argsz: size_of_argument::<vfio_region_info>(),
        index,
        ..Default::default()
    };
    call_with(device, Number::DeviceGetRegionInfo, &mut info).map(|_| info)
}

/// Makes an event of a device signal an eventfd.
pub(super) fn set_event(device: BorrowedFd<'_>, index: u32, event: RawFd) -> io::Result<()> {
    // struct vfio_irq_set with one descriptor as its data.
    let flags = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER;
    let mut set: [u32; 6] = [24, flags, index, 0, 1, event.cast_unsigned()];
    call_with(device, Number::DeviceSetIrqs, &mut set).map(drop)
}

pub(super) fn reset(device: BorrowedFd<'_>) -> io::Result<()> {
    call(device, Number::DeviceReset, 0).map(drop)
}

pub(super) fn map(
    container: BorrowedFd<'_>,
    (address, bytes): (usize, usize),
    iova: u64,
) -> io::Result<()> {
    let mut map = vfio_iommu_type1_dma_map {
        argsz: size_of_argument::<vfio_iommu_type1_dma_map>(),
        flags: VFIO_DMA_MAP_FLAG_READ | VFIO_DMA_MAP_FLAG_WRITE,
        vaddr: address as u64,
        iova,
        size: bytes as u64,
    };
    call_with(container, Number::MapDma, &mut map).map(drop)
}

pub(super) fn unmap(container: BorrowedFd<'_>, iova: u64, bytes: usize) -> io::Result<()> {
    // struct vfio_iommu_type1_dma_unmap without data: argsz and flags in the first word.
    let mut unmap: [u64; 3] = [u64::from_ne_bytes(argsz_and_flags(24, 0)), iova, bytes as u64];
    call_with(container, Number::UnmapDma, &mut unmap).map(drop)
}

fn argsz_and_flags(argsz: u32, flags: u32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&argsz.to_ne_bytes());
    bytes[4..].copy_from_slice(&flags.to_ne_bytes());
    bytes
}

/// The properties of the IOMMU.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct IommuInfo {
    pub(super) ranges: Vec<Range<u64>>,
    pub(super) mappings_max: Option<usize>,
}

/// Words of the structure and of the following capabilities: space for the ranges of any host.
const INFO_WORDS: usize = 256;

pub(super) fn iommu_info(container: BorrowedFd<'_>) -> io::Result<IommuInfo> {
    let mut words = [0_u64; INFO_WORDS];
    words[0] = u64::from_ne_bytes(argsz_and_flags(INFO_WORDS as u32 * 8, 0));
    call_with(container, Number::IommuGetInfo, &mut words)?;
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    Ok(parse_info(&bytes))
}

/// Reads struct vfio_iommu_type1_info and its chain of capabilities.
fn parse_info(bytes: &[u8]) -> IommuInfo {
    let u32_at = |at: usize| {
        let bytes = bytes.get(at..at + 4).and_then(|bytes| bytes.first_chunk());
        bytes.map_or(0, |bytes| u32::from_ne_bytes(*bytes))
    };
    let u64_at = |at: usize| {
        let bytes = bytes.get(at..at + 8).and_then(|bytes| bytes.first_chunk());
        bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
    };
    let mut info = IommuInfo::default();
    let has_capabilities = u32_at(4) & VFIO_IOMMU_INFO_CAPS != 0;
    let mut at = if has_capabilities { u32_at(16) as usize } else { 0 };
    // Each capability names the offset of the next; a chain with an offset that does not increase would be endless.
    while at != 0 {
        let (id, next) = (u32_at(at) & 0xffff, u32_at(at + 4) as usize);
        if id == VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE {
            let range =
                |n: usize| u64_at(at + 16 + n * 16)..u64_at(at + 24 + n * 16).saturating_add(1);
            info.ranges.extend((0..u32_at(at + 8) as usize).take(INFO_WORDS / 2).map(range));
        } else if id == VFIO_IOMMU_TYPE1_INFO_DMA_AVAIL {
            info.mappings_max = Some(u32_at(at + 8) as usize);
        }
        at = if next > at { next } else { 0 };
    }
    info
}

#[cfg(test)]
mod tests {
    use super::{IommuInfo, parse_info};

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    /// The data of an IOMMU of 39 bits: two ranges around the addresses of interrupts.
    #[test]
    fn ranges_and_limits_are_read() {
        let bytes = words(&[
            88,
            3,
            0x1000,
            0,
            24,
            0, // argsz, flags, iova_pgsizes, cap_offset
            0x1_0001,
            72,
            2,
            0, // range capability
            0,
            0,
            0xfedf_ffff,
            0,
            0xfef0_0000,
            0,
            0xffff_ffff,
            0x7f, // two ranges
            0x1_0003,
            0,
            65535, // available mappings
        ]);
        assert_eq!(
            parse_info(&bytes),
            IommuInfo {
                ranges: vec![0..0xfee0_0000, 0xfef0_0000..1 << 39],
                mappings_max: Some(65535)
            }
        );
    }

    #[test]
    fn chains_that_lead_nowhere_end() {
        for chain in [[0x1_0001, 24], [0x1_0001, 0xffff_fff0], [0x1_0003, 8]] {
            let bytes = words(&[32, 3, 0, 0, 24, 0, chain[0], chain[1]]);
            parse_info(&bytes);
        }
        assert_eq!(parse_info(&[]), IommuInfo::default());
    }
}
