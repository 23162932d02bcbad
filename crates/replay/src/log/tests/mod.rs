//! Tests of all formats: examples in JSON, recognition, and properties of lines.

mod arbitrary;

use super::*;

const TIDEGATE: &str = r#"{"timestamp":"2026-05-04T10:00:00.250000Z","level":"INFO","message":"GET /orders","status":429,"route":"api","limits":"limited","limit":"per-ip","upstream":"orders","target":"http://10.0.1.5:9000","at":1777888800000,"client":"192.0.2.1","peer":"10.0.0.7","bytes":256,"bytes_in":0,"wait_ms":0.021,"head_ms":0.127,"ms":0.201,"protocol":"HTTP/1.1","request_id":"r-1","method":"GET","path":"/orders","host":"api.example","user_agent":"curl/8.5.0"}"#;
const TIDEGATE_TEXT: &str = r#"2026-05-04T10:00:00.000000Z  INFO GET /orders status=200 route="api" limits="allowed" at=1777888800000 client=192.0.2.1 peer=10.0.0.7 bytes=512 ms=3.201 protocol="HTTP/1.1" host="api.example""#;
const RECORDED: &str = r#"{"time":1777888800123,"client":"192.0.2.1","method":"GET","path":"/orders?page=2","host":"api.example","status":200,"route":"api","headers":{"x-api-key":"5f0e"}}"#;
const ENVOY: &str = r#"[2016-04-15T20:17:00.310Z] "POST /api/v1/locations HTTP/2" 204 - 154 0 226 100 "10.0.35.28" "nsq2http" "cc21d9b0" "locations" "tcp://10.0.2.1:80""#;
const ISTIO: &str = r#"{"start_time":"2020-11-25T21:26:18.409Z","route_name":"default","method":"GET","path":"/status/418","protocol":"HTTP/1.1","response_code":418,"response_flags":"-","bytes_sent":135,"duration":3,"x_forwarded_for":null,"user_agent":"curl/7.73.0-DEV","request_id":"84961386","authority":"httpbin:8000","upstream_host":"127.0.0.1:80","downstream_remote_address":"10.44.1.23:37652","requested_server_name":"-"}"#;
const CADDY: &str = r#"{"level":"info","ts":1646861401.5241024,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":"127.0.0.1","remote_port":"41342","client_ip":"192.0.2.1","proto":"HTTP/2.0","method":"GET","host":"localhost","uri":"/a?b=\u00e4","headers":{"User-Agent":["curl/7.82.0"],"Accept":["*/*","text/html"],"Cookie":["REDACTED"]},"tls":{"resumed":false,"version":772,"server_name":"example.com"}},"bytes_read":0,"user_id":"","duration":0.000929675,"size":10900,"status":200,"resp_headers":{"Server":["Caddy"]}}"#;
const NGINX: &str = r#"{"time_local":"26/Nov/2026:07:10:35 +0100","msec":"1795673435.123","remote_addr":"192.0.2.1","request":"GET /a?b=c HTTP/1.1","status":"200","host":"example.com","request_time":"0.003","http_user_agent":"Mozilla/5.0","http_referer":"","http_x_api_key":"k1"}"#;
const HAPROXY: &str = r#"Feb  6 12:14:14 localhost haproxy[14389]: 10.0.1.2:33317 [06/Feb/2009:12:14:14.655] http-in static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {1wt.eu} {} "GET /index.html HTTP/1.1""#;
const ALB: &str = r#"http 2018-07-02T22:23:00.186641Z app/my-loadbalancer/50dc6c495c0c9188 192.168.131.39:2817 10.0.0.1:80 0.000 0.001 0.000 200 200 34 366 "GET http://www.example.com:80/ HTTP/1.1" "curl/7.46.0" - - arn:aws:elasticloadbalancing:us-east-2:123456789012:targetgroup/my-targets/73e2d6bc24d8a067 "Root=1-58337262-36d228ad5d99923122bbe354" "-" "-" 0 2018-07-02T22:22:48.364000Z "forward" "-" "-" "10.0.0.1:80" "200" "-" "-""#;
const COMBINED: &str = r#"192.0.2.1 - - [26/Nov/2026:07:10:35 +0100] "GET /a HTTP/1.1" 200 612 "-" "Mozilla/5.0""#;
const COMMON: &str = r#"192.0.2.1 - frank [26/Nov/2026:07:10:35 +0100] "GET /a HTTP/1.1" 200 612"#;

