//! Validates the URLs of Redis. No message repeats the URL, since it may contain a password.

use std::net::{IpAddr, Ipv6Addr};

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::RedisUrl;

/// Why a text is not a valid URL of a Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadRedisUrl(&'static str);

/// The fault of `rediss://`, if TLS is not built in.
const WITHOUT_TLS: Option<&str> = match cfg!(feature = "tls") {
    true => None,
    false => Some("requires TLS, which is not built in (feature `tls`)"),
};

impl RedisUrl {
    /// Parses `redis://[user:password@]host[:port][/database]` with percent-encoding, `rediss://` for TLS, or
    /// `unix:///path`, which may end in `?user=NAME&db=NUMBER`.
    ///
    /// # Errors
    /// The fault, in words that follow "the URL of the store".
    pub fn parse(url: &str) -> Result<Self, BadRedisUrl> {
        let fault = match url.split_once("://") {
            Some(("redis", rest)) => fault(rest),
            Some(("rediss", rest)) => fault(rest).or(WITHOUT_TLS),
            Some(("unix", rest)) => socket_fault(rest),
            _ => Some("does not start with `redis://`, `rediss://` or `unix://`"),
        };
        match fault {
            None => Ok(Self::new(url.to_owned())),
            Some(fault) => Err(BadRedisUrl(fault)),
        }
    }
}

impl RedisUrl {
    /// Parses the URL of a sentinel: `redis://[user:password@]host:port`, or `rediss://` for TLS.
    ///
    /// # Errors
    /// The fault, in words that follow "the URL of a sentinel".
    pub fn parse_sentinel(url: &str) -> Result<Self, BadRedisUrl> {
        let parsed = Self::parse(url)?;
        let rest = url.strip_prefix("redis://").or_else(|| url.strip_prefix("rediss://"));
        let host = rest.map(|rest| rest.rsplit_once('@').map_or(rest, |(_, host)| host));
        match host {
            None => Err(BadRedisUrl("does not start with `redis://` or `rediss://`")),
            Some(host) if host.trim_end_matches('/').contains('/') => Err(BadRedisUrl("must not contain a database")),
            Some(host) if !host.rsplit(']').next().unwrap_or_default().contains(':') => {
                Err(BadRedisUrl("has no port, which is usually 26379"))
            }
            Some(_) => Ok(parsed),
        }
    }

    /// Parses the URL of a cluster node: `redis://[user:password@]host[:port]`, or `rediss://` for TLS.
    ///
    /// # Errors
    /// The fault, in words that follow "the URL of a node".
    pub fn parse_node(url: &str) -> Result<Self, BadRedisUrl> {
        let parsed = Self::parse(url)?;
        let rest = url.strip_prefix("redis://").or_else(|| url.strip_prefix("rediss://"));
        match rest.map(|rest| rest.rsplit_once('@').map_or(rest, |(_, host)| host)) {
            None => Err(BadRedisUrl("does not start with `redis://` or `rediss://`")),
            Some(host) if host.trim_end_matches('/').contains('/') => {
                Err(BadRedisUrl("must not contain a database: a cluster has only one"))
            }
            Some(_) => Ok(parsed),
        }
    }

    /// Builds the URL of a master. Its host is the name by which sentinels know the master.
    pub fn for_master(
        name: &str,
        user: Option<&str>,
        password: Option<&str>,
        database: Option<u64>,
        is_tls: bool,
    ) -> Self {
        let scheme = if is_tls { "rediss" } else { "redis" };
        let encoded = |text| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let password = password.map(|password| format!(":{}", encoded(password)));
        let login = user.map(encoded).into_iter().chain(password).collect::<String>();
        let at = if login.is_empty() { "" } else { "@" };
        let database = database.map(|database| format!("/{database}")).unwrap_or_default();
        Self::new(format!("{scheme}://{login}{at}{name}{database}"))
    }
}

/// Returns the fault of `unix://rest`. A password is rejected, since paths are logged.
fn socket_fault(rest: &str) -> Option<&'static str> {
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    if !path.starts_with('/') || path.len() < 2 {
        return Some("has no socket path, such as `unix:///run/redis.sock`");
    }
    let is_known = |(key, value): (&str, &str)| match key {
        "db" => is_number(value) && value.parse::<u16>().is_ok(),
        "user" => !value.is_empty(),
        _ => false,
    };
    if !query.is_empty() && !query.split('&').all(|pair| pair.split_once('=').is_some_and(is_known)) {
        return Some("may end only in `?user=NAME&db=NUMBER`; put the password into `password_file`");
    }
    None
}

