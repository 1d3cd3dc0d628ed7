//! Identifiers and numbers.

use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident, $raw:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $raw);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

number! {
    /// A volume, snapshot or clone. A map never uses an identifier twice.
    VolumeId, u32
}
number! {
    /// A cluster of the pool, counted from 0 in units of clusters.
    ClusterId, u32
}
number! {
    /// A leaf of the map. Its value is the ring and the number of the record that created the leaf, so it is unique.
    LeafId, u64
}
number! {
    /// A ring of records. Each core that owns leaves has one. Ring 0 is the leader's.
    Ring, u8
}
number! {
    /// The number of a record in its ring. Numbers only increase.
    Number, u64
}
number! {
    /// An operation in progress.
    OperationId, u64
}

/// A start of a pool. Starts that wrote nothing have the same number, so each also has a nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Start {
    /// Higher than the numbers of all earlier starts that wrote a record or a root.
    pub number: u32,
    /// A value from the driver: no two starts of a pool have the same.
    pub nonce: u64,
}

impl LeafId {
    /// The leaf that record `number` of `ring` creates.
    #[must_use]
    pub const fn of_record(ring: Ring, number: Number) -> Self {
        Self((ring.0 as u64) << 56 | number.0)
    }

    /// The ring and the number of the record that created the leaf.
    #[must_use]
    pub const fn record(self) -> (Ring, Number) {
        (Ring((self.0 >> 56) as u8), Number(self.0 & ((1 << 56) - 1)))
    }
}

impl ClusterId {
    /// The identifier as an index of a table.
    #[must_use]
    pub const fn at(self) -> usize {
        self.0 as usize
    }
}

impl Ring {
    /// The ring of the leader, which has the records of whole volumes.
    pub const LEADER: Self = Self(0);

    /// The ring as an index of a table.
    #[must_use]
    pub const fn at(self) -> usize {
        self.0 as usize
    }
}

impl Number {
    /// The number after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}
