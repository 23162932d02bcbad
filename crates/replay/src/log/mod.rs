//! Parses access logs of several products.
//!
//! [`LogFormat::recognize`] finds the format of a log by its first lines, and [`LogFormat::parse`] parses a line. A parser
//! borrows from the line, unless the line has escapes or is not UTF-8.

pub(crate) mod batch;
pub(crate) mod recorded;

mod alb;
mod clf;
mod envoy;
mod haproxy;
mod json;
mod mapping;
mod open;
mod own;
mod request;
#[cfg(test)]
mod tests;
mod text;
mod text_mapping;
mod time;
mod values;
mod zstd;

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use self::mapping::Mapping;
pub(crate) use self::open::open;
use self::request::RequestLine;
use self::text_mapping::TextMapping;
use tidegate_layer::recording::{Mark, RecordedIdentity};

/// Maximum length of a line in bytes. Longer lines are not parsed.
pub(crate) const MAX_LINE: usize = 64 * 1024;

/// One request of a log. Borrows from the line where it can.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoggedRequest<'l> {
    /// Unix time in milliseconds.
    pub time: u64,
    /// The address of the client, as the logging server determined it.
    pub client: Option<IpAddr>,
    /// Empty, as the target, if the server could not parse the request.
    pub method: Cow<'l, str>,
    /// The path and the query.
    pub target: Cow<'l, str>,
    pub host: Option<Cow<'l, str>>,
    pub status: Option<u16>,
    /// The name of the route. Only in logs of Tidegate.
    pub route: Option<Cow<'l, str>>,
    /// The request id.
    pub id: Option<Cow<'l, str>>,
    /// Whether a limit of the logging server rejected the request. Only in logs of Tidegate.
    pub was_limited: bool,
    /// The logged header fields.
    pub headers: Vec<(Cow<'l, str>, Cow<'l, str>)>,
    /// The verified credentials. Only in recordings.
    pub identity: Option<Box<RecordedIdentity>>,
}

/// The format of an access log.
#[derive(Clone, Debug)]
pub enum LogFormat {
    /// Text and JSON of Tidegate.
    Tidegate,
    /// The text format of Envoy and Istio, and the JSON format of Istio.
    Envoy,
    /// JSON of Caddy.
    Caddy,
    /// JSON with the names of nginx's variables, or other usual names.
    NginxJson,
    /// The HTTP format of HAProxy.
    Haproxy,
    /// Application Load Balancers of AWS.
    Alb,
    /// The Combined Log Format of Apache and nginx.
    Combined,
    /// The Common Log Format.
    Common,
    /// JSON with the names of a mapping.
    Mapped(Arc<Mapping>),
    /// Text with a format.
    Text(Arc<TextMapping>),
}

/// The formats with a name. If several formats parse the same number of lines, the first is recognized.
const FORMATS: [LogFormat; 8] = [
    LogFormat::Tidegate,
    LogFormat::Envoy,
    LogFormat::Caddy,
    LogFormat::NginxJson,
    LogFormat::Haproxy,
    LogFormat::Alb,
    LogFormat::Combined,
    LogFormat::Common,
];

impl LogFormat {
    /// Recognizes the format by the first lines of a log: the format that parses most requests, or most lines if no
    /// line has a valid request. Returns `None` if no format parses any line.
    pub fn recognize(lines: &[&[u8]]) -> Option<Self> {
        Self::recognize_by(lines, false).or_else(|| Self::recognize_by(lines, true))
    }

    fn recognize_by(lines: &[&[u8]], accepts_invalid: bool) -> Option<Self> {
        let parsed = |format: &Self| lines.iter().filter(|line| format.recognizes(line, accepts_invalid)).count();
        let formats = FORMATS.into_iter().map(|format| (parsed(&format), format)).filter(|(parsed, _)| *parsed > 0);
        // Of several maxima, `max_by_key` returns the last.
        formats.rev().max_by_key(|(parsed, _)| *parsed).map(|(_, format)| format)
    }

