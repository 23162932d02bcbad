//! `tidegate explain`: shows how the rules apply to a request, and why. Uses only the rule file and the arguments,
//! without a store or a connection.

mod limits;
mod request;
mod text;

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr};

use clap::Args;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, Uri, Version};

use super::ConfigArg;
use crate::client::AddressTrace;
use crate::clock::{Clock, SystemClock, Timestamp};
use crate::condition::Search;
use crate::facts::{BadRequest, Facts, TlsPeer};
use crate::route::Route;
use crate::rule::Limit;
use crate::rules::{LimitCheck, Rules};
use crate::sanitize::{NextHop, RequestContext};

/// The request to explain, and the rule file.
#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    #[command(flatten)]
    rules: ConfigArg,
    /// Method of the request
    #[arg(value_parser = request::method)]
    method: Method,
    /// Target of the request: a URL, or a path with `-H 'host: NAME'`
    #[arg(value_parser = request::target)]
    url: Uri,
    /// Header field of the request; can be repeated
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = request::field)]
    headers: Vec<(HeaderName, HeaderValue)>,
    /// IP address of the peer
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    peer: IpAddr,
    /// Subject of the client certificate
    #[arg(long, value_name = "NAME")]
    tls_subject: Option<String>,
    /// Subject alternative name of the client certificate: an email address, DNS name or URI
    #[arg(long, value_name = "NAME")]
    tls_san: Option<String>,
    /// Treat the request as HTTP/1.0, which needs no host
    #[arg(long = "http1.0")]
    http1_0: bool,
}

impl ExplainArgs {
    fn version(&self) -> Version {
        if self.http1_0 { Version::HTTP_10 } else { Version::HTTP_11 }
    }
}

/// How the rules apply to a request.
#[derive(Debug)]
struct Explanation<'r> {
    facts: &'r Facts<'r>,
    sent: &'r Uri,
    /// Header fields that the gateway removes.
    removed: Vec<&'r HeaderName>,
    trace: Option<AddressTrace<'r>>,
    search: Search<'r>,
    /// The check of each limit of the route. Empty without a route.
    checks: Vec<(&'r Limit, LimitCheck)>,
    /// The time for which calendar windows are computed.
    now: Timestamp,
}

/// Writes what happens to a request. Returns the exit code: 0 if limits evaluate the request, 1 if it is answered
/// before, and 2 if the rule file is invalid.
///
/// # Errors
/// `out` or `errors` cannot be written to.
pub(super) fn explain(args: &ExplainArgs, out: &mut impl Write, errors: &mut impl Write) -> io::Result<u8> {
    explain_at(SystemClock::new().now(), args, out, errors)
}

fn explain_at(now: Timestamp, args: &ExplainArgs, out: &mut impl Write, errors: &mut impl Write) -> io::Result<u8> {
    let config = match args.rules.config.load() {
        Ok(config) => config,
        Err(error) => {
            writeln!(errors, "{error}")?;
            return Ok(2);
        }
    };
    if let Some(max) = request::exceeded_max_target(&args.url, &config) {
        writeln!(out, "{} {}\n\nanswered with 414: target is longer than {max} bytes", args.method, args.url)?;
        return Ok(1);
    }
    let mut headers: HeaderMap = args.headers.iter().cloned().collect();
    let sent: Vec<HeaderName> = headers.keys().cloned().collect();
    let trusted = config.rules.addresses.trusts(args.peer.to_canonical());
    let context = RequestContext { version: args.version(), trusted, next: NextHop::Origin };
    let filtered = config.rules.field_filter().apply(&mut headers, context);
    let read = || config.rules.read(&args.method, &args.url, args.version(), &headers, args.peer);
    let tls_peer = TlsPeer { subject: args.tls_subject.clone(), san: args.tls_san.clone() };
    let mut facts = match filtered.map_err(BadRequest::from).and_then(|_| read()) {
        Ok(facts) => facts,
        Err(error) => {
            writeln!(out, "{} {}\n\nanswered with {}: {error}", args.method, args.url, request::status(&error))?;
            return Ok(1);
        }
    };
    facts.tls = Some(&tls_peer);
    if facts.is_for_server() {
        writeln!(out, "{} {}\n\nanswered with 204: the request is about the gateway itself", args.method, args.url)?;
        return Ok(1);
    }
    if let Some((_, route)) = config.rules.routes.find_quota(&facts) {
        writeln!(out, "{} {}\n\nanswered by the gateway: the quota of route `{}`", args.method, args.url, route.name)?;
        return Ok(1);
    }
    let removed = sent.iter().filter(|name| !headers.contains_key(*name)).collect();
    let explanation = Explanation { removed, ..Explanation::new(&config.rules, &facts, &args.url, now) };
    write!(out, "{explanation}")?;
    Ok(u8::from(!explanation.is_evaluated()))
}

// === impl Explanation ===

impl<'r> Explanation<'r> {
    fn new(rules: &'r Rules, facts: &'r Facts<'r>, sent: &'r Uri, now: Timestamp) -> Self {
        let search = rules.routes.search(facts);
        let limits = search.found.map(|route| route.limits.as_slice()).unwrap_or_default();
        let checks = limits.iter().map(|limit| (limit, rules.check_limit(limit, facts))).collect();
        Self { facts, sent, removed: Vec::new(), trace: rules.addresses.trace(facts), search, checks, now }
    }

    fn route(&self) -> Option<&'r Route> {
        self.search.found
    }

    /// Returns the limit that rejects the request without a decision of the store.
    fn denied(&self) -> Option<&(&'r Limit, LimitCheck)> {
        self.checks.iter().find(|(_, check)| matches!(check, LimitCheck::Deny(_)))
    }

    fn is_evaluated(&self) -> bool {
        self.route().is_some() && self.denied().is_none()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: ExplainArgs,
    }

    /// Regression test: calendar windows were counted from 1970.
    #[test]
    fn explain_counts_calendar_windows_from_now() {
        let file = std::env::temp_dir().join(format!("tidegate-explain-{}.yaml", std::process::id()));
        let limits =
            [("month", "Europe/Rome"), ("week", "UTC"), ("day", "UTC"), ("second", "UTC")].map(|(unit, zone)| {
                let quota = format!("rate: 1, interval: {unit}, algorithm: fixed_window, timezone: {zone}");
                format!("{{ name: {unit}, mode: OVERALL, {quota} }}")
            });
        let upstream = "upstreams: { api: { targets: ['builtin:echo'] } }";
        let text = format!(
            "{upstream}\nroutes: [{{ name: all, match: {{ path: /** }}, upstream: api, limits: [{}] }}]",
            limits.join(", ")
        );
        std::fs::write(&file, text).unwrap();
        let file_name = file.to_str().unwrap();
        let Command { args } = Command::try_parse_from(["explain", "-c", file_name, "GET", "http://a/"]).unwrap();
        let (mut out, mut errors) = (Vec::new(), Vec::new());
        let now = Timestamp::from_millis(1_795_521_600_000); // 2026-11-24T12:00:00Z
        let code = explain_at(now, &args, &mut out, &mut errors).unwrap();
        std::fs::remove_file(&file).unwrap();
        let text = String::from_utf8([out, errors].concat()).unwrap();
        let waits: Vec<_> = text.lines().filter_map(|line| line.split_once("the window ends, in ")).collect();
        let waits: Vec<_> = waits.into_iter().map(|(_, wait)| wait).collect();
        assert_eq!((code, waits), (0, vec!["6d 11h", "5d 12h", "12h", "1s"]), "{text}");
    }
}
