//! Different spellings of a request: if an origin may treat them as equal, the gateway counts them as equal or rejects
//! them.

use crate::support::gateway::TestGateway;
use crate::support::wire::upstream::Origin;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// Returns rules with two routes. Only `login` has limits. `more` is prepended.
fn rules(origin: &Origin, more: &str, limits: &str) -> String {
    let origin = origin.address;
    format!(
        "{more}
upstreams: {{ api: {{ targets: ['http://{origin}'] }} }}
routes:
  - name: login
    match: {{ path: /api/login }}
    upstream: api
    limits: [{limits}]
  - {{ name: rest, match: {{ path: /** }}, upstream: api }}"
    )
}

const LOGIN: &str = "{ name: login, mode: PER_CLIENT, client: ip, rate: 1000, interval: 1h }";

/// Sends a request for each path. Returns the route (`login` or `rest`) with the forwarded target, or the status of a
/// rejection.
async fn outcomes(more: &str, paths: &[&str]) -> Vec<String> {
    let origin = Origin::with_response(OK).await;
    let gateway = TestGateway::start(&rules(&origin, more, LOGIN));
    let mut outcomes = Vec::new();
    for path in paths {
        let before = origin.requests().len();
        let response = gateway.get(path, "").await;
        let is_login = response.field("ratelimit").is_some();
        outcomes.push(match origin.requests().get(before) {
            Some(sent) => {
                let sent = sent.start.split(' ').nth(1).unwrap_or_default();
                format!("{} {sent}", if is_login { "login" } else { "rest" })
            }
            None => response.status().to_string(),
        });
    }
    outcomes
}

#[tokio::test]
async fn no_spelling_of_a_path_bypasses_its_route() {
    let cases = [
        ("/api/login", "login /api/login"),
        ("/api/login/", "login /api/login/"),
        ("/api/login?x=1", "login /api/login?x=1"),
        ("/api/login;x=1", "login /api/login;x=1"),
        ("/api;v=1//login;x=/?a;b", "login /api;v=1/login;x=/?a;b"),
        ("/api/%6cogin%3bx", "login /api/login%3Bx"),
        ("/api/../login", "rest /login"),
        ("/api%2Flogin", "400"),
        ("/api%5Clogin", "400"),
        ("/api\\login", "400"),
        ("/api%252flogin", "400"),
        ("/api/public/..;/login", "400"),
        ("/api/public/..;x=1/login", "400"),
        ("/api/.;/login", "400"),
        ("/api/;/login", "400"),
        ("/api/public/%2e%2e%3b/login", "400"),
        ("/api/public/%252e%252e/login", "400"),
    ];
    let (paths, expected): (Vec<_>, Vec<_>) = cases.into_iter().unzip();
    assert_eq!(outcomes("", &paths).await, expected);
}

#[tokio::test]
async fn encoded_slash_is_forwarded_as_it_was_matched() {
    let paths = ["/api%2flogin", "/api%5clogin", "/api/a%2f..%2flogin", "/api/x%2fy"];
    let kept = ["rest /api%2Flogin", "rest /api%5Clogin", "400", "rest /api/x%2Fy"];
    assert_eq!(outcomes("requests: { encoded_slash: keep }", &paths).await, kept);
    let decoded = ["login /api/login", "login /api/login", "login /api/login", "rest /api/x/y"];
    assert_eq!(outcomes("requests: { encoded_slash: decode }", &paths).await, decoded);
    assert_eq!(outcomes("requests: { encoded_slash: reject }", &paths).await, ["400"; 4]);
}

#[tokio::test]
async fn kept_slashes_are_forwarded_and_not_matched() {
    let paths = ["//api///login", "/api//login//", "/api//x//y", "/api//../login"];
    let kept = ["login //api///login", "login /api//login//", "rest /api//x//y", "400"];
    assert_eq!(outcomes("requests: { slashes: keep }", &paths).await, kept);
    let merged = ["login /api/login", "login /api/login/", "rest /api/x/y", "rest /login"];
    assert_eq!(outcomes("", &paths).await, merged);
}

#[tokio::test]
async fn no_spelling_of_a_method_bypasses_its_route() {
    let origin = Origin::with_response(OK).await;
    let rules = rules(&origin, "", LOGIN).replace("path: /api/login }", "path: /api/login, methods: [POST, SWEEP] }");
    let gateway = TestGateway::start(&rules);
    for (method, status, is_login) in
        [("POST", 200, true), ("SWEEP", 200, true), ("post", 400, false), ("Sweep", 400, false), ("swipe", 200, false)]
    {
        let ask = format!("{method} /api/login HTTP/1.1\r\nHost: a\r\n\r\n");
        let response = gateway.client().await.ask(ask).await;
        assert_eq!((response.status(), response.field("ratelimit").is_some()), (status, is_login), "{method}");
    }
}

#[tokio::test]
async fn repeated_field_of_a_matcher_is_rejected() {
    let origin = Origin::with_response(OK).await;
    let rules =
        rules(&origin, "", LOGIN).replace("path: /api/login }", "path: /api/login, headers: { X-Tier: free } }");
    let gateway = TestGateway::start(&rules);
    for (fields, status, is_login) in [
        ("X-Tier:  free \r\n", 200, true),
        ("X-Tier: free\r\nx-tier: free\r\n", 200, true),
        ("X-Tier: gold\r\n", 200, false),
        ("X-Tier: gold\r\nX-Tier: free\r\n", 400, false),
    ] {
        let response = gateway.get("/api/login", fields).await;
        assert_eq!((response.status(), response.field("ratelimit").is_some()), (status, is_login), "{fields:?}");
    }
}

/// Takes the only permit of a client with the request `same`, and checks the statuses of the other requests.
async fn assert_statuses(client: &str, same: (&str, &str), others: &[(&str, &str, u16)]) {
    let origin = Origin::with_response(OK).await;
    let limit = format!("{{ name: own, mode: PER_CLIENT, client: '{client}', rate: 1, interval: 1h }}");
    let gateway = TestGateway::start(&rules(&origin, "", &limit));
    let ask = async |query: &str, fields: &str| gateway.get(&format!("/api/login?{query}"), fields).await.status();
    assert_eq!(ask(same.0, same.1).await, 200);
    for (query, fields, status) in others {
        assert_eq!(ask(query, fields).await, *status, "{query} {fields:?}");
    }
}

#[tokio::test]
async fn no_spelling_gets_a_client_a_new_bucket() {
    assert_statuses(
        "cookie:sid",
        ("", "Cookie: sid=REAL\r\n"),
        &[
            ("", "Cookie: sid =REAL\r\n", 429),
            ("", "Cookie: a=b;\tsid= \"REAL\"\r\n", 429),
            ("", "Cookie: sid=%52EAL\r\n", 429),
            ("", "Cookie: sid =REAL; sid=RANDOM\r\n", 400),
            ("", "Cookie: sid=REAL\r\nCookie: sid=RANDOM\r\n", 400),
            ("", "Cookie: sid=%zz\r\n", 400),
        ],
    )
    .await;
    let key = "key=REAL&a=b";
    let queries =
        [("k%65y=REAL", "", 429), ("key=%52EAL", "", 429), ("key=RANDOM&%6bey=REAL", "", 400), (key, "", 429)];
    assert_statuses("query:key", (key, ""), &queries).await;
    assert_statuses(
        "header:Authorization",
        ("", "Authorization: Bearer tok\r\n"),
        &[
            ("", "Authorization: bEaReR   tok\r\n", 429),
            ("", "Authorization: Bearer tok RANDOM\r\n", 400),
            ("", "Authorization: Bearer tok\r\nAuthorization: Bearer tok\r\n", 429),
            ("", "Authorization: Bearer tok\r\nAuthorization: Bearer x\r\n", 400),
        ],
    )
    .await;
    assert_statuses("header:Host", ("", ""), &[("", "", 429)]).await;
}

#[tokio::test]
async fn parameters_and_slashes_get_no_new_bucket() {
    let origin = Origin::with_response(OK).await;
    let limit = "{ name: path, mode: PER_CLIENT, client: path, rate: 1, interval: 1h }";
    let gateway = TestGateway::start(&rules(&origin, "", limit));
    assert_eq!(gateway.get("/api/login", "").await.status(), 200);
    for path in ["/api/login;x=1", "/api/login;x=2", "/api;y/login", "/api/login/", "/api//login", "/api/login?z"] {
        assert_eq!(gateway.get(path, "").await.status(), 429, "{path}");
    }
}

/// Any subdomain can set a second cookie for a domain. The user could not see it, and got 400 for each request.
#[tokio::test]
async fn second_cookie_is_handled_as_duplicates_says() {
    let origin = Origin::with_response(OK).await;
    let statuses = async |keys: &str, cookies: &str| {
        let limit = format!(
            "{{ name: own, mode: PER_CLIENT, client: 'cookie:sid', rate: 1, interval: 1h, on_missing_client: {keys} }}"
        );
        let gateway = TestGateway::start(&rules(&origin, "", &limit));
        let ask = async |cookies| gateway.get("/api/login", &format!("Cookie: {cookies}\r\n")).await.status();
        assert_eq!(ask("sid=a").await, 200);
        [ask(cookies).await, ask(cookies).await]
    };
    assert_eq!(statuses("skip", "sid=a; sid=a").await, [429, 429], "equal cookies are one");
    assert_eq!(statuses("skip", "SID=x; sid=a").await, [429, 429], "`SID` is another cookie");
    assert_eq!(statuses("skip", "sid=a; sid=b").await, [400, 400]);
    assert_eq!(statuses("deny, duplicates: first", "sid=a; sid=b").await, [429, 429]);
    assert_eq!(statuses("deny, duplicates: first", "sid=b; sid=a").await, [200, 429]);
    assert_eq!(statuses("skip, duplicates: missing", "sid=a; sid=b").await, [200, 200]);
    assert_eq!(statuses("ip, duplicates: missing", "sid=a; sid=b").await, [200, 429]);
    assert_eq!(statuses("deny, duplicates: missing", "sid=a; sid=b").await, [400, 400]);
}
