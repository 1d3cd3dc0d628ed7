use super::{PoolSizes, Pools};
use strake_block::{BufMut, SgMut};

const SIZES: PoolSizes = PoolSizes {
    small_bytes: 16 << 10,
    small_buffers: 64,
    large_bytes: 256 << 10,
    large_buffers: 28,
};

/// A drive kept the buffers of reads repeatedly: a client that lost them permanently could read nothing more after a
/// few pauses of a drive.
#[test]
fn buffers_that_a_drive_keeps_are_replaced() {
    let large = SIZES.large_bytes;
    for bytes in [512, SIZES.small_bytes, large, 3 * large, 4 * large] {
        let mut pools = Pools::new(SIZES);
        let mut kept = Vec::new();
        for _ in 0..3 * (SIZES.small_buffers + SIZES.large_buffers) {
            kept.push(pools.take(bytes).expect("there are always as many"));
            pools.put(SgMut::from(BufMut::alone(bytes)));
        }
        // Replacements are returned like other buffers.
        let taken = pools.take(bytes).expect("one more");
        let free = (pools.small.available(), pools.large.available());
        pools.put(taken);
        assert!((pools.small.available(), pools.large.available()) > free, "{bytes}");
    }
}

#[test]
fn nothing_is_replaced_that_comes_back() {
    let mut pools = Pools::new(SIZES);
    for bytes in [512, SIZES.large_bytes, 4 * SIZES.large_bytes] {
        let taken = pools.take(bytes).expect("a new pool");
        pools.put(taken);
    }
    assert_eq!(pools.small.available(), SIZES.small_buffers);
    assert_eq!(pools.large.available(), SIZES.large_buffers);
}