    /// Parses the name of a format, or a mapping such as `json:time=ts,client=ip,method=verb,path=url,status=code` or
    /// `text:$remote_addr [$time_local] "$request" $status`.
    ///
    /// # Errors
    /// The name is unknown, or the mapping is invalid.
    pub fn parse_mapping(text: &str) -> Result<Self, String> {
        if let Some(fields) = text.strip_prefix("json:") {
            return Ok(Self::Mapped(Arc::new(Mapping::parse(fields)?)));
        }
        if let Some(format) = text.strip_prefix("text:") {
            return Ok(Self::Text(Arc::new(TextMapping::parse(format)?)));
        }
        let mut formats = FORMATS.into_iter();
        formats.find(|format| format.name() == text || (text == "json" && format.name() == "nginx-json")).ok_or_else(
            || {
                let names = FORMATS.each_ref().map(Self::name).join(", ");
                format!(
                    "unknown log format `{text}`: use {names}, or a mapping `json:time=FIELD,method=FIELD,path=FIELD` \
                     or `text:$remote_addr [$time_local] \"$request\" $status`"
                )
            },
        )
    }

    /// Returns the name that [`LogFormat::parse_mapping`] reads. All mappings have the name `json` or
    /// `text`.
    pub fn name(&self) -> &str {
        match self {
            Self::Tidegate => "tidegate",
            Self::Envoy => "envoy",
            Self::Caddy => "caddy",
            Self::NginxJson => "nginx-json",
            Self::Haproxy => "haproxy",
            Self::Alb => "alb",
            Self::Combined => "combined",
            Self::Common => "common",
            Self::Mapped(_) => "json",
            Self::Text(_) => "text",
        }
    }

    /// Parses a line, with or without its line end. Returns `None` if the line cannot be parsed.
    pub fn parse<'l>(&self, line: &'l [u8]) -> Option<LoggedRequest<'l>> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.len() > MAX_LINE {
            return None;
        }
        match str::from_utf8(line) {
            Ok(text) => self.parse_text(text),
            Err(_) => self.parse_text(&String::from_utf8_lossy(line)).map(LoggedRequest::into_owned),
        }
    }

    fn parse_text<'l>(&self, line: &'l str) -> Option<LoggedRequest<'l>> {
        let line = line.strip_prefix('\u{feff}').unwrap_or(line); // the byte order mark of a file
        match self {
            Self::Tidegate if line.starts_with('{') => json::parse(line, &mapping::TIDEGATE),
            Self::Tidegate => own::parse(line),
            Self::Envoy if line.starts_with('{') => json::parse(line, &mapping::ENVOY),
            Self::Envoy => envoy::parse(line),
            Self::Caddy => json::parse(line, &mapping::CADDY),
            Self::NginxJson => json::parse(line, &mapping::NGINX),
            Self::Haproxy => haproxy::parse(line),
            Self::Alb => alb::parse(line),
            Self::Combined => clf::parse_combined(line),
            Self::Common => clf::parse_common(line),
            Self::Mapped(mapping) => json::parse(line, mapping),
            Self::Text(mapping) => mapping.parse_line(line),
        }
    }

    /// Returns `true` if the line describes the log and no request.
    pub fn is_comment(&self, line: &[u8]) -> bool {
        matches!(self, Self::Text(mapping) if mapping.is_comment(line))
    }

    /// Returns `true` if the line is of this format, as far as can be seen.
    fn recognizes(&self, line: &[u8], accepts_invalid: bool) -> bool {
        // Other logs in JSON can have the same names for time, method and path.
        let is_own =
            || [&b"\"limits\":"[..], b"\"headers\":"].iter().any(|name| memchr::memmem::find(line, name).is_some());
        let is_mark = || matches!(self, Self::Tidegate) && Mark::parse(line).is_some();
        let may_be_own = !matches!(self, Self::Tidegate) || !line.starts_with(b"{") || is_own();
        let is_accepted = |request: LoggedRequest<'_>| accepts_invalid || !request.method.is_empty();
        may_be_own && self.parse(line).is_some_and(is_accepted) || is_mark()
    }
}

impl<'l> LoggedRequest<'l> {
    fn new(time: u64, RequestLine { method, target, host }: RequestLine<'l>) -> Self {
        Self { time, method, target, host, ..Self::default() }
    }

    /// Adds a header field, if it has a value.
    fn add_header(&mut self, name: &'l str, value: Option<Cow<'l, str>>) {
        self.headers.extend(value.map(|value| (name.into(), value)));
    }

    fn into_owned(self) -> LoggedRequest<'static> {
        let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        LoggedRequest {
            time: self.time,
            client: self.client,
            method: owned(self.method),
            target: owned(self.target),
            host: self.host.map(owned),
            status: self.status,
            route: self.route.map(owned),
            id: self.id.map(owned),
            was_limited: self.was_limited,
            headers: self.headers.into_iter().map(|(name, value)| (owned(name), owned(value))).collect(),
            identity: self.identity,
        }
    }
}
