//! Addresses there and back, and what is none.

use super::Address;

fn check(text: &str, shown: &str) {
    let address: Address = text.parse().expect("an address");
    assert_eq!(address.to_string(), shown);
    assert_eq!(shown.parse(), Ok(address));
}

#[test]
fn addresses_are_read_and_shown_in_one_way() {
    check("nvme-tcp://host:1/nqn.a", "nvme-tcp://host:1/nqn.a");
    check("nvme-tcp://10.0.0.7/nqn.a?nsid=1", "nvme-tcp://10.0.0.7:4420/nqn.a");
    check("nvme-tcp://[fe80::1]:9/nqn.a?nsid=7", "nvme-tcp://[fe80::1]:9/nqn.a?nsid=7");
    check("nvme-tcp://[::1]/nqn.a:b/c", "nvme-tcp://[::1]:4420/nqn.a:b/c");
}

#[test]
fn what_is_no_address_is_refused_with_the_reason() {
    for (text, why) in [
        ("/dev/nvme0n1", "nvme-tcp://"),
        ("nvme-tcp://host:4420", "subsystem"),
        ("nvme-tcp:///nqn.a", "machine"),
        ("nvme-tcp://host:x/nqn.a", "port"),
        ("nvme-tcp://host:0/nqn.a", "port"),
        ("nvme-tcp://[::1/nqn.a", "port"),
        ("nvme-tcp://[::1]x/nqn.a", "port"),
        ("nvme-tcp://host/nqn.", "nqn."),
        ("nvme-tcp://host/iqn.a", "nqn."),
        ("nvme-tcp://host/nqn.a b", "spaces"),
        ("nvme-tcp://host/nqn.a?nsid=0", "nsid="),
        ("nvme-tcp://host/nqn.a?nsid=4294967295", "nsid="),
        ("nvme-tcp://host/nqn.a?size=1", "nsid="),
    ] {
        let error = text.parse::<Address>().expect_err(text).to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
}
