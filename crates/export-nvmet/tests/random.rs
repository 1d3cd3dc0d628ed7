//! Random bytes and random commands: a target responds or closes, and continues serving.

mod common;

use common::{Host, Machine, capsule};
use proptest::prelude::*;
use std::io::Write;
use strake_nvme_wire::Sgl;

/// A command capsule with some changed bytes.
fn mangled() -> impl Strategy<Value = Vec<u8>> {
    let data = prop::sample::select(vec![0_usize, 16, 512, 4096, 8192]);
    let words = prop::collection::vec((1_usize..16, any::<u32>()), 0..6);
    let change = prop::collection::vec((0_usize..80, any::<u8>()), 0..4);
    (any::<u8>(), data, words, change, any::<bool>()).prop_map(
        |(opcode, length, words, change, capsuled)| {
            let sgl = match capsuled {
                true => Sgl::InCapsule { offset: 0, length: length as u32 },
                false => Sgl::Transport { length: length as u32 },
            };
            let mut bytes = capsule(opcode, 1, sgl, &words, &vec![0x11; length]);
            for (at, value) in change {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = value;
                }
            }
            bytes
        },
    )
}

/// Reads until the target closes the connection.
fn drain(host: &mut Host) {
    // A connection that the target has closed cannot be shut down.
    let _ = host.stream.shutdown(std::net::Shutdown::Write);
    while host.pdu().is_some() {}
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn random_bytes_are_answered_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let machine = Machine::start();
        let (_admin, mut io) = machine.controller();
        let mut fresh = machine.dial();
        // The target may close during the write.
        let _ = fresh.stream.write_all(&bytes);
        let _ = io.stream.write_all(&bytes);
        drain(&mut fresh);
        drain(&mut io);
        let (_other, mut after) = machine.controller();
        prop_assert_eq!(after.read(0, 1).1, 0);
    }

    #[test]
    fn random_commands_are_answered_or_refused(
        commands in prop::collection::vec(mangled(), 1..40), admin in any::<bool>(),
    ) {
        let machine = Machine::start();
        let (mut first, mut io) = machine.controller();
        let host = if admin { &mut first } else { &mut io };
        for command in &commands {
            if host.stream.write_all(command).is_err() {
                break;
            }
        }
        drain(host);
        let (_other, mut after) = machine.controller();
        prop_assert_eq!(after.read(0, 1).1, 0);
    }
}
