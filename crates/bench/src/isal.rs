//! ISA-L, loaded when a benchmark wants it.
//!
//! Nothing of Strake links to it: the library is opened by name at run time, and where it is missing a
//! report has no anchors and says why. The functions and their contracts are those of `erasure_code.h` and
//! `raid.h` of ISA-L 2.3x.

use std::ffi::c_int;
use std::fmt;
use std::path::{Path, PathBuf};

use libloading::Library;

/// Names the loader is asked for, in this order, when no file is named.
const NAMES: [&str; 2] = ["libisal.so.2", "libisal.so"];

/// Bytes of one coefficient in the tables of `ec_init_tables`.
const TABLE: usize = 32;

type InitTables = unsafe extern "C" fn(c_int, c_int, *mut u8, *mut u8);
type Encode = unsafe extern "C" fn(c_int, c_int, c_int, *mut u8, *mut *mut u8, *mut *mut u8);
type Update = unsafe extern "C" fn(c_int, c_int, c_int, c_int, *mut u8, *mut u8, *mut *mut u8);
type Generate = unsafe extern "C" fn(c_int, c_int, *mut *mut u8) -> c_int;
type Crc32c = unsafe extern "C" fn(*mut u8, c_int, u32) -> u32;
type Crc64 = unsafe extern "C" fn(u64, *const u8, u64) -> u64;

/// Why ISA-L cannot be used.
#[derive(Debug)]
pub struct IsalError {
    text: String,
}

impl fmt::Display for IsalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for IsalError {}

/// The functions of an opened library.
pub struct Isal {
    init_tables: InitTables,
    encode: Encode,
    update: Update,
    xor_gen: Generate,
    pq_gen: Generate,
    crc32c: Crc32c,
    /// ISA-L has it since 2.31.
    crc64_nvme: Option<Crc64>,
    name: String,
    /// Keeps the code behind the functions mapped.
    _library: Library,
}

impl fmt::Debug for Isal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Isal({})", self.name)
    }
}

impl Isal {
    /// Opens the library in `file`, or the one that the system's loader finds.
    ///
    /// # Errors
    /// When there is none, or when it lacks a function; the text says how to get one.
    pub fn open(file: Option<&Path>) -> Result<Isal, IsalError> {
        let names: Vec<PathBuf> =
            file.map_or_else(|| NAMES.map(PathBuf::from).to_vec(), |f| vec![f.to_path_buf()]);
        let mut reason = String::new();
        for name in &names {
            // SAFETY: opening runs the library's initializers. ISA-L's only look at the CPU; a person who
            // names another file runs that file's code, which is what naming it means.
            match unsafe { Library::new(name) } {
                Ok(library) => return Isal::with(library),
                Err(error) => reason = error.to_string(),
            }
        }
        Err(IsalError {
            text: format!(
                "ISA-L cannot be opened, so there is nothing to compare with: {reason}\n  build the \
                 current one with scripts/isal.sh, or install an older one: apt-get install libisal2"
            ),
        })
    }

    fn with(library: Library) -> Result<Isal, IsalError> {
        let missing = |error: libloading::Error| IsalError {
            text: format!("the library found is no ISA-L 2.3x: {error}"),
        };
        // SAFETY: the types are the declarations of ISA-L's headers for these names, and the library is kept
        // open as long as the copied function pointers.
        unsafe {
            Ok(Isal {
                init_tables: *library.get::<InitTables>(b"ec_init_tables\0").map_err(missing)?,
                encode: *library.get::<Encode>(b"ec_encode_data\0").map_err(missing)?,
                update: *library.get::<Update>(b"ec_encode_data_update\0").map_err(missing)?,
                xor_gen: *library.get::<Generate>(b"xor_gen\0").map_err(missing)?,
                pq_gen: *library.get::<Generate>(b"pq_gen\0").map_err(missing)?,
                crc32c: *library.get::<Crc32c>(b"crc32_iscsi\0").map_err(missing)?,
                crc64_nvme: library.get::<Crc64>(b"crc64_rocksoft_refl\0").ok().map(|f| *f),
                name: mapped_name().unwrap_or_else(|| "ISA-L of unknown version".to_owned()),
                _library: library,
            })
        }
    }

