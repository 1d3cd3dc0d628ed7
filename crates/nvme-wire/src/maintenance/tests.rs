//! Commands and pages against the byte layouts of the specification.

use super::firmware::{self, Activation, Committed, Rejection, Reset, Slots};
use super::format::{self, BlockFormat, Erase, Formats};
use super::sanitize::{self, Action, Progress, State};
use super::telemetry::{self, Area, BadHeader, Capture, Header, Initiator};
use super::{AdminCommand, Functions, TRANSFER_BYTES_MAX, Transfer, is_refusal, namespaces};
use crate::bytes::put;
use crate::status::Status;

/// Opcode, NSID and dwords 10 to 13 of a command.
fn words(command: &AdminCommand) -> (u8, u32, [u32; 4]) {
    let [ten, eleven, twelve, thirteen, fourteen, fifteen] = *command.dwords();
    assert_eq!((fourteen, fifteen), (0, 0));
    (command.opcode(), command.nsid(), [ten, eleven, twelve, thirteen])
}

/// Get Log Page: NUMDL 31:16, RAE 15, LSP 14:8, LID 7:0; NUMDU; LPOL; LPOU (Base, Figures 196 to 200).
#[test]
fn telemetry_is_read_with_the_fields_of_get_log_page() {
    let create = telemetry::read_header(Initiator::Host, Capture::New);
    assert_eq!(words(&create), (0x02, u32::MAX, [127 << 16 | 1 << 8 | 0x07, 0, 0, 0]));
    let present = telemetry::read_header(Initiator::Host, Capture::Present);
    assert_eq!(words(&present), (0x02, u32::MAX, [127 << 16 | 0x07, 0, 0, 0]));
    // The controller captured its data itself, and its event is retained.
    let theirs = telemetry::read_header(Initiator::Controller, Capture::New);
    assert_eq!(words(&theirs), (0x02, u32::MAX, [127 << 16 | 1 << 15 | 0x08, 0, 0, 0]));
    let far = telemetry::read(Initiator::Host, 0x1_0000_0200, TRANSFER_BYTES_MAX);
    assert_eq!(words(&far), (0x02, u32::MAX, [0x7fff << 16 | 0x07, 0, 0x200, 1]));
    assert_eq!(far.transfer(), &Transfer::FromDrive(TRANSFER_BYTES_MAX));
}

/// Base, Figure 214.
#[test]
fn a_telemetry_header_is_read_field_by_field() {
    let mut page = [0; 512];
    page[0] = 0x07;
    put(&mut page, 8, &[1, 0, 0x02, 0x01, 0xff, 0xff]);
    (page[381], page[382], page[383]) = (5, 1, 9);
    let header = Header::parse(&page, Initiator::Host).expect("it is possible");
    assert_eq!(header.last_blocks, [1, 0x102, 0xffff]);
    assert_eq!((header.generation, header.is_available), (5, true));
    assert_eq!(header.bytes(Area::One), 1024);
    assert_eq!(header.bytes(Area::Three), telemetry::BYTES_MAX);
    assert_eq!(Header::parse(&page, Initiator::Controller), Err(BadHeader::Page(7)));
    page[0] = 0x08;
    let theirs = Header::parse(&page, Initiator::Controller).expect("it is possible");
    assert_eq!(theirs.generation, 9);
    page[10..12].fill(0);
    let impossible = Header::parse(&page, Initiator::Controller);
    assert_eq!(impossible, Err(BadHeader::Areas([1, 0, 0xffff])));
    assert_eq!((Area::of(0), Area::of(2), Area::of(4)), (None, Some(Area::Two), None));
}

/// Base, Figures 275 and 303.
#[test]
fn sanitize_has_the_codes_and_capabilities_of_the_specification() {
    for (action, bit, code) in
        [(Action::Crypto, 0, 0b100), (Action::Block, 1, 0b010), (Action::Overwrite, 2, 0b1_0011)]
    {
        assert_eq!(words(&sanitize::start(action)), (0x84, 0, [code, 0, 0, 0]));
        let mut page = [0; 4096];
        page[328] = 1 << bit;
        let functions = Functions::of(&page);
        assert_eq!(functions.sanitize.actions().collect::<Vec<_>>(), [action]);
        assert_eq!(Action::from_word(action.word()), Some(action));
    }
    assert_eq!(words(&sanitize::read_status()).2[0], 127 << 16 | 1 << 15 | 0x81);
    assert_eq!(Action::from_word("other"), None);
}

