//! The three gateways of `examples/company`, each with its own copy of the rule files, and one Redis.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use serde_json::Value;

use crate::support::issuer::{SigningKey, claims, key_set, replace_file};
use crate::support::pages;
use crate::support::process::{Program, address, tidegate};
use crate::support::redis::{RedisServer, free_port};
use crate::support::tls::Authority;
use crate::support::wire::raw::{Message, Raw};
use crate::support::wire::soon;

pub(super) const TOKEN: &str = "0123456789abcdef0123456789abcdef";
/// The teams, each with a path that any client may read.
pub(super) const TEAMS: [(&str, &str, &str); 6] = [
    ("shop", "shop.example.com", "/products"),
    ("search", "search.example.com", "/v1/status"),
    ("accounts", "id.example.com", "/oauth/authorize"),
    ("billing", "billing.example.com", "/ping"),
    ("media", "media.example.com", "/videos"),
    ("partners", "partners.example.com", "/docs/start"),
];

/// The gateways of the company. Dropping them removes their folders.
pub(super) struct Company {
    pub(super) redis: RedisServer,
    pub(super) authority: Authority,
    pub(super) gateways: Vec<Gateway>,
    folder: PathBuf,
}

/// A gateway with its own folder.
pub(super) struct Gateway {
    program: Program,
    folder: PathBuf,
    variables: Vec<(String, String)>,
    pub(super) public: SocketAddr,
    pub(super) internal: SocketAddr,
    pub(super) admin: SocketAddr,
}

impl Company {
    /// Starts the gateways. `catalog` is the target of the catalog of the shop. Returns `None` without Redis.
    pub(super) fn start(catalog: SocketAddr, customers: &SigningKey) -> Option<Self> {
        let redis = RedisServer::start()?;
        let authority = Authority::new();
        authority.sign("public", &["example.com", "*.example.com"]);
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("company-{}", std::process::id()));
        _ = fs::remove_dir_all(&folder);
        let gateway = |number: usize| {
            let folder = folder.join(number.to_string());
            copy_files(&folder, &authority, customers);
            Gateway::start(folder, number, &redis, catalog)
        };
        let gateways = (1..=3).map(gateway).collect();
        Some(Self { redis, authority, gateways, folder })
    }

    /// Waits until the configurations of all gateways meet a condition.
    pub(super) async fn until(&self, condition: impl Fn(&Value) -> bool) {
        for gateway in &self.gateways {
            soon(async { while !condition(&gateway.config().await) {} }).await;
        }
    }

    /// Writes a file on all gateways.
    pub(super) fn write(&self, path: &str, text: &str) {
        self.gateways.iter().for_each(|gateway| gateway.write(path, text));
    }

    /// Fails unless all gateways serve a request to each of these teams.
    #[track_caller]
    pub(super) fn assert_served(&self, teams: impl Fn(&str) -> bool) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        async move {
            for (number, gateway) in self.gateways.iter().enumerate() {
                for (team, host, path) in TEAMS.into_iter().filter(|(team, ..)| teams(team)) {
                    let status = gateway.get(host, path, "").await.status();
                    assert_eq!(status, 200, "{team} on gateway {number} at {caller}");
                }
            }
        }
    }
}

impl Drop for Company {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.folder);
    }
}

impl Gateway {
    fn start(folder: PathBuf, number: usize, redis: &RedisServer, catalog: SocketAddr) -> Self {
        // A successor takes over sockets by their addresses.
        let address = |name| (name, format!("127.0.0.1:{}", free_port()));
        let mut variables: Vec<_> = ["PLAINTEXT", "PUBLIC", "INTERNAL", "ADMIN"].map(address).into();
        variables.extend([("REDIS", redis.url()), ("CATALOG_TARGET", format!("http://{catalog}"))]);
        variables.push(("TIDEGATE_NAME", format!("gateway-{number}")));
        let variables: Vec<_> = variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let (program, [public, internal, admin]) = run(&folder, &variables, &[]);
        Self { program, folder, variables, public, internal, admin }
    }

    /// Replaces the process by a new one with these further options, which takes over its sockets.
    pub(super) fn hand_over(&mut self, options: &[&str]) {
        let (program, addresses) = run(&self.folder, &self.variables, options);
        [self.public, self.internal, self.admin] = addresses;
        let old = std::mem::replace(&mut self.program, program);
        let (status, log) = old.wait_for_exit();
        assert!(status.success(), "{log}");
    }

    /// Sends a request to the internal listener. Returns the response.
    pub(super) async fn get(&self, host: &str, path: &str, fields: &str) -> Message {
        get_from(&new_address(), self.internal, host, path, fields).await
    }

    /// Returns `/api/v1/config`.
    pub(super) async fn config(&self) -> Value {
        self.api("config").await
    }

