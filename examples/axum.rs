//! An axum service with the rate limits of a rule file, without the gateway.
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

/// To keep the rules in a file, use [`RateLimitLayer::from_file`].
const RULES: &str = "
routes:
  - name: hello
    match: { path: /hello }
    limits:
      # At most three requests per address in any ten seconds. The fourth gets a 429.
      - name: per-ip
        mode: PER_CLIENT
        client: ip
        rate: 3
        interval: 10s

  # Requests that match no route are not limited.
";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let handlers = Router::new().route("/hello", get(async || "hello\n")).route("/", get(async || "no limits here\n"));
    // The layer is around the router, so that it runs before the router chooses a handler.
    let app = Router::new().fallback_service(handlers).layer(RateLimitLayer::from_yaml(RULES)?);

    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    // The connect info contains the peer address, which limits with `client: ip` need.
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
