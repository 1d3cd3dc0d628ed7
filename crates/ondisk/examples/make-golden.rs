//! Writes the golden images of the current format for `tests/golden.rs`. Existing images are not changed, because
//! released formats do not change.

#[path = "../tests/golden/sample.rs"]
mod sample;

use std::fs;
use std::io;
use std::path::Path;

use strake_ondisk::{Bitmap, Bits, Copy, PageRecord, Sequenced, encode_config, encode_page};
use strake_units::{MemberIndex, Uuid};

fn main() -> io::Result<()> {
    let mut bits = Bits::new(32_512);
    sample::PAGE_REGIONS.into_iter().for_each(|region| bits.set(region));
    for (name, label) in [
        ("label-1.bin", sample::label()),
        ("label-1-history.bin", sample::label_with_history()),
        ("label-1-features.bin", sample::label_with_features()),
        ("label-2.bin", sample::label_2()),
        ("label-2-features.bin", sample::label_2_with_features()),
    ] {
        write_new(name, &label.encode(Copy::Head, sample::LABEL_OFFSET))?;
    }
    let record = encode_config(Uuid([1; 16]), sample::PAGE_SEQUENCE, sample::CONFIG);
    write_new("config-1.bin", &record.unwrap_or_default())?;
    write_new("bad-blocks-1.bin", &sample::bad_list().encode(Uuid([1; 16]), 12).concat())?;
    write_new("redo-1.bin", &sample::redo_record(&sample::redo_header(), &sample::redo_parts()))?;
    write_new("redo-1-mark.bin", &sample::redo_record(&sample::redo_mark_header(), &[]))?;
    write_new("redo-1-list.bin", &sample::redo_list())?;
    let page = |bitmap, page, held| {
        let record = PageRecord { held, bits: bits.page_bytes(0).to_vec() };
        let content = Sequenced { sequence: sample::PAGE_SEQUENCE, record };
        encode_page(Uuid([1; 16]), bitmap, page, &content)
    };
    write_new("page-1-stale.bin", &page(Bitmap::Member(MemberIndex(63)), 1, 0))?;
    write_new("page-1-held.bin", &page(Bitmap::WriteIntent, 0, sample::PAGE_HELD))?;
    write_new("page-1.bin", &page(Bitmap::Written, 0, 0))
}

fn write_new(name: &str, bytes: &[u8]) -> io::Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if path.exists() { Ok(()) } else { fs::write(path, bytes) }
}
