//! Indices of the things an array is made of. Each is its own type, so that they cannot be mixed up.

use std::fmt;

macro_rules! index {
    ($(#[$doc:meta])* $name:ident($raw:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $raw);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

index!(
    /// A member's slot in its array, counted from 0. An array has at most 256 members.
    MemberIndex(u8)
);
index!(
    /// A stripe of an array, counted from 0 over the whole array (groups included).
    StripeIndex(u64)
);
index!(
    /// A write-intent region of an array, counted from 0.
    RegionIndex(u32)
);
index!(
    /// A data core, counted from 0 in the order the daemon was given them; not the kernel's CPU number.
    CoreIndex(u16)
);

impl MemberIndex {
    /// The index as a `usize`, for looking things up.
    #[must_use]
    pub const fn at(self) -> usize {
        self.0 as usize
    }
}

impl CoreIndex {
    /// The index as a `usize`, for looking things up.
    #[must_use]
    pub const fn at(self) -> usize {
        self.0 as usize
    }
}

impl RegionIndex {
    /// The index as a `usize`, for looking things up.
    #[must_use]
    pub const fn at(self) -> usize {
        self.0 as usize
    }
}
