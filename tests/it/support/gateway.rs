//! Gateways in the process of the tests, on free ports.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate::{Config, Gateway, ListenAddress, ReloadError, ReloadReport};
use tokio::io::{AsyncRead, AsyncWrite};

use super::wire::raw::{Message, Raw};

/// A running gateway. Dropping it drains it.
pub struct TestGateway {
    gateway: Option<Gateway>,
    listen: String,
    /// The address for clients.
    pub address: SocketAddr,
    /// The address of the admin listener.
    pub admin: SocketAddr,
}

impl TestGateway {
    /// Starts a gateway on loopback. `rules` is a rule file without `listen` and `admin`.
    pub fn start(rules: &str) -> Self {
        Self::start_at("127.0.0.1:0", rules)
    }

    /// Starts a gateway with this entry of `listen`.
    pub fn start_at(listen: &str, rules: &str) -> Self {
        Self::start_with(listen, rules, 2)
    }

    /// Starts a gateway with one worker.
    pub fn start_with_one_worker(rules: &str) -> Self {
        Self::start_with("127.0.0.1:0", rules, 1)
    }

    fn start_with(listen: &str, rules: &str, workers: usize) -> Self {
        let gateway = Gateway::start(parse(listen, rules), workers).expect("a gateway");
        let address = gateway.addresses()[0].tcp().expect("an address");
        let admin = gateway.admin_address().and_then(ListenAddress::tcp).expect("an admin address");
        Self { gateway: Some(gateway), listen: listen.to_owned(), address, admin }
    }

    /// Reloads the gateway with other rules and the same listener.
    pub fn reload(&self, rules: &str) -> ReloadReport {
        self.try_reload(&self.listen, rules).expect("a reload")
    }

    /// Reloads the gateway with these listeners and rules.
    pub fn try_reload(&self, listen: &str, rules: &str) -> Result<ReloadReport, Box<ReloadError>> {
        self.gateway.as_ref().expect("a running gateway").reload(parse(listen, rules)).map_err(Box::new)
    }

    /// Returns the addresses of all listeners.
    pub fn addresses(&self) -> Vec<ListenAddress> {
        self.gateway.as_ref().expect("a running gateway").addresses()
    }

    /// Opens a client connection.
    pub async fn client(&self) -> Raw {
        Raw::connect(self.address).await
    }

    /// Sends a GET request with these header lines on a new connection, and returns the response.
    pub async fn get(&self, path: &str, headers: &str) -> Message {
        get(&mut self.client().await, path, headers).await
    }

    /// Sends a GET request to the admin listener, and returns the response. Pauses first: tests repeat such requests until
    /// a condition holds, and would take the cores from the gateway.
    pub async fn admin_get(&self, path: &str) -> Message {
        tokio::time::sleep(Duration::from_millis(3)).await;
        get(&mut Raw::connect(self.admin).await, path, "").await
    }

    /// Sends a GET request to the admin API, and returns the response.
    pub async fn api_get(&self, path: &str) -> Message {
        Raw::connect(self.admin).await.ask(format!("GET /api/v1/{path} HTTP/1.1\r\nHost: localhost\r\n\r\n")).await
    }

    /// Returns `/api/v1/config`, which contains the cause of a store outage.
    pub async fn config(&self) -> String {
        self.api_get("config").await.text()
    }

    /// Waits until `/api/v1/config` contains all of `texts`. The cause of an outage may appear after its begin.
    pub async fn until_config_has(&self, texts: &[&str]) {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        loop {
            let config = self.config().await;
            if texts.iter().all(|text| config.contains(text)) {
                return;
            }
            let is_late = tokio::time::Instant::now() >= deadline;
            assert!(!is_late, "waited 60 s for {texts:?} in /api/v1/config: {config}");
        }
    }

    /// Returns the value of a counter. `/metrics` omits counters that are zero.
    pub async fn counter(&self, series: &str) -> u64 {
        let text = self.admin_get("/metrics").await.text();
        let line = text.lines().find_map(|line| line.strip_prefix(series));
        line.map_or(0, |value| value.trim().parse().expect("a number"))
    }

    /// Drains the gateway for at most `limit`. Blocks until it has ended.
    pub fn drain(mut self, limit: Duration) {
        if let Some(gateway) = self.gateway.take() {
            gateway.drain(limit).expect("drained");
        }
    }
}

impl Drop for TestGateway {
    fn drop(&mut self) {
        if let Some(gateway) = self.gateway.take() {
            gateway.drain(Duration::from_millis(10)).expect("drained");
        }
    }
}

fn parse(listen: &str, rules: &str) -> Config {
    let text = format!("listen: {listen}\nadmin: 127.0.0.1:0\n{rules}");
    Gateway::parse_config(&text).unwrap_or_else(|problems| panic!("{problems}\n{text}"))
}

/// Sends a GET request with these header lines on an open connection, and returns the response.
pub async fn get<S: AsyncRead + AsyncWrite + Unpin>(client: &mut Raw<S>, path: &str, headers: &str) -> Message {
    client.ask(format!("GET {path} HTTP/1.1\r\nHost: test.example\r\n{headers}\r\n")).await
}
