//! Groups for the key exchange.

use openssl::bn::{BigNum, BigNumContext, BigNumRef};
use openssl::error::ErrorStack;

/// A group (Base, Figure 450); those with numbers are of RFC 7919, appendix A.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Group {
    /// No key exchange.
    Null = 0,
    /// `ffdhe2048`.
    Ffdhe2048 = 1,
    /// `ffdhe3072`.
    Ffdhe3072 = 2,
    /// `ffdhe4096`.
    Ffdhe4096 = 3,
    /// `ffdhe6144`.
    Ffdhe6144 = 4,
    /// `ffdhe8192`.
    Ffdhe8192 = 5,
}

/// Groups that a controller accepts.
///
/// A host without a key exchange is exposed: who records its authentication can try secrets at leisure. A large group
/// costs the controller tens of milliseconds for a host that has not proven anything yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Groups(u8);

impl Groups {
    /// Every group, also the one that is none.
    #[cfg(test)]
    pub(crate) const ALL: Self = Self(0b11_1111);

    /// The set of these groups.
    #[must_use]
    pub fn of(groups: &[Group]) -> Self {
        Self(groups.iter().fold(0, |set, group| set | 1 << *group as u8))
    }

    /// True if the set has this group.
    #[must_use]
    pub const fn contains(self, group: Group) -> bool {
        self.0 & 1 << group as u8 != 0
    }
}

impl Default for Groups {
    /// `ffdhe2048` and `ffdhe3072`, which every host with a key exchange has.
    fn default() -> Self {
        Self::of(&[Group::Ffdhe2048, Group::Ffdhe3072])
    }
}

/// Bytes of the largest value.
pub(crate) const VALUE_BYTES_MAX: usize = 1024;

/// Bytes of a private exponent: twice the strength of the largest group and more (RFC 7919, section 5.2).
pub const EXPONENT_BYTES: usize = 64;

/// Digits of e that all primes have in common, behind 64 ones, 50 bytes a row. The prime of the largest group has all
/// of them, others fewer.
const DIGITS: [&str; 20] = [
    "adf85458a2bb4a9aafdc5620273d3cf1d8b9c583ce2d3695a9e13641146433fbcc939dce249b3ef97d2fe363630c75d8f681",
    "b202aec4617ad3df1ed5d5fd65612433f51f5f066ed0856365553ded1af3b557135e7f57c935984f0c70e0e68b77e2a689da",
    "f3efe8721df158a136ade73530acca4f483a797abc0ab182b324fb61d108a94bb2c8e3fbb96adab760d7f4681d4f42a3de39",
    "4df4ae56ede76372bb190b07a7c8ee0a6d709e02fce1cdf7e2ecc03404cd28342f619172fe9ce98583ff8e4f1232eef28183",
    "c3fe3b1b4c6fad733bb5fcbc2ec22005c58ef1837d1683b2c6f34a26c1b2effa886b4238611fcfdcde355b3b6519035bbc34",
    "f4def99c023861b46fc9d6e6c9077ad91d2691f7f7ee598cb0fac186d91caefe130985139270b4130c93bc437944f4fd4452",
    "e2d74dd364f2e21e71f54bff5cae82ab9c9df69ee86d2bc522363a0dabc521979b0deada1dbf9a42d5c4484e0abcd06bfa53",
    "ddef3c1b20ee3fd59d7c25e41d2b669e1ef16e6f52c3164df4fb7930e9e4e58857b6ac7d5f42d69f6d187763cf1d55034004",
    "87f55ba57e31cc7a7135c886efb4318aed6a1e012d9e6832a907600a918130c46dc778f971ad0038092999a333cb8b7a1a1d",
    "b93d7140003c2a4ecea9f98d0acc0a8291cdcec97dcf8ec9b55a7f88a46b4db5a851f44182e1c68a007e5e0dd9020bfd64b6",
    "45036c7a4e677d2c38532a3a23ba4442caf53ea63bb454329b7624c8917bdd64b1c0fd4cb38e8c334c701c3acdad0657fccf",
    "ec719b1f5c3e4e46041f388147fb4cfdb477a52471f7a9a96910b855322edb6340d8a00ef092350511e30abec1fff9e3a26e",
    "7fb29f8c183023c3587e38da0077d9b4763e4e4b94b2bbc194c6651e77caf992eeaac0232a281bf6b3a739c1226116820ae8",
    "db5847a67cbef9c9091b462d538cd72b03746ae77f5e62292c311562a846505dc82db854338ae49f5235c95b91178ccf2dd5",
    "cacef403ec9d1810c6272b045b3b71f9dc6b80d63fdd4a8e9adb1e6962a69526d43161c1a41d570d7938dad4a40e329ccff4",
    "6aaa36ad004cf600c8381e425a31d951ae64fdb23fcec9509d43687feb69edd1cc5e0b8cc3bdf64b10ef86b63142a3ab8829",
    "555b2f747c932665cb2c0f1cc01bd70229388839d2af05e454504ac78b7582822846c0ba35c35f5c59160cc046fd8251541f",
    "c68c9c86b022bb7099876a460e7451a8a93109703fee1c217e6c3826e52c51aa691e0e423cfc99e9e31650c1217b624816cd",
    "ad9a95f9d5b8019488d9c0a0a1fe3075a577e23183f81d4a3f2fa4571efc8ce0ba8a4fe8b6855dfe72b0a66eded2fbabfbe5",
    "8a30fafabe1c5d71a87e2f741ef8c1fe86fea6bbfde530677f0d97d11d49f7a8443d0822e506a9f4614e011e2a94838ff88c",
];

