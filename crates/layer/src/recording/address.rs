//! Replaces addresses by others, so that a replay finds the same clients in the same networks.
//!
//! Each bit is inverted or not, which the key and the bits before it decide. So two addresses have a common prefix of
//! the same length before and after. The bits on the way to a network of the rules stay, so an address is in a network
//! after the change if it was before.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use super::key::Key;

/// The networks of the rules, and the length of the prefix that identifies an IPv6 client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Networks {
    pub(super) networks: Vec<IpNet>,
    pub(super) ipv6_prefix: u8,
}

impl Networks {
    /// Replaces an address. The bits of an IPv6 address that identify no client are cleared.
    pub(super) fn mask(&self, address: IpAddr, key: &Key) -> IpAddr {
        let bits = left_aligned(address);
        let (width, identifying) = if address.is_ipv4() { (32, 32) } else { (128, self.ipv6_prefix) };
        let is_same_family = |network: &&IpNet| network.addr().is_ipv4() == address.is_ipv4();
        let networks = self.networks.iter().filter(is_same_family);
        // The networks whose bits the address has so far.
        let mut ahead: Vec<_> =
            networks.map(|network| (left_aligned(network.network()), network.prefix_len())).collect();
        let (mut masked, mut random) = (0_u128, None);
        for at in 0..width {
            let start = at - at % 8;
            if at == start {
                random = None;
            }
            let mask = 1_u128 << (127 - at);
            let prefix = bits & !(mask | (mask - 1));
            ahead.retain(|(network, length)| *length > at && network & !(mask | (mask - 1)) == prefix);
            if ahead.is_empty() && at >= identifying {
                break;
            }
            let inverts = ahead.is_empty() && {
                let random =
                    random.get_or_insert_with(|| key.bits(address.is_ipv4(), start, bits & !(u128::MAX >> start)));
                // The bits of the byte so far, behind a leading 1: a number below 256.
                let byte = usize::from(bits.to_be_bytes()[usize::from(start / 8)]);
                let number = (1 << (at % 8)) | (byte >> (8 - at % 8));
                (random[number / 8] >> (number % 8)) & 1 == 1
            };
            masked |= if inverts { !bits & mask } else { bits & mask };
        }
        match address {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from_bits((masked >> 96) as u32)),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from_bits(masked)),
        }
    }
}

/// Returns the bits of an address, followed by zeros.
fn left_aligned(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
        IpAddr::V6(address) => address.to_bits(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn networks(texts: &[&str], ipv6_prefix: u8) -> Networks {
        Networks { networks: texts.iter().map(|text| text.parse().expect("a network")).collect(), ipv6_prefix }
    }

    fn common_bits(first: IpAddr, second: IpAddr) -> u32 {
        (left_aligned(first) ^ left_aligned(second)).leading_zeros()
    }

    proptest! {
        #[test]
        fn prefixes_and_networks_are_kept(key: [u8; 32], first: u32, second: u32, same in 0..=32_u32) {
            let networks = networks(&["10.0.0.0/8", "10.1.2.0/24", "192.0.2.7/32", "0.0.0.0/0", "2001:db8::/32"], 64);
            let rest = u32::MAX.checked_shr(same).unwrap_or(0);
            let second = first & !rest | second & rest;
            let [first, second] = [first, second].map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits)));
            let [masked_first, masked_second] = [first, second].map(|address| networks.mask(address, &Key::from(key)));
            prop_assert_eq!(common_bits(first, second), common_bits(masked_first, masked_second));
            for network in &networks.networks {
                prop_assert_eq!(network.contains(&first), network.contains(&masked_first));
            }
        }

        #[test]
        fn ipv6_clients_are_kept(key: [u8; 32], first: u128, second: u128, same in 0..128_u32, prefix in 32..=128_u8) {
            let networks = networks(&["2001:db8::/32", "2001:db8::7/128", "fe80::/10", "10.0.0.0/8"], prefix);
            let rest = u128::MAX >> same;
            let network = 0x2001_0db8 << 96;
            for (first, second) in [(first, first & !rest | second & rest), (network | first >> 100, network | 7)] {
                let [first, second] = [first, second].map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits)));
                let [masked_first, masked_second] = [first, second].map(|address| networks.mask(address, &Key::from(key)));
                let identifying = |bits: u32| bits.min(prefix.into());
                prop_assert_eq!(
                    identifying(common_bits(first, second)),
                    identifying(common_bits(masked_first, masked_second))
                );
                for network in &networks.networks {
                    prop_assert_eq!(network.contains(&first), network.contains(&masked_first));
                }
            }
        }
    }

    #[test]
    fn addresses_differ_from_the_originals_and_between_keys() {
        let networks = networks(&[], 64);
        let addresses: Vec<IpAddr> = (1..=32).map(|last| IpAddr::from([192, 0, 2, last])).collect();
        let masked =
            |key: u8| addresses.iter().map(|first| networks.mask(*first, &Key::from([key; 32]))).collect::<Vec<_>>();
        assert_ne!(masked(1), masked(2));
        assert_ne!(masked(1), addresses);
        assert_eq!(masked(1), masked(1));
        let client: IpAddr = "2001:db8::1:2:3:4".parse().expect("an address");
        let second: IpAddr = "2001:db8::".parse().expect("an address");
        assert_eq!(networks.mask(client, &Key::from([1; 32])), networks.mask(second, &Key::from([1; 32])));
    }
}
