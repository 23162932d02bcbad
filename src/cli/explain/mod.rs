//! `tidegate explain`: what the rules make of a request, and why. It asks no store and opens no connection: what it
//! knows are the rule file and the request.

mod limits;
mod request;
mod text;

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use clap::Args;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, Uri};

use super::run::DEFAULT_FILE;
use crate::client::Trace;
use crate::condition::Search;
use crate::config::Config;
use crate::facts::Facts;
use crate::route::Route;
use crate::rule::{Due, Limit, Rules};

/// The request to explain, and the rules to explain it by.
#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    /// The rule file
    #[arg(short, long, value_name = "FILE", default_value = DEFAULT_FILE)]
    config: PathBuf,
    /// The request's method
    #[arg(value_parser = request::method)]
    method: Method,
    /// Its target: a URL, or a path with `-H 'host: NAME'`
    #[arg(value_parser = request::target)]
    url: Uri,
    /// A header field; may be given more than once
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = request::field)]
    headers: Vec<(HeaderName, HeaderValue)>,
    /// The other end of the connection
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    peer: IpAddr,
}

/// What the rules make of a request that a route takes.
#[derive(Debug)]
struct Explanation<'r> {
    facts: &'r Facts<'r>,
    sent: &'r Uri,
    trace: Trace<'r>,
    search: Search<'r>,
    /// What each limit of the route asks; nothing without a route.
    dues: Vec<(&'r Limit, Due)>,
}

/// Writes what happens to a request. The exit code is 0 if it is judged, 1 if it is turned away before, and 2 if the
/// rule file cannot tell.
///
/// # Errors
/// `out` or `complaints` cannot be written to.
pub(super) fn explain(args: &ExplainArgs, out: &mut impl Write, complaints: &mut impl Write) -> io::Result<u8> {
    let config = match Config::load(&args.config) {
        Ok(config) => config,
        Err(error) => {
            writeln!(complaints, "{error}")?;
            return Ok(2);
        }
    };
    let headers: HeaderMap = args.headers.iter().cloned().collect();
    let facts = match Facts::read(&args.method, &args.url, &headers, args.peer) {
        Ok(facts) => facts,
        Err(error) => {
            writeln!(out, "{} {}\n\nanswered with {}: {error}", args.method, args.url, request::status(&error))?;
            return Ok(1);
        }
    };
    let explanation = Explanation::new(&config.rules, &facts, &args.url);
    write!(out, "{explanation}")?;
    Ok(u8::from(!explanation.is_judged()))
}

// === impl Explanation ===

impl<'r> Explanation<'r> {
    fn new(rules: &'r Rules, facts: &'r Facts<'r>, sent: &'r Uri) -> Self {
        let search = rules.routes.search(facts);
        let limits = search.found.map(|route| route.limits.as_slice()).unwrap_or_default();
        let dues = limits.iter().map(|limit| (limit, rules.due(limit, facts))).collect();
        Self { facts, sent, trace: rules.addresses.trace(facts), search, dues }
    }

    fn route(&self) -> Option<&'r Route> {
        self.search.found
    }

    /// The limit that turns the request away before any is asked.
    fn denied(&self) -> Option<&(&'r Limit, Due)> {
        self.dues.iter().find(|(_, due)| matches!(due, Due::Deny(_)))
    }

    fn is_judged(&self) -> bool {
        self.route().is_some() && self.denied().is_none()
    }
}
