//! A breadth-first search of all reachable states.

use std::collections::HashSet;
use std::hash::{Hash, Hasher};

use super::{Action, Config, State, violated};
use crate::rng::mix;

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Distinct states.
    pub states: u64,
    /// The number of states on the longest of the shortest paths from the initial state.
    pub diameter: u32,
    /// The failed invariant, and the path to its state.
    pub violation: Option<(&'static str, Path)>,
}

/// The actions on the path to a state.
pub type Path = Vec<Action>;

/// Visits every state of `config` until an invariant fails, and calls `visit` for each.
pub fn search(config: &Config, visit: &mut dyn FnMut(&State)) -> Found {
    let first = State::new(config);
    let mut known = HashSet::from([Fingerprint::of(&first)]);
    let mut ways: Vec<(usize, Action)> = vec![(0, Action::Next)];
    let mut level = vec![(0, first)];
    let mut found = Found { states: 1, diameter: 0, violation: None };
    while !level.is_empty() {
        found.diameter += 1;
        let mut deeper = Vec::new();
        for (way, state) in &level {
            visit(state);
            if let Some(name) = violated(state, config) {
                found.violation = Some((name, path(&ways, *way)));
                return found;
            }
            state.next(config, &mut |action, next| {
                if known.insert(Fingerprint::of(&next)) {
                    ways.push((*way, action));
                    deeper.push((ways.len() - 1, next));
                }
            });
        }
        found.states += deeper.len() as u64;
        level = deeper;
    }
    found
}

fn path(ways: &[(usize, Action)], mut at: usize) -> Path {
    let mut path = Vec::new();
    while at != 0 {
        path.push(ways[at].1);
        at = ways[at].0;
    }
    path.reverse();
    path
}

/// The identity of a state, with 128 bits: the probability of a collision among a few million states is 10^-25.
struct Fingerprint([u64; 2]);

impl Fingerprint {
    fn of(state: &State) -> [u64; 2] {
        let mut hasher = Self([0x9e37_79b9_7f4a_7c15, 0xc2b2_ae3d_27d4_eb4f]);
        state.hash(&mut hasher);
        hasher.0.map(mix)
    }
}

impl Hasher for Fingerprint {
    fn finish(&self) -> u64 {
        mix(self.0[0])
    }

    fn write(&mut self, bytes: &[u8]) {
        for word in bytes.chunks(8) {
            let mut padded = [0; 8];
            padded[..word.len()].copy_from_slice(word);
            self.write_u64(u64::from_le_bytes(padded));
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(u64::from(number));
    }

    fn write_u16(&mut self, number: u16) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        let [a, b] = self.0;
        self.0 = [
            (a ^ number).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(31),
            (b.rotate_left(27) ^ number).wrapping_mul(0xc4ce_b9fe_1a85_ec53),
        ];
    }
}
