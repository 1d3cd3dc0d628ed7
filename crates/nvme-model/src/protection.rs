//! Protection information (NVM, section 5.2.1.1): eight bytes per block.

/// The tuple of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tuple {
    pub(crate) guard: u16,
    pub(crate) reference: u32,
}

impl Tuple {
    /// Of a block with these bytes at `block`.
    pub(crate) fn of(bytes: &[u8], block: u64) -> Self {
        Self { guard: guard(bytes), reference: block as u32 }
    }
}

/// CRC-16 of T10-DIF: polynomial 8bb7h, nothing reflected, initially 0.
fn guard(bytes: &[u8]) -> u16 {
    let step = |crc: u16, _| if crc & 1 << 15 != 0 { crc << 1 ^ 0x8bb7 } else { crc << 1 };
    bytes.iter().fold(0, |crc, byte| (0..8).fold(crc ^ u16::from(*byte) << 8, step))
}

#[cfg(test)]
mod tests {
    /// The check value of CRC-16/T10-DIF in the catalogue of parametrised CRC algorithms (reveng.sourceforge.io).
    #[test]
    fn the_guard_is_that_of_t10() {
        assert_eq!(super::guard(b"123456789"), 0xd0db);
    }
}
