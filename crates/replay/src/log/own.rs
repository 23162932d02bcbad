//! Our own text format. The same fields in JSON have a mapping.

use super::LoggedRequest;
use super::request::RequestLine;
use super::text::{self, Scanner};
use super::time;

pub(super) fn parse(line: &str) -> Option<LoggedRequest<'_>> {
    let mut scanner = Scanner::new(line);
    let written_at = time::parse_rfc3339(scanner.word()?)?;
    if scanner.word()? != "INFO" {
        return None;
    }
    let (method, path) = (scanner.word()?, scanner.word()?);
    let request = RequestLine::new(method.into(), path.into());
    let (is_valid, request) = (request.is_some(), request.unwrap_or(RequestLine::INVALID));
    let mut logged = LoggedRequest::new(written_at, request);
    let (mut peer, mut is_access_log) = (None, false);
    while let Some((name, rest)) = scanner.rest().split_once('=') {
        scanner = Scanner::new(rest);
        let value = if rest.starts_with('"') { scanner.quoted()? } else { scanner.word()?.into() };
        match name.trim_ascii_start() {
            // The time of the decision. The line is written later, when the request ends.
            "at" => logged.time = value.parse().ok().and_then(time::from_integer).unwrap_or(written_at),
            "client" => logged.client = text::address(&value),
            "peer" => peer = text::address(&value),
            "status" => logged.status = text::status(&value),
            "route" => logged.route = text::present(value),
            "host" => logged.host = text::present(value),
            "request_id" => logged.id = text::present(value),
            "limits" => (is_access_log, logged.was_limited) = (true, text::is_limited(&value)),
            _ => {}
        }
    }
    logged.client = logged.client.or(peer);
    (is_access_log && (is_valid || logged.client.is_some() && logged.status.is_some())).then_some(logged)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"2026-05-04T10:00:00.250000Z  INFO GET /orders status=200 route="api" limits="allowed" upstream="orders" target="http://10.0.1.5:9000" attempts=1 at=1777888800000 client=192.0.2.1 peer=10.0.0.7 bytes=512 bytes_in=0 wait_ms=0.021 head_ms=3.127 ms=3.201 protocol="HTTP/1.1" request_id="a\"=b c" host="api.example""#;

    #[test]
    fn text_lines_are_parsed() {
        let expected = LoggedRequest {
            time: 1_777_888_800_000,
            client: "192.0.2.1".parse().ok(),
            method: "GET".into(),
            target: "/orders".into(),
            host: Some("api.example".into()),
            status: Some(200),
            route: Some("api".into()),
            id: Some("a\"=b c".into()),
            headers: Vec::new(),
            identity: None,
            was_limited: false,
        };
        assert_eq!(parse(LINE), Some(expected.clone()));
        let limited = LINE.replace("\"allowed\"", "\"limited\"");
        assert_eq!(parse(&limited), Some(LoggedRequest { was_limited: true, ..expected.clone() }));
        let undecided = LINE.replace("at=1777888800000 client=192.0.2.1 ", "").replace("\"api\"", "\"-\"");
        let client = "10.0.0.7".parse().ok();
        assert_eq!(parse(&undecided), Some(LoggedRequest { time: 1_777_888_800_250, client, route: None, ..expected }));
    }

    #[test]
    fn other_lines_are_rejected() {
        let garbage = LINE.replace("GET /orders", "- -").replace("client=192.0.2.1 peer=10.0.0.7 ", "");
        let (cut, _) = LINE.split_once(" limits").unwrap();
        let process_log = "2026-05-04T10:00:00.000000Z  INFO listening on=127.0.0.1:8080 limits=1";
        for line in [&garbage, cut, process_log, &LINE.replace("INFO", "WARN"), "2026-05-04T10:00:00.000000Z  INFO"] {
            assert_eq!(parse(line), None, "{line}");
        }
    }
}
