//! The registers of the controller and the memory of its host.

/// An address that the host has not mapped for the controller, or a range that ends outside what it mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unmapped;

/// What connects a controller with its host. Writes become visible to the host in the order in which they are made.
pub trait Bus {
    /// The four bytes of the register at `offset`; all ones outside the registers.
    fn register(&self, offset: usize) -> u32;

    /// Changes the register at `offset`.
    fn set_register(&self, offset: usize, value: u32);

    /// Reads memory of the host.
    ///
    /// # Errors
    /// When any of it is not mapped; `out` then holds anything.
    fn read(&self, address: u64, out: &mut [u8]) -> Result<(), Unmapped>;

    /// Writes memory of the host.
    ///
    /// # Errors
    /// When any of it is not mapped; nothing is written then.
    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Unmapped>;

    /// Signals an interrupt vector.
    fn interrupt(&self, vector: u16);
}
