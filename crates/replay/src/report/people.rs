//! The people behind addresses that many share: companies, schools and mobile networks translate addresses (NAT).

use ipnet::IpNet;

use tidegate_rules::charge::ClientId;

/// The number of people behind each address of some networks.
#[derive(Clone, Debug, Default)]
pub(crate) struct People {
    groups: Vec<(IpNet, u32)>,
}

impl People {
    /// Creates groups of addresses: the number of people behind each address of a network.
    pub(crate) fn new(groups: Vec<(IpNet, u32)>) -> Self {
        Self { groups }
    }

    /// Returns the number of people behind a client: of the smallest network that contains it, otherwise 1.
    pub(crate) fn behind(&self, client: &ClientId) -> u32 {
        self.group(client).map_or(1, |(_, people)| people.max(1))
    }

    /// Returns the smallest network that contains a client, with the number of people.
    pub(crate) fn group(&self, client: &ClientId) -> Option<(IpNet, u32)> {
        let ClientId::Address(address) = client else { return None };
        let networks = self.groups.iter().filter(|(network, _)| network.contains(address));
        networks.max_by_key(|(network, _)| network.prefix_len()).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smallest_network_sets_the_number_of_people() {
        let network = |text: &str| text.parse::<IpNet>().expect("a network");
        let people =
            People::new(vec![(network("10.0.0.0/8"), 5), (network("10.1.0.0/16"), 9), (network("2001:db8::/32"), 3)]);
        for (client, expected) in
            [("10.1.2.3/32", 9), ("10.2.0.0/32", 5), ("11.0.0.1/32", 1), ("2001:db8:1::/64", 3), ("2001::/16", 1)]
        {
            assert_eq!(people.behind(&ClientId::Address(network(client))), expected, "{client}");
        }
        assert_eq!(people.behind(&ClientId::Value(b"10.1.2.3".as_slice().into())), 1);
    }
}
