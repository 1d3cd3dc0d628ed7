//! Parsing and printing of addresses, and invalid addresses.

use super::{Address, Service};

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

fn check_service(text: &str, shown: &str) {
    let service: Service = text.parse().expect("a discovery service");
    assert_eq!(service.to_string(), shown);
    assert_eq!(shown.parse(), Ok(service));
}

#[test]
fn discovery_services_are_read_and_shown_in_one_way() {
    check_service("nvme-tcp://host", "nvme-tcp://host:8009");
    check_service("nvme-tcp://10.0.0.7:4420/", "nvme-tcp://10.0.0.7:4420");
    let usual = "nvme-tcp://[::1]:9/nqn.2014-08.org.nvmexpress.discovery";
    check_service(usual, "nvme-tcp://[::1]:9");
    check_service("nvme-tcp://host:1/nqn.own", "nvme-tcp://host:1/nqn.own");
}

#[test]
fn what_is_no_discovery_service_is_refused_with_the_reason() {
    for (text, why) in [
        ("host:8009", "nvme-tcp://"),
        ("nvme-tcp://", "machine"),
        ("nvme-tcp://:8009", "machine"),
        ("nvme-tcp://ho st", "machine"),
        ("nvme-tcp://host:0", "port"),
        ("nvme-tcp://host:65536", "port"),
        ("nvme-tcp://host/tank", "nqn."),
    ] {
        let error = text.parse::<Service>().expect_err(text).to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
}