    /// Which file was opened; its name ends in the version.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Expands coefficients, one row of `inputs` per output, as [`Isal::dot`] and [`Isal::spread`] need them.
    ///
    /// # Panics
    /// Unless every row is as long as the first.
    #[must_use]
    pub fn tables(&self, rows: &[Vec<u8>]) -> Tables {
        let inputs = rows.first().map_or(0, Vec::len);
        assert!(rows.iter().all(|row| row.len() == inputs), "rows of one length");
        let mut coefficients = rows.concat();
        let mut bytes = vec![0; TABLE * coefficients.len()];
        let (k, m) = (inputs as c_int, rows.len() as c_int);
        // SAFETY: both buffers have the sizes that the header asks for: k * m and 32 * k * m bytes.
        unsafe { (self.init_tables)(k, m, coefficients.as_mut_ptr(), bytes.as_mut_ptr()) };
        Tables { bytes, inputs, outputs: rows.len() }
    }

    /// `ec_encode_data`: every output from all inputs.
    ///
    /// # Panics
    /// Unless the stripe has the shape the tables were made for.
    pub fn dot(&self, tables: &mut Tables, stripe: &mut Pointers<'_>, outputs: &mut [&mut [u8]]) {
        assert_eq!((stripe.inputs, outputs.len()), (tables.inputs, tables.outputs));
        let (inputs, targets) = stripe.with(outputs);
        let (k, m) = (tables.inputs as c_int, tables.outputs as c_int);
        let len = stripe.len as c_int;
        // SAFETY: `Pointers::with` checked that all strips are `len` bytes long; ISA-L reads the inputs and
        // writes the outputs, which are borrowed accordingly, and the tables are for this k and m.
        unsafe { (self.encode)(len, k, m, tables.bytes.as_mut_ptr(), inputs, targets) };
    }

    /// `ec_encode_data_update`: adds input `index`, scaled, to every output.
    ///
    /// # Panics
    /// Unless there is an output per row of the tables, all as long as the input.
    pub fn spread(
        &self,
        tables: &mut Tables,
        index: usize,
        input: &[u8],
        outputs: &mut [&mut [u8]],
    ) {
        assert!(index < tables.inputs && outputs.len() == tables.outputs);
        assert!(outputs.iter().all(|output| output.len() == input.len()));
        let mut targets = [std::ptr::null_mut(); 8];
        for (target, output) in targets[..outputs.len()].iter_mut().zip(outputs) {
            *target = output.as_mut_ptr();
        }
        let (k, m) = (tables.inputs as c_int, tables.outputs as c_int);
        let (bytes, source) = (tables.bytes.as_mut_ptr(), input.as_ptr().cast_mut());
        let len = input.len() as c_int;
        // SAFETY: the lengths were checked above; the input is only read, and the outputs are borrowed
        // exclusively.
        unsafe { (self.update)(len, k, m, index as c_int, bytes, source, targets.as_mut_ptr()) };
    }

    /// `xor_gen`: the output is the XOR of the inputs. False when ISA-L refuses the request.
    #[must_use]
    pub fn xor(&self, stripe: &mut Pointers<'_>, output: &mut [&mut [u8]]) -> bool {
        assert_eq!(output.len(), 1, "one XOR");
        let (all, _) = stripe.with(output);
        if !stripe.is_aligned(1) {
            return false;
        }
        // SAFETY: as in `dot`; the last pointer of the array is the output, and all are aligned.
        unsafe { (self.xor_gen)(stripe.inputs as c_int + 1, stripe.len as c_int, all) == 0 }
    }

    /// `xor_gen` with its output among the inputs: output ^= XOR of the inputs. The header does not speak of
    /// this; it works because every version reads a position before it writes it, and a caller checks the bytes.
    #[must_use]
    pub fn xor_into(&self, stripe: &mut Pointers<'_>, output: &mut [u8]) -> bool {
        assert!(output.len() == stripe.len && stripe.inputs + 2 <= 8, "a small stripe");
        let mut array = [std::ptr::null_mut(); 8];
        array[..stripe.inputs].copy_from_slice(&stripe.array[..stripe.inputs]);
        array[stripe.inputs..stripe.inputs + 2].fill(output.as_mut_ptr());
        let vectors = stripe.inputs as c_int + 2;
        if !array.iter().all(|pointer| is_aligned(*pointer)) {
            return false;
        }
        // SAFETY: as in `xor`; the output is borrowed exclusively, for reading and writing.
        unsafe { (self.xor_gen)(vectors, stripe.len as c_int, array.as_mut_ptr()) == 0 }
    }

