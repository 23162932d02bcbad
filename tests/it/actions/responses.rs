//! Paths in the responses of upstreams, for routes with `rewrite`.

use crate::support::gateway::TestGateway;
use crate::support::wire::raw::Message;
use crate::support::wire::upstream::{Origin, OriginConnection};

/// Starts an origin that sends the fields in the `X-Send` of a request, and a gateway with this `rewrite`. In the fields,
/// `ORIGIN` is the address of the origin.
async fn gateway(rewrite: &str) -> (Origin, TestGateway) {
    let origin = Origin::start(|mut conn: OriginConnection| async move {
        while let Some(request) = conn.request().await {
            let fields = request.field("x-send").unwrap_or_default().replace(" && ", "\r\n");
            let response = format!("HTTP/1.1 302 Found\r\nContent-Length: 0\r\n{fields}\r\n\r\n");
            conn.raw.send(response).await;
        }
    })
    .await;
    let rules = format!(
        "upstreams: {{ api: {{ targets: ['http://{}'] }} }}
routes:
  - {{ name: orders, match: {{ path: '/orders/**' }}, upstream: api, rewrite: {{ strip_prefix: /orders, {rewrite} }} }}",
        origin.address
    );
    let gateway = TestGateway::start(&rules);
    (origin, gateway)
}

async fn ask(origin: &Origin, gateway: &TestGateway, fields: &str) -> Message {
    let fields = fields.replace("ORIGIN", &origin.address.to_string());
    let response = gateway.get("/orders/5", &format!("X-Send: {fields}\r\n")).await;
    assert_eq!(response.status(), 302);
    response
}

/// Without `strip_prefix`, the rest of the path could name another host.
#[tokio::test]
async fn mapped_location_never_names_another_host() {
    let (origin, strips) = gateway("add_prefix: /v2").await;
    let rules = format!(
        "upstreams: {{ api: {{ targets: ['http://{}'] }} }}
routes: [{{ name: all, match: {{}}, upstream: api, rewrite: {{ add_prefix: /v2, responses: true }} }}]",
        origin.address
    );
    let adds = TestGateway::start(&rules);
    for path in ["/v2//evil.example/a", "/v2/\\evil.example"] {
        let sent = format!("http://{}{path}", origin.address);
        let location = ask(&origin, &adds, &format!("Location: {sent}")).await.field("location");
        assert_eq!(location, Some(sent.clone()), "unchanged");
        let location = ask(&origin, &strips, &format!("Location: {sent}")).await.field("location");
        assert_eq!(location, Some(path.replace("/v2", "/orders")));
    }
}

/// Checks the `Location` that the client receives.
async fn assert_locations(rewrite: &str, cases: &[(&str, &str)]) {
    let (origin, gateway) = gateway(rewrite).await;
    for (sent, expected) in cases {
        let location = ask(&origin, &gateway, &format!("Location: {sent}")).await.field("location");
        let expected = expected.replace("ORIGIN", &origin.address.to_string());
        assert_eq!(location.as_deref(), Some(&*expected), "{rewrite}: {sent}");
    }
}

#[tokio::test]
async fn location_that_names_a_target_is_mapped_by_default() {
    let unchanged = ["/v2/6", "6", "https://other.example/v2/6", "http://ORIGIN/other", "http://a@ORIGIN/v2/6"];
    let mut cases: Vec<_> = unchanged.map(|location| (location, location)).to_vec();
    cases.extend([
        ("http://ORIGIN/v2/6?a=/v2#b", "/orders/6?a=/v2#b"),
        ("//ORIGIN/v2", "/orders"),
        ("HTTPS://ORIGIN/v2/", "/orders/"),
        ("http://test.example/v2/6", "http://test.example/v2/6"),
    ]);
    assert_locations("add_prefix: /v2", &cases).await;
    assert_locations("add_prefix: /v2, host: 'api.internal:81'", &[("http://API.internal:81/v2/6", "/orders/6")]).await;
    assert_locations("add_prefix: /v2, responses: false", &[("http://ORIGIN/v2/6", "http://ORIGIN/v2/6")]).await;
}

#[tokio::test]
async fn all_paths_of_responses_are_mapped_on_request() {
    let rewrite = "add_prefix: /v2, responses: true";
    let cases = [
        ("/v2/6", "/orders/6"),
        ("/other", "/other"),
        ("6", "6"),
        ("http://test.example/v2/6", "/orders/6"),
        ("https://other.example/v2/6", "https://other.example/v2/6"),
    ];
    assert_locations(rewrite, &cases).await;
    let (origin, gateway) = gateway(rewrite).await;
    let fields = "Content-Location: /v2/6 && Set-Cookie: a=/v2; Path=/v2; HttpOnly && Set-Cookie: b=1; path=/v2/;Secure \
                  && Set-Cookie: c=1; Path=/ && Set-Cookie: d=1";
    let response = ask(&origin, &gateway, fields).await;
    assert_eq!(response.field("content-location").as_deref(), Some("/orders/6"));
    let cookies = response.field("set-cookie");
    let expected = "a=/v2; Path=/orders; HttpOnly | b=1; path=/orders;Secure | c=1; Path=/ | d=1";
    assert_eq!(cookies.as_deref(), Some(expected));
    assert_eq!(ask(&origin, &gateway, "X-Other: /v2/6").await.field("x-other").as_deref(), Some("/v2/6"));
}
