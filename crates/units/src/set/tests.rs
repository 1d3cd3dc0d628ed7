//! Sets against a naive set: an ordered tree of indices.

use std::any::TypeId;
use std::collections::BTreeSet;

use super::*;

type Naive = BTreeSet<u8>;

fn naive<K>(set: Set<K>) -> Naive {
    (0..64).filter(|bit| set.bits() >> bit & 1 == 1).collect()
}

/// Every answer of the sets `a` and `b`, and of `a` with the element `at`, is that of the naive sets. `index` makes
/// the index of an element, `number` is its inverse.
fn check<K: Kind + PartialEq, I: IndexOf<K>>(
    a: u64,
    b: u64,
    at: u8,
    index: impl Fn(u8) -> I,
    number: impl Fn(K::Index) -> u8,
) {
    let (a, b) = (Set::<K>::from_bits(a), Set::<K>::from_bits(b));
    let (x, y) = (naive(a), naive(b));
    assert_eq!(naive(a | b), &x | &y);
    assert_eq!(naive(a & b), &x & &y);
    assert_eq!(naive(a - b), &x - &y);
    let (mut or, mut and, mut less) = (a, a, a);
    or |= b;
    and &= b;
    less -= b;
    assert!(or == a | b && and == a & b && less == a - b);
    assert_eq!(a.intersects(b), !x.is_disjoint(&y));
    assert_eq!(a.is_subset(b), x.is_subset(&y));
    assert_eq!(a.contains(index(at)), x.contains(&at));
    assert_eq!(naive(a.with(index(at))), &x | &Naive::from([at]));
    assert_eq!(naive(a.without(index(at))), &x - &Naive::from([at]));
    let (mut more, mut fewer) = (a, a);
    more.insert(index(at));
    fewer.remove(index(at));
    assert!(more == a.with(index(at)) && fewer == a.without(index(at)));
    assert_eq!(naive(Set::<K>::of(index(at))), Naive::from([at]));
    assert_eq!((a.len(), a.is_empty()), (x.len(), x.is_empty()));
    assert_eq!(a.first().map(&number), x.first().copied());
    assert_eq!(a.iter().len(), x.len());
    assert!(a.iter().map(&number).eq(x.iter().copied()), "ascending, each once");
    assert!(x.iter().map(|bit| index(*bit)).collect::<Set<K>>() == a);
    assert!(Set::from_bits(a.bits()) == a);
    assert_eq!(naive(Set::<K>::first_n(at.into())), (0..at).collect());
}

/// SplitMix64.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[test]
fn random_sets_answer_as_naive_ones() {
    let mut state = 22;
    for turn in 0..2_000 {
        let mut word = || match turn % 4 {
            0 => random(&mut state),
            1 => random(&mut state) & random(&mut state) & random(&mut state),
            2 => 1 << (random(&mut state) % 64),
            _ => [0, u64::MAX, 1, 1 << 63][random(&mut state) as usize % 4],
        };
        let (a, b) = (word(), word());
        let at = (random(&mut state) % 64) as u8;
        check::<MemberIndex, _>(a, b, at, MemberIndex, |member| member.0);
        check::<MemberIndex, _>(a, b, at, usize::from, |member| member.0);
        check::<CoreIndex, _>(a, b, at, |core| CoreIndex(core.into()), |core| core.0 as u8);
        check::<Position, _>(a, b, at, |position| position, |position| position);
        check::<Strip, _>(a, b, at, |strip| strip, |strip| strip);
    }
}

#[test]
fn a_set_of_the_first_indices_may_be_full() {
    assert_eq!(MemberSet::first_n(0), MemberSet::EMPTY);
    assert_eq!(MemberSet::first_n(63), MemberSet::ALL.without(63));
    assert_eq!(MemberSet::first_n(64), MemberSet::ALL);
    assert_eq!(MemberSet::default(), MemberSet::EMPTY);
}

#[test]
fn each_kind_is_a_type_of_its_own() {
    let kinds = [
        TypeId::of::<MemberSet>(),
        TypeId::of::<PositionSet>(),
        TypeId::of::<StripSet>(),
        TypeId::of::<CoreSet>(),
    ];
    assert_eq!(BTreeSet::from(kinds).len(), kinds.len());
    assert_eq!(size_of::<MemberSet>(), size_of::<u64>());
}

#[test]
fn sets_print_their_indices() {
    assert_eq!(format!("{:?}", StripSet::EMPTY), "{}");
    assert_eq!(format!("{:?}", PositionSet::of(0).with(3).with(63)), "{0 3 63}");
    assert_eq!(format!("{:?}", MemberSet::of(MemberIndex(7))), "{7}");
}
