//! What callgrind counted, by function ("Callgrind Format Specification" of the valgrind manual).

use std::collections::BTreeMap;
use std::ops::Sub;

/// Functions of the C library that allocate, as the allocator of Rust calls them.
const ALLOCATES: [&str; 6] =
    ["malloc", "calloc", "realloc", "posix_memalign", "aligned_alloc", "memalign"];

/// Where the parity kernels are.
const KERNELS: &str = "strake_parity::kernels::";

/// The calls of the driver of NVMe controllers. Their counts include all that they call; the model of the controller is
/// called by none of them.
const DRIVER: &str = "<strake_dev_nvme::queue::NvmeQueue as strake_block::device::IoQueue>::";

/// Counts of one run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Profile {
    /// Instructions.
    pub instructions: u64,
    /// Those of parity kernels.
    pub parity: u64,
    /// Those of calls of the driver of NVMe controllers.
    pub driver: u64,
    /// Calls of functions that allocate.
    pub allocations: u64,
}

impl Sub for Profile {
    type Output = Self;

    fn sub(self, few: Self) -> Self {
        Self {
            instructions: self.instructions.saturating_sub(few.instructions),
            parity: self.parity.saturating_sub(few.parity),
            driver: self.driver.saturating_sub(few.driver),
            allocations: self.allocations.saturating_sub(few.allocations),
        }
    }
}

impl Profile {
    /// Whether a run shows that everything is counted: every start allocates.
    ///
    /// # Errors
    /// What was not counted.
    pub fn check(&self, parity: bool, driver: bool) -> Result<(), &'static str> {
        match self {
            Self { allocations: 0, .. } => Err("no allocation was counted, not even of the start"),
            Self { parity: 0, .. } if parity => {
                Err("no instruction of a parity kernel was counted")
            }
            Self { driver: 0, .. } if driver => Err("no call of the driver was counted"),
            _ => Ok(()),
        }
    }

    /// Reads the file of a run; `None` if it is not one, or not whole.
    pub fn parse(text: &str) -> Option<Self> {
        let mut names = BTreeMap::new();
        let (mut profile, mut function, mut callee, mut of_callee) =
            (Self::default(), "", "", false);
        let mut total = None;
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("fn=") {
                function = named(name, &mut names)?;
            } else if let Some(name) = line.strip_prefix("cfn=") {
                callee = named(name, &mut names)?;
            } else if let Some(call) = line.strip_prefix("calls=") {
                let count: u64 = call.split(' ').next()?.parse().ok()?;
                profile.allocations += if ALLOCATES.contains(&callee) { count } else { 0 };
                // The next line is what the callee and all that it called took.
                of_callee = true;
            } else if let Some(count) = line.strip_prefix("totals: ") {
                total = Some(count.parse().ok()?);
            } else if line.starts_with(|c: char| c.is_ascii_digit() || "+-*".contains(c)) {
                let count: u64 = line.rsplit(' ').next()?.parse().ok()?;
                if std::mem::take(&mut of_callee) {
                    // One that another one calls is in the count of that one.
                    let enters = callee.starts_with(DRIVER) && !function.starts_with(DRIVER);
                    profile.driver += if enters { count } else { 0 };
                } else {
                    profile.instructions += count;
                    profile.parity += if function.starts_with(KERNELS) { count } else { 0 };
                }
            }
        }
        (total == Some(profile.instructions)).then_some(profile)
    }
}

/// The function that `text` names: `(number) name` the first time, `(number)` afterwards.
fn named<'a>(text: &'a str, names: &mut BTreeMap<&'a str, &'a str>) -> Option<&'a str> {
    match text.split_once(' ') {
        Some((number, name)) => {
            names.insert(number, name);
            Some(name)
        }
        None => names.get(text).copied(),
    }
}
