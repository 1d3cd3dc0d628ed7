//! Compares the parity on the drives of a Linux md array with that of this crate, stripe by stripe.
//!
//! `md_parity LEVEL CHUNK_BYTES LAYOUT BYTES FIXTURE DRIVE...`: reads the first BYTES of every drive, which must
//! hold whole chunks from offset 0 (metadata 0.90 or 1.0). Prints how many stripes were compared; the first that
//! differs ends it with an error. FIXTURE is a file to add the beginnings of the first stripes to, or `-`.
//! `tests/nightly/md-parity.sh` makes the arrays.

use std::error::Error;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};

use strake_parity::{Code, Kernel, Verdict, check, encode_with};

/// Bytes of a strip, and stripes of an array, that a fixture keeps: parity is made byte by byte.
const KEPT_BYTES: usize = 32;
const KEPT_STRIPES: usize = 7;

/// Returns the drive with P of a stripe (`raid5_compute_sector` in `drivers/md/raid5.c`). The next drive has Q.
fn p_drive(layout: &str, stripe: usize, drives: usize) -> Result<usize, String> {
    match layout {
        "left-symmetric" | "left-asymmetric" => Ok(drives - 1 - stripe % drives),
        "right-symmetric" | "right-asymmetric" => Ok(stripe % drives),
        other => Err(format!("unknown layout {other}")),
    }
}

/// Drives in the order of their roles: data, then P, then Q. Q counts data drives from the one after itself
/// (`raid6_d0`), whatever the order of data on them; with P alone the order does not matter.
fn roles(
    layout: &str,
    stripe: usize,
    drives: usize,
    parities: usize,
) -> Result<Vec<usize>, String> {
    let p = p_drive(layout, stripe, drives)?;
    let first = p + parities;
    let data = (0..drives - parities).map(|d| (first + d) % drives);
    Ok(data.chain((0..parities).map(|j| (p + j) % drives)).collect())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [level, chunk, layout, bytes, fixture, drives @ ..] = arguments.as_slice() else {
        return Err("md_parity LEVEL CHUNK_BYTES LAYOUT BYTES FIXTURE DRIVE...".into());
    };
    let parities = match level.as_str() {
        "5" => 1,
        "6" => 2,
        other => return Err(format!("level {other} has no parity we compare").into()),
    };
    let (chunk, bytes): (usize, usize) = (chunk.parse()?, bytes.parse()?);
    let code = Code::new(drives.len() - parities, parities)?;
    let mut files = drives.iter().map(File::open).collect::<Result<Vec<File>, _>>()?;
    let mut strips = vec![vec![0; chunk]; drives.len()];
    let mut kept = String::new();
    let mut nonzero = 0;
    for stripe in 0..bytes / chunk {
        for (file, strip) in files.iter_mut().zip(&mut strips) {
            file.read_exact(strip)?;
        }
        let order = roles(layout, stripe, drives.len(), parities)?;
        let ordered: Vec<&[u8]> = order.iter().map(|&drive| strips[drive].as_slice()).collect();
        compare(&code, &ordered).map_err(|why| format!("stripe {stripe}: {why}"))?;
        nonzero += usize::from(ordered.iter().all(|strip| strip.iter().any(|&byte| byte != 0)));
        if stripe < KEPT_STRIPES {
            keep(&mut kept, level, layout, stripe, &ordered)?;
        }
    }
    println!("{nonzero} stripes of RAID {level} on {} drives, {chunk}, {layout}", drives.len());
    if fixture != "-" {
        OpenOptions::new().append(true).create(true).open(fixture)?.write_all(kept.as_bytes())?;
    }
    Ok(())
}

/// Checks that every kernel computes the parity on the drives, and that the check finds no error.
fn compare(code: &Code, strips: &[&[u8]]) -> Result<(), Box<dyn Error>> {
    let (data, parity) = strips.split_at(code.data());
    let mut made = vec![vec![0; strips[0].len()]; code.parity()];
    for kernel in Kernel::available() {
        let mut outputs: Vec<&mut [u8]> = made.iter_mut().map(Vec::as_mut_slice).collect();
        encode_with(kernel, code, data, &mut outputs)?;
        for (j, (made, there)) in made.iter().zip(parity).enumerate() {
            if made != there {
                return Err(format!("parity {j} differs, kernel {}", kernel.name()).into());
            }
        }
    }
    match check(code, data, parity)? {
        Verdict::Clean => Ok(()),
        verdict => Err(format!("{verdict:?}").into()),
    }
}

/// One line per stripe: level, layout, number, and the beginnings of its strips in the order of roles.
fn keep(
    kept: &mut String,
    level: &str,
    layout: &str,
    stripe: usize,
    strips: &[&[u8]],
) -> std::fmt::Result {
    write!(kept, "{level} {layout} {stripe}")?;
    for strip in strips {
        write!(kept, " ")?;
        for byte in &strip[..KEPT_BYTES] {
            write!(kept, "{byte:02x}")?;
        }
    }
    writeln!(kept)
}