    /// Returns the JSON of a path of the admin API.
    pub(super) async fn api(&self, path: &str) -> Value {
        serde_json::from_str(&self.admin_text(&format!("/api/v1/{path}")).await).expect("JSON")
    }

    /// Returns the text of a path of the admin listener.
    pub(super) async fn admin_text(&self, path: &str) -> String {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        Raw::connect(self.admin).await.ask(request).await.text()
    }

    /// Returns the text of a file.
    pub(super) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.folder.join(path)).expect("a file")
    }

    /// Replaces a file.
    pub(super) fn write(&self, path: &str, text: &str) {
        replace_file(self.folder.join(path).to_str().expect("UTF-8"), text);
    }

    /// Replaces the certificate of the public listener by another one of the authority.
    pub(super) fn write_certificate(&self, authority: &Authority, name: &str) {
        for extension in ["key", "pem"] {
            let from = authority.path(&format!("{name}.{extension}"));
            self.write(&format!("certificates/public.{extension}"), &fs::read_to_string(from).expect("a file"));
        }
        self.program.signal("HUP");
    }

    /// Returns a command of an operator for this gateway.
    pub(super) fn operate(&self, arguments: &[&str]) -> Command {
        let mut command = tidegate(arguments);
        command.args(["--admin", &self.admin.to_string()]).env("TIDEGATE_TOKEN", TOKEN);
        command
    }
}

/// Returns the address of another client each time: repeated requests must not exceed the limits of a client.
fn new_address() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    Ipv4Addr::from_bits(0x7f10_0000 + COUNT.fetch_add(1, Relaxed) % 0x000f_0000).to_string()
}

/// Sends a request from this address.
pub(super) async fn get_from(source: &str, gateway: SocketAddr, host: &str, path: &str, fields: &str) -> Message {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n");
    Raw::connect_from(source, gateway).await.ask(request).await
}

/// Starts a process with these options, which takes over the sockets of the gateway in the folder if one runs there. Returns
/// it with its addresses: public, internal and admin.
fn run(folder: &Path, variables: &[(String, String)], options: &[&str]) -> (Program, [SocketAddr; 3]) {
    let path = |name: &str| folder.join(name).to_str().expect("UTF-8").to_owned();
    // A path of a Unix socket has at most 107 bytes.
    let socket = std::env::temp_dir().join(format!("tg-{}-{}", std::process::id(), path("").len() + digits(folder)));
    let mut command = tidegate(&["run", &path("company.yaml"), "--workers", "2", "--state", &path("state")]);
    command.args(["--handover", socket.to_str().expect("UTF-8")]).args(options).envs(variables.iter().cloned());
    let mut program = Program::start(&mut command);
    address(&mut program.stderr, "listening on http://");
    let public = address(&mut program.stderr, "listening on https://");
    let internal = address(&mut program.stderr, "listening on http://");
    let admin = address(&mut program.stderr, "admin on http://");
    (program, [public, internal, admin])
}

/// Returns a number for the name of a gateway's folder.
fn digits(folder: &Path) -> usize {
    let name = folder.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse::<usize>().ok());
    1_000 * name.expect("a number")
}

/// Copies the rule files, and writes the files with credentials that they name.
fn copy_files(folder: &Path, authority: &Authority, customers: &SigningKey) {
    let example = pages::root().join("examples/company");
    for name in ["teams", "certificates"] {
        fs::create_dir_all(folder.join(name)).expect("a folder");
    }
    fs::copy(example.join("company.yaml"), folder.join("company.yaml")).expect("copied");
    for (team, ..) in TEAMS {
        let file = Path::new("teams").join(team).with_extension("yaml");
        fs::copy(example.join(&file), folder.join(&file)).expect("copied");
    }
    for file in ["pem", "key"].map(|extension| format!("public.{extension}")) {
        fs::copy(authority.path(&file), folder.join("certificates").join(&file)).expect("copied");
    }
    let write = |name: &str, text: &str| fs::write(folder.join(name), text).expect("written");
    write("customers.json", &key_set(&[customers.jwk("1")]));
    write("staff.json", &key_set(&[SigningKey::ec().jwk("1")]));
    write("keys.yaml", "free-key: { id: reader, tier: free }\npartner-key: { id: freight, tier: partner }\n");
    write("users.htpasswd", "ann:$2y$05$c4WoMPo3SXsafkva.HHa6uXQZWr7oboPiC2bT/r7q1BB8I2s0BRqC\n");
    write("operators.txt", &format!("ann:{TOKEN}\n"));
}

/// Returns the field with a token of a customer.
pub(super) fn token(key: &SigningKey, id: &str) -> String {
    let mut claims = claims("customer");
    claims["iss"] = "https://id.example.com/".into();
    claims["aud"] = "shop".into();
    format!("Authorization: Bearer {}\r\n", key.token(id, &claims))
}
