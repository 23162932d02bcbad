//! An axum service with rate limits, without the gateway.
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
use tidegate::build::{Client, Limit, Route, SECOND};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // At most three requests per address in any ten seconds. The fourth gets a 429. Requests that match no route are not
    // limited. To keep the rules in a file, use `RateLimitLayer::from_file`.
    let per_ip = Limit::per_client("per-ip", Client::ip()).rate(3, 10 * SECOND);
    let layer = RateLimitLayer::from_rules(Route::new("hello").path("/hello").limit(per_ip))?;

    let handlers = Router::new().route("/hello", get(async || "hello\n")).route("/", get(async || "no limits here\n"));
    // The layer is around the router, so that it runs before the router chooses a handler.
    let app = Router::new().fallback_service(handlers).layer(layer);

    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    // The connect info contains the peer address, which limits with `client: ip` need.
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
