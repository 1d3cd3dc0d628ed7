use super::{Stock, Supply};
use crate::limits::REST_AFTER_USE;
use crate::pools::{PoolSizes, Pools, Size, freeze};
use std::rc::Rc;
use strake_block::{BufMut, SgMut};
use strake_units::Nanos;

const SMALL: usize = 16 << 10;
const LARGE: usize = 256 << 10;
const LENT: PoolSizes =
    PoolSizes { small_bytes: SMALL, small_buffers: 16, large_bytes: LARGE, large_buffers: 16 };
const OWN: PoolSizes = PoolSizes { small_buffers: 2, large_buffers: 4, ..LENT };

fn stock() -> Rc<Stock> {
    Rc::new(Stock::new(Pools::new(LENT)))
}

fn supply(stock: &Rc<Stock>, peer: &str) -> Supply {
    Supply::borrowing(Pools::untouched(OWN), stock, peer)
}

/// The available small and large buffers of a stock.
fn left(stock: &Stock) -> (usize, usize) {
    let pools = stock.pools.borrow();
    (pools.available(Size::Small), pools.available(Size::Large))
}

const ALL: (usize, usize) = (LENT.small_buffers, LENT.large_buffers);

fn take_all(supply: &mut Supply, bytes: usize) -> Vec<SgMut> {
    std::iter::from_fn(|| supply.take(bytes)).collect()
}

#[test]
fn all_connections_of_a_peer_get_half_of_what_is_lent() {
    for (bytes, rest) in [(512, (8, 16)), (LARGE, (16, 8)), (2 * LARGE, (16, 8))] {
        let stock = stock();
        let mut connections = [supply(&stock, "one"), supply(&stock, "one"), supply(&stock, "one")];
        let taken = connections.each_mut().map(|connection| take_all(connection, bytes));
        assert_eq!(left(&stock), rest, "{bytes}");
        let mut other = supply(&stock, "another");
        let lent = other.take(bytes).expect("there is half of it");
        assert_ne!(left(&stock), rest, "the other one is lent some");
        other.put(lent);
        for (connection, lists) in connections.iter_mut().zip(taken) {
            lists.into_iter().for_each(|list| connection.put(list));
        }
        assert_eq!(left(&stock), ALL, "{bytes}");
    }
}

#[test]
fn with_nothing_to_be_lent_each_has_its_own() {
    let stock = stock();
    let names: Vec<String> = (0..16).map(|number| format!("peer {number}")).collect();
    let mut others: Vec<_> = names.iter().map(|name| supply(&stock, name)).collect();
    let held: Vec<_> =
        others.iter_mut().map(|other| (take_all(other, 512), take_all(other, LARGE))).collect();
    assert!(left(&stock).1 <= 1, "they leave next to nothing: {:?}", left(&stock));
    let mut late = supply(&stock, "late");
    let whole = late.take(4 * LARGE).expect("its own");
    let small = [late.take(512), late.take(512)];
    assert!(small.iter().all(Option::is_some), "its own");
    late.put(whole);
    assert!(late.take(4 * LARGE).is_some(), "again");
    drop((held, small));
}

/// The uses of buffers by commands of a host: read into, source of a write, kept by a drive, or dropped with the
/// connection.
#[test]
fn whatever_becomes_of_it_the_stock_is_whole_in_the_end() {
    let stock = stock();
    for bytes in [512, SMALL, LARGE, 3 * LARGE] {
        let mut one = supply(&stock, "one");
        for _ in 0..2 * LENT.large_buffers {
            let read = one.take(bytes).expect("it has its own at least");
            one.put(read);
            let written = freeze(one.take(bytes).expect("the same"));
            let reader = written.clone();
            one.put_shared(written);
            drop(reader);
            let kept = one.take(bytes).expect("the same");
            one.put(SgMut::from(BufMut::alone(bytes)));
            drop(kept);
        }
        assert_eq!(left(&stock), ALL, "{bytes}");
        // With both kinds in use, it is unknown which kind a drive has kept until the connection ends.
        let held = take_all(&mut one, bytes);
        for list in held.into_iter().rev() {
            drop(list);
            one.put(SgMut::from(BufMut::alone(bytes)));
        }
        drop(one);
        let mut gone = supply(&stock, "gone");
        let lost = gone.take(bytes);
        drop(gone);
        drop(lost);
        assert_eq!(left(&stock), ALL, "{bytes}");
        let mut one = supply(&stock, "one");
        take_all(&mut one, LARGE).into_iter().for_each(|list| one.put(list));
        assert_eq!(left(&stock), ALL, "{bytes}");
    }
}

#[test]
fn memory_of_its_own_goes_back_to_the_machine_when_it_was_not_needed_for_a_while() {
    let mut one = Supply::alone(Pools::untouched(OWN));
    let fill = |one: &mut Supply| {
        let mut list = one.take(512).expect("it is free");
        let before = list.parts()[0].as_slice()[0];
        list.copy_from(0, &[7; 512]);
        (list, before)
    };
    let (start, later) = (Nanos::SECOND, Nanos::SECOND.plus(REST_AFTER_USE));
    let (list, _) = fill(&mut one);
    one.rest(later);
    assert_eq!(one.rests_at(), None, "it is in use");
    one.put(list);
    one.rest(start);
    assert_eq!(one.rests_at(), Some(later));
    let (list, before) = fill(&mut one);
    assert_eq!(before, 7, "it is kept for a while");
    one.put(list);
    one.rest(start);
    one.rest(later);
    assert_eq!(one.rests_at(), None, "it is done");
    assert_eq!(fill(&mut one).1, if cfg!(miri) { 7 } else { 0 }, "the machine had it");
}
