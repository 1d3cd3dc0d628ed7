//! Making bad bytes of good ones.

use crate::Chance;

/// Where most fields are that decide something: a header of NVMe/TCP, or what a capsule begins with.
const HEAD: usize = 80;
/// Most bytes that are added at a time.
const MORE: usize = 64;
/// Numbers around which comparisons go wrong.
const EDGES: [u32; 16] = [
    0,
    1,
    2,
    4,
    0x7f,
    0x80,
    0xff,
    0x100,
    0x7fff,
    0x8000,
    0xffff,
    0x1_0000,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_fffe,
    0xffff_ffff,
];

/// Damages `bytes` a little, in one of many ways, more often near the front than behind.
pub fn damage(bytes: &mut Vec<u8>, chance: &mut Chance) {
    let near = if chance.one_in(4) { bytes.len() } else { bytes.len().min(HEAD) };
    let at = chance.below(near);
    match chance.below(8) {
        0 => change(bytes, at, |byte| byte ^ 1 << (at % 8)),
        1 => {
            let value = chance.bits() as u8;
            change(bytes, at, |_| value);
        }
        2 => write(bytes, at & !1, &(chance.pick(&EDGES) as u16).to_le_bytes()),
        3 => write(bytes, at & !3, &chance.pick(&EDGES).to_le_bytes()),
        4 => shift(bytes, at & !3, chance),
        5 => bytes.truncate(at),
        6 => {
            let more = chance.below(MORE);
            let more = chance.bytes(more);
            bytes.splice(at..at, more);
        }
        _ => {
            let to = (at + chance.below(MORE)).min(bytes.len());
            bytes.drain(at..to);
        }
    }
}

fn change(bytes: &mut [u8], at: usize, how: impl Fn(u8) -> u8) {
    if let Some(byte) = bytes.get_mut(at) {
        *byte = how(*byte);
    }
}

fn write(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + value.len()) {
        place.copy_from_slice(value);
    }
}

/// Makes a number of four bytes a little larger or smaller.
fn shift(bytes: &mut [u8], at: usize, chance: &mut Chance) {
    if let Some(place) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<4>()) {
        let by =
            chance.pick(&[1, 2, 3, 4, 512, 4096, u32::MAX, u32::MAX - 3, 4096_u32.wrapping_neg()]);
        *place = u32::from_le_bytes(*place).wrapping_add(by).to_le_bytes();
    }
}

/// Says the parts of an exchange in another order: leaves one out, repeats one, moves one, or lets another follow
/// into the middle of it.
pub fn disorder(parts: &mut Vec<Vec<u8>>, chance: &mut Chance) {
    if parts.is_empty() {
        return;
    }
    let at = chance.below(parts.len());
    match chance.below(4) {
        0 => drop(parts.remove(at)),
        1 => {
            let again = parts[at].clone();
            let to = chance.below(parts.len() + 1);
            parts.insert(to, again);
        }
        2 => {
            let part = parts.remove(at);
            let to = chance.below(parts.len() + 1);
            parts.insert(to, part);
        }
        _ => {
            let cut = chance.below(parts[at].len());
            parts[at].truncate(cut);
        }
    }
}
