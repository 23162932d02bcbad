//! `tidegate explain`: shows how the rules apply to a request, and why. Uses only the rule file and the arguments, or
//! with `--live` a running gateway.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr};

use clap::Args;
use http::header::{HeaderName, HeaderValue};
use http::{Method, Uri, Version};
use serde_json::{Map, Value, json};

use super::operate::{ApiArgs, write_error};
use super::run::DEFAULT_FILE;
use crate::gateway::GATEWAY_FILES;
use tidegate_config::{Config, RuleFile};
use tidegate_limit::clock::{Clock, SystemClock, Timestamp};
use tidegate_replay::explain::{self, DescriptorText, ExplainCallError, ExplainedCall, ExplainedRequest};
use tidegate_rules::request::facts::TlsPeer;

/// The request to explain, and the rule file.
#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    /// Method of the request
    #[arg(value_parser = explain::method, required_unless_present = "descriptor")]
    method: Option<Method>,
    /// Target of the request: a URL, or a path with `-H 'host: NAME'`
    #[arg(value_parser = explain::target, required_unless_present = "descriptor")]
    url: Option<Uri>,
    /// Explain a call to the rate limit service instead: its domain and its descriptors, each KEY=VALUE,KEY=VALUE
    #[arg(long, num_args = 2.., value_names = ["DOMAIN", "KEY=VALUE"], conflicts_with_all = ["method", "url"])]
    descriptor: Vec<String>,
    /// Header field of the request; can be repeated
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = field)]
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
    /// Body of the request, if limits read it; `@FILE` reads a file, and `@-` the standard input
    #[arg(short = 'd', long = "data", value_name = "BODY", value_parser = body)]
    body: Option<String>,
    /// Name of the listener that receives the request
    #[arg(long, value_name = "NAME")]
    listener: Option<String>,
    /// Treat the request as HTTP/1.0, which needs no host
    #[arg(long = "http1.0")]
    http1_0: bool,
    /// Use the rules of a running gateway, and show the remaining permits; charges nothing
    #[arg(long)]
    live: bool,
    #[command(flatten)]
    api: ApiArgs,
}

/// Writes what happens to a request. Returns the exit code: 0 if limits evaluate the request, 1 if it is answered
/// before, and 2 if the rule file is invalid. With `--descriptor`: 0 if a limit applies to the call, and 1 if none does. With `--live`: 0 if the gateway would admit the request now, 1 if not, and
/// 2 if the gateway does not answer.
///
/// # Errors
/// `out` or `errors` cannot be written to.
pub(super) fn explain(args: &ExplainArgs, out: &mut impl Write, errors: &mut impl Write) -> io::Result<u8> {
    if args.live {
        return explain_live(args, out, errors);
    }
    if args.api.json {
        writeln!(errors, "tidegate: `--json` needs `--live`")?;
        return Ok(2);
    }
    explain_at(SystemClock::new().now(), args, out, errors)
}

fn explain_at(now: Timestamp, args: &ExplainArgs, out: &mut impl Write, errors: &mut impl Write) -> io::Result<u8> {
    let file = args.api.config().cloned().unwrap_or_else(|| RuleFile::Path(DEFAULT_FILE.into()));
    let config = match file.load(GATEWAY_FILES) {
        Ok(config) => config,
        Err(error) => {
            writeln!(errors, "{error}")?;
            return Ok(2);
        }
    };
    if !args.descriptor.is_empty() {
        return explain_call(args, &config, out, errors);
    }
    args.request().explain(&config, now, |explained| match explained {
        Ok(explanation) => {
            out.write_all(config.secrets.mask(&explanation.to_string()).as_bytes())?;
            Ok(u8::from(explanation.rejection().is_some()))
        }
        Err(answer) => write!(out, "{answer}").map(|()| 1),
    })
}

fn explain_call(args: &ExplainArgs, config: &Config, out: &mut impl Write, errors: &mut impl Write) -> io::Result<u8> {
    let call = match args.call() {
        Ok(call) => call,
        Err(error) => {
            writeln!(errors, "tidegate: {error}")?;
            return Ok(2);
        }
    };
    match call.explain(config) {
        Ok(explanation) => {
            out.write_all(config.secrets.mask(&explanation.to_string()).as_bytes())?;
            Ok(u8::from(!explanation.is_limited()))
        }
        Err(ExplainCallError::Call(error)) => {
            writeln!(errors, "tidegate: {error}")?;
            Ok(2)
        }
        Err(error) => writeln!(out, "{error}").map(|()| 1),
    }
}

