//! Parses text lines with a format in the notation of nginx's `log_format`, such as
//! `$remote_addr [$time_local] "$request" $status`.
//!
//! A variable has the text up to the constant text after it. The format `nginx-json` has the same names. The values
//! of other variables are skipped.

use std::borrow::Cow;

use memchr::memchr2;
use memchr::memmem::Finder;

use super::LoggedRequest;
use super::mapping::{self, Found, Part};
use super::text;
use super::values::{Scalar, Values};

/// A text format.
#[derive(Clone, Debug)]
pub struct TextMapping {
    /// The text before the first variable.
    start: Box<str>,
    variables: Vec<Variable>,
    /// Whether a line that begins with `#` is a comment, as in the logs of IIS and CloudFront.
    has_comments: bool,
}

/// A variable, and the text after it.
#[derive(Clone, Debug)]
struct Variable {
    target: Target,
    /// Whether the value is in double quotes, so that its quotes are escaped.
    is_quoted: bool,
    /// Finds the text after the value. Empty for the last variable if it has the rest of the line.
    end: Finder<'static>,
}

/// The meaning of a value.
#[derive(Clone, Debug)]
enum Target {
    Skipped,
    /// Parts of the request, each with its rank.
    Parts(Vec<(Part, usize)>),
    Header(Box<str>),
    /// The date before the time in another field: `$date`.
    Date,
}

impl TextMapping {
    /// Parses a format. `\t` stands for a tab.
    ///
    /// # Errors
    /// Two variables follow each other, a name is missing, or the format lacks a part that a replay needs.
    pub(super) fn parse(format: &str) -> Result<Self, String> {
        let format = format.replace("\\t", "\t");
        let mut pieces = format.split('$');
        let start: Box<str> = pieces.next().unwrap_or_default().into();
        let (mut variables, mut names, mut before) = (Vec::<Variable>::new(), Vec::<&str>::new(), &*start);
        for piece in pieces {
            if let (true, Some(name)) = (before.is_empty(), names.last()) {
                return Err(format!("the format needs a separator after `${name}`"));
            }
            let (name, end) = split_name(piece).ok_or_else(|| format!("`${piece}` in the format has no name"))?;
            let is_quoted = before.ends_with('"') && end.starts_with('"');
            let end_finder = Finder::new(end.as_bytes()).into_owned();
            variables.push(Variable { target: Target::new(name), is_quoted, end: end_finder });
            names.push(name);
            before = end;
        }
        let has = |part: &Part| variables.iter().any(|variable| variable.target.has(part));
        if !has(&Part::Time) {
            return Err(
                "the format has no time: add `$time_local`, `$time_iso8601`, `$msec`, or `$date` and `$time`".into()
            );
        }
        let has_request = has(&Part::Request) || (has(&Part::Method) && has(&Part::Path));
        if !has_request {
            return Err("the format has no request: add `$request`, or `$request_method` and `$request_uri`".into());
        }
        let has_comments = !start.starts_with('#');
        Ok(Self { start, variables, has_comments })
    }

    /// Returns `true` if the line describes the log and no request.
    pub(super) fn is_comment(&self, line: &[u8]) -> bool {
        self.has_comments && line.starts_with(b"#")
    }

    /// Parses a line. Ignores text after the end of the format.
    pub(super) fn parse_line<'l>(&self, line: &'l str) -> Option<LoggedRequest<'l>> {
        let mut rest = line.strip_prefix(&*self.start)?;
        let (mut values, mut date) = (Values::default(), None);
        for variable in &self.variables {
            let value;
            (value, rest) = variable.split(rest)?;
            match &variable.target {
                Target::Skipped => {}
                Target::Date => date = Some(value),
                Target::Header(name) => values.add_header(name.to_string().into(), text::present(value)),
                Target::Parts(parts) => {
                    for (part, rank) in parts {
                        let value = match date.as_ref().filter(|_| *part == Part::Time) {
                            Some(date) => format!("{date} {value}").into(),
                            None => value.clone(),
                        };
                        values.set(part, *rank, Scalar::Text(value));
                    }
                }
            }
        }
        values.into_request()
    }
}

