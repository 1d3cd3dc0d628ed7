//! Which measurements there are.

use crate::pool::Shape;
use crate::report::size;

/// Where bytes were before they were used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// The same stripe again and again: in whatever cache holds it.
    Hot,
    /// A stripe that was not touched for longer than any cache remembers.
    Cold,
}

impl Memory {
    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Memory::Hot => "hot",
            Memory::Cold => "cold",
        }
    }
}

/// What is done to a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Every parity from all data.
    Encode,
    /// A change of one data strip carried into every parity.
    Update,
    /// Lost data strips from the other data strips and as many parities.
    Recover,
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    pub operation: Operation,
    pub data: usize,
    /// Parities; erasures for recovery.
    pub parity: usize,
    pub strip: usize,
    pub memory: Memory,
}

const DATA: [usize; 5] = [4, 8, 12, 16, 24];
const STRIPS: [usize; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];

/// Every measurement of G9.
pub fn all() -> Vec<Case> {
    let mut all = Vec::new();
    for memory in [Memory::Hot, Memory::Cold] {
        for strip in STRIPS {
            for data in DATA {
                for parity in 1..=4 {
                    all.push(Case { operation: Operation::Encode, data, parity, strip, memory });
                }
                for parity in 1..=3 {
                    all.push(Case { operation: Operation::Recover, data, parity, strip, memory });
                }
            }
            // How many data drives there are does not matter to an update.
            for parity in 1..=4 {
                all.push(Case { operation: Operation::Update, data: 8, parity, strip, memory });
            }
        }
    }
    all
}

impl Case {
    /// Its name in a report.
    pub fn name(&self) -> String {
        let (data, parity) = (self.data, self.parity);
        let (strip, memory) = (size(self.strip), self.memory.word());
        match self.operation {
            Operation::Encode => format!("encode {data}+{parity} {strip} {memory}"),
            Operation::Update => format!("update {data}+{parity} {strip} {memory}"),
            Operation::Recover => format!("recover {parity} of {data} {strip} {memory}"),
        }
    }

    /// What a call reads and writes.
    pub fn shape(&self) -> Shape {
        let inputs = match self.operation {
            Operation::Encode | Operation::Recover => self.data,
            Operation::Update => 2,
        };
        Shape { inputs, outputs: self.parity, strip: self.strip }
    }

    /// Bytes of data that a call is for: what is encoded, what is new, what recovery reads.
    pub fn work(&self) -> usize {
        match self.operation {
            Operation::Encode | Operation::Recover => self.data * self.strip,
            Operation::Update => self.strip,
        }
    }

    /// How many times as fast as ISA-L it shall be.
    pub fn goal(&self) -> f64 {
        match (self.operation, self.parity) {
            (Operation::Update, _) | (Operation::Recover, 2) => 1.3,
            (Operation::Encode | Operation::Recover, _) => 1.0,
        }
    }
}
