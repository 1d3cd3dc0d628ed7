//! Hosts in a folder.

use super::{Host, address_of};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use strake_testkit::Folder;

#[test]
fn addresses_are_those_of_sysfs() {
    for (text, address) in [
        ("0000:01:00.0", "0000:01:00.0"),
        ("01:00.0", "0000:01:00.0"),
        ("10000:E1:00.1", "10000:e1:00.1"),
    ] {
        assert_eq!(address_of(text).as_deref(), Some(address), "{text}");
    }
    for bad in [
        "",
        ".",
        "..",
        "0000:01:00",
        "0000:01:00.0/..",
        "a:b:c.d.e",
        "0000:01:0g.0",
        "::.",
        "1:0.0",
        "0000:0000:01:00.0",
        "0000:01:00.00",
    ] {
        assert_eq!(address_of(bad), None, "{bad}");
    }
}

/// Adds a device: its address, its class, its driver, its group.
fn device(root: &Path, address: &str, class: &str, driver: Option<&str>, group: Option<u32>) {
    let folder = root.join("sys/bus/pci/devices").join(address);
    fs::create_dir_all(&folder).expect("a folder can be made");
    fs::write(folder.join("class"), format!("{class}\n")).expect("a file");
    if let Some(driver) = driver {
        symlink(format!("../../../bus/pci/drivers/{driver}"), folder.join("driver"))
            .expect("a link");
    }
    if let Some(group) = group {
        let own = root.join(format!("sys/kernel/iommu_groups/{group}/devices"));
        fs::create_dir_all(&own).expect("a folder can be made");
        symlink(&folder, own.join(address)).expect("a link");
        symlink(own.parent().expect("it has one"), folder.join("iommu_group")).expect("a link");
    }
}

#[test]
fn what_cannot_be_driven_is_refused_with_what_to_do() {
    let folder = Folder::new("nvme-host");
    let root: &Path = &folder;
    let nvme = "0x010802";
    device(root, "0000:01:00.0", nvme, Some("vfio-pci"), Some(1));
    device(root, "0000:02:00.0", nvme, Some("nvme"), Some(2));
    device(root, "0000:03:00.0", nvme, None, Some(3));
    device(root, "0000:04:00.0", nvme, Some("vfio-pci"), None);
    device(root, "0000:05:00.0", "0x020000", Some("vfio-pci"), Some(5));
    // A bridge and a device without a driver do not matter; another device does.
    device(root, "0000:06:00.0", nvme, Some("vfio-pci"), Some(6));
    device(root, "0000:06:01.0", "0x060400", Some("pcieport"), Some(6));
    device(root, "0000:06:02.0", "0x020000", None, Some(6));
    device(root, "0000:07:00.0", nvme, Some("vfio-pci"), Some(7));
    device(root, "0000:07:00.1", "0x020000", Some("e1000e"), Some(7));
    let host = Host::at(root);
    let says = |address: &str| host.check(address).err().map(|error| error.to_string());
    assert_eq!(says("0000:01:00.0"), None);
    assert_eq!(says("0000:06:00.0"), None);
    for (address, words) in [
        ("0000:02:00.0", &["kernel driver nvme", "not to vfio-pci"][..]),
        ("0000:03:00.0", &["has no driver"]),
        ("0000:04:00.0", &["has no IOMMU", "intel_iommu=on"]),
        ("0000:05:00.0", &["no NVMe controller", "0x020000"]),
        ("0000:07:00.0", &["0000:07:00.1", "e1000e", "another slot"]),
        ("0000:08:00.0", &["no PCI device"]),
    ] {
        let text = says(address).unwrap_or_default();
        assert!(words.iter().all(|word| text.contains(word)), "{address}: {text}");
    }
}
