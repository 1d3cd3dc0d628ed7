//! The registry of kernels and the two inner loops each one provides.
//!
//! - **dot**: outputs = matrix * inputs, all outputs in one pass over the inputs. Encoding and recovery are
//!   dot products with different matrices.
//! - **spread**: every output ^= coefficient * input, all outputs in one pass, where the input is one
//!   slice or the XOR of two. Accumulation and read-modify-write are spreads.
//!
//! The portable kernel is the specification; another kernel may differ from it only in speed. The vector
//! kernels share one body (`body.rs`), written over what an instruction set must offer (`vector.rs`).

mod body;
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

/// Outputs computed together from one load of the inputs: their sums, a pair of inputs and a pair of products
/// fit the registers.
pub(crate) const GROUP: usize = 4;

/// One implementation of the inner loops that this machine can run.
///
/// A value exists only for a kernel whose CPU features were found, so holding one is the proof that
/// it may run. There is no other way to get one than [`Kernel::available`], [`Kernel::best`],
/// [`Kernel::named`] and [`Kernel::portable`].
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

/// The kernel of this process, once it is chosen.
static CHOSEN: OnceLock<Kernel> = OnceLock::new();

/// Every kernel of this build, widest first. Feature detection finds nothing under Miri, which then runs
/// the portable one, unless the features are compiled in: `RUSTFLAGS=-Ctarget-feature=+avx2` lets Miri
/// check the address arithmetic of that kernel too.
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
    /// The kernels this machine can run, widest first; the portable one is always last.
    pub fn available() -> impl Iterator<Item = Kernel> {
        KINDS.iter().copied().filter(|kind| kind.is_supported()).map(Kernel)
    }

    /// The kernel of this process: the one given to [`Kernel::choose`], or [`Kernel::fit`].
    pub fn best() -> Kernel {
        *CHOSEN.get_or_init(Kernel::fit)
    }

    /// Makes this the kernel of every code that the process makes from now on. False when another one was chosen,
    /// or a code was made, before: kernels are chosen once, at start, by the program and not by its crates.
    pub fn choose(self) -> bool {
        *CHOSEN.get_or_init(|| self) == self
    }

    /// The kernel this machine should run: the widest one that does not slow down the rest of the program.
    ///
    /// Skylake, Cascade Lake and Ice Lake servers lower a core's frequency while it uses 512-bit vectors, which
    /// every other code on that core pays for, so there the 256-bit kernels are taken. What tells the later CPUs
    /// is AVX512-BF16, which Zen 4 and Sapphire Rapids were the first servers to have (apart from Cooper Lake,
    /// which has no GFNI and so is not meant).
    pub fn fit() -> Kernel {
        Kernel::available().find(|kernel| kernel.0.is_welcome()).unwrap_or(Kernel::portable())
    }

    /// The kernel of that name, if this machine can run it.
    pub fn named(name: &str) -> Option<Kernel> {
        Kernel::available().find(|kernel| kernel.name() == name)
    }

    /// The portable kernel, which every machine has.
    pub const fn portable() -> Kernel {
        Kernel(Kind::Portable)
    }

    /// A short name for logs and reports: the instruction set it uses.
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
    /// Asks the CPU (and the operating system, for the register state) for the features of a kernel.
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

    /// Whether the kernel may be chosen without being asked for, where it is supported.
    fn is_welcome(self) -> bool {
        match self {
            Kind::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Kind::Gfni512 => is_x86_feature_detected!("avx512bf16"),
            // Every CPU with AVX-512 and without GFNI is one of those that slow down.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => false,
            #[cfg(target_arch = "x86_64")]
            Kind::Ssse3 | Kind::Avx2 | Kind::Gfni256 => true,
            #[cfg(target_arch = "aarch64")]
            Kind::Neon => true,
        }
    }
}
