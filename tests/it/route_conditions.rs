//! Routes that match values, networks and exclusions: no spelling and no repetition bypasses a condition.

use crate::support::gateway::TestGateway;
use crate::support::wire::frames::Frames;
use crate::support::wire::upstream::Origin;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// Returns rules whose route `own` has these conditions and a limit. All other requests match `rest`.
fn rules(origin: &Origin, more: &str, conditions: &str) -> String {
    let origin = origin.address;
    format!(
        "{more}
upstreams: {{ api: {{ targets: ['http://{origin}'] }} }}
routes:
  - name: own
    match: {{ {conditions} }}
    upstream: api
    limits: [{{ name: own, mode: PER_CLIENT, client: ip, rate: 1000, interval: 1h }}]
  - {{ name: rest, match: {{ path: /** }}, upstream: api }}"
    )
}

/// Checks the status of each request, and whether the route with the limit applies.
async fn assert_routes(more: &str, conditions: &str, requests: &[(&str, &str, u16, bool)]) {
    let origin = Origin::with_response(OK).await;
    let gateway = TestGateway::start(&rules(&origin, more, conditions));
    for (target, fields, status, is_own) in requests {
        let response = gateway.get(target, fields).await;
        let outcome = (response.status(), response.field("ratelimit").is_some());
        assert_eq!(outcome, (*status, *is_own), "{conditions}: {target} {fields:?}");
    }
    let forwarded = requests.iter().filter(|(_, _, status, _)| *status == 200).count();
    assert_eq!(origin.requests().len(), forwarded, "{conditions}");
}

#[tokio::test]
async fn no_spelling_bypasses_a_condition_on_a_query() {
    let requests = [
        ("/?v=2", "", 200, true),
        ("/?a=1&%76=%32", "", 200, true),
        ("/?v=3", "", 200, false),
        ("/", "", 200, false),
        ("/?v=2&v=3", "", 400, false),
        ("/?v=3&v=2", "", 400, false),
        ("/?v=3&v=4", "", 200, false),
        ("/?V=2", "", 400, false),
        ("/?v[]=2", "", 400, false),
        ("/?v=3;v=2", "", 400, false),
        ("/?x=1;v=2", "", 400, false),
        ("/?v=2%00", "", 400, false),
        ("/?tag[]=1&tag[]=2;x=1", "", 200, false),
    ];
    assert_routes("", "query: { v: '2' }", &requests).await;
}

#[tokio::test]
async fn ambiguous_value_is_rejected_only_where_it_decides() {
    let requests = [("/a?v=2&v=3", "", 400, false), ("/b?v=2&v=3", "", 200, false)];
    assert_routes("", "path: [/a/**, /c], query: { v: '2' }", &requests).await;
    let requests = [("/?v=2&v=3&w=2", "", 400, false), ("/?v=2&v=3&w=3", "", 200, false)];
    assert_routes("", "query: { v: '2', w: '2' }", &requests).await;
}

#[tokio::test]
async fn empty_value_is_neither_present_nor_absent() {
    let requests = [
        ("/", "", 200, true),
        ("/", "X-Api-Key: 1\r\n", 200, false),
        ("/", "X-Api-Key:\r\n", 400, false),
        ("/", "X-Api-Key: 1\r\nX-Api-Key: 2\r\n", 200, false),
        ("/", "X-Api-Key: \r\nX-Api-Key: 2\r\n", 400, false),
        ("/?debug=1", "", 200, false),
        ("/?debug", "", 400, false),
        ("/?Debug=1", "", 400, false),
        ("/", "Cookie: sid=1\r\n", 200, false),
        ("/", "Cookie: sid=\r\n", 400, false),
        ("/", "Cookie: a=1\r\nCookie: sid2=1\r\n", 200, true),
    ];
    let conditions = "headers: { x-api-key: absent }, query: { debug: absent }, cookies: { sid: absent }";
    assert_routes("", conditions, &requests).await;
}

#[tokio::test]
async fn words_in_a_list_are_values() {
    let requests = [
        ("/", "", 200, false),
        ("/", "X-State: absent\r\n", 200, true),
        ("/", "X-State: new\r\n", 200, true),
        ("/", "X-State: present\r\n", 200, false),
    ];
    assert_routes("", "headers: { x-state: [absent, new] }", &requests).await;
}

#[tokio::test]
async fn repeated_cookie_is_rejected() {
    let requests = [
        ("/", "Cookie: tier=free\r\n", 200, true),
        ("/", "Cookie: a=1; tier=trial\r\n", 200, true),
        ("/", "Cookie: tier=gold\r\n", 200, false),
        ("/", "Cookie: tier=gold; tier=free\r\n", 400, false),
        ("/", "Cookie: tier=gold\r\nCookie: tier=free\r\n", 400, false),
        ("/", "Cookie: tier=\"free\"\r\n", 400, false),
        ("/", "Cookie: tier=%66ree\r\n", 400, false),
        ("/", "Cookie: a=1, tier=free\r\n", 400, false),
    ];
    assert_routes("", "cookies: { tier: [free, trial] }", &requests).await;
}

#[tokio::test]
async fn networks_match_the_client_behind_trusted_proxies() {
    let direct = [("/", "", 200, true), ("/", "X-Forwarded-For: 192.0.2.1\r\n", 200, true)];
    assert_routes("", "clients: [10.0.0.0/8, 127.0.0.1]", &direct).await;
    let proxied = [
        ("/", "X-Forwarded-For: 10.1.2.3\r\n", 200, true),
        ("/", "X-Forwarded-For: 192.0.2.1\r\n", 200, false),
        ("/", "X-Forwarded-For: 10.1.2.3, 192.0.2.1\r\n", 200, false),
        ("/", "X-Forwarded-For: unknown\r\n", 400, false),
    ];
    assert_routes("clients: { trusted_proxies: [127.0.0.1] }", "clients: 10.0.0.0/8", &proxied).await;
}

#[tokio::test]
async fn excluded_requests_match_later_routes() {
    let requests = [
        ("/orders/1", "", 200, true),
        ("/orders/internal/1", "", 200, false),
        ("/orders/%69nternal/1", "", 200, false),
        ("/orders/1?dry=1", "", 200, true),
        ("/orders/1?dry=1", "X-Env: test\r\n", 200, false),
        ("/orders/1?dry=1&dry=2", "X-Env: test\r\n", 400, false),
        ("/other", "", 200, false),
    ];
    let not = "not: [{ path: /orders/internal/** }, { query: { dry: '1' }, headers: { x-env: test } }]";
    assert_routes("", &format!("path: /orders/**, {not}"), &requests).await;
}

#[tokio::test]
async fn several_hosts_and_paths_match() {
    let origin = Origin::with_response(OK).await;
    let gateway = TestGateway::start(&rules(&origin, "", "host: [a.example, '*.b.example'], path: [/x, '/y/{id}']"));
    for (host, path, is_own) in [
        ("a.example", "/x", true),
        ("c.b.example", "/y/1", true),
        ("A.Example:80", "/x/", true),
        ("b.example", "/x", false),
        ("a.example", "/y", false),
    ] {
        let ask = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let response = gateway.client().await.ask(ask).await;
        assert_eq!((response.status(), response.field("ratelimit").is_some()), (200, is_own), "{host}{path}");
    }
}

#[tokio::test]
async fn conditions_apply_to_http2() {
    let origin = Origin::with_response(OK).await;
    let gateway = TestGateway::start(&rules(&origin, "", "query: { v: '2' }").replace("rate: 1000", "rate: 1"));
    let mut client = Frames::connect(gateway.address, &[]).await;
    for (stream, target, status) in
        [(1, "/?v=2", 200), (3, "/?%76=2", 429), (5, "/?v=3", 200), (7, "/?v=2&v=3", 400), (9, "/?v=3;v=2", 400)]
    {
        client.get(stream, target).await;
        assert_eq!(client.status(stream).await, status, "{target}");
    }
}

/// Every spelling that the gateway forwards as a path of the pattern meets the condition.
#[tokio::test]
async fn no_spelling_bypasses_a_pattern_of_paths() {
    let requests = [
        ("/img-1.png", "", 200, true),
        ("/img-.png/", "", 200, true),
        ("/%69mg-%61.pn%67?x", "", 200, true),
        ("//x/..//img-a.png;v=1", "", 200, true),
        ("/img-a.png/x", "", 200, false),
        ("/IMG-a.png", "", 200, false),
        ("/img-a%2Fb.png", "", 400, false),
        ("/img-a.png%2f..%2fx", "", 400, false),
        ("/v1/users", "", 200, true),
        ("/v1/x/users", "", 200, false),
        ("/a/b/c.css", "", 200, true),
        ("/c.css;x.html", "", 200, true),
        ("/a/./%2e/c.css/", "", 200, true),
        ("/c.css/d", "", 200, false),
    ];
    assert_routes("", "path: ['/img-*.png', '/v*/users', '/**/*.css']", &requests).await;
    let kept = [("/img-a%2Fb.png", "", 200, true), ("/img-a%2fb.png", "", 200, true)];
    assert_routes("requests: { encoded_slash: keep }", "path: '/img-*.png'", &kept).await;
    let any_case =
        [("/LOGIN/a.PHP", "", 200, true), ("/l%4Fgin/A.php", "", 200, true), ("/login/a.php5", "", 200, false)];
    assert_routes("", "case: insensitive, path: '/Login/*.php'", &any_case).await;
}

#[tokio::test]
async fn patterns_match_fields_parameters_and_cookies() {
    let requests = [
        ("/", "User-Agent: curl/8.5\r\n", 200, true),
        ("/", "User-Agent: \t curl/8.5 \r\n", 200, true),
        ("/", "User-Agent: Curl/8.5\r\n", 200, false),
        ("/", "User-Agent: xcurl/8\r\n", 200, false),
        ("/", "User-Agent: GoogleBot/2\r\n", 200, true),
        ("/", "User-Agent: curl/8\r\nUser-Agent: x\r\n", 400, false),
        ("/", "", 200, false),
    ];
    assert_routes("", "headers: { user-agent: [{ prefix: curl/ }, { regex: '(?i)bot/\\d+$$' }] }", &requests).await;
    let requests = [
        ("/?q=abc", "", 200, true),
        ("/?q=%61b%63", "", 200, true),
        ("/?q=ac", "", 200, true),
        ("/?q=ab", "", 200, false),
        ("/?q=a&q=c", "", 400, false),
        ("/?Q=abc", "", 400, false),
    ];
    assert_routes("", "query: { q: { prefix: a, suffix: c } }", &requests).await;
    let requests = [
        ("/", "Cookie: x=1; sid=VIP-7\r\n", 200, true),
        ("/", "Cookie: sid=vip\r\n", 200, true),
        ("/", "Cookie: sid=%76ip\r\n", 400, false),
        ("/", "Cookie: sid=other\r\n", 200, false),
    ];
    assert_routes("", "case: insensitive, cookies: { sid: { contains: vip } }", &requests).await;
}
