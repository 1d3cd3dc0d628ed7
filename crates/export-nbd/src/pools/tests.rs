use super::Pools;
use crate::limits::{LARGE_BUFFERS, LARGE_BYTES, SMALL_BUFFERS, SMALL_BYTES};
use strake_block::{BufMut, SgMut};

/// A drive kept a read's buffers, again and again: a client that lost them for good could read nothing more after a few
/// pauses of a drive.
#[test]
fn buffers_that_a_drive_keeps_are_replaced() {
    for bytes in [512, SMALL_BYTES, LARGE_BYTES, 3 * LARGE_BYTES, 4 * LARGE_BYTES] {
        let mut pools = Pools::new();
        let mut kept = Vec::new();
        for _ in 0..3 * (SMALL_BUFFERS + LARGE_BUFFERS) {
            kept.push(pools.take(bytes).expect("there are always as many"));
            pools.put(SgMut::from(BufMut::alone(bytes)));
        }
        // Replacements come back like any others.
        let taken = pools.take(bytes).expect("one more");
        let free = (pools.small.available(), pools.large.available());
        pools.put(taken);
        assert!((pools.small.available(), pools.large.available()) > free, "{bytes}");
    }
}

#[test]
fn nothing_is_replaced_that_comes_back() {
    let mut pools = Pools::new();
    for bytes in [512, LARGE_BYTES, 4 * LARGE_BYTES] {
        let taken = pools.take(bytes).expect("a new pool");
        pools.put(taken);
    }
    assert_eq!(pools.small.available(), SMALL_BUFFERS);
    assert_eq!(pools.large.available(), LARGE_BUFFERS);
}
