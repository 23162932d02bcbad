//! A gateway of the tests' own, on ports that the system chose.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate::config::ListenAddress;
use tidegate::{Config, Gateway};
use tokio::io::{AsyncRead, AsyncWrite};

use super::wire::raw::{Message, Raw};

/// A running gateway, drained when it is dropped.
pub struct TestGateway {
    gateway: Option<Gateway>,
    /// Where clients connect.
    pub address: SocketAddr,
    /// Where operators connect.
    pub admin: SocketAddr,
}

impl TestGateway {
    /// Starts a gateway with these `routes`, `upstreams`, `store` and whatever else; it listens on loopback.
    pub fn start(rules: &str) -> Self {
        Self::start_at("127.0.0.1:0", rules)
    }

    /// Starts one with this entry of `listen`.
    pub fn start_at(listen: &str, rules: &str) -> Self {
        let text = format!("listen: {listen}\nadmin: 127.0.0.1:0\n{rules}");
        let config = Config::parse_for_gateway(&text).unwrap_or_else(|problems| panic!("{problems}\n{text}"));
        let gateway = Gateway::start(config, 2).expect("a gateway");
        let address = gateway.addresses()[0].tcp().expect("an address");
        let admin = gateway.admin_address().and_then(ListenAddress::tcp).expect("an admin address");
        Self { gateway: Some(gateway), address, admin }
    }

    /// Drains it, for so long at most.
    pub fn end(mut self, limit: Duration) {
        self.gateway.take().expect("it runs").drain(limit).expect("drained");
    }

    /// A connection to it.
    pub async fn client(&self) -> Raw {
        Raw::connect(self.address).await
    }

    /// Asks for a path with these header lines, on a connection of its own.
    pub async fn get(&self, path: &str, headers: &str) -> Message {
        get(&mut self.client().await, path, headers).await
    }

    /// Asks the operators' side for a path.
    pub async fn admin_get(&self, path: &str) -> Message {
        get(&mut Raw::connect(self.admin).await, path, "").await
    }

    /// Reads `/api/v1/config`, which has the cause of a store outage.
    pub async fn config(&self) -> String {
        let request = "GET /api/v1/config HTTP/1.1\r\nHost: localhost\r\n\r\n";
        Raw::connect(self.admin).await.ask(request).await.text()
    }

    /// Waits until `/api/v1/config` contains all of these: a gateway may learn the cause of an outage after the outage began.
    pub async fn until_config_has(&self, texts: &[&str]) {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
        loop {
            let config = self.config().await;
            if texts.iter().all(|text| config.contains(text)) {
                return;
            }
            assert!(tokio::time::Instant::now() < deadline, "no {texts:?} in {config}");
        }
    }

    /// The value of a counter; one that has counted nothing is not there.
    pub async fn counter(&self, series: &str) -> u64 {
        let text = self.admin_get("/metrics").await.text();
        let line = text.lines().find_map(|line| line.strip_prefix(series));
        line.map_or(0, |value| value.trim().parse().expect("a number"))
    }

    /// Drains it, and returns when that is over; blocks.
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

/// Sends a GET on a connection that may be used before and after.
pub async fn get<S: AsyncRead + AsyncWrite + Unpin>(client: &mut Raw<S>, path: &str, headers: &str) -> Message {
    client.ask(format!("GET {path} HTTP/1.1\r\nHost: test.example\r\n{headers}\r\n")).await
}
