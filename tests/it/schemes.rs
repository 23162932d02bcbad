//! Routes that match the scheme of a request, or the listener that received it.

use crate::support::gateway::{TestGateway, get};
use crate::support::tls::{Authority, listener};
use crate::support::tls_client::TlsClient;
use crate::support::wire::raw::Raw;

const ROUTES: &str = "
  - { name: to-https, match: { host: test.example, scheme: http, listener: public },
      redirect: { to: 'https://{host}{uri}', status: 308 } }
  - { name: internal, match: { listener: internal }, respond: { body: internal } }
  - { name: rest, match: { path: /** }, respond: { status: 204 } }";

fn named(name: &str) -> String {
    format!("{{ address: 127.0.0.1:0, name: {name} }}")
}

async fn ask(gateway: &TestGateway, position: usize, fields: &str) -> (u16, Option<String>) {
    let address = gateway.addresses()[position].tcp().expect("an address");
    let response = get(&mut Raw::connect(address).await, "/a?b=c", fields).await;
    (response.status(), response.field("location"))
}

#[tokio::test]
async fn plaintext_listener_redirects_to_https() {
    let authority = Authority::new();
    authority.sign("test", &["test.example"]);
    let listen = format!("[{}, {}, {}]", named("public"), named("internal"), listener(&authority, &["test"], ""));
    let gateway = TestGateway::start_at(&listen, &format!("routes:{ROUTES}"));
    let location = || Some("https://test.example/a?b=c".to_owned());
    assert_eq!(ask(&gateway, 0, "").await, (308, location()));
    assert_eq!(ask(&gateway, 1, "").await, (200, None));
    // An untrusted client reports no scheme.
    assert_eq!(ask(&gateway, 0, "X-Forwarded-Proto: https\r\n").await, (308, location()));
    let address = gateway.addresses()[2].tcp().expect("an address");
    let client = TlsClient { server_name: "test.example", ..TlsClient::new(&authority) };
    let mut connected = client.connect(address).await.expect("a connection");
    assert_eq!(get(&mut connected, "/a?b=c", "").await.status(), 204);
}

#[tokio::test]
async fn trusted_proxy_reports_the_scheme() {
    let rules = format!("clients: {{ trusted_proxies: [127.0.0.1] }}\nroutes:{ROUTES}");
    let gateway = TestGateway::start_at(&format!("[{}, {}]", named("public"), named("internal")), &rules);
    assert_eq!(ask(&gateway, 0, "X-Forwarded-Proto: https\r\n").await.0, 204);
    assert_eq!(ask(&gateway, 0, "X-Forwarded-Proto: http\r\n").await.0, 308);
    assert_eq!(ask(&gateway, 0, "").await.0, 308);
}

#[tokio::test]
async fn reload_renames_listeners() {
    let rules = |name: &str| {
        format!(
            "routes: [{{ name: a, match: {{ listener: {name} }}, respond: {{ status: 201 }} }},
              {{ name: rest, match: {{}}, respond: {{ status: 204 }} }}]"
        )
    };
    let gateway = TestGateway::start_at("{ address: 127.0.0.1:0, name: old }", &rules("old"));
    assert_eq!(gateway.get("/", "").await.status(), 201);
    gateway.try_reload("{ address: 127.0.0.1:0, name: new }", &rules("new")).expect("a reload");
    assert_eq!(gateway.get("/", "").await.status(), 201);
}
