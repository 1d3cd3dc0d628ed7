//! Tests of ownership: all memory returns, and no byte has two exclusive handles.

use std::sync::Arc;

use super::*;

#[test]
fn a_split_read_is_reunited_in_any_order() {
    let mut list = SgMut::from(BufMut::alone(8192));
    list.push(BufMut::alone(4096)).expect("room for two");
    let mut reunion = Reunion::of(&list);
    let head = list.split_to(1000);
    let middle = list.split_to(8000);
    assert_eq!((head.len(), middle.parts().len(), list.len()), (1000, 2, 3288));
    reunion.absorb(list).expect("tail is ours");
    reunion.absorb(head).expect("head is ours");
    let mut reunion = reunion.complete().map(drop).expect_err("the middle is still out");
    assert_eq!(reunion.absorb(SgMut::from(BufMut::alone(10))).map_err(|b| b.len()), Err(10));
    reunion.absorb(middle).expect("middle is ours");
    let whole = reunion.complete().map_err(drop).expect("all back");
    assert_eq!(whole.parts().iter().map(BufMut::len).collect::<Vec<_>>(), [8192, 4096]);
}

#[test]
fn a_pool_gets_back_what_it_gave_however_it_was_cut() {
    let mut pool = BufPool::new(2, 4096);
    let mut a = pool.get(4096).expect("first");
    let b = pool.get(512).expect("second");
    assert!(pool.get(1).is_none(), "an empty pool is back-pressure");
    assert_eq!(b.len(), 512);
    let head = a.split_to(100);
    drop(head);
    pool.put(a);
    let shared = b.freeze();
    let other = shared.clone();
    drop(other);
    pool.put_frozen(shared);
    assert_eq!(pool.available(), 2);
    assert_eq!(pool.get(4096).expect("whole again").len(), 4096);
}

/// A lost buffer may return, and replacements may be lost too. A pool never has more free buffers than at its creation,
/// and keeps its own memory.
#[test]
fn a_pool_does_not_grow_when_what_was_replaced_comes_back() {
    let mut pool = BufPool::new(3, 4096);
    let lost: Vec<BufMut> = (0..3).map(|_| pool.get(4096).expect("there are three")).collect();
    (0..3).for_each(|_| pool.replace_lost());
    let mut replacements: Vec<BufMut> = (0..3).map(|_| pool.get(4096).expect("replaced")).collect();
    assert!(replacements.iter().all(|buf| !Arc::ptr_eq(buf.arena(), pool.arena())));
    pool.put(replacements.pop().expect("one of three"));
    lost.into_iter().for_each(|buf| pool.put(buf));
    assert_eq!(pool.available(), 3);
    replacements.into_iter().for_each(|buf| pool.put(buf));
    assert_eq!(pool.available(), 3);
    let all: Vec<BufMut> = (0..3).map(|_| pool.get(4096).expect("as many as at first")).collect();
    assert!(all.iter().all(|buf| Arc::ptr_eq(buf.arena(), pool.arena())), "its own came back");
    assert!(pool.get(4096).is_none());
}

#[test]
fn a_shared_buffer_cannot_be_reclaimed() {
    let buf = BufMut::alone(64).freeze();
    let other = buf.clone();
    let buf = buf.reclaim().expect_err("another handle exists");
    drop(other);
    assert!(buf.reclaim().is_ok());
}

#[test]
fn lists_slice_across_their_pieces() {
    let piece = |byte: u8, len: usize| {
        let mut buf = BufMut::alone(len);
        buf.as_mut_slice().fill(byte);
        buf.freeze()
    };
    let mut list = Sg::from(piece(1, 10));
    for byte in 2..=4 {
        list.push(piece(byte, 10)).expect("room for four");
    }
    assert!(list.push(piece(5, 1)).is_err());
    let part = list.slice(5, 20);
    let mut bytes = [0u8; 20];
    part.copy_to(&mut bytes);
    assert_eq!(bytes, [1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3]);
    assert!(list.slice(40, 0).is_empty());
}

#[test]
fn the_slices_of_a_range_are_its_bytes_and_no_others() {
    let mut list = SgMut::from(BufMut::alone(10));
    for _ in 0..2 {
        list.push(BufMut::alone(10)).expect("room for four");
    }
    for offset in 0..=31 {
        for bytes in 0..=31 {
            (0_u8..30).for_each(|at| list.copy_from(at.into(), &[at]));
            let expected: Vec<u8> = (0..30).skip(offset).take(bytes).collect();
            assert_eq!(list.slices(offset, bytes).collect::<Vec<_>>().concat(), expected);
            assert!(list.slices(offset, bytes).all(|slice| !slice.is_empty()));
            list.slices_mut(offset, bytes).for_each(|slice| slice.fill(99));
            let all = list.slices(0, 30).collect::<Vec<_>>().concat();
            let is_touched = |at: &usize| (offset..offset + bytes).contains(at);
            assert!((0..30).all(|at| all[at] == if is_touched(&at) { 99 } else { at as u8 }));
        }
    }
}

#[test]
fn chunks_are_page_aligned_and_disjoint() {
    let bufs = Arena::carve(3, 5000);
    let range = bufs[0].arena().address_range();
    for pair in bufs.windows(2) {
        assert!(pair[0].address() + pair[0].len() <= pair[1].address());
    }
    for buf in &bufs {
        assert_eq!(buf.address() % CHUNK_ALIGN, 0);
        assert!(range.contains(&buf.address()) && buf.address() + buf.len() <= range.end);
    }
}

#[test]
fn writes_through_one_half_do_not_show_in_the_other() {
    let mut tail = BufMut::alone(16);
    let mut head = tail.split_to(8);
    head.as_mut_slice().fill(7);
    assert!(tail.as_slice().iter().all(|b| *b == 0));
    tail.as_mut_slice().fill(9);
    assert!(head.as_slice().iter().all(|b| *b == 7));
    head.join(tail).expect("they continue each other");
    assert_eq!(head.len(), 16);
}

#[test]
fn memory_is_given_back_only_when_none_of_it_is_in_use() {
    let mut pool = BufPool::untouched(2, 8192);
    let mut lent = pool.get(8192).expect("two are free");
    lent.as_mut_slice().fill(7);
    pool.give_back();
    assert!(lent.as_slice().iter().all(|byte| *byte == 7), "it is in use");
    pool.put(lent);
    pool.give_back();
    let again = pool.get(8192).expect("it came back");
    let expected = if cfg!(miri) { 7 } else { 0 };
    assert!(again.as_slice().iter().all(|byte| *byte == expected), "the machine has the pages");
}