    /// `pq_gen`: P and Q of the inputs. False when ISA-L refuses the request.
    #[must_use]
    pub fn pq(&self, stripe: &mut Pointers<'_>, outputs: &mut [&mut [u8]]) -> bool {
        assert_eq!(outputs.len(), 2, "P and Q");
        let (all, _) = stripe.with(outputs);
        if !stripe.is_aligned(2) {
            return false;
        }
        // SAFETY: as in `dot`; the last two pointers of the array are the outputs, and all are aligned.
        unsafe { (self.pq_gen)(stripe.inputs as c_int + 2, stripe.len as c_int, all) == 0 }
    }

    /// CRC-32C of `bytes` with the usual initial value and final complement.
    #[must_use]
    pub fn crc32c(&self, bytes: &[u8]) -> u32 {
        let at = bytes.as_ptr().cast_mut();
        // SAFETY: the function reads `len` bytes; its parameter lacks a const, and it writes nothing.
        !unsafe { (self.crc32c)(at, bytes.len() as c_int, !0) }
    }

    /// CRC-64/NVMe of `bytes`, or `None` when this ISA-L has none.
    #[must_use]
    pub fn crc64_nvme(&self, bytes: &[u8]) -> Option<u64> {
        let crc = self.crc64_nvme?;
        // SAFETY: the function reads `len` bytes.
        Some(unsafe { crc(0, bytes.as_ptr(), bytes.len() as u64) })
    }
}

/// Expanded coefficients.
#[derive(Debug)]
pub struct Tables {
    bytes: Vec<u8>,
    inputs: usize,
    outputs: usize,
}

/// The addresses of a stripe's inputs as C wants them, made before the clock runs: a C program would keep
/// them so.
#[derive(Debug)]
pub struct Pointers<'a> {
    array: Vec<*mut u8>,
    inputs: usize,
    len: usize,
    _inputs: std::marker::PhantomData<&'a [u8]>,
}

impl<'a> Pointers<'a> {
    /// The addresses of `inputs`, with room for `outputs` more.
    ///
    /// # Panics
    /// Unless all are equally long.
    #[must_use]
    pub fn new(inputs: &[&'a [u8]], outputs: usize) -> Pointers<'a> {
        let len = inputs.first().map_or(0, |input| input.len());
        assert!(inputs.iter().all(|input| input.len() == len), "strips of one length");
        let mut array: Vec<*mut u8> =
            inputs.iter().map(|input| input.as_ptr().cast_mut()).collect();
        array.resize(inputs.len() + outputs, std::ptr::null_mut());
        Pointers { array, inputs: inputs.len(), len, _inputs: std::marker::PhantomData }
    }

    /// Appends the addresses of the outputs; returns where the inputs and where the outputs begin.
    fn with(&mut self, outputs: &mut [&mut [u8]]) -> (*mut *mut u8, *mut *mut u8) {
        let tail = &mut self.array[self.inputs..];
        assert!(tail.len() >= outputs.len());
        for (pointer, output) in tail.iter_mut().zip(outputs) {
            assert_eq!(output.len(), self.len, "strips of one length");
            *pointer = output.as_mut_ptr();
        }
        let start = self.array.as_mut_ptr();
        (start, start.wrapping_add(self.inputs))
    }

    /// True when the inputs and the first `outputs` outputs are as `xor_gen` and `pq_gen` need them.
    fn is_aligned(&self, outputs: usize) -> bool {
        self.array[..self.inputs + outputs].iter().all(|pointer| is_aligned(*pointer))
    }
}

/// `xor_gen` and `pq_gen` accept addresses that are multiples of 32 (ISA-L's raid.h). Their versions for AVX and AVX2
/// store with `vmovntdq`, which faults on others; those for AVX-512 do not.
const ALIGNMENT: usize = 32;

fn is_aligned(pointer: *mut u8) -> bool {
    pointer.addr().is_multiple_of(ALIGNMENT)
}

/// The file that the loader mapped, by its full name.
fn mapped_name() -> Option<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| line.contains("libisal"))?;
    let path = line.split_whitespace().last()?;
    Some(path.rsplit('/').next().unwrap_or(path).to_owned())
}