fn explain_live(args: &ExplainArgs, out: &mut impl Write, errors: &mut impl Write) -> io::Result<u8> {
    let (path, body) = match args.live_request() {
        Ok(request) => request,
        Err(error) => {
            writeln!(errors, "tidegate: {error}")?;
            return Ok(2);
        }
    };
    let explained = match args.api.send_body("POST", path, &body) {
        Ok(explained) => explained,
        Err(error) => return write_error(&error, errors),
    };
    let is_admitted = explained["admitted"] == true;
    match args.api.json {
        true => writeln!(out, "{explained:#}")?,
        false => write!(out, "{}", explained["text"].as_str().unwrap_or_default())?,
    }
    Ok(u8::from(!is_admitted))
}

fn field(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text.split_once(':').ok_or("write NAME: VALUE")?;
    explain::field(name.trim(), value).map_err(|error| format!("`{}` {error}", name.trim()))
}

fn body(text: &str) -> Result<String, String> {
    let read = match text.strip_prefix('@') {
        None => return Ok(text.to_owned()),
        Some("-") => io::read_to_string(io::stdin()),
        Some(path) => std::fs::read_to_string(path),
    };
    read.map_err(|error| error.to_string())
}

impl ExplainArgs {
    fn request(&self) -> ExplainedRequest {
        ExplainedRequest {
            method: self.method.clone().unwrap_or_default(),
            url: self.url.clone().unwrap_or_default(),
            headers: self.headers.iter().cloned().collect(),
            version: if self.http1_0 { Version::HTTP_10 } else { Version::HTTP_11 },
            peer: self.peer,
            tls: TlsPeer::new(self.tls_subject.clone(), self.tls_san.clone()),
            listener: self.listener.as_deref().map(Into::into),
            body: self.body.as_ref().map(|body| body.clone().into_bytes()),
        }
    }

    /// Returns the call of `--descriptor`.
    fn call(&self) -> Result<ExplainedCall, String> {
        let (domain, descriptors) =
            self.descriptor.split_first().map(|(domain, rest)| (domain.clone(), rest)).unwrap_or_default();
        let descriptors = descriptors.iter().map(|text| DescriptorText::parse(text)).collect::<Result<_, _>>()?;
        Ok(ExplainedCall { domain, descriptors })
    }

    /// Returns the path and the body of a request to the API.
    fn live_request(&self) -> Result<(&'static str, Value), String> {
        if self.descriptor.is_empty() {
            return Ok(("/api/v1/explain", self.body()));
        }
        let call = self.call()?;
        let entry = |(key, value): &(String, String)| json!({ "key": key, "value": value });
        let descriptor =
            |text: &DescriptorText| json!({ "entries": text.pairs().iter().map(entry).collect::<Vec<_>>() });
        let descriptors: Vec<_> = call.descriptors.iter().map(descriptor).collect();
        Ok(("/api/v1/explain/call", json!({ "domain": call.domain, "descriptors": descriptors })))
    }

    /// Returns the body of a request to the API.
    fn body(&self) -> Value {
        let mut headers = Map::new();
        for (name, value) in &self.headers {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            if let Value::Array(values) = headers.entry(name.as_str()).or_insert_with(|| json!([])) {
                values.push(value.into());
            }
        }
        let version = if self.http1_0 { "HTTP/1.0" } else { "HTTP/1.1" };
        json!({
            "method": self.method.as_ref().map(Method::as_str),
            "url": self.url.as_ref().map(Uri::to_string),
            "headers": headers,
            "peer": self.peer,
            "version": version,
            "tls": { "subject": self.tls_subject, "san": self.tls_san },
            "listener": self.listener,
            "body": self.body,
        })
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

    /// Regression test: waits for calendar windows were counted from 1970.
    #[test]
    fn explain_counts_waits_from_now() {
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
