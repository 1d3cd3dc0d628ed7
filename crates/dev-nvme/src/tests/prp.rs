//! PRP lists: every offset and length at the edges of pages, of tables and of the largest transfer.

use super::world::{Client, World};
use strake_block::{BufMut, BufPool, Durability, Op, Sg, SgMut};
use strake_nvme_model::{NamespaceSpec, Spec};
use strake_units::Lba;

const PAGE: usize = 4096;

/// Writes `data` and reads it back into `space`, both through the model, which parses the lists. The memory of both
/// returns to the pool.
fn check(
    world: &mut World,
    client: &mut Client,
    pool: &mut BufPool,
    (data, space): (Sg, SgMut),
    what: &str,
) {
    let mut expected = vec![0; data.len()];
    data.copy_to(&mut expected);
    let op = Op::Write { at: Lba(3), data, durability: Durability::Normal };
    let done = world.run(client, op);
    done.result.unwrap_or_else(|error| panic!("{what}: {error}"));
    if let Op::Write { data, .. } = done.op {
        data.into_parts().for_each(|part| pool.put_frozen(part));
    }
    let done = world.run(client, Op::Read { at: Lba(3), data: space });
    done.result.unwrap_or_else(|error| panic!("{what}: {error}"));
    let Op::Read { data, .. } = done.op else { panic!("a read returns as a read") };
    let read: Vec<u8> = data.slices(0, expected.len()).flatten().copied().collect();
    assert!(read == expected, "{what}: other bytes were read");
    data.into_parts().for_each(|part| pool.put(part));
}

fn numbered(buf: &mut BufMut) {
    buf.as_mut_slice().iter_mut().zip(0_u32..).for_each(|(byte, at)| *byte = (at % 253) as u8);
}

/// One buffer of `bytes` bytes, whose first byte is `offset` bytes after `page` in the region.
#[test]
fn buffers_at_every_edge_are_described_in_place_exhaustive() {
    let namespaces = vec![NamespaceSpec::new(4096, 9)];
    let mut world = World::ready(Spec { namespaces, ..Spec::new(0) });
    let mut client = world.open(4);
    // One region of 1023 pages and more: its table has pages of 512 entries.
    let mut pool = BufPool::new(2, 520 * PAGE);
    world.window.map_arena(pool.arena()).expect("the space has room");
    for page in [0, 1, 479, 480, 510, 511, 512] {
        for offset in [0, 4, 512, 2048, 4092] {
            for bytes in [512, 3584, 4096, 4608, 8192, 8704, 3 * PAGE, 33 * PAGE - 512, 32 * PAGE] {
                let start = page * PAGE + offset;
                if start + bytes > 520 * PAGE || bytes > 32 * PAGE {
                    continue;
                }
                let cut = |mut buf: BufMut| {
                    drop(buf.split_to(start));
                    buf.truncate(bytes);
                    buf
                };
                let mut data = cut(pool.get(520 * PAGE).expect("two"));
                numbered(&mut data);
                let space = SgMut::from(cut(pool.get(520 * PAGE).expect("two")));
                let what = format!("page {page}, offset {offset}, {bytes} bytes");
                let both = (Sg::from(data.freeze()), space);
                check(&mut world, &mut client, &mut pool, both, &what);
                assert_eq!(pool.available(), 2);
            }
        }
    }
    assert_eq!(world.device().stats().bounces, 0);
    world.assert_clean();
}

/// Lists of several buffers: page by page, with a tail, and lists that PRPs cannot describe, which are cut or copied.
#[test]
fn lists_of_buffers_are_described_or_cut_or_copied_exhaustive() {
    let namespaces = vec![NamespaceSpec::new(4096, 9)];
    let mut world = World::ready(Spec { namespaces, ..Spec::new(0) });
    let mut client = world.open(4);
    let mut pool = BufPool::new(8, 4 * PAGE);
    world.window.map_arena(pool.arena()).expect("the space has room");
    let lengths = [512, 700, 1024, PAGE, PAGE + 512, 3 * PAGE];
    for first in lengths {
        for second in lengths {
            for third in lengths {
                let rest =
                    (first + second + third).next_multiple_of(512) - (first + second + third);
                let (mut data, mut space) = (Sg::default(), SgMut::default());
                for bytes in [first, second, third, rest].into_iter().filter(|bytes| *bytes > 0) {
                    let mut buf = pool.get(bytes).expect("eight");
                    numbered(&mut buf);
                    data.push(buf.freeze()).expect("four parts");
                    space.push(pool.get(bytes).expect("eight")).expect("four parts");
                }
                let what = format!("{first}, {second}, {third}");
                check(&mut world, &mut client, &mut pool, (data, space), &what);
            }
        }
    }
    assert!(world.device().stats().bounces > 0);
    world.assert_clean();
}
