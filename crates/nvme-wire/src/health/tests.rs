use super::{
    ErrorEntry, LIST_BYTES, LogPages, OCP_BYTES, OCP_GUID, OCP_PAGE, Ocp, Smart, Warning, is_listed,
};
use crate::bytes::put;
use crate::log::{ERROR_BYTES, Failure, HEALTH_BYTES, Health};
use crate::status::Status;

/// Every field at the bytes of Figure 207.
fn page() -> [u8; HEALTH_BYTES] {
    let mut page = [0; HEALTH_BYTES];
    page[0] = 0b10;
    put(&mut page, 1, &311_u16.to_le_bytes());
    put(&mut page, 3, &[97, 10, 104]);
    for (field, at) in (32..192).step_by(16).enumerate() {
        put(&mut page, at, &(1000 + field as u64).to_le_bytes());
    }
    put(&mut page, 192, &7_u32.to_le_bytes());
    put(&mut page, 196, &8_u32.to_le_bytes());
    put(&mut page, 200, &300_u16.to_le_bytes());
    put(&mut page, 214, &250_u16.to_le_bytes());
    page
}

#[test]
fn a_health_page_is_read_field_by_field() {
    let sensors = [Some(27), None, None, None, None, None, None, Some(-23)];
    let want = Smart {
        warnings: 2,
        temperature_c: Some(38),
        spare_percent: 97,
        spare_threshold_percent: 10,
        wear_percent: 104,
        read_units: 1000,
        written_units: 1001,
        reads: 1002,
        writes: 1003,
        busy_minutes: 1004,
        power_cycles: 1005,
        power_on_hours: 1006,
        unsafe_shutdowns: 1007,
        media_errors: 1008,
        log_entries: 1009,
        warm_minutes: 7,
        hot_minutes: 8,
        sensors_c: sensors,
    };
    assert_eq!(Smart::decode(&page()), want);
    assert_eq!(Smart::decode(&[0; HEALTH_BYTES]), Smart::default());
    let mut large = page();
    large[175] = 1;
    assert_eq!(Smart::decode(&large).media_errors, u64::MAX, "it does not fit");
}

#[test]
fn what_our_own_controllers_say_is_understood() {
    let health = Health {
        writes_refused: true,
        reads: 5,
        media_errors: 3,
        failures: 9,
        ..Health::default()
    };
    let smart = Smart::decode(&health.page());
    assert_eq!((smart.reads, smart.media_errors, smart.log_entries), (5, 3, 9));
    assert_eq!(smart.warned().collect::<Vec<_>>(), [Warning::ReadOnly]);
    let failure = Failure {
        number: 4,
        queue: 2,
        cid: 77,
        status: Status::OUT_OF_RANGE,
        block: 1 << 40,
        namespace: 1,
    };
    let want =
        ErrorEntry { number: 4, queue: 2, cid: 77, status: 0x80, block: 1 << 40, namespace: 1 };
    assert_eq!(ErrorEntry::decode(&failure.bytes()), Some(want));
}

#[test]
fn every_critical_warning_predicts_what_it_means_exhaustive() {
    for warnings in 0..=u8::MAX {
        let smart = Smart { warnings, ..Smart::default() };
        let bits = Warning::ALL.iter().enumerate().filter(|(bit, _)| warnings >> bit & 1 == 1);
        let want: Vec<Warning> = bits.map(|(_, warning)| *warning).collect();
        assert_eq!(smart.warned().collect::<Vec<_>>(), want);
        // All warnings except for the temperature and the persistent memory region, which holds no blocks.
        assert_eq!(smart.prediction().is_some(), warnings & 0b1_1101 != 0, "{warnings:#b}");
    }
    let says = |warnings| Smart { warnings, ..Smart::default() }.prediction().unwrap_or_default();
    assert!(says(1).contains("spare") && says(4).contains("unreliable"));
    assert!(says(8 | 4).contains("read-only") && says(16).contains("power"));
}

