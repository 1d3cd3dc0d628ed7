//! The field GF(2^8) modulo x^8 + x^4 + x^3 + x^2 + 1 (0x11d), and its tables.
//!
//! Addition is XOR. Linux md and ISA-L use the same polynomial (H. P. Anvin, "The mathematics of RAID-6", section 1),
//! for which {02} generates every nonzero element. All tables are computed at compile time from [`mul`], the only
//! definition of multiplication.

/// The reduction polynomial without its x^8 term.
const POLYNOMIAL_LOW: u8 = 0x1d;
/// The reduction polynomial x^8 + x^4 + x^3 + x^2 + 1, with one bit for each term. Parity on drives depends on it.
pub const FIELD_POLYNOMIAL: u16 = 0x100 | POLYNOMIAL_LOW as u16;

/// Returns the product of two field elements, by shifts and reductions.
pub(crate) const fn mul(a: u8, b: u8) -> u8 {
    let mut product = 0;
    let mut power = a;
    let mut rest = b;
    while rest != 0 {
        if rest & 1 != 0 {
            product ^= power;
        }
        let carry = power >> 7;
        power = (power << 1) ^ (carry * POLYNOMIAL_LOW);
        rest >>= 1;
    }
    product
}

/// Returns `base` to the power `exponent`.
pub(crate) const fn pow(base: u8, exponent: usize) -> u8 {
    let mut left = exponent;
    let mut square = base;
    let mut product = 1;
    while left != 0 {
        if left & 1 != 0 {
            product = mul(product, square);
        }
        square = mul(square, square);
        left >>= 1;
    }
    product
}

/// Returns the inverse of `a`. Zero has no inverse; the result is then zero.
pub(crate) const fn inverse(a: u8) -> u8 {
    // a^255 = 1 for every nonzero a.
    pow(a, 254)
}

/// For each constant c: the 16 products c * low nibble, then the 16 products c * high nibble, the
/// operands of two byte shuffles (Anvin, section 6 on SSSE3; Plank et al., FAST '13).
pub(crate) static NIBBLES: [[u8; 32]; 256] = nibble_tables();

const fn nibble_tables() -> [[u8; 32]; 256] {
    let mut tables = [[0; 32]; 256];
    let mut c = 0;
    while c < 256 {
        let mut n = 0;
        while n < 16 {
            tables[c][n] = mul(c as u8, n as u8);
            tables[c][n + 16] = mul(c as u8, (n as u8) << 4);
            n += 1;
        }
        c += 1;
    }
    tables
}

/// For each constant c: the 8x8 bit matrix of x -> c * x in the order of `gf2p8affineqb` (Intel SDM volume 2,
/// GF2P8AFFINEQB): byte 7 - i of the quadword is the row of result bit i.
#[cfg(any(test, target_arch = "x86_64"))]
pub(crate) static AFFINE: [u64; 256] = affine_tables();

#[cfg(any(test, target_arch = "x86_64"))]
const fn affine_tables() -> [u64; 256] {
    let mut tables = [0; 256];
    let mut c = 0;
    while c < 256 {
        tables[c] = affine_matrix(c as u8);
        c += 1;
    }
    tables
}

#[cfg(any(test, target_arch = "x86_64"))]
const fn affine_matrix(c: u8) -> u64 {
    let mut matrix = 0_u64;
    let mut input = 0;
    while input < 8 {
        // Column `input` of the matrix is the image of the element x^input.
        let image = mul(c, 1 << input);
        let mut output = 0;
        while output < 8 {
            let bit = ((image >> output) & 1) as u64;
            matrix |= bit << ((7 - output) * 8 + input);
            output += 1;
        }
        input += 1;
    }
    matrix
}

/// Returns the product of two field elements by table. It replaces [`mul`] where thousands of products are needed.
#[inline]
pub(crate) fn mul_fast(a: u8, b: u8) -> u8 {
    mul_by_table(&NIBBLES[usize::from(a)], b)
}

/// Returns c * x from the nibble tables of c.
#[inline(always)]
pub(crate) fn mul_by_table(table: &[u8; 32], x: u8) -> u8 {
    table[usize::from(x & 15)] ^ table[usize::from(x >> 4) + 16]
}
