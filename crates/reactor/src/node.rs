//! The NUMA node of memory that one thread allocates for another.

use std::path::Path;

/// Number of nodes that a mask of the kernel may name.
const NODES_MAX: usize = 1024;

/// Makes the calling thread prefer pages of the NUMA node of `cpu` for the memory that it writes first, until the
/// thread ends. A thread that allocates memory for a pinned core calls this function, because the kernel otherwise
/// takes pages near the calling thread. Has no effect on a machine with one node, or if the kernel refuses: the pages
/// are then slower to access, and nothing else changes.
///
/// Source: `set_mempolicy(2)`, `MPOL_PREFERRED`.
pub(crate) fn prefer_node_of(cpu: usize) {
    let sys = Path::new("/sys/devices/system");
    if let Some(node) = node_of(sys, cpu).filter(|_| !has_one_node(sys)) {
        prefer(node);
    }
}

/// Returns the node of a CPU: its folder in sysfs has a link to it.
fn node_of(sys: &Path, cpu: usize) -> Option<usize> {
    let folder = std::fs::read_dir(sys.join(format!("cpu/cpu{cpu}"))).ok()?;
    let number = |name: &str| name.strip_prefix("node")?.parse().ok();
    folder.flatten().find_map(|entry| number(entry.file_name().to_str()?))
}

fn has_one_node(sys: &Path) -> bool {
    std::fs::read_to_string(sys.join("node/online")).is_ok_and(|online| online.trim() == "0")
}

/// Returns whether the kernel accepted the policy.
#[allow(unsafe_code)]
fn prefer(node: usize) -> bool {
    let mut mask = [0_u64; NODES_MAX / 64];
    let Some(word) = mask.get_mut(node / 64) else { return false };
    *word = 1 << (node % 64);
    // SAFETY: the call reads `NODES_MAX` bits of `mask` and changes only where later pages of this thread come from.
    // The kernel counts one bit more than it reads.
    let done = unsafe {
        libc::syscall(libc::SYS_set_mempolicy, libc::MPOL_PREFERRED, mask.as_ptr(), NODES_MAX + 1)
    };
    done == 0
}

#[cfg(test)]
mod tests {
    use super::{has_one_node, node_of, prefer};

    /// A machine with CPU 0 in node 0 and CPU 9 in node 1.
    #[cfg(not(miri))]
    #[test]
    fn the_node_of_a_cpu_is_the_one_in_its_folder() {
        let sys = std::env::temp_dir().join(format!("strake-nodes-{}", std::process::id()));
        for folder in
            ["cpu/cpu0/node0", "cpu/cpu0/cache", "cpu/cpu9/nodes", "cpu/cpu9/node1", "node"]
        {
            std::fs::create_dir_all(sys.join(folder)).expect("a folder");
        }
        std::fs::write(sys.join("node/online"), "0-1\n").expect("a file");
        let found = [0, 9, 1].map(|cpu| node_of(&sys, cpu));
        let two = has_one_node(&sys);
        std::fs::write(sys.join("node/online"), "0\n").expect("a file");
        let one = has_one_node(&sys);
        std::fs::remove_dir_all(&sys).expect("they can be removed");
        assert_eq!((found, two, one), ([Some(0), Some(1), None], false, true));
    }

    #[cfg(not(miri))]
    #[test]
    fn the_kernel_has_the_policy_of_the_thread() {
        std::thread::spawn(|| {
            assert!(!prefer(super::NODES_MAX));
            assert!(!prefer(super::NODES_MAX - 1), "no machine has so many nodes");
            // A container may forbid the call, and a kernel may have no such file.
            let is_accepted = prefer(0);
            let maps = std::fs::read_to_string("/proc/thread-self/numa_maps");
            if let (true, Ok(maps)) = (is_accepted, maps) {
                assert!(maps.contains(" prefer:0 "), "{maps}");
            }
        })
        .join()
        .expect("it has ended");
    }
}
