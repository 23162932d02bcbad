//! Batches: parsed lines, as the deciding thread needs them.

use std::net::IpAddr;

use bytes::Bytes;
use hashbrown::HashSet;
use http::header::{HOST, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode, Uri};
use memchr::memchr;

use crate::log::{LogFormat, LoggedRequest};
use tidegate_layer::recording::Mark;
use tidegate_rules::request::identity::Identity;

/// The longest part of a line that a message contains, in characters.
const MAX_SHOWN: usize = 200;

/// A request of a log.
#[derive(Debug)]
pub struct ParsedRequest {
    /// In milliseconds since the Unix epoch.
    pub(crate) time: u64,
    /// The position of the line in its batch, starting at 0.
    pub(crate) line: u32,
    /// Whether a limit of the logging gateway rejected the request.
    pub(crate) was_limited: bool,
    pub(crate) client: Option<IpAddr>,
    pub(crate) status: Option<StatusCode>,
    /// The method and the target; `None` if they are invalid in HTTP.
    pub(crate) target: Option<(Method, Uri)>,
    /// The host and the fields that the rules read. `None` without any.
    pub(crate) headers: Option<Box<HeaderMap>>,
    /// The name of the route, in logs of Tidegate.
    pub(crate) route: Option<Box<str>>,
    /// The verified credentials, in recordings.
    pub(crate) identity: Option<Box<Identity>>,
}

/// Consecutive lines of a log, in the order of their times.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) requests: Vec<ParsedRequest>,
    /// The lines. The targets of the requests are parts of it.
    pub(crate) text: Bytes,
    pub(crate) lines: u64,
    pub(crate) unparsed: u64,
    /// The first line that was not parsed: its position, and its escaped text.
    pub(crate) first_unparsed: Option<(u64, String)>,
    /// The marks of recordings.
    pub(crate) marks: Vec<Mark>,
}

/// The empty buffers of a consumed batch. Another batch reuses them, because the kernel has to clear new memory.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    pub(crate) text: Vec<u8>,
    pub(crate) requests: Vec<ParsedRequest>,
}

/// The values of requests that are kept.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// The fields that the rules read.
    pub(crate) fields: HashSet<HeaderName>,
    /// The host of requests without a host in the log.
    pub(crate) host: Option<HeaderValue>,
}

impl Batch {
    /// Parses lines into a buffer.
    pub(crate) fn parse(Buffers { text, requests }: Buffers, format: &LogFormat, kept: &Kept) -> Self {
        let text = &Bytes::from(text);
        let mut batch = Self { requests, text: text.clone(), ..Self::default() };
        batch.requests.reserve(text.len() / 128);
        let mut rest: &[u8] = text;
        while !rest.is_empty() {
            let (line, after) = rest.split_at(memchr(b'\n', rest).map_or(rest.len(), |end| end + 1));
            rest = after;
            let line = line.trim_ascii_end();
            let number = batch.lines;
            batch.lines += 1;
            if line.is_empty() || format.is_comment(line) {
                continue;
            }
            match format.parse(line) {
                Some(logged) => {
                    let number = u32::try_from(number).unwrap_or(u32::MAX);
                    batch.requests.push(ParsedRequest::new(logged, text, kept, number));
                }
                None => match Mark::parse(line) {
                    Some(mark) => batch.marks.push(mark),
                    None => {
                        batch.unparsed += 1;
                        batch.first_unparsed.get_or_insert_with(|| (number, escape(line)));
                    }
                },
            }
        }
        if !batch.requests.is_sorted_by_key(ParsedRequest::position) {
            batch.requests.sort_by_key(ParsedRequest::position);
        }
        batch
    }

    /// Returns the buffers of the batch.
    pub(crate) fn into_buffers(mut self) -> Buffers {
        self.requests.clear();
        self.text.clear();
        Buffers { text: self.text.into(), requests: self.requests }
    }
}

impl ParsedRequest {
    /// Returns the position of the request in the order of a log. Within a millisecond, lines are in the order of the
    /// responses, and permits in use only increase: a request that a gateway rejected comes after those that it admitted.
    pub(crate) fn position(&self) -> (u64, bool) {
        (self.time, self.was_limited)
    }

    /// Returns the first byte of the path.
    pub(crate) fn first_byte(&self) -> Option<u8> {
        self.target.as_ref()?.1.path().bytes().next()
    }

    fn new(logged: LoggedRequest<'_>, text: &Bytes, kept: &Kept, line: u32) -> Self {
        let target = || Some((Method::from_bytes(logged.method.as_bytes()).ok()?, uri(&logged.target, text)?));
        Self {
            time: logged.time,
            line,
            was_limited: logged.was_limited,
            client: logged.client,
            status: logged.status.and_then(|status| StatusCode::from_u16(status).ok()),
            target: target(),
            headers: headers(&logged, kept).map(Box::new),
            route: logged.route.as_deref().map(Into::into),
            identity: logged.identity.map(|identity| Box::new(identity.into_identity())),
        }
    }
}

/// Parses a target. Shares the text of the batch, if the target is a part of it.
fn uri(target: &str, text: &Bytes) -> Option<Uri> {
    let start = (target.as_ptr() as usize).wrapping_sub(text.as_ptr() as usize);
    match start.checked_add(target.len()) {
        Some(end) if end <= text.len() => Uri::from_maybe_shared(text.slice(start..end)).ok(),
        _ => target.parse().ok(),
    }
}

fn headers(logged: &LoggedRequest<'_>, kept: &Kept) -> Option<HeaderMap> {
    let host = logged.host.as_deref().filter(|host| !host.is_empty());
    if host.is_none() && kept.fields.is_empty() && kept.host.is_none() {
        return None;
    }
    let mut headers = HeaderMap::new();
    if let Some(host) = host.and_then(|host| HeaderValue::from_str(host).ok()) {
        headers.insert(HOST, host);
    }
    for (name, value) in &logged.headers {
        let Ok(name) = HeaderName::from_bytes(name.as_bytes()) else { continue };
        if kept.fields.contains(&name)
            && (name != HOST || host.is_none())
            && let Ok(value) = HeaderValue::from_bytes(value.as_bytes())
        {
            headers.append(name, value);
        }
    }
    if let (Some(host), false) = (&kept.host, headers.contains_key(HOST)) {
        headers.insert(HOST, host.clone());
    }
    (!headers.is_empty()).then_some(headers)
}

/// Returns the start of a line, with all but visible ASCII characters escaped.
fn escape(line: &[u8]) -> String {
    let mut text: String = line.escape_ascii().take(MAX_SHOWN).map(char::from).collect();
    if line.escape_ascii().nth(MAX_SHOWN).is_some() {
        text.push_str("...");
    }
    text
}