impl Variable {
    /// Returns the value at the start of a text, and the text after it.
    fn split<'l>(&self, text: &'l str) -> Option<(Cow<'l, str>, &'l str)> {
        let (bytes, end) = (text.as_bytes(), self.end.needle());
        if end.is_empty() {
            return Some((text.into(), ""));
        }
        if !self.is_quoted {
            let at = self.end.find(bytes)?;
            return Some((text[..at].into(), &text[at + end.len()..]));
        }
        let (mut at, mut has_escapes) = (0, false);
        loop {
            at += memchr2(b'"', b'\\', bytes.get(at..)?)?;
            if bytes[at] == b'\\' {
                (at, has_escapes) = (at + 2, true);
            } else if bytes[at..].starts_with(end) {
                let value = if has_escapes { text::unescape(&text[..at], '\\').into() } else { text[..at].into() };
                return Some((value, &text[at + end.len()..]));
            } else {
                at += 1;
            }
        }
    }
}

impl Target {
    fn new(name: &str) -> Self {
        match mapping::NGINX.fields.find(name) {
            _ if name == "date" => Self::Date,
            None => Self::Skipped,
            Some(Found::Field(field)) => Self::Parts(field.parts.clone()),
            Some(Found::Header(header)) => Self::Header(header.replace('_', "-").into()),
        }
    }

    fn has(&self, part: &Part) -> bool {
        matches!(self, Self::Parts(parts) if parts.iter().any(|(other, _)| other == part))
    }
}

