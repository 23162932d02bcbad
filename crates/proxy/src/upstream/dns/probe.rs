//! Finds out which IP family of a name accepts connections (happy eyeballs, RFC 8305).

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::state::{Answer, Family};

/// How long the next attempt waits for the previous one (RFC 8305 section 5).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// The longest duration of all attempts.
const LIMIT: Duration = Duration::from_secs(1);

/// The maximum number of addresses to try in each family.
const MAX_ATTEMPTS: usize = 2;

/// Opens connections to addresses of both families, IPv6 first. Returns the family of the first connection, which is
/// closed. Returns `None` if no address accepts a connection in time.
pub(super) async fn find_reachable_family(answer: &Answer) -> Option<Family> {
    let hosts = || answer.hosts.iter().filter(|host| !host.ipv4.is_empty() && !host.ipv6.is_empty());
    let ipv6 = hosts().flat_map(|host| &host.ipv6).take(MAX_ATTEMPTS);
    let ipv4 = hosts().flat_map(|host| &host.ipv4).take(MAX_ATTEMPTS);
    let addresses = alternate(ipv6, ipv4);
    timeout(LIMIT, connect_to_first(&addresses)).await.ok().flatten()
}

fn alternate<'a>(
    first: impl Iterator<Item = &'a SocketAddr>,
    second: impl Iterator<Item = &'a SocketAddr>,
) -> Vec<SocketAddr> {
    let (mut first, mut second) = (first.fuse(), second.fuse());
    let pairs = std::iter::from_fn(|| Some((first.next(), second.next())).filter(|(a, b)| a.is_some() || b.is_some()));
    pairs.flat_map(|(first, second)| first.into_iter().chain(second)).copied().collect()
}

/// Tries the addresses in their order. The next attempt starts when an attempt fails, or after [`ATTEMPT_DELAY`].
async fn connect_to_first(addresses: &[SocketAddr]) -> Option<Family> {
    let mut remaining = addresses.iter();
    let mut attempts = FuturesUnordered::new();
    loop {
        if let Some(address) = remaining.next() {
            attempts.push(async move { TcpStream::connect(address).await.map(|_| address) });
        }
        let has_more = !remaining.as_slice().is_empty();
        tokio::select! {
            attempt = attempts.next() => match attempt {
                Some(Ok(address)) => return Some(if address.is_ipv4() { Family::Ipv4 } else { Family::Ipv6 }),
                Some(Err(_)) => {}
                None => return None,
            },
            () = sleep(ATTEMPT_DELAY), if has_more => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::super::state::Missing;
    use super::*;
    use crate::upstream::dns::state::Host;

    fn answer(ipv6: &[SocketAddr], ipv4: &[SocketAddr]) -> Answer {
        let host = Host { ipv4: ipv4.to_vec(), ipv6: ipv6.to_vec(), weight: 1 };
        Answer { hosts: vec![host], ttl: LIMIT, missing: Missing::default() }
    }

    async fn closed_address() -> SocketAddr {
        TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
    }

    #[tokio::test]
    async fn family_of_the_first_connection_is_used() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let open = listener.local_addr().unwrap();
        let ipv6 = SocketAddr::new(std::net::Ipv6Addr::LOCALHOST.into(), closed_address().await.port());
        assert_eq!(find_reachable_family(&answer(&[ipv6], &[open])).await, Some(Family::Ipv4));
        assert_eq!(find_reachable_family(&answer(&[ipv6], &[closed_address().await])).await, None);
        // The second address of a family counts too.
        assert_eq!(find_reachable_family(&answer(&[ipv6], &[closed_address().await, open])).await, Some(Family::Ipv4));
    }

    #[tokio::test]
    async fn ipv6_is_preferred() {
        let Ok(listener) = TcpListener::bind("[::1]:0").await else {
            return; // the system has no IPv6
        };
        let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (ipv6, ipv4) = (listener.local_addr().unwrap(), other.local_addr().unwrap());
        assert_eq!(find_reachable_family(&answer(&[ipv6], &[ipv4])).await, Some(Family::Ipv6));
    }

    #[test]
    fn attempts_alternate_between_families() {
        let addresses = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<SocketAddr>>();
        let (six, four) = (addresses(&["[::1]:1", "[::2]:1"]), addresses(&["127.0.0.1:1"]));
        assert_eq!(alternate(six.iter(), four.iter()), addresses(&["[::1]:1", "127.0.0.1:1", "[::2]:1"]));
    }
}
