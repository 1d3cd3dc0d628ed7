//! Which machine a report is about.

use serde::{Deserialize, Serialize};

/// What decides how fast code runs here.
#[derive(Clone, Debug, Serialize, Deserialize)]
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

/// What a hypervisor has taken from this machine's CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steal {
    /// Time that was wanted and not given, in ticks.
    stolen: u64,
    /// All time, in ticks.
    all: u64,
}

impl Steal {
    /// Until now.
    #[must_use]
    pub fn now() -> Self {
        Self::parse(&text("/proc/stat")).unwrap_or(Self { stolen: 0, all: 0 })
    }

    /// The first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal (proc(5)).
    fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<u64> =
            line.split_whitespace().map_while(|word| word.parse().ok()).take(8).collect();
        Some(Self { stolen: *ticks.get(7)?, all: ticks.iter().sum() })
    }

    /// A sentence about what was taken since then, when it is enough to disturb.
    #[must_use]
    pub fn since(self) -> Option<String> {
        self.until(Self::now())
    }

    fn until(self, now: Self) -> Option<String> {
        const WORTH_TELLING: f64 = 0.5;
        let share = 100.0 * now.stolen.saturating_sub(self.stolen) as f64
            / now.all.saturating_sub(self.all).max(1) as f64;
        (share >= WORTH_TELLING)
            .then(|| format!("The hypervisor took {share:.1} % of the CPUs' time during the run."))
    }
}

#[cfg(test)]
mod tests {
    use super::Steal;

    #[test]
    fn stolen_time_is_told_when_it_matters() {
        let stat = |steal: u64| {
            Steal::parse(&format!("cpu  100 0 100 700 0 0 0 {steal} 0 0\ncpu0 1")).expect("a line")
        };
        assert_eq!(stat(0).until(stat(0)), None);
        let told = stat(0).until(Steal { stolen: 20, all: 1900 }).expect("it matters");
        assert_eq!(told, "The hypervisor took 2.0 % of the CPUs' time during the run.");
        assert_eq!(Steal::parse("cpu  1 2"), None);
    }
}
