use crate::demo::area::{Area, Dice, GRANULE, Op};

fn written(area: &mut Area, granules: std::ops::Range<u32>) -> Vec<u8> {
    let Op::Write(granules, version) = area.write(granules) else {
        panic!("write() makes a write")
    };
    let mut bytes = vec![0; granules.len() * GRANULE];
    area.fill(&granules, version, &mut bytes);
    area.acknowledged(&granules, version);
    bytes
}

#[test]
fn what_was_written_compares_equal() {
    let mut area = Area::new(8192, 16);
    let bytes = written(&mut area, 3..9);
    assert_eq!(area.compare(&(3..9), &bytes), 0);
    assert_eq!(area.compare(&(0..3), &vec![0; 3 * GRANULE]), 0, "never written reads as zeroes");
}

#[test]
fn a_changed_byte_an_old_version_and_another_place_are_seen() {
    let mut area = Area::new(0, 16);
    let old = written(&mut area, 0..4);
    let mut new = written(&mut area, 0..4);
    assert_eq!(area.compare(&(0..4), &old), 4);
    assert_eq!(area.compare(&(4..8), &new), 4);
    new[GRANULE + 4095] ^= 1;
    assert_eq!(area.compare(&(0..4), &new), 1);
}

#[test]
fn an_unanswered_write_may_be_either_and_then_stays() {
    let mut area = Area::new(0, 4);
    let old = written(&mut area, 0..2);
    let op = area.write(0..2);
    let Op::Write(granules, version) = op.clone() else { panic!("write() makes a write") };
    let mut new = vec![0; 2 * GRANULE];
    area.fill(&granules, version, &mut new);
    area.cut_off(op);
    let mixed = [&new[..GRANULE], &old[GRANULE..]].concat();
    assert_eq!(area.compare(&(0..2), &mixed), 0);
    area.settled();
    assert_eq!(area.compare(&(0..2), &mixed), 0);
    assert_eq!(area.compare(&(0..2), &old), 1, "the first granule was seen in its new version");
}

#[test]
fn dice_stay_below_and_come_again() {
    let (mut a, mut b) = (Dice::new(7), Dice::new(7));
    for limit in 1..200 {
        let n = a.below(limit);
        assert!(n < limit);
        assert_eq!(n, b.below(limit));
    }
}
