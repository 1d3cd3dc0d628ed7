//! Tests of the conversions between bytes and values in both directions, and of all readers with arbitrary bytes.

use super::*;
use proptest::prelude::*;

#[test]
fn the_greeting_is_the_one_of_the_protocol() {
    assert_eq!(&greeting()[..16], b"NBDMAGICIHAVEOPT");
    assert_eq!(greeting()[16..], [0, 3]);
}

#[test]
fn requests_are_read_as_the_protocol_lays_them_out() {
    let bytes = [
        0x25, 0x60, 0x95, 0x13, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1,
        0, 0,
    ];
    let want = Request {
        flags: command_flag::FUA,
        command: command::WRITE_ZEROES,
        cookie: 0x0102_0304_0506_0708,
        offset: 1 << 32,
        length: 1 << 16,
    };
    assert_eq!(Request::parse(&bytes), Some(want));
    assert_eq!(want.bytes(), bytes);
    let mut foreign = bytes;
    foreign[0] ^= 1;
    assert_eq!(Request::parse(&foreign), None);
}

#[test]
fn replies_are_laid_out_as_the_protocol_says() {
    assert_eq!(
        simple_reply(7, Some(Code::NoSpace)),
        [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 28, 0, 0, 0, 0, 0, 0, 0, 7]
    );
    assert_eq!(simple_reply(7, None)[4..8], [0; 4]);
    let chunk =
        ChunkHeader { flags: REPLY_FLAG_DONE, kind: chunk::ERROR, cookie: 9, length: 0x0102 };
    assert_eq!(
        chunk.bytes(),
        [0x66, 0x8e, 0x33, 0xef, 0, 1, 0x80, 1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 1, 2]
    );
    assert_eq!(
        option_reply_header(option::GO, option_reply::ERR_UNKNOWN, 5),
        [0, 3, 0xe8, 0x89, 4, 0x55, 0x65, 0xa9, 0, 0, 0, 7, 0x80, 0, 0, 6, 0, 0, 0, 5]
    );
    assert_eq!(status_descriptor(4096, allocation::ZERO), [0, 0, 0x10, 0, 0, 0, 0, 2]);
}

#[test]
fn strings_are_bounded_utf8_without_nul() {
    let check = |length: u32, body: &[u8], want: Option<&str>| {
        let mut bytes = length.to_be_bytes().to_vec();
        bytes.extend_from_slice(body);
        assert_eq!(Cursor::new(&bytes).string(), want, "{length} {body:?}");
    };
    check(4, b"tank", Some("tank"));
    check(2, b"tank", Some("ta"));
    check(0, b"", Some(""));
    check(5, b"tank", None);
    check(u32::MAX, b"tank", None);
    check(4, b"ta\0k", None);
    check(2, b"\xc3\x28", None);
    check(4096, &[b'x'; 4096], Some(std::str::from_utf8(&[b'x'; 4096]).unwrap()));
    check(4097, &[b'x'; 4097], None);
}

proptest! {
    #[test]
    fn requests_round_trip(
        flags: u16, command: u16, cookie: u64, offset: u64, length: u32,
    ) {
        let request = Request { flags, command, cookie, offset, length };
        prop_assert_eq!(Request::parse(&request.bytes()), Some(request));
    }

    #[test]
    fn readers_take_any_bytes(bytes: Vec<u8>, count: usize) {
        let mut cursor = Cursor::new(&bytes);
        if let Some(text) = cursor.string() {
            prop_assert!(text.len() <= STRING_BYTES_MAX && text.len() + 4 <= bytes.len());
        }
        prop_assert_eq!(Cursor::new(&bytes).bytes(count).is_some(), count <= bytes.len());
    }
}
