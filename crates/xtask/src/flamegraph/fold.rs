//! What perf saw, as a tree of calls.

use std::collections::BTreeMap;

/// A function as called from those above it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Call {
    /// Samples in it, or in what it calls.
    pub count: u64,
    /// What it calls.
    pub calls: BTreeMap<String, Call>,
}

impl Call {
    fn add<'a>(&mut self, frames: impl Iterator<Item = &'a str>) {
        self.count += 1;
        let mut at = self;
        for frame in frames {
            at = at.calls.entry(frame.to_owned()).or_default();
            at.count += 1;
        }
    }

    /// Samples in it and not in what it calls.
    pub fn own(&self) -> u64 {
        self.count - self.calls.values().map(|call| call.count).sum::<u64>()
    }

    /// How deep calls go below it.
    pub fn depth(&self) -> usize {
        self.calls.values().map(|call| 1 + call.depth()).max().unwrap_or(0)
    }
}

/// What perf calls a frame that it knows nothing about.
const UNKNOWN: &str = "[unknown]";

/// Whether `function` is a turn of one of the core's pollers: what calls that is worth no line.
fn is_turn(function: &str) -> bool {
    function.starts_with('<') && function.ends_with("as strake_reactor::core::Poller>::turn")
}

/// The calls of the thread called `thread` that has most samples in the output of `perf script -F comm,tid,ip,sym`: a
/// line with name and number of the thread, a line for each frame with the innermost first, an empty line.
pub fn busiest(script: &str, thread: &str) -> Call {
    let mut threads: BTreeMap<&str, Call> = BTreeMap::new();
    for sample in script.split("\n\n") {
        let mut lines = sample.lines().filter(|line| !line.trim().is_empty());
        let Some((name, number)) = lines.next().and_then(|line| line.trim().rsplit_once(' '))
        else {
            continue;
        };
        if name.trim() != thread {
            continue;
        }
        let mut frames: Vec<&str> = lines.filter_map(function).collect();
        frames.reverse();
        // What is copied of a stack may end before its outermost calls.
        let start = frames.iter().position(|frame| is_turn(frame));
        let start = start.or_else(|| frames.iter().position(|frame| *frame != UNKNOWN));
        let start = start.unwrap_or(0);
        threads.entry(number).or_default().add(frames[start..].iter().copied());
    }
    threads.into_values().max_by_key(|call| call.count).unwrap_or_default()
}

/// The function of a frame such as `  73db78 strake_reactor::core::Core::run (inlined)`.
fn function(line: &str) -> Option<&str> {
    let (_, name) = line.trim().split_once(' ')?;
    let name = name.trim();
    Some(name.strip_suffix(" (inlined)").unwrap_or(name))
}

/// The crate a function belongs to, as far as its name says: inlined ones have none in theirs.
pub fn crate_of(function: &str) -> Option<&str> {
    let start = function.find("strake_")?;
    let name = &function[start..];
    let end = name.find("::")?;
    let is_word = name[..end].chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_word.then(|| &name[..end])
}

/// Shares of the crates, the largest first: each sample counts for the innermost function that names one.
pub fn by_crate(tree: &Call) -> String {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    gather(tree, "elsewhere", &mut counts);
    let mut shares: Vec<(String, u64)> = counts.into_iter().filter(|(_, n)| *n > 0).collect();
    shares.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let share = |(name, count): &(String, u64)| {
        format!("{name} {:.1} %", 100.0 * *count as f64 / tree.count as f64)
    };
    shares.iter().map(share).collect::<Vec<_>>().join(", ")
}

fn gather(call: &Call, inside: &str, counts: &mut BTreeMap<String, u64>) {
    *counts.entry(inside.to_owned()).or_default() += call.own();
    for (name, below) in &call.calls {
        gather(below, crate_of(name).unwrap_or(inside), counts);
    }
}