/// Splits off the name of a variable, with or without braces.
fn split_name(piece: &str) -> Option<(&str, &str)> {
    let (name, end) = match piece.strip_prefix('{') {
        Some(piece) => piece.split_once('}')?,
        None => piece.split_at(piece.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(piece.len())),
    };
    (!name.is_empty()).then_some((name, end))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const COMBINED: &str = r#"$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent""#;

    fn parsed<'l>(format: &str, line: &'l str) -> Option<LoggedRequest<'l>> {
        TextMapping::parse(format).unwrap().parse_line(line)
    }

    #[test]
    fn combined_format_is_parsed_as_the_known_format() {
        for line in [
            r#"192.0.2.1 - - [26/Nov/2026:07:10:35 +0100] "GET /a?b HTTP/1.1" 200 612 "-" "Mozilla/5.0""#,
            r#"2001:db8::1 - a b [26/Nov/2026:07:10:35 +0100] "GET /a\x22b HTTP/1.1" 404 0 "http://a" "x \"y\" \\" more"#,
        ] {
            let expected = super::super::clf::parse_combined(line).unwrap();
            let found = parsed(COMBINED, line).unwrap();
            let sorted = |logged: &LoggedRequest<'_>| {
                let mut headers: Vec<_> = logged.headers.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect();
                headers.sort();
                headers
            };
            assert_eq!(sorted(&found), sorted(&expected));
            assert_eq!(
                LoggedRequest { headers: Vec::new(), ..found },
                LoggedRequest { headers: Vec::new(), ..expected }
            );
        }
    }

    #[test]
    fn logs_of_other_products_are_parsed() {
        let manager = r#"[$time_local] $cache $upstream $status - $request_method $scheme $host "$request_uri" [Client $remote_addr] [Length $length] [Gzip $ratio] [Sent-to $server] "$http_user_agent" "$http_referer""#;
        let iis = "$date $time $server_addr $request_method $uri $args $port $user $remote_addr $http_user_agent $http_referer $status $rest";
        let cloudfront = r"$date\t$time\t$edge\t$bytes\t$remote_addr\t$request_method\t$domain\t$uri\t$status\t$http_referer\t$http_user_agent\t$args\t$cookie\t$result\t$request_id\t$host\t$rest";
        for (format, line, expected) in [
            (
                manager,
                r#"[26/Nov/2026:06:10:35 +0000] - 200 200 - GET https shop.example "/a?b=c" [Client 192.0.2.1] [Length 12] [Gzip 1.5] [Sent-to 10.0.0.2] "curl/8" "-""#,
                (Some("shop.example"), "/a?b=c", "curl/8", None),
            ),
            (
                iis,
                "2026-11-26 06:10:35 10.0.0.9 GET /a b=c 443 - 192.0.2.1 Mozilla/5.0+(X11) - 200 0 0 15",
                (None, "/a?b=c", "Mozilla/5.0+(X11)", None),
            ),
            (
                cloudfront,
                "2026-11-26\t06:10:35\tFRA2-C1\t390\t192.0.2.1\tGET\td111.cloudfront.net\t/a\t200\t-\tcurl%2F8\tb=c\t-\tHit\tSOX4==\tshop.example\thttps\t23",
                (Some("shop.example"), "/a?b=c", "curl%2F8", Some("SOX4==")),
            ),
        ] {
            let (host, target, agent, id) = expected;
            let expected = LoggedRequest {
                time: 1_795_673_435_000,
                client: "192.0.2.1".parse().ok(),
                method: "GET".into(),
                target: target.into(),
                host: host.map(Into::into),
                status: Some(200),
                id: id.map(Into::into),
                headers: vec![("user-agent".into(), agent.into())],
                ..LoggedRequest::default()
            };
            assert_eq!(parsed(format, line), Some(expected), "{line}");
        }
        let garbage = r#"[26/Nov/2026:06:10:35 +0000] - - 400 - - http localhost-nginx-proxy-manager "-" [Client 192.0.2.1] [Length 154] [Gzip -] [Sent-to -] "-" "-""#;
        let invalid = parsed(manager, garbage).unwrap();
        assert_eq!((invalid.status, &*invalid.method, &*invalid.target), (Some(400), "", ""));
        let mapping = TextMapping::parse(iis).unwrap();
        assert!(mapping.is_comment(b"#Fields: date time s-ip") && !mapping.is_comment(b"2026-11-26"));
    }

    #[test]
    fn invalid_formats_are_rejected() {
        for (format, expected) in [
            ("", "the format has no time: add"),
            ("$remote_addr $request", "the format has no time: add"),
            ("$time_local $request_uri", "the format has no request: add"),
            ("$time_local $request_method", "the format has no request: add"),
            ("$time_local$request", "the format needs a separator after `$time_local`"),
            ("$time_local $ $request", "`$ ` in the format has no name"),
            ("$time_local ${request", "`${request` in the format has no name"),
        ] {
            let error = TextMapping::parse(format).unwrap_err();
            assert!(error.starts_with(expected), "{format}: {error}");
        }
        TextMapping::parse("[${time_local}] ${request}").unwrap();
    }

    proptest! {
        #[test]
        fn written_values_are_read(
            seconds in 200_000_000_u64..4_000_000_000,
            client in any::<std::net::Ipv4Addr>(),
            method in "[A-Z]{1,9}",
            path in "/[!-~&&[^\\\\\"]]{0,30}",
            status in 100_u16..600,
            agent in "[ -~&&[^\\\\\"]]{1,20}",
        ) {
            let agent = agent.trim();
            let line = format!("<{seconds}|{client}> {method} \"{path}\" {status};\"{agent}\" end");
            let format = r#"<$msec|$remote_addr> $request_method "$request_uri" $status;"$http_user_agent" $rest"#;
            let logged = parsed(format, &line);
            let logged = logged.ok_or_else(|| TestCaseError::fail(line.clone()))?;
            prop_assert_eq!((logged.time, logged.client), (seconds * 1_000, Some(client.into())));
            prop_assert_eq!((&*logged.method, &*logged.target, logged.status), (&*method, &*path, Some(status)));
            let sent = logged.headers.first().map(|(_, value)| &**value);
            prop_assert_eq!(sent, Some(agent).filter(|agent| !agent.is_empty() && *agent != "-"));
        }
    }
}
