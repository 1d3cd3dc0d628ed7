//! The registry of kernels and the two inner loops each one provides.
//!
//! - **dot**: every output = XOR over the inputs of coefficient * input, all outputs in one pass over
//!   the inputs. Encoding and recovery are dot products with different rows.
//! - **spread**: every output ^= coefficient * input, all outputs in one pass, where the input is one
//!   slice or the XOR of two. Accumulation and read-modify-write are spreads.
//!
//! The scalar kernel is the specification; another kernel may differ from it only in speed.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod gfni512;
mod job;
mod scalar;

pub(crate) use job::{Dot, Source, Spread, check_count, check_length};

/// One implementation of the inner loops that this machine can run.
///
/// A value exists only for a kernel whose CPU features were found, so holding one is the proof that
/// it may run. There is no other way to get one than [`Kernel::available`], [`Kernel::best`] and
/// [`Kernel::scalar`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Scalar,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Gfni512,
}

/// Every kernel of this build, best first. Feature detection finds nothing under Miri, which then runs
/// the scalar one, unless the features are compiled in: `RUSTFLAGS=-Ctarget-feature=+avx2` lets Miri
/// check the address arithmetic of that kernel too.
const KINDS: &[Kind] = &[
    #[cfg(target_arch = "x86_64")]
    Kind::Gfni512,
    #[cfg(target_arch = "x86_64")]
    Kind::Avx2,
    Kind::Scalar,
];

impl Kernel {
    /// The kernels this machine can run, best first; the scalar one is always last.
    pub fn available() -> impl Iterator<Item = Kernel> {
        KINDS.iter().copied().filter(|kind| kind.is_supported()).map(Kernel)
    }

    /// The fastest kernel this machine can run.
    pub fn best() -> Kernel {
        Kernel::available().next().unwrap_or(Kernel::scalar())
    }

    /// The portable kernel, which every machine has.
    pub const fn scalar() -> Kernel {
        Kernel(Kind::Scalar)
    }

    /// A short name for logs and reports: the instruction set it uses.
    pub const fn name(self) -> &'static str {
        match self.0 {
            Kind::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Kind::Gfni512 => "avx512-gfni",
        }
    }

    /// Overwrites every output with its dot product.
    pub(crate) fn dot(self, job: &mut Dot<'_, '_>) {
        match self.0 {
            Kind::Scalar => scalar::dot(job, 0),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a Kernel of this kind exists only if `is_supported` found the features.
            Kind::Avx2 => unsafe { avx2::dot(job) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a Kernel of this kind exists only if `is_supported` found the features.
            Kind::Gfni512 => unsafe { gfni512::dot(job) },
        }
    }

    /// Adds the input, scaled, to every output.
    pub(crate) fn spread(self, job: &mut Spread<'_, '_>) {
        match self.0 {
            Kind::Scalar => scalar::spread(job, 0),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a Kernel of this kind exists only if `is_supported` found the features.
            Kind::Avx2 => unsafe { avx2::spread(job) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a Kernel of this kind exists only if `is_supported` found the features.
            Kind::Gfni512 => unsafe { gfni512::spread(job) },
        }
    }
}

impl Kind {
    /// Asks the CPU (and the operating system, for the register state) for the features of a kernel.
    fn is_supported(self) -> bool {
        match self {
            Kind::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => is_x86_feature_detected!("avx2"),
            #[cfg(target_arch = "x86_64")]
            Kind::Gfni512 => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("gfni")
            }
        }
    }
}
