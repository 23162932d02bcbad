//! The default text format of Envoy, and that of Istio, which has more fields.

use super::LoggedRequest;
use super::request::RequestLine;
use super::text::{self, Scanner};
use super::time;

/// The quoted fields of Envoy: `X-Forwarded-For`, the user agent, the request id, the authority, and the upstream.
const QUOTED: usize = 5;

pub(super) fn parse(line: &str) -> Option<LoggedRequest<'_>> {
    let mut scanner = Scanner::new(line);
    let time = time::parse(scanner.bracketed()?)?;
    let request = scanner.quoted()?;
    let (status, _flags) = (scanner.word()?, scanner.word()?);
    // Istio adds details, and a quoted failure of the upstream.
    let (details, rest) = scanner.rest().split_once('"')?;
    let is_istio = details.split_ascii_whitespace().count() < 4;
    let mut scanner = Scanner::new(&scanner.rest()[details.len()..]);
    if is_istio {
        scanner.quoted()?;
        let (numbers, _) = scanner.rest().split_once('"')?;
        scanner = Scanner::new(&scanner.rest()[numbers.len()..]);
    } else if rest.matches('"').count() < 2 * QUOTED - 1 {
        return None;
    }
    let (forwarded, user_agent, id) = (scanner.quoted_value(), scanner.quoted_value(), scanner.quoted_value());
    let host = scanner.quoted_value();
    scanner.quoted()?;
    // The addresses of Istio follow: the cluster, our address to the upstream, and both ends of the client's connection.
    let [_cluster, _local, _downstream_local, downstream] = [(); 4].map(|()| scanner.word());
    let client = forwarded.as_deref().and_then(text::last_address);
    let client = downstream.filter(|_| is_istio).and_then(text::address).or(client);
    // A line about a TCP connection has no status.
    let has_status = text::status(status).is_some();
    let request = RequestLine::parse_or_invalid(&request, client.filter(|_| has_status))?;
    let mut logged = LoggedRequest { client, id, status: text::status(status), ..LoggedRequest::new(time, request) };
    logged.host = host.or(logged.host);
    logged.add_header("user-agent", user_agent);
    logged.add_header("x-forwarded-for", forwarded);
    Some(logged)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENVOY: &str = r#"[2016-04-15T20:17:00.310Z] "POST /api/v1/locations HTTP/2" 204 - 154 0 226 100 "10.0.35.28" "nsq2http" "cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2" "locations" "tcp://10.0.2.1:80""#;
    const ISTIO: &str = r#"[2020-11-25T21:26:18.409Z] "GET /status/418 HTTP/1.1" 418 - via_upstream - "-" 0 135 3 1 "-" "curl/7.73.0-DEV" "84961386-6d84-929d-98bd-c5aee93b5c88" "httpbin:8000" "127.0.0.1:80" inbound|8000|| 127.0.0.1:41854 10.44.1.27:80 10.44.1.23:37652 outbound_.8000_._.httpbin.foo.svc.cluster.local default"#;

    #[test]
    fn lines_of_envoy_are_parsed() {
        let expected = LoggedRequest {
            time: 1_460_751_420_310,
            client: "10.0.35.28".parse().ok(),
            method: "POST".into(),
            target: "/api/v1/locations".into(),
            host: Some("locations".into()),
            status: Some(204),
            route: None,
            id: Some("cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2".into()),
            headers: vec![("user-agent".into(), "nsq2http".into()), ("x-forwarded-for".into(), "10.0.35.28".into())],
            was_limited: false,
            identity: None,
        };
        assert_eq!(parse(ENVOY), Some(expected.clone()));
        let absent = ENVOY.replace("\"10.0.35.28\" \"nsq2http\"", "\"-\" \"-\"").replace(" 204 ", " 0 ");
        let expected = LoggedRequest { client: None, status: None, headers: Vec::new(), ..expected };
        assert_eq!(parse(&absent), Some(expected));
    }

    #[test]
    fn lines_of_istio_are_parsed() {
        let expected = LoggedRequest {
            time: 1_606_339_578_409,
            client: "10.44.1.23".parse().ok(),
            method: "GET".into(),
            target: "/status/418".into(),
            host: Some("httpbin:8000".into()),
            status: Some(418),
            route: None,
            id: Some("84961386-6d84-929d-98bd-c5aee93b5c88".into()),
            headers: vec![("user-agent".into(), "curl/7.73.0-DEV".into())],
            was_limited: false,
            identity: None,
        };
        assert_eq!(parse(ISTIO), Some(expected));
    }

    #[test]
    fn other_lines_are_rejected() {
        let (cut, _) = ENVOY.split_once(" \"locations\"").unwrap();
        let tcp = r#"[2016-04-15T20:17:00.310Z] "- - -" 0 - 154 0 226 - "-" "-" "-" "-" "10.0.2.1:80""#;
        for line in [cut, tcp, "[2016-04-15T20:17:00.310Z]", "[x] \"GET / HTTP/2\" 200"] {
            assert_eq!(parse(line), None, "{line}");
        }
    }
}
