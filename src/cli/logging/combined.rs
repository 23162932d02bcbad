//! The combined format of nginx and Apache, which log analyzers read.

use std::fmt::{self, Write};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Formats events of the access log. Without their other fields.
#[derive(Clone, Copy, Debug)]
pub(super) struct Combined;

/// The fields of an event. The texts are empty if they are absent.
#[derive(Debug, Default)]
struct Request {
    client: String,
    peer: String,
    method: String,
    path: String,
    protocol: String,
    user_agent: String,
    status: u64,
    bytes: u64,
}

impl<S, N> FormatEvent<S, N> for Combined
where
    S: Subscriber + for<'s> LookupSpan<'s>,
    N: for<'w> FormatFields<'w> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut request = Request::default();
        event.record(&mut request);
        request.write(Timestamp::now(), &mut writer)
    }
}

impl Request {
    /// Writes the line. The user and the referrer are not logged: they may be secrets.
    fn write(&self, now: Timestamp, line: &mut impl Write) -> fmt::Result {
        let Self { client, peer, method, path, protocol, user_agent, status, bytes } = self;
        let address = if client.is_empty() { peer } else { client };
        let time = now.to_zoned(TimeZone::UTC).strftime("%d/%b/%Y:%H:%M:%S %z");
        write!(line, "{address} - - [{time}] \"")?;
        match method.is_empty() {
            true => line.write_char('-')?, // the bytes were no request
            false => {
                escape(method, line)?;
                line.write_char(' ')?;
                escape(path, line)?;
                write!(line, " {protocol}")?;
            }
        }
        write!(line, "\" {status} {bytes} \"-\" \"")?;
        escape(if user_agent.is_empty() { "-" } else { user_agent }, line)?;
        line.write_str("\"\n")
    }
}

/// Escapes a text as nginx does: quotes, backslashes, control characters and all bytes that are not ASCII.
fn escape(text: &str, line: &mut impl Write) -> fmt::Result {
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' | ..=0x1f | 0x7f.. => write!(line, "\\x{byte:02X}")?,
            _ => line.write_char(char::from(byte))?,
        }
    }
    Ok(())
}

impl Visit for Request {
    fn record_str(&mut self, field: &Field, value: &str) {
        let text = match field.name() {
            "method" => &mut self.method,
            "path" => &mut self.path,
            "protocol" => &mut self.protocol,
            "user_agent" => &mut self.user_agent,
            _ => return,
        };
        value.clone_into(text);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "status" => self.status = value,
            "bytes" => self.bytes = value,
            _ => {}
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = match field.name() {
            "client" => &mut self.client,
            "peer" => &mut self.peer,
            _ => return,
        };
        *text = format!("{value:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(request: &Request) -> String {
        let mut line = String::new();
        request.write("2026-05-04T10:00:07Z".parse().unwrap(), &mut line).unwrap();
        line
    }

    #[test]
    fn line_has_the_combined_format() {
        let request = Request {
            client: "192.0.2.1".into(),
            peer: "10.0.0.7".into(),
            method: "GET".into(),
            path: "/orders".into(),
            protocol: "HTTP/1.1".into(),
            user_agent: "curl/8.5.0".into(),
            status: 429,
            bytes: 256,
        };
        let expected =
            "192.0.2.1 - - [04/May/2026:10:00:07 +0000] \"GET /orders HTTP/1.1\" 429 256 \"-\" \"curl/8.5.0\"\n";
        assert_eq!(line(&request), expected);
    }

    #[test]
    fn client_text_is_escaped_as_by_nginx() {
        let request = Request {
            peer: "10.0.0.7".into(),
            method: "G\"".into(),
            path: "/a\\b\u{7f}".into(),
            user_agent: "x\" 200 1\r\n\t\u{e4}~".into(),
            ..Request::default()
        };
        let expected = "10.0.0.7 - - [04/May/2026:10:00:07 +0000] \"G\\x22 /a\\x5Cb\\x7F \" 0 0 \"-\" \
                        \"x\\x22 200 1\\x0D\\x0A\\x09\\xC3\\xA4~\"\n";
        assert_eq!(line(&request), expected);
        let unreadable = Request { peer: "10.0.0.7".into(), status: 400, ..Request::default() };
        assert_eq!(line(&unreadable), "10.0.0.7 - - [04/May/2026:10:00:07 +0000] \"-\" 400 0 \"-\" \"-\"\n");
    }
}
