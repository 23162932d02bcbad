//! The values of a line that a mapping describes.

use std::borrow::Cow;
use std::net::IpAddr;

use super::LoggedRequest;
use super::mapping::Part;
use super::request::RequestLine;
use super::{text, time};
use tidegate_layer::recording::RecordedIdentity;

/// The values of a line. Each has the rank of its field: a lower rank replaces a higher one.
#[derive(Debug, Default)]
pub(super) struct Values<'l> {
    time: Ranked<u64>,
    client: Ranked<IpAddr>,
    method: Ranked<Cow<'l, str>>,
    path: Ranked<Cow<'l, str>>,
    query: Ranked<Cow<'l, str>>,
    request: Ranked<RequestLine<'l>>,
    status: Ranked<u16>,
    host: Ranked<Cow<'l, str>>,
    route: Ranked<Cow<'l, str>>,
    id: Ranked<Cow<'l, str>>,
    was_limited: bool,
    pub(super) identity: Option<Box<RecordedIdentity>>,
    headers: Vec<(Cow<'l, str>, Cow<'l, str>)>,
    /// The ranks of those header fields that have their own mapping.
    header_ranks: Vec<(usize, usize)>,
}

#[derive(Debug)]
struct Ranked<T>(Option<(usize, T)>);

/// A value that is neither an object nor an array.
#[derive(Clone, Debug)]
pub(super) enum Scalar<'l> {
    Text(Cow<'l, str>),
    Integer(u64),
    Float(f64),
}

impl<'l> Values<'l> {
    /// Sets a part, unless an alternative with a lower rank has set it.
    pub(super) fn set(&mut self, part: &Part, rank: usize, value: Scalar<'l>) {
        match part {
            Part::Time => self.time.set(rank, value.time()),
            Part::Client => self.client.set(rank, value.text().and_then(|value| text::address(&value))),
            Part::Method => self.method.set(rank, value.text()),
            Part::Path => self.path.set(rank, value.text()),
            Part::Query => self.query.set(rank, value.text()),
            Part::Request => self.request.set(rank, value.text().and_then(|value| RequestLine::parse(&value))),
            Part::Status => self.status.set(rank, value.text().and_then(|value| text::status(&value))),
            Part::Host => self.host.set(rank, value.text()),
            Part::Route => self.route.set(rank, value.text()),
            Part::Id => self.id.set(rank, value.text()),
            Part::Limits => self.was_limited |= value.text().is_some_and(|limits| text::is_limited(&limits)),
            Part::Header(name) => self.set_header(name, rank, value.text()),
        }
    }

    /// Adds a header field of an object of header fields.
    pub(super) fn add_header(&mut self, name: Cow<'l, str>, value: Option<Cow<'l, str>>) {
        self.headers.extend(value.map(|value| (name, value)));
    }

    /// Sets a header field, unless an alternative with a lower rank has set it.
    fn set_header(&mut self, name: &str, rank: usize, value: Option<Cow<'l, str>>) {
        let Some(value) = value else { return };
        let ranked = self.header_ranks.iter_mut().find(|(at, _)| self.headers[*at].0 == name);
        match ranked {
            Some((_, other)) if *other <= rank => {}
            Some((at, other)) => {
                *other = rank;
                self.headers[*at].1 = value;
            }
            None => {
                self.header_ranks.push((self.headers.len(), rank));
                self.headers.push((name.to_owned().into(), value));
            }
        }
    }

    /// Returns the request of the line. A line with a client and a status may lack the request, which is invalid then.
    /// Returns `None` if the line lacks other parts.
    pub(super) fn into_request(self) -> Option<LoggedRequest<'l>> {
        let Self {
            time,
            client,
            method,
            path,
            query,
            request,
            status,
            host,
            route,
            id,
            was_limited,
            identity,
            headers,
            ..
        } = self;
        let request = request.get().or_else(|| {
            let (method, mut path) = (method.get()?, path.get()?);
            if let Some(query) = query.get().filter(|_| !path.contains('?')) {
                path = format!("{path}?{}", query.strip_prefix('?').unwrap_or(&query)).into();
            }
            RequestLine::new(method, path)
        });
        // If no field has the client, it is the address that the last proxy added.
        let forwarded = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("x-forwarded-for"));
        let client = client.get().or_else(|| text::last_address(&forwarded?.1));
        let (status, route, id) = (status.get(), route.get(), id.get());
        let has_all_but_request = client.is_some() && status.is_some();
        let request = request.or_else(|| has_all_but_request.then_some(RequestLine::INVALID))?;
        let logged = LoggedRequest::new(time.get()?, request);
        let host = host.get().or(logged.host);
        Some(LoggedRequest { client, status, host, route, id, was_limited, headers, identity, ..logged })
    }
}

impl<T> Ranked<T> {
    fn set(&mut self, rank: usize, value: Option<T>) {
        if let Some(value) = value
            && self.0.as_ref().is_none_or(|(other, _)| rank < *other)
        {
            self.0 = Some((rank, value));
        }
    }

    fn get(self) -> Option<T> {
        self.0.map(|(_, value)| value)
    }
}

impl<T> Default for Ranked<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<'l> Scalar<'l> {
    /// Returns `None` if the text is `-` or empty.
    pub(super) fn text(self) -> Option<Cow<'l, str>> {
        match self {
            Self::Text(text) => text::present(text),
            Self::Integer(number) => Some(number.to_string().into()),
            Self::Float(number) => Some(number.to_string().into()),
        }
    }

    fn time(&self) -> Option<u64> {
        match self {
            Self::Text(text) => time::parse(text),
            Self::Integer(number) => time::from_integer(*number),
            Self::Float(number) => time::from_float(*number),
        }
    }
}