/// Base, section 5.16.1.25: SPROG, SSTAT, SCDW10, and the estimates for overwrite, block erase and crypto erase.
#[test]
fn a_sanitize_status_is_read_field_by_field() {
    let mut page = [0; 512];
    put(&mut page, 0, &0x8000_u16.to_le_bytes());
    put(&mut page, 4, &0b010_u32.to_le_bytes());
    put(&mut page, 8, &u32::MAX.to_le_bytes());
    put(&mut page, 12, &600_u32.to_le_bytes());
    put(&mut page, 16, &2_u32.to_le_bytes());
    let states = [
        (0, State::Never, 0),
        (1, State::Completed, 100),
        (2, State::Running, 50),
        (3, State::Failed, 0),
        (4, State::Completed, 100),
        (7, State::Unknown(7), 0),
    ];
    for (code, state, percent) in states {
        page[2] = code | 0b1010_1000;
        let progress = Progress::parse(&page);
        assert_eq!((progress.state, progress.percent()), (state, percent));
        assert_eq!((progress.action, progress.estimate_s), (Some(Action::Block), Some(600)));
    }
    page[4] = 0b011;
    assert_eq!(Progress::parse(&page).estimate_s, None, "the drive reports none");
    page[4] = 0b100;
    assert_eq!(Progress::parse(&page).estimate_s, Some(2));
    page[4] = 0b001;
    assert_eq!(Progress::parse(&page).action, None, "it left the failure mode");
}

/// Base, Figure 189: LBAFL 3:0, SES 11:9, LBAFU 13:12.
#[test]
fn a_format_has_the_fields_of_the_specification() {
    assert_eq!(words(&format::format(3, 1, Erase::None)), (0x80, 3, [1, 0, 0, 0]));
    assert_eq!(words(&format::format(1, 0x21, Erase::User)).2[0], 1 | 1 << 9 | 2 << 12);
    assert_eq!(words(&format::format(1, 15, Erase::Crypto)).2[0], 15 | 2 << 9);
    assert_eq!(format::format(1, 0, Erase::None).time_s(), format::TIME_S);
    for (number, erase) in (0..64).flat_map(|number| Erase::ALL.map(|erase| (number, erase))) {
        let command = format::format(7, number, erase);
        assert_eq!(format::of_dword(7, command.dwords()[0]), Some(command));
    }
    // Protection information, metadata, reserved bits, all namespaces, no namespace.
    let others = [(1, 1 << 5), (1, 1 << 4), (1, 3 << 9), (1, 1 << 14), (u32::MAX, 0), (0, 0)];
    for (nsid, dword) in others {
        assert_eq!(format::of_dword(nsid, dword), None, "{nsid} {dword:x}");
    }
    let mut page = [0; 4096];
    for (bits, all, erases, crypto) in
        [(1, true, false, false), (2, false, true, false), (4, false, false, true)]
    {
        page[524] = bits;
        let format = Functions::of(&page).format;
        assert_eq!((format.formats_all, format.erases_all, format.crypto), (all, erases, crypto));
        assert_eq!(format.applies_to_all(Erase::None), all);
        assert_eq!(format.applies_to_all(Erase::User), all || erases);
    }
    assert!(Erase::ALL.iter().all(|erase| Erase::from_word(erase.word()) == Some(*erase)));
}

/// NVM, Figures 97 and 98: NLBAF, FLBAS, and the formats with MS, LBADS and RP.
#[test]
fn the_formats_of_a_namespace_are_read_field_by_field() {
    let mut page = [0; 4096];
    (page[25], page[26]) = (3, 0x61);
    for (at, format) in
        [[0, 0, 9, 2], [0, 0, 12, 1], [8, 0, 12, 0], [0, 0, 12, 0]].iter().enumerate()
    {
        put(&mut page, 128 + 4 * at, format);
    }
    let formats = Formats::parse(&page);
    assert_eq!((formats.all.len(), formats.current), (4, 1), "the upper bits have no meaning");
    let third = BlockFormat { number: 2, block_log2: 12, metadata_bytes: 8, performance: 0 };
    assert_eq!(formats.numbered(2), Some(&third));
    assert_eq!(formats.of_bytes(512).map(|format| format.number), Some(0));
    assert_eq!(formats.of_bytes(4096).map(|format| format.number), Some(3), "the fastest");
    assert_eq!(formats.of_bytes(520), None);
    (page[25], page[128 + 2]) = (255, 0);
    let formats = Formats::parse(&page);
    assert_eq!(formats.current, 0x31);
    assert_eq!(formats.numbered(0), None, "it is unused");
}

