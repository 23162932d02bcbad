//! An axum service of your own, with the limits of a rule file and without the gateway.
//!
//! ```text
//! cargo run --example axum
//! for i in 1 2 3 4; do curl -i http://127.0.0.1:3000/hello; done
//! ```

use std::error::Error;
use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use tidegate::RateLimitLayer;
use tokio::net::TcpListener;

/// In a file of its own, read it with [`RateLimitLayer::from_file`].
const RULES: &str = "
routes:
  - name: hello
    match: { path: /hello }
    limits:
      # Three requests of one address in any ten seconds; the fourth is answered with 429.
      - name: per-ip
        mode: PER_CLIENT
        client: ip
        rate: 3
        interval: 10s

  # What no route names goes on unlimited.
";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let handlers = Router::new().route("/hello", get(async || "hello\n")).route("/", get(async || "no limits here\n"));
    // Around the handlers' router and not on it, so that a handler is found by the path that was judged.
    let app = Router::new().fallback_service(handlers).layer(RateLimitLayer::from_yaml(RULES)?);

    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    // With it, the layer knows where a request comes from; limits of addresses need that, and others do not.
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
