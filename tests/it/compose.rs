//! Runs docker-compose.yml without Docker: starts its commands with its configuration files, on free ports. Only
//! addresses and nginx's folders are replaced in the files.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::compose::{Compose, replace_once};
use crate::support::gateway::get;
use crate::support::process::{Program, RuleFile, address, tidegate};
use crate::support::redis::{RedisServer, free_port};
use crate::support::wire::raw::Raw;
use crate::support::wire::upstream::Origin;

/// The first comment of docker-compose.yml promises this. With `REQUIRE_NGINX=1` a missing nginx is a failure.
#[tokio::test]
async fn compose_limits_the_eleventh_request() {
    if !has_nginx() {
        return;
    }
    let run = tokio::time::timeout(Duration::from_secs(60), run_compose());
    let Some((statuses, passed)) = run.await.expect("twelve responses within a minute") else { return };
    assert_eq!(statuses, [[200; 10].as_slice(), &[429; 2]].concat());
    assert!(passed.iter().sum::<u64>() == 10 && passed.iter().all(|passed| *passed > 0), "each gateway: {passed:?}");
}

/// The gateways trust the balancer, so the balancer must remove the forwarding fields of its clients.
#[tokio::test]
async fn balancer_of_compose_strips_forwarding_fields() {
    if !has_nginx() {
        return;
    }
    let gateway = Origin::with_response("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    let compose = Compose::read("docker-compose.yml");
    let balancer = Nginx::start(&compose.mounted_file("balancer"), [gateway.address; 2]).await;
    let mut client = Raw::connect(balancer.address).await;
    for name in stripped_fields() {
        let response = client.ask(format!("GET /a HTTP/1.1\r\nHost: a.example\r\n{name}: FORGED\r\n\r\n")).await;
        assert_eq!(response.status(), 200, "{name}");
        let (value, passed) = (gateway.last_request().field(&name), format!("{:?}", gateway.last_request()));
        assert!(!passed.contains("FORGED"), "{name}: {passed}");
        let own = [("X-Forwarded-For", "127.0.0.1"), ("X-Forwarded-Host", "a.example"), ("X-Forwarded-Proto", "http")];
        let own = own.iter().find(|(own, _)| *own == name).map(|(_, value)| (*value).to_owned());
        assert_eq!(value, own, "{name}");
    }
}

/// Returns the fields that a gateway removes by default. A prefix stands for its known names.
fn stripped_fields() -> Vec<String> {
    let (_, list) = include_str!("../../crates/rules/src/request/sanitize/strip.rs")
        .split_once("pub const DEFAULT")
        .expect("a list");
    let (list, _) = list.split_once("];").expect("its end");
    let names: Vec<_> = list.split('"').skip(1).step_by(2).collect();
    assert!(names.len() > 50, "{names:?}");
    let known = FAMILIES.iter().flat_map(|(first, rest)| rest.iter().map(move |rest| [*first, *rest].concat()));
    let known: Vec<_> = known.collect();
    for family in names.iter().filter_map(|name| name.strip_suffix('*')) {
        assert!(known.iter().any(|name| name.starts_with(family)), "{family}");
    }
    names.iter().filter(|name| !name.ends_with('*')).map(|name| (*name).to_owned()).chain(known).collect()
}

const FAMILIES: [(&str, &[&str]); 10] = [
    ("X-Forwarded-", &["For", "Host", "Proto", "Port", "Prefix", "Path", "Uri", "Method", "Server", "Ssl", "Scheme"]),
    ("X-Forwarded-", &["By", "Client-Cert", "User", "Groups", "Email", "Preferred-Username", "Access-Token"]),
    ("CF-Connecting-", &["IP", "IPv6"]),
    ("CloudFront-Viewer-", &["Address", "Country"]),
    ("Fly-Forwarded-", &["Port", "Proto", "Ssl"]),
    ("X-Envoy-Original-", &["Path", "Method", "Host", "Dst-Host"]),
    ("X-Client-Cert", &["", "-Chain"]),
    ("X-SSL-", &["Cert", "Client-Cert", "Client-Verify", "Client-CN", "Client-S-DN"]),
    ("SSL-Client-", &["Cert", "Verify", "S-DN"]),
    ("X-Amzn-Mtls-", &["Clientcert", "Clientcert-Leaf", "Clientcert-Subject"]),
];

/// Returns `true` if nginx is installed. Prints a notice if it is not.
#[expect(clippy::print_stdout, reason = "a skipped test must be reported")]
fn has_nginx() -> bool {
    let Err(error) = Command::new("nginx").arg("-v").stderr(Stdio::null()).status() else { return true };
    assert!(std::env::var_os("REQUIRE_NGINX").is_none(), "nginx cannot be started: {error}");
    println!("NOT TESTED: nginx cannot be started ({error}); `tests/run` installs it");
    false
}

/// Returns the statuses of twelve requests, and how many each gateway allowed. Returns `None` if there is no Redis.
async fn run_compose() -> Option<(Vec<u16>, Vec<u64>)> {
    let compose = Compose::read("docker-compose.yml");
    assert_eq!(compose.services(), ["balancer", "gateway-1", "gateway-2", "echo", "redis"], "services differ");
    let folder = std::env::temp_dir().join(format!("tidegate-compose-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let arguments = [&compose.arguments("redis", "redis-server")[..], &["--dir", folder.to_str().expect("UTF-8")]];
    let redis = RedisServer::start_with(None, &arguments.concat())?;

    let text = replace_once(&compose.mounted_file("echo"), "listen: 0.0.0.0:8080", "listen: 127.0.0.1:0");
    let file = RuleFile::new("compose-echo", &text);
    let mut echo = Program::start(&mut tidegate(&["run", "-c", file.path()]));
    let echo_at = address(&mut echo.stderr, "listening on http://");

    let trusted = compose.service("balancer")["networks"]["inside"]["ipv4_address"].as_str().expect("an address");
    let gateways = ["gateway-1", "gateway-2"].map(|name| {
        let mut text = compose.mounted_file(name);
        for (there, here) in [
            ("listen: 0.0.0.0:8080", "listen: 127.0.0.1:0".to_owned()),
            ("admin: 0.0.0.0:9901", "admin: 127.0.0.1:0".to_owned()),
            // A busy machine exceeds the default, and the gateway would decide locally.
            ("store: redis://redis:6379", format!("store: {{ url: '{}', timeout: 5s }}", redis.url())),
            (trusted, "127.0.0.1".to_owned()),
            ("http://echo:8080", format!("http://{echo_at}")),
        ] {
            text = replace_once(&text, there, &here);
        }
        let file = RuleFile::new(&format!("compose-{name}"), &text);
        Program::run(&file, &[])
    });
    let addresses = [gateways[0].1, gateways[1].1];
    let balancer = Nginx::start(&compose.mounted_file("balancer"), addresses).await;

    let mut statuses = Vec::new();
    for _ in 0..12 {
        statuses.push(get(&mut Raw::connect(balancer.address).await, "/", "").await.status());
    }
    let mut passed = Vec::new();
    for (_, _, admin) in &gateways {
        let text = get(&mut Raw::connect(*admin).await, "/metrics", "").await.text();
        let series = "tidegate_decisions_total{route=\"all\",limit=\"per-ip\",outcome=\"allowed\"} ";
        let count = text.lines().find_map(|line| line.strip_prefix(series)).map_or(Ok(0), str::parse);
        passed.push(count.expect("a number"));
    }
    drop(redis);
    _ = std::fs::remove_dir_all(folder);
    Some((statuses, passed))
}

/// A running nginx, killed on drop.
struct Nginx {
    child: Child,
    folder: PathBuf,
    address: SocketAddr,
}

impl Nginx {
    /// Starts nginx on a free port. nginx cannot choose a port, and another process may take the one found here, so
    /// this retries.
    async fn start(text: &str, gateways: [SocketAddr; 2]) -> Self {
        for attempt in 0..5 {
            if let Some(nginx) = Self::try_start(text, gateways, attempt).await {
                return nginx;
            }
        }
        panic!("nginx does not listen");
    }

    async fn try_start(text: &str, gateways: [SocketAddr; 2], attempt: u32) -> Option<Self> {
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let name = format!("nginx-{}-{}-{attempt}", std::process::id(), address.port());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        let mut text = replace_once(text, "listen 8080;", &format!("listen {address};"));
        for (name, address) in ["gateway-1:8080", "gateway-2:8080"].into_iter().zip(gateways) {
            text = replace_once(&text, name, &address.to_string());
        }
        let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let own = kinds.map(|kind| format!("    {kind}_temp_path {}/{kind};\n", folder.display())).concat();
        let text = replace_once(&text, "http {\n", &format!("http {{\n    access_log off;\n{own}"));
        let file = folder.join("nginx.conf");
        std::fs::write(&file, text).expect("written");
        // A single process, so that killing it leaves no workers.
        let more = format!("daemon off; master_process off; pid {}/pid;", folder.display());
        let mut command = Command::new("nginx");
        command.arg("-p").arg(&folder).arg("-c").arg(&file).args(["-e", "stderr", "-g", &more]);
        let child = command.stdin(Stdio::null()).spawn().expect("nginx runs");
        let mut nginx = Self { child, folder, address };
        nginx.wait_until_listening().await.then_some(nginx)
    }

    /// Waits until nginx listens. Returns `false` if nginx exits.
    async fn wait_until_listening(&mut self) -> bool {
        while matches!(self.child.try_wait(), Ok(None)) {
            if tokio::net::TcpStream::connect(self.address).await.is_ok() {
                return true;
            }
            tokio::task::yield_now().await;
        }
        false
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
        _ = std::fs::remove_dir_all(&self.folder);
    }
}
