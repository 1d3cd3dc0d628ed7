//! Which machine a report is about.

use serde::Serialize;

/// What decides how fast code runs here.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The CPU's name for itself.
    pub cpu: String,
    /// CPUs that this process may use.
    pub cpus: usize,
    /// Bytes of the last cache, as the kernel reports it; 0 when it does not.
    pub last_cache: usize,
    /// The kernel.
    pub kernel: String,
    /// Load average over a minute before the run: what others did meanwhile disturbs.
    pub load: String,
    /// Whether it is a virtual machine.
    pub is_virtual: bool,
}

impl Machine {
    /// This machine, as far as it tells.
    #[must_use]
    pub fn here() -> Machine {
        let info = text("/proc/cpuinfo");
        let field = |name: &str| {
            let line = info.lines().find(|line| line.starts_with(name))?;
            line.split_once(':').map(|(_, value)| value.trim().to_owned())
        };
        Machine {
            cpu: field("model name").unwrap_or_else(|| "unknown".to_owned()),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            last_cache: last_cache(),
            kernel: text("/proc/sys/kernel/osrelease").trim().to_owned(),
            load: text("/proc/loadavg").split(' ').next().unwrap_or_default().to_owned(),
            is_virtual: field("flags").is_some_and(|f| f.split(' ').any(|w| w == "hypervisor")),
        }
    }
}

/// Bytes of the largest cache of CPU 0.
fn last_cache() -> usize {
    let sizes = (0..8).filter_map(|index| {
        let size = text(&format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size"));
        let number: usize = size.trim().strip_suffix('K')?.parse().ok()?;
        Some(number << 10)
    });
    sizes.max().unwrap_or(0)
}

/// Bytes of memory that can be had without swapping; 0 when the kernel does not say.
#[must_use]
pub fn available_memory() -> usize {
    let info = text("/proc/meminfo");
    let line = info.lines().find(|line| line.starts_with("MemAvailable"));
    let number = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<usize>().ok());
    number.map_or(0, |kib| kib << 10)
}

fn text(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}
