//! The part of an address that distinguishes peers, for limits per peer.

use std::net::{IpAddr, Ipv6Addr};

/// Bits of an IPv6 address that distinguish interfaces of one network (RFC 4291, section 2.5.1).
const INTERFACE_BITS: u32 = 64;

/// The part of an address that distinguishes peers: for IPv6 the network, because one host may use every address in it.
#[must_use]
pub const fn place_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => {
            let network = address.to_bits() >> INTERFACE_BITS << INTERFACE_BITS;
            IpAddr::V6(Ipv6Addr::from_bits(network))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::place_of;
    use std::net::IpAddr;

    #[test]
    fn a_network_of_ipv6_is_one_place() {
        let place = |text: &str| place_of(text.parse::<IpAddr>().expect("an address"));
        assert_eq!(place("2001:db8::1"), place("2001:db8::ffff:ffff:ffff:ffff"));
        assert_ne!(place("2001:db8::1"), place("2001:db8:0:1::1"));
        assert_ne!(place("192.0.2.1"), place("192.0.2.2"));
    }
}
