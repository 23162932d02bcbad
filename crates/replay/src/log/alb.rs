//! The access log of load balancers of AWS (Application and Classic).

use super::LoggedRequest;
use super::request::RequestLine;
use super::text::{self, Scanner};
use super::time;

/// The first field of an Application Load Balancer. Lines of a Classic Load Balancer start with the time.
const TYPES: [&str; 6] = ["http", "https", "h2", "grpcs", "ws", "wss"];

pub(super) fn parse(line: &str) -> Option<LoggedRequest<'_>> {
    let mut scanner = Scanner::new(line);
    let first = scanner.word()?;
    let sent = if TYPES.contains(&first) { scanner.word()? } else { first };
    let sent = time::parse_rfc3339(sent)?; // the time of the response
    let _balancer = scanner.word()?;
    let client = text::address_with_port(scanner.word()?);
    // The target, three durations, and the statuses of the load balancer and of the target.
    let [_, _, _, _, status, _] = [(); 6].map(|()| scanner.word());
    scanner.number()?;
    scanner.number()?;
    let request = RequestLine::parse_or_invalid(&scanner.quoted()?, client)?;
    let user_agent = scanner.quoted()?;
    let (trace, created) = details(scanner).unzip();
    let time = created.flatten().unwrap_or(sent);
    let mut logged = LoggedRequest { client, status: text::status(status?), ..LoggedRequest::new(time, request) };
    logged.id = trace.and_then(text::present);
    logged.add_header("user-agent", text::present(user_agent));
    Some(logged)
}

/// Returns the trace id, and the time when the load balancer received the request.
fn details(mut scanner: Scanner<'_>) -> Option<(std::borrow::Cow<'_, str>, Option<u64>)> {
    let (_cipher, _protocol, _target_group) = (scanner.word()?, scanner.word()?, scanner.word()?);
    let trace = scanner.quoted()?;
    let (_domain, _certificate, _priority) = (scanner.quoted()?, scanner.quoted()?, scanner.word()?);
    Some((trace, time::parse_rfc3339(scanner.word()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"https 2018-07-02T22:23:00.186641Z app/my-loadbalancer/50dc6c495c0c9188 192.168.131.39:2817 10.0.0.1:80 0.086 0.048 0.037 200 200 0 57 "GET https://www.example.com:443/ HTTP/1.1" "curl/7.46.0" ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2 arn:aws:elasticloadbalancing:us-east-2:123456789012:targetgroup/my-targets/73e2d6bc24d8a067 "Root=1-58337281-1d84f3d73c47ec4e58577259" "www.example.com" "arn:aws:acm:us-east-2:123456789012:certificate/12345678-1234-1234-1234-123456789012" 1 2018-07-02T22:22:48.364000Z "authenticate,forward" "-" "-" "10.0.0.1:80" "200" "-" "-" TID_123456"#;

    fn expected() -> LoggedRequest<'static> {
        LoggedRequest {
            time: 1_530_570_168_364,
            client: "192.168.131.39".parse().ok(),
            method: "GET".into(),
            target: "/".into(),
            host: Some("www.example.com".into()),
            status: Some(200),
            route: None,
            id: Some("Root=1-58337281-1d84f3d73c47ec4e58577259".into()),
            headers: vec![("user-agent".into(), "curl/7.46.0".into())],
            was_limited: false,
            identity: None,
        }
    }

    #[test]
    fn application_load_balancer_is_parsed() {
        assert_eq!(parse(LINE), Some(expected()));
        let ipv6 = LINE
            .replace("192.168.131.39:", "[2001:db8::1]:")
            .replace("10.0.0.1:80 0.086 0.048 0.037 200 200", "- -1 -1 -1 460 -");
        let expected = LoggedRequest { client: "2001:db8::1".parse().ok(), status: Some(460), ..expected() };
        assert_eq!(parse(&ipv6), Some(expected));
    }

    #[test]
    fn classic_load_balancer_is_parsed() {
        let line = r#"2015-05-13T23:39:43.945958Z my-loadbalancer 192.168.131.39:2817 10.0.0.1:80 0.000073 0.001048 0.000057 200 200 0 29 "GET http://www.example.com:80/ HTTP/1.1" "curl/7.38.0" - -"#;
        let headers = vec![("user-agent".into(), "curl/7.38.0".into())];
        assert_eq!(parse(line), Some(LoggedRequest { time: 1_431_560_383_945, id: None, headers, ..expected() }));
    }

    #[test]
    fn other_lines_are_rejected() {
        let (cut, _) = LINE.split_once(" HTTP/1.1").unwrap();
        for line in [cut, "https", "https 2018-07-02T22:23:00.186641Z app/a 192.168.131.39:2817"] {
            assert_eq!(parse(line), None, "{line}");
        }
    }
}
