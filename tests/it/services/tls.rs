//! Services with TLS.

use super::failures::outcome;
use super::*;
use crate::support::tls::{Authority, listener};

/// Starts a gateway that terminates TLS for the service, as `localhost`.
fn terminate_tls(authority: &Authority, service: &Origin) -> TestGateway {
    authority.sign("service", &["localhost"]);
    let rules = format!(
        "store: memory
upstreams: {{ check: {{ targets: ['http://{}'] }} }}
routes: [{{ name: all, match: {{ path: /** }}, upstream: check }}]
",
        service.address
    );
    TestGateway::start_at(&listener(authority, &["service"], ""), &rules)
}

#[tokio::test]
async fn certificate_of_the_service_is_verified() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let (service, upstream) = (start_service().await, start_upstream().await);
    let server = terminate_tls(&authority, &service);
    let ca = |authority: &Authority| format!("ca: '{}'", authority.path("ca.pem"));
    let unreachable = || (503, "service_unreachable".to_owned());
    for (host, ca, expected) in [
        ("localhost", ca(&authority), (200, String::new())),
        ("localhost", ca(&stranger), unreachable()),
        ("localhost", String::new(), unreachable()),
        ("127.0.0.1", ca(&authority), unreachable()),
    ] {
        let url = format!("https://{host}:{}/check", server.address.port());
        let requirement = format!("{{ service: '{url}', pass: [x-user], {ca} }}");
        let gateway = TestGateway::start(&rules(&upstream, &requirement, ""));
        assert_eq!(outcome(&gateway.get("/", "Cookie: ann\r\n").await), expected, "{requirement}");
    }
    assert_eq!((service.requests().len(), upstream.requests().len()), (1, 1));
    assert_eq!(upstream.last_request().field("x-user").as_deref(), Some("ann"));
}
