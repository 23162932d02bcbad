//! The Common and the Combined Log Format of Apache and nginx.

use std::borrow::Cow;

use super::LoggedRequest;
use super::request::RequestLine;
use super::text::{self, Scanner};
use super::time;

/// Parses a line of the Common Log Format, and ignores further fields.
pub(super) fn parse_common(line: &str) -> Option<LoggedRequest<'_>> {
    parse(line).map(|(request, _)| request)
}

/// Parses a line of the Combined Log Format. Of further fields, it reads only the value of `X-Forwarded-For` that
/// directly follows, as in the format `main` of nginx.
pub(super) fn parse_combined(line: &str) -> Option<LoggedRequest<'_>> {
    let (mut request, mut rest) = parse(line)?;
    let (referer, user_agent) = (rest.quoted()?, rest.quoted()?);
    let forwarded = rest.quoted_value().filter(|value| text::last_address(value).is_some());
    request.headers.reserve_exact(if forwarded.is_some() { 3 } else { 2 });
    request.add_header("user-agent", text::present(user_agent));
    request.add_header("referer", text::present(referer));
    request.add_header("x-forwarded-for", forwarded);
    Some(request)
}

fn parse(line: &str) -> Option<(LoggedRequest<'_>, Scanner<'_>)> {
    // The name of a user can contain spaces and brackets.
    let (before, time, mut scanner) = time::find_clf(line)?;
    let mut before = Scanner::new(before);
    let first = before.word()?;
    let (client, host) = match text::address(first) {
        Some(address) => (Some(address), None),
        // The format `vhost_combined` of Apache starts with the virtual host. Without an address, `first` is the name
        // of the client.
        None => before.word().and_then(text::address).map(|address| (address, first)).unzip(),
    };
    let request = RequestLine::parse_or_invalid(&scanner.quoted()?, client)?;
    let status = scanner.word()?;
    if status.len() != 3 {
        return None;
    }
    scanner.number()?; // the bytes of the response
    let mut request = LoggedRequest::new(time, request);
    (request.client, request.status) = (client, text::status(status));
    request.host = request.host.or(host.map(Cow::Borrowed));
    Some((request, scanner))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logged<'l>(time: u64, client: &str, target: &'l str, headers: &[(&'l str, &'l str)]) -> LoggedRequest<'l> {
        let headers = headers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let client = client.parse().ok();
        LoggedRequest {
            time,
            client,
            method: "GET".into(),
            target: target.into(),
            status: Some(200),
            headers,
            ..Default::default()
        }
    }

    #[test]
    fn common_lines_are_parsed() {
        let apache = r#"127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326"#;
        let expected = logged(971_211_336_000, "127.0.0.1", "/apache_pb.gif", &[]);
        assert_eq!(parse_common(apache), Some(expected.clone()));
        for (from, to) in
            [(" 2326", " -"), (" 2326", " 2326 \"-\" \"-\" 0.012"), ("frank", "-"), ("frank", "john [x] doe")]
        {
            assert_eq!(parse_common(&apache.replace(from, to)), Some(expected.clone()), "{to}");
        }
        let unsent = apache.replace(" 200 ", " 000 ");
        assert_eq!(parse_common(&unsent), Some(LoggedRequest { status: None, ..expected.clone() }));
        let name = apache.replace("127.0.0.1", "client.example.com");
        assert_eq!(parse_common(&name), Some(LoggedRequest { client: None, ..expected.clone() }));
        let mapped = apache.replace("127.0.0.1", "::ffff:127.0.0.1");
        assert_eq!(parse_common(&mapped), Some(expected));
    }

    #[test]
    fn combined_lines_are_parsed() {
        let apache = r#"127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326 "http://www.example.com/start.html" "Mozilla/4.08 [en] (Win98; I ;Nav)""#;
        let fields =
            [("user-agent", "Mozilla/4.08 [en] (Win98; I ;Nav)"), ("referer", "http://www.example.com/start.html")];
        let expected = logged(971_211_336_000, "127.0.0.1", "/apache_pb.gif", &fields);
        assert_eq!(parse_combined(apache), Some(expected.clone()));
        assert_eq!(parse_combined(&format!("{apache} 0.012 \"x\"")), Some(expected.clone()));
        assert_eq!(parse_combined(&format!("{apache} \"-\" \"x\"")), Some(expected.clone()));
        let vhost = format!("example.com:443 {apache}");
        let with_host = LoggedRequest { host: Some("example.com:443".into()), ..expected.clone() };
        assert_eq!(parse_combined(&vhost), Some(with_host));
        let main = format!("{apache} \"192.0.2.1, 10.0.0.1\"");
        let mut forwarded = expected;
        forwarded.headers.push(("x-forwarded-for".into(), "192.0.2.1, 10.0.0.1".into()));
        assert_eq!(parse_combined(&main), Some(forwarded));
    }

    #[test]
    fn escapes_of_both_servers_are_resolved() {
        let nginx = r#"2001:db8::1 - - [26/Nov/2026:07:10:35 +0100] "GET /a\x22b?c HTTP/2.0" 200 0 "-" "x\x22 200 1 \"\\ \xC3\xA4""#;
        let expected = logged(1_795_673_435_000, "2001:db8::1", "/a\"b?c", &[("user-agent", "x\" 200 1 \"\\ ä")]);
        assert_eq!(parse_combined(nginx), Some(expected));
    }

    #[test]
    fn lines_of_other_formats_are_rejected() {
        let prefix = "10.0.0.7 - - [26/Nov/2026:07:10:35 +0100]";
        for rest in [
            r#" "GET / HTTP/1.1" 200"#,
            r#" "GET / HTTP/1.1" 20 1 "-" "-""#,
            r#" "GET / HTTP/1.1" 200 x "-" "-""#,
            r#" "GET / HTTP/1.1 200 1 "#,
            " http-in static/srv1",
        ] {
            assert_eq!(
                (parse_common(&format!("{prefix}{rest}")), parse_combined(&format!("{prefix}{rest}"))),
                (None, None),
                "{rest}"
            );
        }
        assert_eq!(parse_combined(&format!(r#"{prefix} "GET / HTTP/1.1" 200 1"#)), None);
        assert_eq!(parse_combined(&format!(r#"{prefix} "GET / HTTP/1.1" 200 1 "-" "cut"#)), None);
        assert_eq!(parse_common(r#"10.0.0.7 - - [26/Nov/2026] "GET / HTTP/1.1" 200 1"#), None);
    }
}
