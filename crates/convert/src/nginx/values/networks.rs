//! Differences of networks.

use ipnet::IpNet;

/// Returns the addresses of a network that are in none of its inner networks.
pub(super) fn without_inner(network: IpNet, all: &[IpNet]) -> Vec<IpNet> {
    let inner: Vec<IpNet> = all.iter().copied().filter(|other| *other != network && network.contains(other)).collect();
    let mut left = Vec::new();
    subtract(network, &inner, &mut left);
    left
}

/// Returns the addresses of some networks that are in none of `holes`.
pub(super) fn subtract_all(networks: &[IpNet], holes: &[IpNet]) -> Vec<IpNet> {
    let mut left = Vec::new();
    networks.iter().for_each(|network| {
        let holes: Vec<IpNet> =
            holes.iter().copied().filter(|hole| hole.contains(network) || network.contains(hole)).collect();
        subtract(*network, &holes, &mut left);
    });
    left
}

/// Adds the addresses of a network that are in none of `holes`. Halves the network until a part is wholly in or out.
fn subtract(network: IpNet, holes: &[IpNet], left: &mut Vec<IpNet>) {
    if holes.is_empty() {
        left.push(network);
        return;
    }
    if holes.iter().any(|hole| hole.contains(&network)) {
        return;
    }
    for half in network.subnets(network.prefix_len() + 1).into_iter().flatten() {
        let inside: Vec<IpNet> =
            holes.iter().copied().filter(|hole| half.contains(hole) || hole.contains(&half)).collect();
        subtract(half, &inside, left);
    }
}
