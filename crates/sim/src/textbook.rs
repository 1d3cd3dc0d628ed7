//! An encoder written from the textbook, without code of the engine: GF(2^8) by long multiplication, the published
//! layout ([`Placement`]), and the bytes of the members.

use strake_units::MemberSet;

use crate::medium::{PAGE, PageBytes};
use crate::placement::Placement;

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

/// The member and the byte offset on its drive of strip `strip` (data from 0, parity from k) of a stripe.
const fn place(placement: &Placement, stripe: u64, strip: u8) -> (usize, u64) {
    (placement.member(stripe, strip as u64, 0), placement.offset(stripe))
}

/// Data and parity strips of a stripe.
const fn strips(placement: &Placement) -> (u8, u8) {
    (placement.data() as u8, placement.parities() as u8)
}

/// Reads a page of a member, by its number and the byte offset on its drive; `None` if it is all zeroes.
pub type ReadPage<'a> = &'a dyn Fn(usize, u64) -> Option<PageBytes>;

/// Checks that the parity or all copies of every stripe match the data on the drives.
///
/// Returns the first mismatch.
pub fn verify(placement: &Placement, read: ReadPage<'_>) -> Result<(), String> {
    let tables = tables(placement);
    for stripe in 0..placement.stripes() {
        match (placement.parities(), placement.copies()) {
            (0, 1) => {}
            (0, _) => verify_copies(placement, read, stripe)?,
            _ => verify_parity(placement, read, stripe, &tables)?,
        }
    }
    Ok(())
}

/// The multiplication table of every parity and data strip; empty for up to three parity strips.
fn tables(placement: &Placement) -> Vec<Vec<[u8; 256]>> {
    let (k, m) = strips(placement);
    if m <= 3 {
        return Vec::new();
    }
    let table = |parity: u8, data: u8| {
        let factor = coefficient(m, parity, data);
        std::array::from_fn(|byte| multiply(byte as u8, factor))
    };
    (0..m).map(|parity| (0..k).map(|data| table(parity, data)).collect()).collect()
}

fn verify_copies(placement: &Placement, read: ReadPage<'_>, stripe: u64) -> Result<(), String> {
    let offset = placement.offset(stripe);
    for strip in 0..placement.data() {
        for at in (0..placement.strip_bytes()).step_by(PAGE) {
            let page = |copy| read(placement.member(stripe, strip, copy), offset + at);
            let first = page(0);
            if let Some(other) = (1..placement.copies()).find(|copy| page(*copy) != first) {
                return Err(format!(
                    "stripe {stripe} strip {strip} byte {at}: copy {other} differs from copy 0"
                ));
            }
        }
    }
    Ok(())
}

fn verify_parity(
    placement: &Placement,
    read: ReadPage<'_>,
    stripe: u64,
    tables: &[Vec<[u8; 256]>],
) -> Result<(), String> {
    let (k, m) = strips(placement);
    for at in (0..placement.strip_bytes()).step_by(PAGE) {
        let pages: Vec<Option<PageBytes>> = (0..k + m)
            .map(|strip| {
                let (member, offset) = place(placement, stripe, strip);
                read(member, offset + at)
            })
            .collect();
        let (data, parity) = pages.split_at(usize::from(k));
        if pages.iter().all(Option::is_none) {
            continue;
        }
        for (index, held) in (0..m).zip(parity) {
            let expected = if m <= 3 {
                encode_powers(data, index)
            } else {
                encode(data, &tables[usize::from(index)])
            };
            let held: &[u8; PAGE] = held.as_deref().unwrap_or(&ZEROES);
            if *held != *expected {
                let byte = held.iter().zip(expected.iter()).position(|(a, b)| a != b);
                let (member, _) = place(placement, stripe, k + index);
                let byte = at as usize + byte.unwrap_or(0);
                return Err(format!(
                    "stripe {stripe}: parity {index} is wrong at byte {byte} of its strip on member {member}"
                ));
            }
        }
    }
    Ok(())
}

const ZEROES: [u8; PAGE] = [0; PAGE];

/// The data of one page of every strip of a stripe, `at` bytes into the strip, as the members that are not `absent`
/// contain or determine it. With `agree`, everything else on those members must match.
///
/// Returns an error if the members do not determine the data, or if there is a mismatch.
pub fn recover(
    placement: &Placement,
    read: ReadPage<'_>,
    (stripe, at): (u64, u64),
    absent: MemberSet,
    agree: bool,
) -> Result<Vec<Box<[u8; PAGE]>>, String> {
    match placement.parities() {
        0 => recover_copies(placement, read, (stripe, at), absent, agree),
        _ => recover_parity(placement, read, (stripe, at), absent, agree),
    }
}

fn page_of(read: ReadPage<'_>, member: usize, offset: u64) -> Box<[u8; PAGE]> {
    let page = read(member, offset);
    Box::new(page.map_or(ZEROES, |bytes| *bytes))
}

