//! What can be shown without hardware.

use super::Container;

/// On a machine without VFIO or without an IOMMU, the refusal says what to do. With both, there is nothing to refuse.
#[test]
fn a_machine_without_iommu_is_refused_with_advice() {
    if let Err(error) = Container::new() {
        let text = error.to_string();
        assert!(text.contains("/dev/vfio") && text.len() > 40, "{text}");
    }
}
