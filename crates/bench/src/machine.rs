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
    /// CPUs that others kept busy during the run, on average, which disturbs the run. `None` when it was not measured.
    #[serde(default)]
    pub others: Option<f64>,
    /// Whether it is a virtual machine.
    pub is_virtual: bool,
}

impl Machine {
    /// What others did meanwhile, in words.
    #[must_use]
    pub fn others_in_words(&self) -> String {
        match self.others {
            Some(cpus) => format!("{cpus:.2} CPUs used by others"),
            None => "what others did is not known".to_owned(),
        }
    }

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
            others: None,
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

/// What others than this process and its children do.
#[derive(Clone, Copy, Debug)]
pub struct Others {
    /// Ticks that all CPUs were busy, and that this process and children that have ended were.
    busy: u64,
    own: u64,
    /// Ticks of all CPUs, busy or not.
    all: u64,
}

impl Others {
    /// Until now.
    #[must_use]
    pub fn now() -> Self {
        Self::parse(&text("/proc/stat"), &text("/proc/self/stat")).unwrap_or(Self {
            busy: 0,
            own: 0,
            all: 0,
        })
    }

    /// The first line of `/proc/stat`, and utime, stime, cutime and cstime of `/proc/self/stat`, which are the 14th to
    /// 17th fields, counted behind the name in parentheses (proc(5)).
    fn parse(stat: &str, own: &str) -> Option<Self> {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<u64> =
            line.split_whitespace().map_while(|word| word.parse().ok()).take(8).collect();
        let idle = ticks.get(3)? + ticks.get(4)? + ticks.get(7)?;
        let all: u64 = ticks.iter().sum();
        let (_, fields) = own.rsplit_once(')')?;
        let times = fields.split_whitespace().skip(11).take(4);
        let own = times.map_while(|word| word.parse::<u64>().ok()).sum();
        Some(Self { busy: all - idle, own, all })
    }

    /// CPUs that others kept busy since then, on average, in hundredths; `None` when the kernel does not say.
    #[must_use]
    pub fn since(self) -> Option<f64> {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        self.until(Self::now(), cpus)
    }

    fn until(self, now: Self, cpus: usize) -> Option<f64> {
        let all = now.all.saturating_sub(self.all);
        if all == 0 {
            return None;
        }
        let own = now.own.saturating_sub(self.own);
        let others = now.busy.saturating_sub(self.busy).saturating_sub(own);
        Some((others as f64 / all as f64 * cpus as f64 * 100.0).round() / 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::{Others, Steal};

    #[test]
    fn what_others_do_is_distinguished_from_what_we_do() {
        let at = |user: u64, idle: u64, own: u64, children: u64| {
            let stat = format!("cpu  {user} 0 10 {idle} 0 0 0 0 0 0\ncpu0 1");
            let own = format!("7 (a ) b) R 1 2 3 4 5 6 7 8 9 10 {own} 1 {children} 0 20 0");
            Others::parse(&stat, &own).expect("both are whole")
        };
        let begin = at(100, 1000, 50, 0);
        // Of 200 ticks of two CPUs 120 were busy, and 100 of those are ours or a child's.
        assert_eq!(begin.until(at(220, 1080, 110, 40), 2), Some(0.2));
        assert_eq!(begin.until(at(200, 1100, 150, 0), 2), Some(0.0));
        assert_eq!(begin.until(begin, 2), None);
        assert!(Others::parse("cpu  1 2", "7 (x) R").is_none());
    }

    #[test]
    fn stolen_time_is_reported_when_it_matters() {
        let stat = |steal: u64| {
            Steal::parse(&format!("cpu  100 0 100 700 0 0 0 {steal} 0 0\ncpu0 1")).expect("a line")
        };
        assert_eq!(stat(0).until(stat(0)), None);
        let reported = stat(0).until(Steal { stolen: 20, all: 1900 }).expect("it matters");
        assert_eq!(reported, "The hypervisor took 2.0 % of the CPUs' time during the run.");
        assert_eq!(Steal::parse("cpu  1 2"), None);
    }
}
