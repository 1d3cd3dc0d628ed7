//! Tests of the comparison of copies.

use crate::first_difference;

fn check(a: &[u8], b: &[u8], expected: Option<usize>) {
    assert_eq!(first_difference(a, b), expected);
    assert_eq!(first_difference(b, a), expected);
}

#[test]
fn finds_the_first_difference_anywhere() {
    let len: usize = if cfg!(miri) { 1030 } else { 3000 };
    let a: Vec<u8> = (0..len).map(|x| (x % 251) as u8).collect();
    check(&a, &a, None);
    for at in (0..len).filter(|at| !cfg!(miri) || at % 412 == 0) {
        let mut b = a.clone();
        b[at] ^= 1;
        // A later difference must not hide the first.
        b[len - 1] ^= 2;
        check(&a, &b, Some(at));
    }
}

#[test]
fn a_shorter_copy_differs_at_its_end() {
    check(&[], &[], None);
    check(&[], &[1], Some(0));
    check(&[1, 2], &[1, 2, 3], Some(2));
    check(&[1, 9], &[1, 2, 3], Some(1));
    check(&[7; 2048], &[7; 1024], Some(1024));
}
