//! Tests that images of released formats can always be opened. `cargo run -p strake-ondisk --example make-golden`
//! created the images once.

#[path = "golden/sample.rs"]
mod sample;

use strake_ondisk::{
    Address, Bitmap, Bits, Copy, RedoHeader, RedoPayload, RedoRecord, Sequenced, Superblock,
    decode_config, decode_redo, encode_config, encode_page, newest_bad_list, newest_page,
};
use strake_units::{MemberIndex, Uuid};

/// Checks that an image decodes to `label`, and that `label` encodes to the image.
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

/// Checks that an image decodes to the page of the regions of the sample, and that the page encodes to the image.
fn check_page(image: &[u8], bitmap: Bitmap, page: u32, held: u64) {
    let array = Uuid([1; 16]);
    let found = newest_page(image, &[], array, bitmap, page).expect("a sound page");
    assert_eq!(encode_page(array, bitmap, page, &found), image);
    let Sequenced { sequence, record } = found;
    assert_eq!((sequence, record.held), (sample::PAGE_SEQUENCE, held));
    let regions = Bits::from_pages(32_512, &[Some(record.bits), Some(Vec::new())]);
    assert_eq!(regions.iter_ones().collect::<Vec<_>>(), sample::PAGE_REGIONS);
}

#[test]
fn the_bitmap_page_of_format_1_opens() {
    check_page(include_bytes!("golden/page-1.bin"), Bitmap::Written, 0, 0);
    let stale = Bitmap::Member(MemberIndex(63));
    check_page(include_bytes!("golden/page-1-stale.bin"), stale, 1, 0);
    let held = include_bytes!("golden/page-1-held.bin");
    check_page(held, Bitmap::WriteIntent, 0, sample::PAGE_HELD);
}

#[test]
fn the_record_of_the_control_plane_opens() {
    let bytes = include_bytes!("golden/config-1.bin");
    let found = decode_config(bytes, Uuid([1; 16]));
    let record = sample::CONFIG.to_vec();
    assert_eq!(found, Some(Sequenced { sequence: sample::PAGE_SEQUENCE, record }));
    let record = encode_config(Uuid([1; 16]), sample::PAGE_SEQUENCE, sample::CONFIG);
    assert_eq!(record.as_deref(), Some(&bytes[..]));
}

/// Checks that an image decodes to `header` and `payload`; `written` is the encoded sample.
fn check_redo(image: &[u8], header: RedoHeader, payload: RedoPayload, written: [u8; 4096]) {
    assert_eq!(decode_redo(image, sample::REDO_OFFSET), Some(RedoRecord { header, payload }));
    assert_eq!(written, image);
}

#[test]
fn the_redo_log_records_of_format_1_open() {
    let (header, parts) = (sample::redo_header(), sample::redo_parts());
    let written = sample::redo_record(&header, &parts);
    let image = include_bytes!("golden/redo-1.bin");
    check_redo(image, header, RedoPayload::Parts(parts), written);
    let header = sample::redo_mark_header();
    let written = sample::redo_record(&header, &[]);
    check_redo(include_bytes!("golden/redo-1-mark.bin"), header, RedoPayload::Nothing, written);
    let payload = RedoPayload::PartialWrites(sample::partial_writes());
    let image = include_bytes!("golden/redo-1-list.bin");
    check_redo(image, sample::redo_list_header(), payload, sample::redo_list());
}

#[test]
fn the_bad_blocks_of_format_1_open() {
    let bytes = include_bytes!("golden/bad-blocks-1.bin");
    let (array, list) = (Uuid([1; 16]), sample::bad_list());
    let found = newest_bad_list(bytes, &[], array, 5);
    assert_eq!(found, Some(Sequenced { sequence: 12, record: list.clone() }));
    assert_eq!(list.encode(array, 12).concat(), bytes);
}