/// A line of each format, with the name of the format.
const LINES: [(&str, &str); 11] = [
    ("tidegate", TIDEGATE),
    ("tidegate", TIDEGATE_TEXT),
    ("tidegate", RECORDED),
    ("envoy", ENVOY),
    ("envoy", ISTIO),
    ("caddy", CADDY),
    ("nginx-json", NGINX),
    ("haproxy", HAPROXY),
    ("alb", ALB),
    ("combined", COMBINED),
    ("common", COMMON),
];

fn fields<'l>(fields: &[(&'l str, &'l str)]) -> Vec<(Cow<'l, str>, Cow<'l, str>)> {
    fields.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
}

fn parse<'l>(format: &str, line: &'l str) -> Option<LoggedRequest<'l>> {
    LogFormat::parse_mapping(format).unwrap().parse(line.as_bytes())
}

fn recognized(lines: &[&[u8]]) -> Option<String> {
    LogFormat::recognize(lines).map(|format| format.name().to_owned())
}

#[test]
fn json_of_tidegate_is_parsed() {
    let expected = LoggedRequest {
        time: 1_777_888_800_000,
        client: "192.0.2.1".parse().ok(),
        method: "GET".into(),
        target: "/orders".into(),
        host: Some("api.example".into()),
        status: Some(429),
        route: Some("api".into()),
        id: Some("r-1".into()),
        headers: fields(&[("user-agent", "curl/8.5.0")]),
        was_limited: true,
        identity: None,
    };
    assert_eq!(parse("tidegate", TIDEGATE), Some(expected.clone()));
    let undecided = TIDEGATE.replace(r#""at":1777888800000,"client":"192.0.2.1","#, "").replace("\"api\"", "\"-\"");
    let client = "10.0.0.7".parse().ok();
    let undecided_expected = LoggedRequest { time: 1_777_888_800_250, client, route: None, ..expected.clone() };
    assert_eq!(parse("tidegate", &undecided), Some(undecided_expected));
    let recorded = LoggedRequest {
        time: 1_777_888_800_123,
        target: "/orders?page=2".into(),
        status: Some(200),
        id: None,
        headers: fields(&[("x-api-key", "5f0e")]),
        was_limited: false,
        ..expected
    };
    assert_eq!(parse("tidegate", RECORDED), Some(recorded));
}

#[test]
fn json_of_istio_is_parsed() {
    let expected = LoggedRequest {
        time: 1_606_339_578_409,
        client: "10.44.1.23".parse().ok(),
        method: "GET".into(),
        target: "/status/418".into(),
        host: Some("httpbin:8000".into()),
        status: Some(418),
        route: None,
        id: Some("84961386".into()),
        headers: fields(&[("user-agent", "curl/7.73.0-DEV")]),
        was_limited: false,
        identity: None,
    };
    assert_eq!(parse("envoy", ISTIO), Some(expected));
}

#[test]
fn json_of_caddy_is_parsed() {
    let expected = LoggedRequest {
        time: 1_646_861_401_524,
        client: "192.0.2.1".parse().ok(),
        method: "GET".into(),
        target: "/a?b=ä".into(),
        host: Some("localhost".into()),
        status: Some(200),
        route: None,
        id: None,
        headers: fields(&[("User-Agent", "curl/7.82.0"), ("Accept", "*/*"), ("Accept", "text/html")]),
        was_limited: false,
        identity: None,
    };
    assert_eq!(parse("caddy", CADDY), Some(expected.clone()));
    let old = CADDY.replace("\"client_ip\":\"192.0.2.1\",", "");
    assert_eq!(parse("caddy", &old), Some(LoggedRequest { client: "127.0.0.1".parse().ok(), ..expected }));
}

#[test]
fn json_of_nginx_is_parsed() {
    let expected = LoggedRequest {
        time: 1_795_673_435_123,
        client: "192.0.2.1".parse().ok(),
        method: "GET".into(),
        target: "/a?b=c".into(),
        host: Some("example.com".into()),
        status: Some(200),
        route: None,
        id: None,
        headers: fields(&[("user-agent", "Mozilla/5.0"), ("x-api-key", "k1")]),
        was_limited: false,
        identity: None,
    };
    assert_eq!(parse("nginx-json", NGINX), Some(expected.clone()));
    let parts = NGINX.replace(r#""request":"GET /a?b=c HTTP/1.1""#, r#""method":"GET","args":"b=c","uri":"/a""#);
    assert_eq!(parse("json", &parts), Some(expected.clone()));
    let unescaped = NGINX.replace("Mozilla/5.0", r"a\x22b");
    let expected = LoggedRequest { headers: fields(&[("user-agent", "a\"b"), ("x-api-key", "k1")]), ..expected };
    assert_eq!(parse("nginx-json", &unescaped), Some(expected));
    let proxied = NGINX.replace("192.0.2.1\"", "unix:\",\"http_x_forwarded_for\":\"192.0.2.9, 10.0.0.1\"");
    assert_eq!(parse("nginx-json", &proxied).unwrap().client, "10.0.0.1".parse().ok());
}

#[test]
fn mapped_json_is_parsed() {
    let format = "json:time=when,client=from.ip,client=peer,method=verb,path=url,status=code,host=http.host,id=n,\
                  header.X-Api-Key=key,header.X-Api-Key=old";
    let line = r#"{"when":1795673435,"from":{"ip":["192.0.2.1","x"]},"peer":"10.0.0.1","verb":"GET","url":"https://a.example/b","code":"204","http.host":"c","n":7,"old":"k0","key":"k1"}"#;
    let expected = LoggedRequest {
        time: 1_795_673_435_000,
        client: "192.0.2.1".parse().ok(),
        method: "GET".into(),
        target: "/b".into(),
        host: Some("c".into()),
        status: Some(204),
        route: None,
        id: Some("7".into()),
        headers: fields(&[("X-Api-Key", "k1")]),
        was_limited: false,
        identity: None,
    };
    assert_eq!(parse(format, line), Some(expected));
    assert_eq!(LogFormat::parse_mapping(format).unwrap().name(), "json");
    for bad in [line.replace("204\"", "204"), line.replace("1795673435", "0.5"), format!("x{line}"), format!("{line}x")]
    {
        assert_eq!(parse(format, &bad), None, "{bad}");
    }
}

/// Each port that the Internet reaches gets such requests. They are a part of the traffic, not of another format.
#[test]
fn line_without_a_valid_request_is_an_invalid_request() {
    let (combined, common) = (
        |request: &str| COMBINED.replace("GET /a HTTP/1.1", request),
        |request: &str| COMMON.replace("GET /a HTTP/1.1", request),
    );
    let own = TIDEGATE_TEXT.replace("GET /orders status=200", "- - status=400");
    let json = TIDEGATE.replace(r#""method":"GET","path":"/orders","#, "").replace("429", "400");
    for (format, line) in [
        ("combined", combined("-").replace("200", "408")),
        ("combined", combined("- -").replace("200", "400")),
        ("combined", combined(r"\x16\x03\x01\x02").replace("200", "400")),
        ("common", common("SSH-2.0-Go")),
        ("haproxy", HAPROXY.replace("GET /index.html HTTP/1.1", "<BADREQ>")),
        ("alb", ALB.replace("GET http://www.example.com:80/ HTTP/1.1", "- http://www.example.com:80- ")),
        ("envoy", ENVOY.replace("POST /api/v1/locations HTTP/2", "- - -")),
        ("tidegate", own),
        ("tidegate", json),
        ("nginx-json", NGINX.replace("GET /a?b=c HTTP/1.1", "")),
    ] {
        let logged = parse(format, &line).unwrap_or_else(|| panic!("{line}"));
        assert_eq!((&*logged.method, &*logged.target), ("", ""), "{line}");
        assert!(logged.client.is_some() && logged.status.is_some() && logged.time > 0, "{line}");
        assert_eq!(recognized(&[line.as_bytes()]).as_deref(), Some(format), "{line}");
    }
    let tcp = ENVOY.replace("POST /api/v1/locations HTTP/2\" 204", "- - -\" 0");
    assert_eq!(parse("envoy", &tcp), None, "a TCP connection");
}

#[test]
fn names_of_formats_are_parsed() {
    for format in FORMATS {
        assert_eq!(LogFormat::parse_mapping(format.name()).unwrap().name(), format.name());
    }
    let expected = "unknown log format `iis`: use tidegate, envoy, caddy, nginx-json, haproxy, alb, combined, common, or a \
                    mapping `json:time=FIELD,method=FIELD,path=FIELD` or `text:$remote_addr [$time_local] \"$request\" \
                    $status`";
    assert_eq!(LogFormat::parse_mapping("iis").unwrap_err(), expected);
    assert!(LogFormat::parse_mapping("json:time=t").is_err());
}

#[test]
fn formats_are_recognized_by_their_lines() {
    for (name, line) in LINES {
        let (line, garbage) =
            (line.as_bytes(), &b"10.0.0.7 - - [26/Nov/2026:07:10:35 +0100] \"-\" 400 0 \"-\" \"-\""[..]);
        assert_eq!(recognized(&[line, line, line]).as_deref(), Some(name));
        assert_eq!(recognized(&[garbage, b"", line]).as_deref(), Some(name));
    }
    assert_eq!(recognized(&[]), None);
    assert_eq!(recognized(&[b"", b"{}", b"Nov 26 07:10:35 host sshd[1]: Connection closed"]), None);
    let (common, combined) = (COMMON.as_bytes(), COMBINED.as_bytes());
    assert_eq!(recognized(&[common, combined, common]).as_deref(), Some("common"));
}

#[test]
fn formats_reject_the_lines_of_others() {
    // `nginx-json` reads names of fields that Tidegate also uses, and a combined line begins with a common line.
    let is_superset =
        |format: &str, line: &str| matches!((format, line), ("nginx-json", "tidegate") | ("common", "combined"));
    for (name, line) in LINES {
        for format in FORMATS.iter().filter(|format| format.name() != name && !is_superset(format.name(), name)) {
            assert!(!format.recognizes(line.as_bytes(), false), "{}: {line}", format.name());
        }
    }
}

#[test]
fn line_ends_and_invalid_utf8_are_accepted() {
    for (name, line) in LINES {
        let format = LogFormat::parse_mapping(name).unwrap();
        let expected = format.parse(line.as_bytes());
        assert!(expected.is_some(), "{line}");
        for (start, end) in [("", "\n"), ("", "\r\n"), ("\u{feff}", "")] {
            assert_eq!(format.parse(format!("{start}{line}{end}").as_bytes()), expected, "{line}");
        }
    }
    let line = COMBINED.replace("/a", "/\u{1}").replace("Mozilla", "\u{2}").into_bytes();
    let line: Vec<u8> = line.into_iter().map(|byte| if byte < 3 { 0xff } else { byte }).collect();
    let logged = LogFormat::Combined.parse(&line).unwrap();
    assert_eq!((&*logged.target, &*logged.headers[0].1), ("/\u{fffd}", "\u{fffd}/5.0"));
}

#[test]
fn longer_lines_are_rejected() {
    for (name, line) in LINES {
        let format = LogFormat::parse_mapping(name).unwrap();
        let long = |length: usize| {
            let method = if line.contains("POST") { "POST" } else { "GET" };
            let at = line.find(method).unwrap() + method.len();
            format!("{}{}{}", &line[..at], "T".repeat(length - line.len()), &line[at..])
        };
        assert!(format.parse(long(MAX_LINE).as_bytes()).is_some(), "{line}");
        assert_eq!(format.parse(long(MAX_LINE + 1).as_bytes()), None);
    }
}
