//! The HTTP format of HAProxy, with or without the prefix of syslog. Its times have no offset and are read as UTC.

use std::borrow::Cow;

use super::LoggedRequest;
use super::request::RequestLine;
use super::text;
use super::time;

/// The number of `/` in the three fields that identify the server, the timers and the connections.
const SLASHES: [usize; 3] = [1, 4, 4];

pub(super) fn parse(line: &str) -> Option<LoggedRequest<'_>> {
    let (before, time, mut scanner) = time::find_clf(line)?;
    let client = text::address_with_port(before.rsplit(' ').next()?);
    let _frontend = scanner.word()?;
    let (server, timers, status) = (scanner.word()?, scanner.word()?, scanner.word()?);
    scanner.number()?; // the bytes of the response
    let (_request_cookie, _response_cookie, termination) = (scanner.word()?, scanner.word()?, scanner.word()?);
    let (connections, _queues) = (scanner.word()?, scanner.word()?);
    let slashes = [server, timers, connections].map(|field| field.matches('/').count());
    if slashes != SLASHES || !(2..=4).contains(&termination.len()) {
        return None;
    }
    // Captured header fields can follow. HAProxy escapes their quotes.
    let (_, request) = scanner.rest().split_once('"')?;
    let (request, _) = request.split_once('"')?;
    let request = if request.contains('#') { Cow::Owned(text::unescape(request, '#')) } else { request.into() };
    let request = RequestLine::parse_or_invalid(&request, client)?;
    Some(LoggedRequest { client, status: text::status(status), ..LoggedRequest::new(time, request) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"Feb  6 12:14:14 localhost haproxy[14389]: 10.0.1.2:33317 [06/Feb/2009:12:14:14.655] http-in static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {1wt.eu} {} "GET /index.html HTTP/1.1""#;

    fn expected() -> LoggedRequest<'static> {
        LoggedRequest {
            time: 1_233_922_454_655,
            client: "10.0.1.2".parse().ok(),
            method: "GET".into(),
            target: "/index.html".into(),
            status: Some(200),
            ..LoggedRequest::default()
        }
    }

    #[test]
    fn lines_are_parsed_with_and_without_prefix() {
        let (_, bare) = LINE.split_once("]: ").unwrap();
        let rfc5424 = format!("<134>1 2009-02-06T12:14:14+01:00 localhost haproxy 14389 - - {bare}");
        let https = format!("{bare} 0/0/0/0/0 1wt.eu/TLSv1.3/TLS_AES_256_GCM_SHA384");
        let no_captures = bare.replace("{1wt.eu} {} ", "");
        let agent = bare.replace("{1wt.eu}", "{Mozilla/5.0 [en] #22x#22|1wt.eu}");
        for line in [LINE, bare, &rfc5424, &https, &no_captures, &agent] {
            assert_eq!(parse(line), Some(expected()), "{line}");
        }
    }

    #[test]
    fn addresses_escapes_and_absolute_targets_are_read() {
        let line = LINE.replace("10.0.1.2:", "2001:db8::1:").replace("/index.html", "https://1wt.eu/a#22?b");
        let expected = LoggedRequest {
            client: "2001:db8::1".parse().ok(),
            host: Some("1wt.eu".into()),
            target: "/a\"?b".into(),
            ..expected()
        };
        assert_eq!(parse(&line), Some(expected));
        let aborted = LINE.replace("10/0/30/69/109 200 2750 - - ----", "-1/-1/-1/-1/+50001 -1 0 - - cR--");
        assert_eq!(parse(&aborted), Some(LoggedRequest { status: None, ..self::expected() }));
        let unix = LINE.replace("10.0.1.2:33317", "unix:1");
        assert_eq!(parse(&unix), Some(LoggedRequest { client: None, ..self::expected() }));
    }

    #[test]
    fn other_lines_are_rejected() {
        let tcp = "Feb  6 12:12:56 localhost haproxy[14387]: 10.0.1.2:33313 [06/Feb/2009:12:12:51.443] fnt bck/srv1 0/0/5007 212 -- 0/0/0/0/3 0/0";
        let (cut, _) = LINE.split_once(" HTTP").unwrap();
        for line in [
            tcp,
            cut,
            "Feb  6 12:12:09 localhost haproxy[14385]: Connect from 10.0.1.2:33312 to 10.0.3.31:8012 (www/HTTP)",
        ] {
            assert_eq!(parse(line), None, "{line}");
        }
    }
}