/// Base, Figures 180, 182 to 184 and 211.
#[test]
fn firmware_commands_have_the_fields_of_the_specification() {
    let download = firmware::download(0x2_0000, vec![7; 4096]);
    assert_eq!(words(&download), (0x11, 0, [1023, 0x8000, 0, 0]));
    assert_eq!(download.transfer(), &Transfer::ToDrive(vec![7; 4096]));
    assert_eq!(words(&firmware::commit(2, Activation::AtReset)), (0x10, 0, [0b00_1010, 0, 0, 0]));
    assert_eq!(words(&firmware::commit(0, Activation::Now)), (0x10, 0, [0b01_1000, 0, 0, 0]));
    let mut page = [0; 512];
    page[0] = 0x21;
    put(&mut page, 8, b"1.0     2.1\x01    ");
    let slots = Slots::parse(&page);
    assert_eq!((slots.running, slots.next), (1, Some(2)));
    assert_eq!(slots.revisions[..3], ["1.0", "2.1", ""].map(String::from));
    page[0] = 1;
    assert_eq!(Slots::parse(&page).next, None);
}

#[test]
fn pieces_of_firmware_obey_the_granularity_and_the_transfer() {
    let with = |unit: u8| {
        let mut page = [0; 4096];
        (page[260], page[319], page[270]) = (0b1_0111, unit, 15);
        Functions::of(&page).firmware
    };
    let plain = with(0);
    assert_eq!((plain.slots, plain.first_read_only, plain.activates_now), (3, true, true));
    assert_eq!(plain.pause_ms_max, 1500);
    assert_eq!([0, 1, 2, 3, 4].map(|slot| plain.can_write(slot)), [true, false, true, true, false]);
    assert_eq!(plain.piece_bytes(TRANSFER_BYTES_MAX), Some(4096));
    assert_eq!(with(255).piece_bytes(TRANSFER_BYTES_MAX), Some(TRANSFER_BYTES_MAX));
    assert_eq!(with(3).piece_bytes(32 << 10), Some(24 << 10));
    assert_eq!(with(3).piece_bytes(8192), None, "it cannot be transferred");
}

/// Base, Figure 97.
#[test]
fn the_statuses_of_a_commit_have_meanings() {
    let of = |code: u16| Committed::of(Status::of_word((1 << 8 | code) << 1));
    assert_eq!(Committed::of(Status::SUCCESS), Committed::Done);
    assert_eq!(of(0x06), Committed::Rejected(Rejection::Slot));
    assert_eq!(of(0x07), Committed::Rejected(Rejection::Image));
    assert_eq!(of(0x0b), Committed::Needs(Reset::Conventional));
    assert_eq!(of(0x10), Committed::Needs(Reset::Subsystem));
    assert_eq!(of(0x11), Committed::Needs(Reset::Controller));
    assert_eq!(of(0x12), Committed::Rejected(Rejection::Time));
    assert_eq!(of(0x13), Committed::Rejected(Rejection::Prohibited));
    assert_eq!(of(0x14), Committed::Rejected(Rejection::Pieces));
    assert_eq!(Committed::of(Status::INTERNAL), Committed::Failed(Status::INTERNAL));
}

#[test]
fn the_functions_of_a_controller_are_read_field_by_field() {
    let mut page = [0; 4096];
    assert_eq!(Functions::of(&page).transfer_bytes, TRANSFER_BYTES_MAX, "there is no limit");
    for (log2, bytes) in [(1, 8192), (5, 128 << 10), (9, 128 << 10), (255, 128 << 10)] {
        page[77] = log2;
        assert_eq!(Functions::of(&page).transfer_bytes, bytes);
    }
    page[256] = 0b010;
    assert!(Functions::of(&page).formats && !Functions::of(&page).updates);
    (page[256], page[261]) = (0b100, 0b1000);
    let functions = Functions::of(&page);
    assert!(functions.updates && functions.telemetry && !functions.formats && !functions.manages);
    page[256] = 0b1000;
    assert!(Functions::of(&page).manages && !Functions::of(&page).updates);
    put(&mut page, 0, &[1, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 9]);
    assert_eq!(namespaces(&page).collect::<Vec<_>>(), [1, 5]);
    let identify = AdminCommand::identify_controller();
    assert_eq!(words(&identify), (0x06, 0, [1, 0, 0, 0]));
}

/// Base, Figures 95 and 97. A status with an unknown meaning is no refusal.
#[test]
fn only_a_refusal_means_that_nothing_was_changed() {
    let of = |kind: u16, code: u16| is_refusal(Status::of_word((kind << 8 | code) << 1));
    for code in 0..=0xff {
        let generic = [0x01, 0x02, 0x0b, 0x0c, 0x15, 0x1c, 0x1d, 0x20, 0x23].contains(&code);
        assert_eq!(of(0, code), generic, "{code:x}");
        let specific = [0x0a, 0x0b, 0x10, 0x11, 0x23].contains(&code);
        assert_eq!(of(1, code), specific, "{code:x}");
        assert!(!of(2, code) && !of(3, code) && !of(7, code), "{code:x}");
    }
}
