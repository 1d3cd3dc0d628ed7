//! What can be shown without hardware.

use super::{Container, is_address};

#[test]
fn addresses_are_those_of_sysfs() {
    for good in ["0000:01:00.0", "10000:e1:00.0"] {
        assert!(is_address(good), "{good}");
    }
    for bad in ["", "..", "0000:01:00", "0000:01:00.0/..", "a:b:c.d.e", "0000:01:0g.0", "::."] {
        assert!(!is_address(bad), "{bad}");
    }
}

/// On a machine without VFIO or without an IOMMU, the refusal says what to do. With both, there is nothing to refuse.
#[test]
fn a_machine_without_iommu_is_refused_with_advice() {
    if let Err(error) = Container::new() {
        let text = error.to_string();
        assert!(text.contains("/dev/vfio") && text.len() > 40, "{text}");
    }
}
