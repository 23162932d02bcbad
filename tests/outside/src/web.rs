//! An axum service with the limits of a rule file.

use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use tidegate_layer::{RateLimitLayer, Store};
use tokio::net::TcpListener;

use crate::Error;

/// Serves requests until the listener fails.
///
/// # Errors
/// The rule file has errors, or the listener fails.
pub async fn serve(listener: TcpListener) -> Result<(), Error> {
    let layer = RateLimitLayer::from_file("rules.yaml")?;
    let handlers = Router::new().route("/hello", get(async || "hello"));
    let app = Router::new().fallback_service(handlers).layer(layer);
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}

/// Creates the service on a shared store.
///
/// # Errors
/// The rule file has errors.
pub fn app(store: Store) -> Result<Router, Error> {
    let layer = RateLimitLayer::builder().store(store).from_file("rules.yaml")?;
    let handlers = Router::new().route("/hello", get(async || "hello")).route("/keys/{key}", get(async || "a key"));
    Ok(Router::new().fallback_service(handlers).layer(layer))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::body::Body;
    use http::{Request, Response, StatusCode, Uri};
    use http_body_util::BodyExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tower::ServiceExt;

    use super::*;

    async fn ask(app: &Router, path: &str) -> Response<Body> {
        let request = Request::get(path).header("x-api-key", "alice").body(Body::empty()).expect("a request");
        app.clone().oneshot(request).await.expect("a response")
    }

    async fn statuses(app: &Router, path: &str, count: usize) -> Vec<u16> {
        let mut statuses = Vec::new();
        for _ in 0..count {
            statuses.push(ask(app, path).await.status().as_u16());
        }
        statuses
    }

    #[tokio::test(start_paused = true)]
    async fn third_request_in_a_minute_is_rejected() -> Result<(), Error> {
        let app = app(Store::memory())?;
        let ask = || Request::get("/keys/1").header("x-api-key", "alice").body(Body::empty());
        assert_eq!(app.clone().oneshot(ask()?).await?.status(), StatusCode::OK);
        assert_eq!(app.clone().oneshot(ask()?).await?.status(), StatusCode::OK);

        let rejected = app.clone().oneshot(ask()?).await?;
        assert_eq!(rejected.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(rejected.headers()["retry-after"], "60");

        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(app.oneshot(ask()?).await?.status(), StatusCode::OK);
        Ok(())
    }

    #[tokio::test]
    async fn unmatched_request_reaches_its_handler() {
        let layer = RateLimitLayer::from_file("rules.yaml").expect("rules");
        let app = Router::new().fallback(async |uri: Uri| uri.path().to_owned()).layer(layer);
        assert_eq!(statuses(&app, "/elsewhere", 5).await, [200; 5]);
        let body = ask(&app, "/elsewhere").await.into_body().collect().await.expect("a body");
        assert_eq!(body.to_bytes(), "/elsewhere");
    }

    #[tokio::test]
    async fn request_without_peer_is_rejected_by_address_limit() {
        let app = app(Store::memory()).expect("rules");
        assert_eq!(statuses(&app, "/hello", 1).await, [400]);
    }

    #[tokio::test]
    async fn layer_works_on_a_router_and_on_a_route() {
        let layer = || RateLimitLayer::from_file("rules.yaml").expect("rules");
        let on_router = Router::new().route("/keys/{key}", get(async || "a key")).layer(layer());
        assert_eq!(statuses(&on_router, "/keys/1", 3).await, [200, 200, 429]);
        let on_route = Router::new().route("/keys/{key}", get(async || "a key").layer(layer()));
        assert_eq!(statuses(&on_route, "/keys/1", 3).await, [200, 200, 429]);
    }

    #[tokio::test]
    async fn layer_in_a_nested_router_sees_the_inner_path() {
        let layer = RateLimitLayer::from_file("rules.yaml").expect("rules");
        let inner = Router::new().route("/keys/{key}", get(async || "a key"));
        let inside = Router::new().nest("/v1", inner.clone().layer(layer.clone()));
        assert_eq!(statuses(&inside, "/v1/keys/1", 3).await, [200, 200, 429]);
        let outside = Router::new().nest("/v1", inner).layer(layer);
        assert_eq!(statuses(&outside, "/v1/keys/1", 3).await, [200; 3], "no route matches `/v1/keys`");
    }

    async fn status(address: SocketAddr) -> String {
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        stream.write_all(b"GET /hello HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.expect("sent");
        let mut response = String::new();
        stream.read_to_string(&mut response).await.expect("a response");
        response.split(' ').nth(1).unwrap_or_default().to_owned()
    }

    #[tokio::test]
    async fn connect_info_enables_limits_by_address() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(serve(listener));
        let mut statuses = Vec::new();
        for _ in 0..3 {
            statuses.push(status(address).await);
        }
        assert_eq!(statuses, ["200", "200", "429"]);
    }

    #[tokio::test]
    async fn other_limits_work_without_connect_info() {
        let rules = "
routes:
  - name: hello
    match: { path: /hello }
    limits:
      - { name: per-ip, mode: PER_CLIENT, client: ip, on_missing_client: skip, rate: 1, interval: 1h }
      - { name: total, mode: OVERALL, rate: 2, interval: 1h }
";
        let layer = RateLimitLayer::from_yaml(rules).expect("rules");
        let app = Router::new().route("/hello", get(async || "hello")).layer(layer);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async { axum::serve(listener, app.into_make_service()).await });
        let mut statuses = Vec::new();
        for _ in 0..3 {
            statuses.push(status(address).await);
        }
        assert_eq!(statuses, ["200", "200", "429"]);
    }
}
