//! What is an address of a Redis. No message repeats it, since it may hold a password.

use deadpool_redis::redis::IntoConnectionInfo;

use super::settings::RedisUrl;

/// Why a text is no address of a Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadRedisUrl(&'static str);

impl RedisUrl {
    /// Reads `redis://[user:password@]host[:port][/database]`, with special characters percent-encoded, the same with `rediss://`
    /// for TLS, or `unix:///path`, which may end in `?user=NAME&db=NUMBER`.
    ///
    /// # Errors
    /// What is wrong with it, to be read after "the URL of the store".
    pub fn parse(url: &str) -> Result<Self, BadRedisUrl> {
        let fault = match url.split_once("://") {
            Some(("redis", rest)) => fault(url, rest),
            Some(("rediss", _)) if !cfg!(feature = "tls") => {
                Some("asks for TLS, which this build has not (feature `tls`)")
            }
            Some(("rediss", rest)) => fault(url, rest),
            Some(("unix", rest)) => fault_of_socket(url, rest),
            _ => Some("is none of `redis://`, `rediss://` and `unix://`"),
        };
        match fault {
            None => Ok(Self::new(url.to_owned())),
            Some(fault) => Err(BadRedisUrl(fault)),
        }
    }
}

/// What is wrong with `unix://rest`. A password would be shown wherever paths are.
fn fault_of_socket(url: &str, rest: &str) -> Option<&'static str> {
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    if !path.starts_with('/') || path.len() < 2 {
        return Some("has no path of a socket, such as `unix:///run/redis.sock`");
    }
    let is_known = |(key, value): (&str, &str)| match key {
        "db" => value.parse::<u16>().is_ok(),
        "user" => !value.is_empty(),
        _ => false,
    };
    if !query.is_empty() && !query.split('&').all(|pair| pair.split_once('=').is_some_and(is_known)) {
        return Some("may end in `?user=NAME&db=NUMBER` and nothing else; the password goes into `password_file`");
    }
    no_address(url)
}

/// What is wrong with `redis://rest`, in words that repeat nothing of it.
fn fault(url: &str, rest: &str) -> Option<&'static str> {
    let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
    let ends = authority.find(['?', '#']).unwrap_or(authority.len());
    if authority[ends..].contains('@') || database.contains('@') {
        return Some("has `/`, `?` or `#` before its `@`, which must be `%2F`, `%3F` or `%23` there");
    }
    if rest.contains(['?', '#']) {
        return Some("must have neither `?` nor `#`");
    }
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some(parts) => parts,
            None => return Some("has a bracket left open"),
        },
        None => host.find(':').map_or((host, ""), |colon| host.split_at(colon)),
    };
    let is_port = |text: &str| text.strip_prefix(':').is_some_and(|port| port.parse().is_ok_and(|port: u16| port > 0));
    if name.is_empty() {
        return Some("has no host");
    }
    if !port.is_empty() && !is_port(port) {
        return Some("has a port that is not a number from 1 to 65535");
    }
    if !database.is_empty() && database.parse::<u16>().is_err() {
        return Some("has a database that is not a number");
    }
    no_address(url)
}

fn no_address(url: &str) -> Option<&'static str> {
    url.into_connection_info().err().map(|_| "is not one that Redis clients understand")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_is_none_is_told_why() {
        for (url, fault) in [
            ("127.0.0.1:6379", "is none of `redis://`, `rediss://` and `unix://`"),
            ("http://db", "is none of `redis://`, `rediss://` and `unix://`"),
            ("rediss://:hush@", "has no host"),
            ("unix://redis.sock", "has no path of a socket, such as `unix:///run/redis.sock`"),
            (
                "unix:///redis.sock?pass=hush",
                "may end in `?user=NAME&db=NUMBER` and nothing else; the password goes into `password_file`",
            ),
            ("redis://:hush@", "has no host"),
            ("redis://db:0", "has a port that is not a number from 1 to 65535"),
        ] {
            assert_eq!(RedisUrl::parse(url).map_err(|bad| bad.to_string()), Err(fault.to_owned()), "{url}");
        }
        for url in ["redis://user:hush@db:6379/1", "rediss://db/2", "unix:///run/redis.sock?user=gate&db=1"] {
            assert!(RedisUrl::parse(url).is_ok(), "{url}");
        }
    }
}
