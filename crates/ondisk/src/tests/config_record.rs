use crate::Sequenced;
use crate::config_record::{CONFIG_BYTES_MAX, CONFIG_SLOT_BYTES, decode_config, encode_config};
use strake_units::Uuid;

const ARRAY: Uuid = Uuid([7; 16]);

#[test]
fn a_record_reads_back_and_belongs_to_its_array() {
    for length in [0, 1, 4031, 4032, 4033, CONFIG_BYTES_MAX] {
        let content: Vec<u8> = (0..length).map(|at| at as u8).collect();
        let record = encode_config(ARRAY, 9, &content).expect("there is room");
        assert!(record.len() <= CONFIG_SLOT_BYTES && record.len().is_multiple_of(4096));
        assert_eq!(decode_config(&record, ARRAY), Some(Sequenced { sequence: 9, record: content }));
        assert_eq!(decode_config(&record, Uuid([8; 16])), None);
    }
    assert_eq!(encode_config(ARRAY, 9, &vec![0; CONFIG_BYTES_MAX + 1]), None);
}

/// A partial write, a flipped bit and random bytes are not a record, and cause no panic.
#[test]
fn damage_is_noticed_exhaustive() {
    let record = encode_config(ARRAY, 9, b"what is exported where").expect("there is room");
    for at in 0..86 {
        let mut damaged = record.clone();
        damaged[at] ^= 0x10;
        assert_eq!(decode_config(&damaged, ARRAY), None, "byte {at}");
    }
    for length in 0..86 {
        assert_eq!(decode_config(&record[..length], ARRAY), None, "{length} bytes");
    }
    let mut endless = record;
    endless[32..36].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(decode_config(&endless, ARRAY), None);
}
