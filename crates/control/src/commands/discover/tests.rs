//! Tests the conversion of entries of a discovery log page.

use super::address_of;
use strake_dev_fabrics::discovery::{Channel, Entry, Kind, Transport};

fn address(kind: Kind, machine: &str, nqn: &str) -> Option<String> {
    address_of(&Entry {
        kind,
        transport: Transport::Tcp,
        channel: Channel::NotSpecified,
        nqn: nqn.to_owned(),
        address: machine.to_owned(),
        service: "4420".to_owned(),
    })
}

/// Operators copy addresses to a shell, and the discovery controller may be untrusted.
#[test]
fn an_address_is_reported_that_means_the_same_to_a_shell() {
    const NQN: &str = "nqn.2014-08.org.example:a";
    for (machine, nqn, expected) in [
        ("192.0.2.7", NQN, Some("nvme-tcp://192.0.2.7:4420/nqn.2014-08.org.example:a")),
        ("2001:db8::1", NQN, Some("nvme-tcp://[2001:db8::1]:4420/nqn.2014-08.org.example:a")),
        ("$(reboot)", NQN, None),
        ("192.0.2.7", "nqn.2014-08.org.example:a;reboot", None),
        ("192.0.2.7", "nqn.2014-08.org.example:`reboot`", None),
        ("192.0.2.7", "nqn.2014-08.org.example:a|b", None),
        ("192.0.2.7", "nqn.2014-08.org.example:a?nsid=2", None),
        ("192.0.2.7/a", NQN, None),
    ] {
        let reported = address(Kind::Subsystem, machine, nqn);
        assert_eq!(reported.as_deref(), expected, "{machine} {nqn}");
        let referred = address(Kind::Referral, machine, nqn);
        assert_eq!(referred.is_some(), expected.is_some(), "{machine} {nqn}");
    }
}
