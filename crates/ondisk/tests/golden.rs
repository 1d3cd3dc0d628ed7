//! Images of released formats are opened forever. Made once by `cargo run -p strake-ondisk --example make-golden`.

#[path = "golden/sample.rs"]
mod sample;

use strake_ondisk::{
    Address, Bitmap, Bits, Copy, Superblock, decode_config, decode_page, newest_bad_list,
};
use strake_units::{MemberIndex, Uuid};

/// Checks that an image is read as `label`, and that writing that gives the image.
fn check_label(image: &[u8], label: &Superblock) {
    let address = Address { copy: Copy::Head, ring_slot: 7, offset: Some(sample::LABEL_OFFSET) };
    assert_eq!(Superblock::decode(image, address).as_ref(), Ok(label));
    assert_eq!(&label.encode(Copy::Head, sample::LABEL_OFFSET)[..], image);
}

#[test]
fn the_label_of_format_1_opens() {
    check_label(include_bytes!("golden/label-1.bin"), &sample::label());
}

#[test]
fn the_label_with_history_opens() {
    check_label(include_bytes!("golden/label-1-history.bin"), &sample::label_with_history());
}

#[test]
fn the_label_with_every_feature_of_format_1_opens() {
    check_label(include_bytes!("golden/label-1-features.bin"), &sample::label_with_features());
}

#[test]
fn the_label_of_format_2_opens() {
    check_label(include_bytes!("golden/label-2.bin"), &sample::label_2());
    let all = include_bytes!("golden/label-2-features.bin");
    check_label(all, &sample::label_2_with_features());
}

#[test]
fn the_stale_page_opens() {
    let bytes = include_bytes!("golden/page-1-stale.bin");
    let bitmap = Bitmap::Member(MemberIndex(63));
    let (sequence, page) = decode_page(bytes, Uuid([1; 16]), bitmap, 1).expect("a sound page");
    let bits = Bits::from_pages(32_512, &[Some(page), Some(Vec::new())]);
    assert_eq!(sequence, sample::PAGE_SEQUENCE);
    assert_eq!(bits.iter_ones().collect::<Vec<_>>(), sample::PAGE_REGIONS);
}

#[test]
fn the_bitmap_page_of_format_1_opens() {
    let bytes = include_bytes!("golden/page-1.bin");
    let (sequence, page) =
        decode_page(bytes, Uuid([1; 16]), Bitmap::Written, 0).expect("a sound page");
    let bits = Bits::from_pages(32_512, &[Some(page), Some(Vec::new())]);
    assert_eq!(sequence, sample::PAGE_SEQUENCE);
    assert_eq!(bits.iter_ones().collect::<Vec<_>>(), sample::PAGE_REGIONS);
}

#[test]
fn the_record_of_the_control_plane_opens() {
    let bytes = include_bytes!("golden/config-1.bin");
    let found = decode_config(bytes, Uuid([1; 16]));
    assert_eq!(found, Some((sample::PAGE_SEQUENCE, sample::CONFIG)));
}

#[test]
fn the_bad_blocks_of_format_1_open() {
    let bytes = include_bytes!("golden/bad-blocks-1.bin");
    let (array, list) = (Uuid([1; 16]), sample::bad_list());
    assert_eq!(newest_bad_list(bytes, &[], array, 5), Some((12, list.clone())));
    assert_eq!(list.encode(array, 12).concat(), bytes);
}