/// Returns the fault of `redis://rest`, without repeating any of it.
fn fault(rest: &str) -> Option<&'static str> {
    let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
    let ends = authority.find(['?', '#']).unwrap_or(authority.len());
    if authority[ends..].contains('@') || database.contains('@') {
        return Some("has an unencoded `/`, `?` or `#` before its `@`: write `%2F`, `%3F` or `%23`");
    }
    if rest.contains(['?', '#']) {
        return Some("must not contain `?` or `#`");
    }
    let (login, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    if !is_percent_encoded(login) {
        return Some("has a `%` without two hexadecimal digits in its user or password: write `%25` for `%`");
    }
    if percent_decode_str(login).decode_utf8().is_err() {
        return Some("has a user or password that is not UTF-8");
    }
    let is_address = |name: &str| name.parse::<Ipv6Addr>().is_ok();
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((name, _)) if !is_address(name) => return Some("has no IPv6 address in its brackets"),
            Some(parts) => parts,
            None => return Some("has an unclosed bracket"),
        },
        None => host.find(':').map_or((host, ""), |colon| host.split_at(colon)),
    };
    let is_port = |port: &str| is_number(port) && port.parse().is_ok_and(|port: u16| port > 0);
    if name.is_empty() {
        return Some("has no host");
    }
    if !host.starts_with('[') && !is_host_name(name) {
        return Some("has no valid host: a host consists of letters, digits, `-`, `_` and `.`");
    }
    if name.parse().is_ok_and(|address: IpAddr| address.is_unspecified()) {
        return Some("has a host that is not the address of a server");
    }
    if !port.is_empty() && !port.strip_prefix(':').is_some_and(is_port) {
        return Some("has a port that is not a number from 1 to 65535");
    }
    if !database.is_empty() && database.parse::<u16>().is_err() {
        return Some("has a database that is not a number");
    }
    None
}

/// Returns `true` if the bytes can be a host name or an IPv4 address. Compose and Kubernetes services may contain `_`.
fn is_host_name(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

/// Returns `true` if all bytes are digits: `parse` also accepts a sign.
fn is_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns `true` if two hexadecimal digits follow each `%` (RFC 3986, section 2.1).
fn is_percent_encoded(text: &str) -> bool {
    text.split('%').skip(1).all(|rest| rest.len() >= 2 && rest.bytes().take(2).all(|byte| byte.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_url_reports_its_fault() {
        for (url, fault) in [
            ("127.0.0.1:6379", "does not start with `redis://`, `rediss://` or `unix://`"),
            ("http://db", "does not start with `redis://`, `rediss://` or `unix://`"),
            ("rediss://:hush@", "has no host"),
            ("unix://redis.sock", "has no socket path, such as `unix:///run/redis.sock`"),
            (
                "unix:///redis.sock?pass=hush",
                "may end only in `?user=NAME&db=NUMBER`; put the password into `password_file`",
            ),
            (
                "unix:///redis.sock?db=+1",
                "may end only in `?user=NAME&db=NUMBER`; put the password into `password_file`",
            ),
            ("redis://:hush@", "has no host"),
            ("redis://db:0", "has a port that is not a number from 1 to 65535"),
            ("redis://d b", "has no valid host: a host consists of letters, digits, `-`, `_` and `.`"),
            ("redis://0.0.0.0", "has a host that is not the address of a server"),
            ("redis://[::0]:6379", "has a host that is not the address of a server"),
            ("redis://:%ff@db", "has a user or password that is not UTF-8"),
            ("redis://[localhost]:6379", "has no IPv6 address in its brackets"),
            (
                "redis://u:p%zz@h",
                "has a `%` without two hexadecimal digits in its user or password: write `%25` for `%`",
            ),
        ] {
            assert_eq!(RedisUrl::parse(url).map_err(|bad| bad.to_string()), Err(fault.to_owned()), "{url}");
        }
        for (url, fault) in [
            ("unix:///s1.sock", "does not start with `redis://` or `rediss://`"),
            ("redis://:hush@s1", "has no port, which is usually 26379"),
            ("redis://[::1]", "has no port, which is usually 26379"),
            ("redis://s1:26379/0", "must not contain a database"),
            ("s1:26379", "does not start with `redis://`, `rediss://` or `unix://`"),
        ] {
            assert_eq!(RedisUrl::parse_sentinel(url).map_err(|bad| bad.to_string()), Err(fault.to_owned()), "{url}");
        }
        for url in ["redis://user:hush@s1:26379", "redis://[::1]:26379", "redis://s1:26379/"] {
            assert!(RedisUrl::parse_sentinel(url).is_ok(), "{url}");
        }
        for url in ["redis://user:hu%25sh@my_db-1.x:6379/1", "redis://[::1]", "unix:///run/redis.sock?user=gate&db=1"] {
            assert!(RedisUrl::parse(url).is_ok(), "{url}");
        }
    }

    #[test]
    fn tls_needs_its_feature() {
        for url in ["rediss://db/2", "rediss://[::1]:26379"] {
            assert_eq!(RedisUrl::parse(url).err(), WITHOUT_TLS.map(BadRedisUrl), "{url}");
        }
    }
}
