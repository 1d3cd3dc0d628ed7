//! The bytes of a small array, with one byte per block, and their meaning.

use strake_units::{Lba, PositionSet, StripeIndex};

use super::gf;
use crate::{Geometry, Place, Role, Scheme};

/// Every block of every member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct World {
    pub(super) geometry: Geometry,
    bytes: Vec<u8>,
}

/// Returns a byte that depends on every bit of `seed`.
pub(super) fn mix(seed: u64) -> u8 {
    let mut x = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (x ^ (x >> 31)) as u8
}

impl World {
    /// Returns an array full of data with consistent redundancy.
    pub(super) fn consistent(geometry: Geometry) -> Self {
        let blocks = geometry.member_blocks_used() as usize * geometry.members();
        let mut world = Self { geometry, bytes: vec![0; blocks] };
        for stripe in (0..geometry.stripes()).map(StripeIndex) {
            for offset in 0..geometry.strip_blocks() {
                let data: Vec<u8> = (0..geometry.data_strips())
                    .map(|strip| mix(geometry.lba(Place { stripe, strip, offset }).0))
                    .collect();
                for position in 0..geometry.width() {
                    let byte = match geometry.role(stripe, position) {
                        Role::Data { strip, copy: _ } => data[usize::from(strip)],
                        Role::Parity { index } => encode(&geometry, index, &data),
                    };
                    world.set(stripe, position, offset, byte);
                }
            }
        }
        world
    }

    /// Returns the array of [`World::consistent`] after a crash: all parities and copies are inconsistent.
    pub(super) fn torn(geometry: Geometry) -> Self {
        let mut world = Self::consistent(geometry);
        for stripe in (0..geometry.stripes()).map(StripeIndex) {
            for position in 0..geometry.width() {
                let torn = match geometry.role(stripe, position) {
                    Role::Data { strip: _, copy } => copy > 0,
                    Role::Parity { index: _ } => true,
                };
                for offset in 0..geometry.strip_blocks() {
                    if torn {
                        let seed = stripe.0 << 32 | u64::from(offset) << 8 | u64::from(position);
                        world.set(stripe, position, offset, mix(seed ^ 0xdead << 48));
                    }
                }
            }
        }
        world
    }

    /// Returns this array with random bytes at `positions` of `stripe`, which a correct plan does not read.
    pub(super) fn without(&self, stripe: StripeIndex, positions: PositionSet) -> Self {
        let mut world = self.clone();
        for position in positions {
            for offset in 0..self.geometry.strip_blocks() {
                world.set(stripe, position, offset, !self.at(stripe, position, offset));
            }
        }
        world
    }

    fn index(&self, stripe: StripeIndex, position: u8, offset: u32) -> usize {
        let member = self.geometry.member(stripe, position).at();
        let blocks = self.geometry.member_blocks_used() as usize;
        member * blocks + self.geometry.member_lba(stripe, offset).0 as usize
    }

    pub(super) fn at(&self, stripe: StripeIndex, position: u8, offset: u32) -> u8 {
        self.bytes[self.index(stripe, position, offset)]
    }

    pub(super) fn set(&mut self, stripe: StripeIndex, position: u8, offset: u32, byte: u8) {
        let index = self.index(stripe, position, offset);
        self.bytes[index] = byte;
    }

    /// Returns the content of array block `lba` without the positions `absent` of its stripe, or `None` if the other
    /// positions do not determine it. If the redundancy is inconsistent, the rule of the planner applies: the lowest
    /// copy, or all present data with the lowest parities.
    pub(super) fn content(&self, lba: Lba, absent: PositionSet) -> Option<u8> {
        let Place { stripe, strip, offset } = self.geometry.place(lba);
        let present = |position: u8| !absent.contains(position);
        let direct = (0..self.geometry.copies())
            .map(|copy| self.geometry.position(stripe, Role::Data { strip, copy }))
            .find(|position| present(*position));
        match (direct, self.geometry.scheme()) {
            (Some(position), _) => Some(self.at(stripe, position, offset)),
            (None, Scheme::Copies(_)) => None,
            (None, Scheme::Parity(m)) => {
                let k = self.geometry.data_strips();
                let strips: Vec<(u8, u8)> = (0..k + m)
                    .map(|number| (number, strip_position(&self.geometry, stripe, number)))
                    .filter(|(_, position)| present(*position))
                    .take(k.into())
                    .collect();
                if strips.len() < usize::from(k) {
                    return None;
                }
                let known: Vec<(u8, u8)> = strips
                    .into_iter()
                    .map(|(number, position)| (number, self.at(stripe, position, offset)))
                    .collect();
                Some(decode(&self.geometry, &known)[usize::from(strip)])
            }
        }
    }
}

/// Returns the position of strip `number` (data 0..k, then parity) of a parity scheme.
pub(super) fn strip_position(geometry: &Geometry, stripe: StripeIndex, number: u8) -> u8 {
    let role = match number.checked_sub(geometry.data_strips()) {
        Some(index) => Role::Parity { index },
        None => Role::Data { strip: number, copy: 0 },
    };
    geometry.position(stripe, role)
}

/// Returns parity `index` of one column of data.
pub(super) fn encode(geometry: &Geometry, index: u8, data: &[u8]) -> u8 {
    let m = usize::from(geometry.parity_strips());
    data.iter()
        .enumerate()
        .map(|(d, byte)| gf::multiply(gf::coefficient(m, index.into(), d), *byte))
        .fold(0, |sum, term| sum ^ term)
}

/// Returns all data of one column from k known strips, which are given as (strip, byte).
pub(super) fn decode(geometry: &Geometry, known: &[(u8, u8)]) -> Vec<u8> {
    let (k, m) = (usize::from(geometry.data_strips()), usize::from(geometry.parity_strips()));
    let row =
        |number: usize| -> Vec<u8> {
            (0..k)
                .map(|d| {
                    if number < k {
                        u8::from(d == number)
                    } else {
                        gf::coefficient(m, number - k, d)
                    }
                })
                .collect()
        };
    let matrix = known.iter().map(|(number, _)| row(usize::from(*number))).collect();
    gf::solve(matrix, known.iter().map(|(_, byte)| *byte).collect())
}