fn recover_copies(
    placement: &Placement,
    read: ReadPage<'_>,
    (stripe, at): (u64, u64),
    absent: MemberSet,
    agree: bool,
) -> Result<Vec<Box<[u8; PAGE]>>, String> {
    let offset = placement.offset(stripe) + at;
    let strip = |strip| {
        let members = (0..placement.copies()).map(|copy| placement.member(stripe, strip, copy));
        let mut pages = members
            .filter(|member| !absent.contains(member))
            .map(|member| page_of(read, member, offset));
        let first =
            pages.next().ok_or(format!("stripe {stripe} strip {strip}: no copy is left"))?;
        if agree && pages.any(|page| page != first) {
            return Err(format!("stripe {stripe} strip {strip}: copies differ, and nobody knows"));
        }
        Ok(first)
    };
    (0..placement.data()).map(strip).collect()
}

fn recover_parity(
    placement: &Placement,
    read: ReadPage<'_>,
    (stripe, at): (u64, u64),
    absent: MemberSet,
    agree: bool,
) -> Result<Vec<Box<[u8; PAGE]>>, String> {
    let (k, m) = strips(placement);
    let held = |strip: u8| {
        let (member, offset) = place(placement, stripe, strip);
        (!absent.contains(member)).then(|| page_of(read, member, offset + at))
    };
    let mut data: Vec<Option<Box<[u8; PAGE]>>> = (0..k).map(held).collect();
    let missing: Vec<u8> = (0..k).filter(|strip| data[usize::from(*strip)].is_none()).collect();
    let used: Vec<(u8, Box<[u8; PAGE]>)> = if missing.is_empty() && !agree {
        Vec::new()
    } else {
        (0..m).filter_map(|index| Some((index, held(k + index)?))).collect()
    };
    if used.len() < missing.len() {
        return Err(format!("stripe {stripe}: {} strips are not determined", missing.len()));
    }
    // The sum of each parity over only the missing strips.
    let mut sums: Vec<Vec<u8>> = used.iter().map(|(_, parity)| parity.to_vec()).collect();
    for ((index, _), sum) in used.iter().zip(&mut sums) {
        for (strip, page) in (0..k).zip(&data) {
            if let Some(page) = page {
                add_product(sum, coefficient(m, *index, strip), &page[..]);
            }
        }
    }
    let matrix = |row: usize, strip: u8| coefficient(m, used[row].0, strip);
    let solved = solve(sums, &missing, matrix, agree)
        .ok_or(format!("stripe {stripe} byte {at}: parity does not agree with the data"))?;
    for (strip, page) in missing.iter().zip(solved) {
        let page: Box<[u8; PAGE]> = page.try_into().expect("a page");
        data[usize::from(*strip)] = Some(page);
    }
    Ok(data.into_iter().flatten().collect())
}

/// Solves for the missing strips by Gauss-Jordan elimination; the remaining rows must be zero if they have to `agree`.
fn solve(
    mut sums: Vec<Vec<u8>>,
    missing: &[u8],
    matrix: impl Fn(usize, u8) -> u8,
    agree: bool,
) -> Option<Vec<Vec<u8>>> {
    let mut rows: Vec<Vec<u8>> = (0..sums.len())
        .map(|row| missing.iter().map(|strip| matrix(row, *strip)).collect())
        .collect();
    for column in 0..missing.len() {
        let pivot = (column..rows.len()).find(|row| rows[*row][column] != 0)?;
        rows.swap(column, pivot);
        sums.swap(column, pivot);
        let inverse = (1..=255).find(|x| multiply(*x, rows[column][column]) == 1)?;
        rows[column].iter_mut().for_each(|factor| *factor = multiply(*factor, inverse));
        sums[column] = product(inverse, &sums[column]);
        let (row, sum) = (rows[column].clone(), sums[column].clone());
        for other in (0..rows.len()).filter(|other| *other != column) {
            let factor = rows[other][column];
            rows[other].iter_mut().zip(&row).for_each(|(a, b)| *a ^= multiply(factor, *b));
            add_product(&mut sums[other], factor, &sum);
        }
    }
    let rest = sums.split_off(missing.len());
    let nothing = rest.iter().flatten().all(|byte| *byte == 0);
    (nothing || !agree).then_some(sums)
}

fn product(factor: u8, page: &[u8]) -> Vec<u8> {
    let mut sum = vec![0; page.len()];
    add_product(&mut sum, factor, page);
    sum
}

fn add_product(sum: &mut [u8], factor: u8, page: &[u8]) {
    match factor {
        0 => {}
        1 => sum.iter_mut().zip(page).for_each(|(sum, byte)| *sum ^= byte),
        _ => {
            let table: [u8; 256] = std::array::from_fn(|byte| multiply(byte as u8, factor));
            sum.iter_mut().zip(page).for_each(|(sum, byte)| *sum ^= table[usize::from(*byte)]);
        }
    }
}

fn encode(data: &[Option<PageBytes>], tables: &[[u8; 256]]) -> Box<[u8; PAGE]> {
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

/// Parity `index` of up to three: the polynomial whose coefficients are the data, at {02} to the power of `index`, by
/// Horner's rule.
fn encode_powers(data: &[Option<PageBytes>], index: u8) -> Box<[u8; PAGE]> {
    let mut sum = Box::new([0u8; PAGE]);
    for page in data.iter().rev() {
        for _ in 0..index {
            sum.iter_mut().for_each(|sum| *sum = (*sum << 1) ^ (((*sum as i8) >> 7) as u8 & 0x1d));
        }
        if let Some(page) = page {
            sum.iter_mut().zip(page.iter()).for_each(|(sum, byte)| *sum ^= byte);
        }
    }
    sum
}
