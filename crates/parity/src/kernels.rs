//! The registry of kernels and the two inner loops of each kernel.
//!
//! - **dot**: outputs = matrix * inputs, all outputs in one pass over the inputs. Encoding and recovery are
//!   dot products with different matrices.
//! - **spread**: every output ^= coefficient * input, all outputs in one pass, where the input is one
//!   slice or the XOR of two. Accumulation and read-modify-write are spreads.
//!
//! The portable kernel is the specification; other kernels may differ from it only in speed. The vector kernels share
//! one body (`body.rs`), which uses the operations of an instruction set (`vector.rs`).

mod body;
#[cfg(target_arch = "x86_64")]
mod crc;
mod job;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
mod vector;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::sync::OnceLock;

pub use job::Residency;
pub(crate) use job::{Dot, Source, Spread, check_count, check_length};

/// Number of outputs that are computed together from one load of the inputs. Their sums, a pair of inputs and a pair of
/// products fit the registers.
pub(crate) const GROUP: usize = 4;

/// One implementation of the inner loops that this host can execute.
///
/// A value exists only for a kernel whose CPU features were detected. A value is therefore the proof that the kernel
/// may be executed. Only [`Kernel::available`], [`Kernel::best`], [`Kernel::named`] and [`Kernel::portable`] return
/// values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Ssse3,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Gfni256,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Gfni512,
    #[cfg(target_arch = "aarch64")]
    Neon,
}

/// Returns the state of a CRC-32C after more `bytes`, computed with the CRC instruction. Returns `None` on a host
/// without the instruction, and on a host with carry-less multiplication of 512 bits, which is faster.
#[inline]
pub(crate) fn crc32c(state: u32, bytes: &[u8]) -> Option<u32> {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("vpclmulqdq") && is_x86_feature_detected!("avx512vl") {
        return None;
    }
    crc32c_by_instruction(state, bytes)
}

/// Like [`crc32c`], on every host with the instruction.
#[inline]
pub(crate) fn crc32c_by_instruction(state: u32, bytes: &[u8]) -> Option<u32> {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("sse4.2") {
        // SAFETY: the feature was detected just now.
        return Some(unsafe { crc::continued(state, bytes) });
    }
    let _ = (state, bytes);
    None
}

/// The kernel of this process, after it was chosen.
static CHOSEN: OnceLock<Kernel> = OnceLock::new();

/// All kernels of this build, in order of descending width. Feature detection finds nothing under Miri, which then
/// executes the portable kernel, unless the build enables the features: with `RUSTFLAGS=-Ctarget-feature=+avx2`, Miri
/// also checks the address arithmetic of that kernel.
const KINDS: &[Kind] = &[
    #[cfg(target_arch = "x86_64")]
    Kind::Gfni512,
    #[cfg(target_arch = "x86_64")]
    Kind::Avx512,
    #[cfg(target_arch = "x86_64")]
    Kind::Gfni256,
    #[cfg(target_arch = "x86_64")]
    Kind::Avx2,
    #[cfg(target_arch = "x86_64")]
    Kind::Ssse3,
    #[cfg(target_arch = "aarch64")]
    Kind::Neon,
    Kind::Portable,
];

impl Kernel {
    /// Returns the kernels that this host can execute, in order of descending width. The portable kernel is always the
    /// last one.
    pub fn available() -> impl Iterator<Item = Kernel> {
        KINDS.iter().copied().filter(|kind| kind.is_supported()).map(Kernel)
    }

    /// Returns the kernel of this process: that of [`Kernel::choose`], or that of [`Kernel::fit`].
    pub fn best() -> Kernel {
        *CHOSEN.get_or_init(Kernel::fit)
    }

    /// Makes this the kernel of every code that the process creates later. Returns false if another kernel was chosen,
    /// or another kernel was already used for a code. The program, not its crates, chooses the kernel once at start.
    pub fn choose(self) -> bool {
        *CHOSEN.get_or_init(|| self) == self
    }

    /// Returns the best kernel for this host: the widest kernel that does not slow down the rest of the program.
    ///
    /// Skylake, Cascade Lake and Ice Lake servers reduce the frequency of a core while it uses 512-bit vectors, which
    /// slows down all other code on that core. On these servers, the function therefore chooses the 256-bit kernels.
    /// AVX512-BF16 identifies later CPUs: Zen 4 and Sapphire Rapids were the first servers with it (except Cooper Lake,
    /// which has no GFNI and is therefore excluded).
    pub fn fit() -> Kernel {
        Kernel::available().find(|kernel| kernel.0.is_welcome()).unwrap_or(Kernel::portable())
    }