#[test]
fn entries_of_the_error_log_are_read_as_far_as_they_are_used() {
    let mut entry = [0; ERROR_BYTES];
    put(&mut entry, 0, &9_u64.to_le_bytes());
    put(&mut entry, 8, &[1, 0, 2, 0]);
    // Do Not Retry, More, media error 281h and the phase.
    put(&mut entry, 12, &(1_u16 << 15 | 1 << 14 | 0x281 << 1 | 1).to_le_bytes());
    put(&mut entry, 16, &4096_u64.to_le_bytes());
    put(&mut entry, 24, &1_u32.to_le_bytes());
    let want = ErrorEntry { number: 9, queue: 1, cid: 2, status: 0x281, block: 4096, namespace: 1 };
    let numbered = |numbers: &[u64]| -> Vec<u8> {
        let entries = numbers.iter().map(|number| {
            let mut entry = entry;
            put(&mut entry, 0, &number.to_le_bytes());
            entry
        });
        entries.flatten().collect()
    };
    let read = |numbers: &[u64], count| -> Vec<u64> {
        let entries = ErrorEntry::newest(&numbered(numbers), count);
        entries.into_iter().map(|entry| entry.number).collect()
    };
    assert_eq!(ErrorEntry::newest(&[entry.as_slice(), &[1; ERROR_BYTES - 1]].concat(), 9), [want]);
    assert_eq!(ErrorEntry::newest(&[], 9), []);
    assert_eq!(read(&[9, 8, 5, 0, 4], 9), [9, 8, 5], "the rest was never used");
    // The content behind the kept entries is arbitrary.
    assert_eq!(read(&[9, 8, 9], 9), [9, 8]);
    assert_eq!(read(&[9, 8, 8], 9), [9, 8]);
    assert_eq!(read(&[9, u64::MAX], 9), [9]);
    assert_eq!(read(&[10, 9], 9), [], "it has had nine");
}

#[test]
fn a_controller_says_which_log_pages_it_has() {
    let mut page = [0; 4096];
    assert_eq!(LogPages::of(&page), LogPages { error_entries: 1, has_list: false });
    (page[261], page[262]) = (1 << 5, 255);
    assert_eq!(LogPages::of(&page), LogPages { error_entries: 256, has_list: true });
    let mut list = [0; LIST_BYTES];
    put(&mut list, 4 * 0xc0, &0x0001_0001_u32.to_le_bytes());
    put(&mut list, 4 * 0xc1, &0x0001_0000_u32.to_le_bytes());
    assert!(is_listed(&list, OCP_PAGE) && !is_listed(&list, 0xc1) && !is_listed(&list, 0));
}

/// Every field at the bytes of OCP, section 4.8.6.
#[test]
fn an_extended_page_is_read_if_its_guid_is_that_of_the_project() {
    let mut page = [0; OCP_BYTES];
    let eights = [(0, 1_u64), (16, 2), (48, 5), (56, 6), (64, 7), (104, 12), (192, 16)];
    eights.iter().for_each(|(at, value)| put(&mut page, *at, &value.to_le_bytes()));
    // Six bytes of a count, and two bytes of a separate normalized value.
    put(&mut page, 32, &[3, 0, 0, 0, 0, 1, 0xff, 0xff]);
    put(&mut page, 40, &[4, 0, 0, 0, 0, 0, 0xff, 0xff]);
    put(&mut page, 72, &8_u32.to_le_bytes());
    put(&mut page, 76, &9_u32.to_le_bytes());
    (page[80], page[96], page[120]) = (10, 11, 14);
    put(&mut page, 112, &13_u32.to_le_bytes());
    put(&mut page, 128, &15_u16.to_le_bytes());
    assert_eq!(Ocp::decode(&page), None, "it may be anything");
    put(&mut page, 496, &OCP_GUID);
    let want = Ocp {
        physical_written_bytes: 1,
        physical_read_bytes: 2,
        bad_user_blocks: 1 << 40 | 3,
        bad_system_blocks: 4,
        xor_recoveries: 5,
        uncorrectable_reads: 6,
        soft_ecc_errors: 7,
        end_to_end_detected: 8,
        end_to_end_corrected: 9,
        system_wear_percent: 10,
        throttlings: 11,
        pcie_correctable: 12,
        incomplete_shutdowns: 13,
        free_percent: 14,
        capacitor_percent: 15,
        link_retrainings: 16,
    };
    assert_eq!(Ocp::decode(&page), Some(want));
}