impl Group {
    /// The group of this number.
    #[must_use]
    pub const fn of(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::Null,
            1 => Self::Ffdhe2048,
            2 => Self::Ffdhe3072,
            3 => Self::Ffdhe4096,
            4 => Self::Ffdhe6144,
            5 => Self::Ffdhe8192,
            _ => return None,
        })
    }

    /// Bytes of a public value.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Null => 0,
            Self::Ffdhe2048 => 256,
            Self::Ffdhe3072 => 384,
            Self::Ffdhe4096 => 512,
            Self::Ffdhe6144 => 768,
            Self::Ffdhe8192 => 1024,
        }
    }

    /// What is between the common digits and the last 64 ones.
    const fn tail(self) -> u64 {
        match self {
            Self::Null => 0,
            Self::Ffdhe2048 => 0x886b_4238_6128_5c97,
            Self::Ffdhe3072 => 0x25e4_1d2b_66c6_2e37,
            Self::Ffdhe4096 => 0xc68a_007e_5e65_5f6a,
            Self::Ffdhe6144 => 0xa40e_329c_d0e4_0e65,
            Self::Ffdhe8192 => 0xd68c_8bb7_c5c6_424c,
        }
    }

    /// The prime, most significant byte first.
    pub(crate) fn prime(self) -> Vec<u8> {
        let digits = DIGITS.iter().flat_map(|row| row.as_bytes().chunks_exact(2));
        let digits = digits.map(|pair| nibble(pair[0]) << 4 | nibble(pair[1]));
        let mut prime = vec![0xff; 8];
        prime.extend(digits.take(self.bytes().saturating_sub(24)));
        prime.extend(self.tail().to_be_bytes());
        prime.extend([0xff; 8]);
        prime
    }

    /// What the other side is sent for a private exponent. `None` in the group that is none, or if OpenSSL has no
    /// memory.
    #[must_use]
    pub fn public(self, exponent: &[u8; EXPONENT_BYTES]) -> Option<Vec<u8>> {
        if self == Self::Null {
            return None;
        }
        let generator = BigNum::from_u32(2).ok()?;
        self.power(&generator, exponent).ok()
    }

    /// What both sides have in common. `None` when the other side's value is not one of the group, or one that would
    /// make the result known to everybody (RFC 7919, section 5.1).
    #[must_use]
    pub fn shared(self, theirs: &[u8], exponent: &[u8; EXPONENT_BYTES]) -> Option<Vec<u8>> {
        if self == Self::Null || theirs.len() != self.bytes() {
            return None;
        }
        let value = BigNum::from_slice(theirs).ok()?;
        let mut last = BigNum::from_slice(&self.prime()).ok()?;
        last.sub_word(1).ok()?;
        if *value <= *BigNum::from_u32(1).ok()? || value >= last {
            return None;
        }
        self.power(&value, exponent).ok()
    }

    /// A power modulo the prime, with as many bytes as the prime has, in a time that does not depend on the exponent.
    fn power(
        self,
        base: &BigNumRef,
        exponent: &[u8; EXPONENT_BYTES],
    ) -> Result<Vec<u8>, ErrorStack> {
        let prime = BigNum::from_slice(&self.prime())?;
        let mut secret = BigNum::new_secure()?;
        secret.copy_from_slice(exponent)?;
        secret.set_const_time();
        let mut power = BigNum::new_secure()?;
        let mut context = BigNumContext::new_secure()?;
        power.mod_exp(base, &secret, &prime, &mut context)?;
        // OpenSSL overwrites secure numbers when it frees them.
        power.to_vec_padded(self.bytes() as i32)
    }
}

/// The value of a hexadecimal digit of the table.
const fn nibble(digit: u8) -> u8 {
    if digit.is_ascii_digit() { digit - b'0' } else { digit - b'a' + 10 }
}
