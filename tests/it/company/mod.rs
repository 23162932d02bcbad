//! A day of `examples/company`: six teams share three gateways, and what goes wrong for one of them stays there.

mod fleet;
mod gateways;

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use deadpool_redis::redis::cmd;
use serde_json::json;
use tokio::task::JoinHandle;

use self::gateways::{Company, TEAMS, get_from, token};
use crate::support::issuer::{SigningKey, key_set};
use crate::support::pages;
use crate::support::tls_client::TlsClient;
use crate::support::wire::raw::Raw;
use crate::support::wire::soon;
use crate::support::wire::upstream::Origin;

/// The address of a client that operators ban.
const BANNED: &str = "127.0.0.9";

/// Clients of all teams but the shop, with their own addresses, and their requests without a 200.
struct Clients {
    stop: Arc<AtomicBool>,
    failed: Arc<AtomicU32>,
    task: JoinHandle<u32>,
}

impl Clients {
    /// Starts clients of this gateway.
    fn start(gateway: SocketAddr) -> Self {
        let (stop, failed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let (stopped, failures) = (Arc::clone(&stop), Arc::clone(&failed));
        let task = tokio::spawn(async move {
            let mut pauses = tokio::time::interval(Duration::from_millis(5));
            let mut sent = 0;
            while !stopped.load(Relaxed) {
                for (_, host, path) in TEAMS.into_iter().filter(|(team, ..)| *team != "shop") {
                    // No client exceeds its limits.
                    let source = format!("127.0.1.{}", 1 + sent % 250);
                    let response = get_from(&source, gateway, host, path, "").await;
                    _ = failures.fetch_add(u32::from(response.status() != 200), Relaxed);
                    sent += 1;
                    pauses.tick().await;
                }
            }
            sent
        });
        Self { stop, failed, task }
    }

    /// Fails if a request of the clients was not served.
    async fn assert_all_served(self) {
        self.stop.store(true, Relaxed);
        let sent = soon(self.task).await.expect("no panic");
        assert_eq!(self.failed.load(Relaxed), 0, "of {sent} requests");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_of_a_day_harm_no_other_team() {
    // A catalog that never responds to some requests.
    let catalog = Origin::start(|mut conn| async move {
        while let Some(request) = conn.request().await {
            if request.start.contains("/products/frozen") {
                return std::future::pending().await;
            }
            conn.raw.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
        }
    })
    .await;
    let customers = SigningKey::ec();
    let Some(mut company) = Company::start(catalog.address, &customers) else { return };
    let routes = company.gateways[0].config().await["routes"].as_array().map(Vec::len);
    assert_eq!(routes, Some(195));
    company.assert_served(|_| true).await;
    let clients = Clients::start(company.gateways[1].internal);

    a_team_makes_a_mistake(&company).await;
    a_key_set_is_rotated(&company, &customers).await;
    an_upstream_freezes(&company).await;
    a_certificate_expires(&company).await;
    a_client_is_banned(&company).await;
    redis_loses_its_data(&company).await;
    fleet::a_gateway_keeps_older_rules(&mut company).await;
    fleet::a_gateway_has_an_older_version(&company).await;
    a_gateway_is_replaced(&mut company).await;

    clients.assert_all_served().await;
}

async fn a_team_makes_a_mistake(company: &Company) {
    let (shop, billing) = ("teams/shop.yaml", "teams/billing.yaml");
    let example = |file: &str| fs::read_to_string(pages::root().join("examples/company").join(file)).expect("a file");
    company.write(shop, &example(shop).replace("rate: 600", "rate: 6oo"));
    company.until(|config| config["errors"][0]["team"] == "shop").await;
    company.assert_served(|_| true).await;
    // The changes of other teams apply.
    company.write(billing, &example(billing).replace("body: pong", "body: changed"));
    for gateway in &company.gateways {
        let text = async || gateway.get("billing.example.com", "/ping", "").await.text();
        soon(async { while text().await != "changed" {} }).await;
        let status = gateway.operate(&["status"]).output().expect("the status");
        assert!(String::from_utf8_lossy(&status.stdout).contains("teams/shop.yaml"), "{status:?}");
    }
    company.write(shop, &example(shop));
    company.until(|config| config["errors"] == json!([])).await;
}

async fn a_key_set_is_rotated(company: &Company, old: &SigningKey) {
    let new = SigningKey::ec();
    for gateway in &company.gateways {
        assert_eq!(gateway.get("shop.example.com", "/checkout/1", &token(old, "1")).await.status(), 200);
    }
    company.write("customers.json", &key_set(&[new.jwk("2")]));
    for gateway in &company.gateways {
        let status = async |token: &str| gateway.get("shop.example.com", "/checkout/1", token).await.status();
        let new = token(&new, "2");
        soon(async { while status(&new).await != 200 {} }).await;
        assert_eq!(status(&token(old, "1")).await, 401);
    }
}

async fn an_upstream_freezes(company: &Company) {
    let mut waiting = Vec::new();
    for _ in 0..50 {
        let mut client = Raw::connect(company.gateways[1].internal).await;
        client.send("GET /products/frozen HTTP/1.1\r\nHost: shop.example.com\r\n\r\n").await;
        waiting.push(client);
    }
    company.assert_served(|team| team != "shop").await;
}

async fn a_certificate_expires(company: &Company) {
    let hosts = ["example.com", "*.example.com"];
    company.authority.sign_expired("expired", &hosts);
    let gateway = &company.gateways[0];
    let client = TlsClient { server_name: "media.example.com", ..TlsClient::new(&company.authority) };
    let request = "GET /videos HTTP/1.1\r\nHost: media.example.com\r\n\r\n";
    gateway.write_certificate(&company.authority, "expired");
    soon(async { while client.connect(gateway.public).await.is_ok() {} }).await;
    // The other teams and the other gateways are not affected.
    company.assert_served(|_| true).await;
    let mut other = client.connect(company.gateways[1].public).await.expect("a connection");
    assert_eq!(other.ask(request).await.status(), 200);
    gateway.write_certificate(&company.authority, "public");
    soon(async { while client.connect(gateway.public).await.is_err() {} }).await;
}

/// Waits until all gateways reject the banned client. No other client is rejected.
async fn until_banned(company: &Company) {
    for gateway in &company.gateways {
        let status = async || get_from(BANNED, gateway.internal, "media.example.com", "/videos", "").await.status();
        soon(async { while status().await != 403 {} }).await;
    }
    company.assert_served(|_| true).await;
}

async fn a_client_is_banned(company: &Company) {
    let ban = company.gateways[2].operate(&["ban", "--address", BANNED, "--for", "1h", "--reason", "abuse"]);
    let ban = { ban }.output().expect("a ban");
    assert!(ban.status.success(), "{ban:?}");
    until_banned(company).await;
}

async fn redis_loses_its_data(company: &Company) {
    cmd("FLUSHALL").exec(&mut company.redis.connection()).expect("flushed");
    // Until the gateways have restored the ban, each knows it.
    until_banned(company).await;
    for gateway in &company.gateways {
        soon(async { while gateway.api("overrides").await[0]["target"]["address"] != BANNED {} }).await;
    }
}

async fn a_gateway_is_replaced(company: &mut Company) {
    company.gateways[0].hand_over(&[]);
    until_banned(company).await;
    company.gateways[1].hand_over(&[]);
    until_banned(company).await;
}
