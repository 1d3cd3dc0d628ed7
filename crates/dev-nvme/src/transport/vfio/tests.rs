//! Tests without hardware.

use super::{Attached, CONFIG_CLASS, Container, Group, is_on_bus};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::pwrite;
use std::os::fd::{AsFd, OwnedFd};

fn file() -> OwnedFd {
    memfd_create("vfio", MemfdFlags::CLOEXEC).expect("there is memory")
}

/// The kernel returns the vendor of a pulled device from an old copy; all other fields read as ones.
#[test]
fn a_device_whose_class_reads_as_ones_is_not_on_the_bus() {
    const CONFIG: u64 = 7 << 12;
    let config = file();
    pwrite(&config, &[0x36, 0x1b, 0x10, 0x00], CONFIG).expect("it is a file");
    pwrite(&config, &[2, 2, 8, 1], CONFIG + CONFIG_CLASS).expect("it is a file");
    assert!(is_on_bus(config.as_fd(), CONFIG));
    pwrite(&config, &[0xff; 4], CONFIG + CONFIG_CLASS).expect("it is a file");
    assert!(!is_on_bus(config.as_fd(), CONFIG));
}

/// A group that no function uses is given back, except the last one, which keeps the mappings.
#[test]
fn a_group_without_functions_is_given_back() {
    let group = |number, functions| Group { number, file: file(), functions };
    let mut attached = Attached { groups: vec![group(1, 1), group(2, 0)], ..Attached::default() };
    attached.release(1);
    assert_eq!(attached.groups.len(), 2, "group 1 is in use");
    attached.release(2);
    assert_eq!(attached.groups.len(), 1);
    attached.groups[0].functions = 0;
    attached.release(1);
    assert_eq!(attached.groups.len(), 1, "the last group stays");
}

/// On a host without VFIO or without an IOMMU, the error names the remedy. With both, there is no error.
#[test]
fn a_machine_without_iommu_is_refused_with_advice() {
    if let Err(error) = Container::new() {
        let text = error.to_string();
        assert!(text.contains("/dev/vfio") && text.len() > 40, "{text}");
    }
}
