//! An encoder written from the textbook, sharing nothing with the engine: GF(2^8) by long multiplication, the
//! layout by its formula, the members' bytes as they lie on the drives.

use strake_raid::{Geometry, Scheme};
use strake_units::StripeIndex;

use crate::medium::PAGE;

/// Multiplies in GF(2^8) modulo x^8 + x^4 + x^3 + x^2 + 1 (0x11d), bit by bit.
#[must_use]
pub const fn multiply(mut a: u8, mut b: u8) -> u8 {
    let mut product = 0;
    while b != 0 {
        if b & 1 != 0 {
            product ^= a;
        }
        let carry = a & 0x80 != 0;
        a <<= 1;
        if carry {
            a ^= 0x1d;
        }
        b >>= 1;
    }
    product
}

fn power(base: u8, exponent: usize) -> u8 {
    (0..exponent).fold(1, |product, _| multiply(product, base))
}

/// The factor of data strip `data` in parity `parity` of a code with `parities` parities: the powers of 1, {02}
/// and {04} up to three parities, a Cauchy matrix with a first row of ones beyond (docs of `strake-parity`).
#[must_use]
pub fn coefficient(parities: u8, parity: u8, data: u8) -> u8 {
    if parities <= 3 {
        return power(1 << parity, usize::from(data));
    }
    let divisor = (0x80 + parity) ^ data;
    let inverse = (1..=255).find(|x| multiply(*x, divisor) == 1).unwrap_or(0);
    multiply(0x80 ^ data, inverse)
}

/// The member and byte offset in its data area of strip `strip` (data from 0, parity from k) or copy of a stripe.
fn place(geometry: &Geometry, stripe: u64, strip: u8) -> (usize, u64) {
    let width = u64::from(geometry.width());
    let groups = geometry.groups() as u64;
    let (group, row) = (stripe % groups, stripe / groups);
    let k = u64::from(geometry.data_strips());
    let m = u64::from(geometry.parity_strips());
    let first = width - 1 - row % width;
    let strip = u64::from(strip);
    let position =
        if strip < k { (first + m + strip) % width } else { (first + strip - k) % width };
    ((group * width + position) as usize, row * u64::from(geometry.strip_bytes()))
}

/// A page of a member: its number and the byte offset on its drive; `None` when it is all zeroes.
pub type ReadPage<'a> = &'a dyn Fn(usize, u64) -> Option<Box<[u8; PAGE]>>;

/// Checks that parity, or all copies, of every stripe agree with the data on the drives.
///
/// # Errors
/// The first place where they do not.
pub fn verify(geometry: &Geometry, read: ReadPage<'_>) -> Result<(), String> {
    let tables = tables(geometry);
    for stripe in 0..geometry.stripes() {
        match geometry.scheme() {
            Scheme::Copies(1) => {}
            Scheme::Copies(copies) => verify_copies(geometry, read, stripe, copies)?,
            Scheme::Parity(_) => verify_parity(geometry, read, stripe, &tables)?,
        }
    }
    Ok(())
}

/// For every parity and data strip, what each byte contributes.
fn tables(geometry: &Geometry) -> Vec<Vec<[u8; 256]>> {
    let (k, m) = (geometry.data_strips(), geometry.parity_strips());
    let table = |parity: u8, data: u8| {
        let factor = coefficient(m, parity, data);
        std::array::from_fn(|byte| multiply(byte as u8, factor))
    };
    (0..m).map(|parity| (0..k).map(|data| table(parity, data)).collect()).collect()
}

fn verify_copies(
    geometry: &Geometry,
    read: ReadPage<'_>,
    stripe: u64,
    copies: u8,
) -> Result<(), String> {
    let offset = strake_ondisk::HEAD_BYTES
        + geometry.row(StripeIndex(stripe)) * u64::from(geometry.strip_bytes());
    for strip in 0..geometry.data_strips() {
        for at in (0..u64::from(geometry.strip_bytes())).step_by(PAGE) {
            let page = |copy: u8| read(usize::from(strip * copies + copy), offset + at);
            let first = page(0);
            if let Some(other) = (1..copies).find(|copy| page(*copy) != first) {
                return Err(format!(
                    "stripe {stripe} strip {strip} byte {at}: copy {other} differs from copy 0"
                ));
            }
        }
    }
    Ok(())
}

fn verify_parity(
    geometry: &Geometry,
    read: ReadPage<'_>,
    stripe: u64,
    tables: &[Vec<[u8; 256]>],
) -> Result<(), String> {
    let (k, m) = (geometry.data_strips(), geometry.parity_strips());
    for at in (0..u64::from(geometry.strip_bytes())).step_by(PAGE) {
        let pages: Vec<Option<Box<[u8; PAGE]>>> = (0..k + m)
            .map(|strip| {
                let (member, offset) = place(geometry, stripe, strip);
                read(member, strake_ondisk::HEAD_BYTES + offset + at)
            })
            .collect();
        let (data, parity) = pages.split_at(usize::from(k));
        if pages.iter().all(Option::is_none) {
            continue;
        }
        for (index, (held, tables)) in parity.iter().zip(tables).enumerate() {
            let expected = encode(data, tables);
            let held = held.clone().unwrap_or_else(|| Box::new([0; PAGE]));
            if let Some(byte) = held.iter().zip(expected.iter()).position(|(a, b)| a != b) {
                let (member, _) = place(geometry, stripe, k + index as u8);
                let byte = at as usize + byte;
                return Err(format!(
                    "stripe {stripe}: parity {index} is wrong at byte {byte} of its strip on member {member}"
                ));
            }
        }
    }
    Ok(())
}

fn encode(data: &[Option<Box<[u8; PAGE]>>], tables: &[[u8; 256]]) -> Box<[u8; PAGE]> {
    let mut sum = Box::new([0u8; PAGE]);
    for (page, table) in data.iter().zip(tables) {
        if let Some(page) = page {
            sum.iter_mut()
                .zip(page.iter())
                .for_each(|(sum, byte)| *sum ^= table[usize::from(*byte)]);
        }
    }
    sum
}
