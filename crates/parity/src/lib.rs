//! Erasure-code kernels: computation of parity strips and reconstruction of strips.
//!
//! **What it is.** The arithmetic of the parity scheme on plain byte slices: [`encode()`] for full-stripe writes,
//! [`update`] for read-modify-write in one pass, [`accumulate`] for parity built strip by strip, [`Recovery`] for
//! computing missing strips, [`check`] for scrubs, [`first_difference`] for mirrors. Every operation uses one of
//! several [`Kernel`]s. The portable kernel is the specification, and the tests compare every kernel of the host with
//! it.
//!
//! **What it must never do.** It must not allocate, lock, log, do I/O, or depend on arrays, members or addresses. It
//! writes no output before it has accepted the whole request, and invalid input is a [`CodeError`], never a panic.
//! `unsafe` is only in `kernels/`, for vector instructions.
//!
//! **Where to start.** [`Code`] defines the bytes of parity, and explains why as many strips can be reconstructed as
//! there are parity strips. `kernels.rs` lists the two inner loops of a kernel.
//!
//! ```
//! # use strake_parity::{Code, CodeError, Recovery, encode};
//! let code = Code::new(2, 2)?;
//! let (a, b) = ([1, 2, 3, 4], [5, 6, 7, 8]);
//! let (mut p, mut q) = ([0; 4], [0; 4]);
//! encode(&code, &[&a, &b], &mut [&mut p, &mut q])?;
//! // Both data strips (0 and 1) are lost; P (2) and Q (3) are known.
//! let (mut a2, mut b2) = ([0; 4], [0; 4]);
//! Recovery::new(&code, &[2, 3], &[0, 1])?.apply(&[&p, &q], &mut [&mut a2, &mut b2])?;
//! assert_eq!((a, b), (a2, b2));
//! # Ok::<(), CodeError>(())
//! ```

#![deny(unsafe_code)]

pub mod checksum;
mod code;
mod encode;
mod error;
mod gf;
// This module is the only one with unsafe code: vector instructions and their addresses.
#[allow(unsafe_code)]
mod kernels;
mod matrix;
mod mirror;
mod recoveries;
mod recovery;
mod scatter;
mod verify;

pub use code::{Code, DATA_MAX, PARITY_FACTORS, PARITY_MAX, STRIPS_MAX};
pub use encode::{ParityMut, accumulate, encode, encode_copying, encode_with, update};
pub use error::CodeError;
pub use gf::FIELD_POLYNOMIAL;
pub use kernels::{Kernel, Residency};
pub use mirror::first_difference;
pub use recoveries::Recoveries;
pub use recovery::Recovery;
pub use scatter::{Parts, PartsMut, encode_parts, recover_parts, update_parts};
pub use verify::{Verdict, check};

#[cfg(test)]
mod tests;