    /// Returns the kernel with the given name, or `None` if this host cannot execute it.
    pub fn named(name: &str) -> Option<Kernel> {
        Kernel::available().find(|kernel| kernel.name() == name)
    }

    /// Returns the portable kernel, which every host can execute.
    pub const fn portable() -> Kernel {
        Kernel(Kind::Portable)
    }

    /// Returns a short name for logs and reports, which is the instruction set.
    pub const fn name(self) -> &'static str {
        match self.0 {
            Kind::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Kind::Ssse3 => "ssse3",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Kind::Gfni256 => "avx2-gfni",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => "avx512",
            #[cfg(target_arch = "x86_64")]
            Kind::Gfni512 => "avx512-gfni",
            #[cfg(target_arch = "aarch64")]
            Kind::Neon => "neon",
        }
    }

    /// Overwrites every output with its dot product.
    pub(crate) fn dot(self, job: &mut Dot<'_, '_>) {
        // SAFETY: a Kernel of a kind exists only if `is_supported` found its features.
        #[cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), allow(unused_unsafe))]
        unsafe {
            match self.0 {
                Kind::Portable => portable::dot(job),
                #[cfg(target_arch = "x86_64")]
                Kind::Ssse3 => x86::ssse3::dot(job),
                #[cfg(target_arch = "x86_64")]
                Kind::Avx2 => x86::avx2::dot(job),
                #[cfg(target_arch = "x86_64")]
                Kind::Gfni256 => x86::gfni256::dot(job),
                #[cfg(target_arch = "x86_64")]
                Kind::Avx512 => x86::avx512::dot(job),
                #[cfg(target_arch = "x86_64")]
                Kind::Gfni512 => x86::gfni512::dot(job),
                #[cfg(target_arch = "aarch64")]
                Kind::Neon => neon::dot(job),
            }
        }
    }

    /// Adds the input, scaled, to every output.
    pub(crate) fn spread(self, job: &mut Spread<'_, '_>) {
        // SAFETY: a Kernel of a kind exists only if `is_supported` found its features.
        #[cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), allow(unused_unsafe))]
        unsafe {
            match self.0 {
                Kind::Portable => portable::spread(job, 0),
                #[cfg(target_arch = "x86_64")]
                Kind::Ssse3 => x86::ssse3::spread(job),
                #[cfg(target_arch = "x86_64")]
                Kind::Avx2 => x86::avx2::spread(job),
                #[cfg(target_arch = "x86_64")]
                Kind::Gfni256 => x86::gfni256::spread(job),
                #[cfg(target_arch = "x86_64")]
                Kind::Avx512 => x86::avx512::spread(job),
                #[cfg(target_arch = "x86_64")]
                Kind::Gfni512 => x86::gfni512::spread(job),
                #[cfg(target_arch = "aarch64")]
                Kind::Neon => neon::spread(job),
            }
        }
    }
}

impl Kind {
    /// Returns true if the CPU (and the operating system, for the register state) supports the features of a kernel.
    fn is_supported(self) -> bool {
        match self {
            Kind::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Kind::Ssse3 => is_x86_feature_detected!("ssse3"),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => is_x86_feature_detected!("avx2"),
            #[cfg(target_arch = "x86_64")]
            Kind::Gfni256 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("gfni"),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => {
                is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw")
            }
            #[cfg(target_arch = "x86_64")]
            Kind::Gfni512 => Kind::Avx512.is_supported() && is_x86_feature_detected!("gfni"),
            #[cfg(target_arch = "aarch64")]
            Kind::Neon => std::arch::is_aarch64_feature_detected!("neon"),
        }
    }

    /// Returns true if a supported kernel may be chosen without an explicit request.
    fn is_welcome(self) -> bool {
        match self {
            Kind::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Kind::Gfni512 => is_x86_feature_detected!("avx512bf16"),
            // Every CPU with AVX-512 and without GFNI reduces its frequency.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => false,
            #[cfg(target_arch = "x86_64")]
            Kind::Ssse3 | Kind::Avx2 | Kind::Gfni256 => true,
            #[cfg(target_arch = "aarch64")]
            Kind::Neon => true,
        }
    }
}
