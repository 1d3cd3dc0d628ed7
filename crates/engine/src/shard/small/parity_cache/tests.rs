use arrayvec::ArrayVec;
use proptest::prelude::*;
use strake_block::BufMut;
use strake_raid::{Band, PARTS_MAX};
use strake_units::StripeIndex;

use super::{Column, Left, ParityCache, SMALL_BYTES, Worth};
use crate::limits::{PARITY_CACHE_LARGE_MAX, PARITY_CACHE_MAX};

/// Operations on the cache.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// A small write, which takes the cached content, and returns new content unless the write fails.
    Write { column: Column, strip: u8, large: bool, fails: bool },
    /// A write of a band by a task.
    Task(Band),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let band =
        (0..40u64, 0..2u16).prop_map(|(stripe, index)| Band { stripe: StripeIndex(stripe), index });
    let column = (band.clone(), 0..8u32, 1..4u32).prop_map(|(band, offset, blocks)| Column {
        band,
        offset,
        blocks,
    });
    let write = (column, 0..3u8, prop::bool::weighted(0.2), prop::bool::weighted(0.1));
    let write =
        write.prop_map(|(column, strip, large, fails)| Act::Write { column, strip, large, fails });
    let act = prop_oneof![30 => write, 3 => band.prop_map(Act::Task)];
    prop::collection::vec(act, 1..600)
}

/// A buffer that contains `says`.
fn buf(large: bool, says: u8) -> BufMut {
    let mut buf = BufMut::alone(if large { SMALL_BYTES + 512 } else { 512 });
    buf.as_mut_slice()[0] = says;
    buf
}

/// Compares the cache with a model that records the last write of every block. Cached content must equal the model, and
/// no buffer may be lost.
fn check(acts: Vec<Act>) {
    let mut parity_cache = ParityCache::new(true);
    // The last cached content of (band, offset): the column, its stamp and strip.
    let mut truth: std::collections::BTreeMap<(u64, u16, u32), (Column, u8, u8)> =
        Default::default();
    let mut stamp = 0u8;
    let (mut given, mut back) = (0, 0);
    for act in acts {
        match act {
            Act::Task(band) => {
                parity_cache.forget(band, |_| back += 1);
                truth.retain(|(stripe, index, _), _| {
                    (*stripe, *index) != (band.stripe.0, band.index)
                });
            }
            Act::Write { column, strip, large, fails } => {
                let at = |offset: u32| (column.band.stripe.0, column.band.index, offset);
                if let Some(left) = parity_cache.take(&column, |_| back += 1) {
                    for offset in column.offset..column.offset + column.blocks {
                        let (whose, says, of) = truth[&at(offset)];
                        assert_eq!(whose, column, "what is found was written as a whole");
                        assert!(left.parities.iter().all(|parity| parity.as_slice()[0] == says));
                        let (found, data) = left.data.as_ref().expect("data were left as well");
                        assert_eq!((*found, data.as_slice()[0]), (of, says));
                    }
                    back += left.parities.len() + 1;
                }
                stamp = stamp.wrapping_add(1);
                for offset in column.offset..column.offset + column.blocks {
                    truth.remove(&at(offset));
                    if !fails {
                        truth.insert(at(offset), (column, stamp, strip));
                    }
                }
                if !fails {
                    let parities: ArrayVec<BufMut, PARTS_MAX> =
                        (0..2).map(|_| buf(large, stamp)).collect();
                    given += 3;
                    let left = Left { parities, data: Some((strip, buf(large, stamp))) };
                    parity_cache.keep(column, left, |_| back += 1);
                }
            }
        }
        assert_eq!(parity_cache.bufs() + back, given, "every buffer is kept or given back");
        assert!(
            parity_cache.live <= PARITY_CACHE_MAX && parity_cache.large <= PARITY_CACHE_LARGE_MAX
        );
    }
}

proptest! {
    #[test]
    fn what_is_found_was_left_there_last(acts in acts()) {
        check(acts);
    }
}

#[test]
fn a_column_is_worth_keeping_when_it_is_written_twice() {
    let mut parity_cache = ParityCache::new(true);
    let column = |stripe| Column {
        band: Band { stripe: StripeIndex(stripe), index: 0 },
        offset: 0,
        blocks: 1,
    };
    assert_eq!(parity_cache.touch(&column(7), 0), Worth::Nothing, "the first time");
    assert_eq!(parity_cache.touch(&column(7), 0), Worth::Everything, "the second time");
    assert_eq!(parity_cache.touch(&column(7), 5), Worth::Parities, "another strip");
    assert_eq!(parity_cache.touch(&column(7), 5), Worth::Everything, "the same strip again");
    let twice =
        (100..100_100).filter(|stripe| parity_cache.touch(&column(*stripe), 63) > Worth::Nothing);
    assert_eq!(twice.count(), 0, "writes that are spread evenly are not kept");
}

#[test]
fn nothing_is_kept_when_that_is_turned_off() {
    let mut parity_cache = ParityCache::new(false);
    let column = Column { band: Band { stripe: StripeIndex(1), index: 0 }, offset: 0, blocks: 1 };
    assert_eq!(
        [parity_cache.touch(&column, 3), parity_cache.touch(&column, 3)],
        [Worth::Nothing; 2]
    );
    let mut back = 0;
    let left = Left { parities: [buf(false, 1)].into_iter().collect(), data: None };
    parity_cache.keep(column, left, |_| back += 1);
    assert_eq!((back, parity_cache.bufs()), (1, 0));
    assert!(parity_cache.take(&column, |_| ()).is_none());
}
