//! `tidegate ratelimit`: a process with the environment variables and files of envoyproxy/ratelimit.

use std::fs;
use std::io::BufRead;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use deadpool_redis::redis::cmd;

use crate::support::process::{Program, address};
use crate::support::redis::RedisServer;
use crate::support::service::{GrpcClient, OK, OVER_LIMIT, RateLimitResponse, call, descriptor};
use crate::support::tls::Authority;
use crate::support::tls_client::TlsClient;
use crate::support::wire::raw::Raw;
use crate::support::wire::soon;

/// A folder. Dropping it removes the folder.
struct Folder(PathBuf);

impl Folder {
    /// Creates a folder. No other test may use `name`.
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("a path in UTF-8")
    }

    /// Writes a file of envoyproxy/ratelimit that allows each user this many requests in an hour.
    fn write(&self, file: &str, requests_per_unit: u32) {
        let path = self.0.join(file);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        let rule = format!("rate_limit: {{ unit: hour, requests_per_unit: {requests_per_unit} }}");
        fs::write(path, format!("domain: edge\ndescriptors: [{{ key: user, {rule} }}]\n")).expect("written");
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

/// The variables of all tests: free ports.
const PORTS: [(&str, &str); 5] =
    [("HOST", "127.0.0.1"), ("GRPC_HOST", "localhost"), ("PORT", "0"), ("GRPC_PORT", "0"), ("DEBUG_PORT", "0")];

/// Returns a command with only these environment variables.
fn ratelimit(arguments: &[&str], variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.arg("ratelimit").args(arguments).env_clear().envs(variables.iter().copied());
    command
}

fn output(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    ratelimit(arguments, variables).output().expect("tidegate runs")
}

/// Reads the log until the addresses for gRPC, HTTP and operators.
fn addresses(program: &mut Program) -> [SocketAddr; 3] {
    ["service on grpc://", "service on http://", "admin on http://"].map(|before| address(&mut program.stderr, before))
}

async fn ask(address: SocketAddr, user: &str) -> RateLimitResponse {
    let request = call([descriptor(&format!("user={user}"))]);
    GrpcClient::connect(address).await.should_rate_limit(&request).await.expect("an answer")
}

/// Also tests that files are found and reloaded as Kubernetes mounts a ConfigMap: by links that are swapped.
#[tokio::test]
async fn program_named_ratelimit_serves_files_of_a_config_map() {
    let Some(redis) = RedisServer::start() else { return };
    cmd("CONFIG").arg(&["SET", "requirepass", "hunter2/&"]).exec(&mut redis.connection()).expect("set");
    let folder = Folder::new("ratelimit-config-map");
    folder.write("ratelimit/config/..first/edge.yaml", 2);
    let config = folder.0.join("ratelimit/config");
    symlink("..first", config.join("..data")).expect("a link");
    symlink("..data/edge.yaml", config.join("edge.yaml")).expect("a link");
    let program = folder.0.join("ratelimit.d/ratelimit");
    fs::create_dir(folder.0.join("ratelimit.d")).expect("a folder");
    symlink(env!("CARGO_BIN_EXE_tidegate"), &program).expect("a link");
    let port = redis.port.to_string();
    let url = format!("127.0.0.1:{port}");
    let variables = [
        ("RUNTIME_ROOT", folder.path()),
        ("RUNTIME_SUBDIRECTORY", "ratelimit"),
        ("RUNTIME_IGNOREDOTFILES", "true"),
        ("REDIS_SOCKET_TYPE", "tcp"),
        ("REDIS_URL", &url),
        ("REDIS_AUTH", "hunter2/&"),
        ("REDIS_POOL_SIZE", "5"),
        ("USE_STATSD", "false"),
        ("LIMIT_RESPONSE_HEADERS_ENABLED", "true"),
        ("LIMIT_RESET_HEADER", "X-Reset"),
    ];
    let mut program = Program::start(Command::new(program).env_clear().envs(PORTS).envs(variables));
    let (mut used, mut ignored) = (String::new(), String::new());
    program.stderr.read_line(&mut used).expect("text");
    program.stderr.read_line(&mut ignored).expect("text");
    assert!(
        used.contains("are in use") && used.contains("REDIS_AUTH REDIS_SOCKET_TYPE REDIS_URL RUNTIME_ROOT"),
        "{used}"
    );
    assert!(!used.contains("hunter2"), "{used}");
    let reason = "REDIS_POOL_SIZE (a worker sends all decisions over one connection), RUNTIME_IGNOREDOTFILES (";
    assert!(ignored.contains("WARN") && ignored.contains(reason), "{ignored}");
    let [grpc, http, admin] = addresses(&mut program);
    let first = ask(grpc, "ann").await;
    assert_eq!((first.remaining(), first.field("ratelimit-limit")), (vec![(OK, 1)], Some("2")));
    assert!(first.field("x-reset").is_some(), "{first:?}");
    let health = Raw::connect(http).await.ask("GET /healthcheck HTTP/1.1\r\nHost: h\r\n\r\n").await;
    let metrics = Raw::connect(admin).await.ask("GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n").await;
    assert_eq!((health.status(), metrics.status()), (200, 200));
    folder.write("ratelimit/config/..second/edge.yaml", 3);
    symlink("..second", config.join("..new")).expect("a link");
    fs::rename(config.join("..new"), config.join("..data")).expect("renamed");
    let limit = async || ask(grpc, "bob").await.statuses[0].current_limit.clone().expect("a limit").requests_per_unit;
    soon(async { while limit().await != 3 {} }).await;
    assert_eq!(ask(grpc, "ann").await.remaining(), [(OK, 1)], "permits in use stay");
    program.signal("TERM");
    let (status, rest) = program.wait_for_exit();
    assert!(status.success() && !rest.contains("hunter2"), "{rest}");
}

#[test]
fn print_shows_the_rule_file_without_secrets() {
    let variables = [
        ("RUNTIME_ROOT", "/data"),
        ("RUNTIME_SUBDIRECTORY", "ratelimit"),
        ("RUNTIME_WATCH_ROOT", "false"),
        ("REDIS_SOCKET_TYPE", "tcp"),
        ("REDIS_URL", "redis://reader:hunter2@redis:6379?db=2"),
        ("REDIS_TLS", "true"),
        ("REDIS_TLS_CACERT", "/redis/ca.crt"),
        ("CACHE_KEY_PREFIX", "edge:"),
        ("GRPC_SERVER_USE_TLS", "1"),
        ("GRPC_SERVER_TLS_CERT", "/certs/tls.crt"),
        ("GRPC_SERVER_TLS_KEY", "/certs/tls.key"),
        ("GRPC_CLIENT_TLS_CACERT", "/certs/ca.crt"),
        ("USE_PROMETHEUS", "true"),
        ("PROMETHEUS_ADDR", ":19001"),
        ("SHADOW_MODE", "true"),
        ("MERGE_DOMAIN_CONFIG", "TRUE"),
        ("LIMIT_RESPONSE_HEADERS_ENABLED", "t"),
        ("REDIS_PERSECOND", "true"),
    ];
    let printed = output(&["--print"], &variables);
    let expected = r#"# The rule file for the environment variables of envoyproxy/ratelimit.
# Set TIDEGATE_REDIS_LOGIN: a user and a password as in a URL, percent-encoded, or `:` and a password.
# REDIS_PERSECOND has no effect: all limits use REDIS_URL.
admin: { address: "0.0.0.0:19001", dashboard: off }
store: { url: "rediss://${TIDEGATE_REDIS_LOGIN}@redis:6379/2", tls: { ca: "/redis/ca.crt" }, prefix: "edge:" }
service:
  grpc: { address: "0.0.0.0:8081", tls: { certificates: [{ cert: "/certs/tls.crt", key: "/certs/tls.key" }], client_auth: { ca: "/certs/ca.crt" } } }
  http: "0.0.0.0:8080"
  descriptors: ["/data/ratelimit/config/*"]
  merge_domains: true
  shadow: true
  headers: [ietf, legacy]
  legacy_names: { limit: "RateLimit-Limit", remaining: "RateLimit-Remaining", reset: "RateLimit-Reset" }
"#;
    assert_eq!(String::from_utf8_lossy(&printed.stdout), expected);
    assert!(printed.status.success() && printed.stderr.is_empty(), "{printed:?}");
}

#[test]
fn every_type_of_redis_has_its_store() {
    let store = |url: &str, more: &[(&str, &str)]| {
        let variables = [&[("REDIS_URL", url), ("REDIS_SOCKET_TYPE", "tcp")], more].concat();
        let printed = String::from_utf8(output(&["--print"], &variables).stdout).expect("text");
        printed.lines().find_map(|line| line.strip_prefix("store: ")).expect("a store").to_owned()
    };
    assert_eq!(store("/run/redis.sock", &[("REDIS_SOCKET_TYPE", "unix")]), r#"{ url: "unix:///run/redis.sock" }"#);
    assert_eq!(store("r$1:6379", &[]), r#"{ url: "redis://r$$1:6379" }"#);
    let login = "redis://${TIDEGATE_REDIS_LOGIN}@";
    let cluster = format!(r#"{{ cluster: ["{login}a:1", "{login}b:2"], fail_readiness: true }}"#);
    let auth = [("REDIS_AUTH", "ann:x"), ("REDIS_TYPE", "cluster"), ("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", "true")];
    assert_eq!(store("a:1,b:2", &auth), cluster);
    let auth = [("REDIS_AUTH", "ann:x"), ("REDIS_TYPE", "SENTINEL"), ("REDIS_SENTINEL_AUTH", "y")];
    let sentinels = r#"["redis://${TIDEGATE_SENTINEL_LOGIN}@s:1", "redis://${TIDEGATE_SENTINEL_LOGIN}@s:2"]"#;
    let keys = r#"user: "ann", password: "${TIDEGATE_REDIS_PASSWORD}""#;
    assert_eq!(
        store("main,s:1,s:2", &auth),
        format!(r#"{{ sentinel: {{ master: "main", urls: {sentinels} }}, {keys} }}"#)
    );
}

#[test]
fn control_plane_has_its_variables() {
    let variables = [
        ("REDIS_URL", "redis://redis:6379"),
        ("CONFIG_TYPE", "GRPC_XDS_SOTW"),
        ("CONFIG_GRPC_XDS_SERVER_URL", "envoy-gateway:18001"),
        ("CONFIG_GRPC_XDS_NODE_ID", "envoy-ratelimit"),
        ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true"),
        ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "/certs/ca.crt"),
        ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "/certs/tls.crt"),
        ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "/certs/tls.key"),
        ("FORCE_START_WITHOUT_INITIAL_CONFIG", "true"),
    ];
    let printed = String::from_utf8(output(&["--print"], &variables).stdout).expect("text");
    let tls = r#"tls: { ca: "/certs/ca.crt", cert: "/certs/tls.crt", key: "/certs/tls.key" }"#;
    let plane = format!(r#"{{ xds: "https://envoy-gateway:18001", node: "envoy-ratelimit", required: false, {tls} }}"#);
    assert!(printed.contains(&format!("\n  descriptors: {plane}\n")), "{printed}");
}

#[test]
fn invalid_variables_are_reported_together() {
    let variables = [
        ("PORT", "tcp://10.0.0.1:80"),
        ("GRPC_HOST", "service.example"),
        ("SHADOW_MODE", "yes"),
        ("BACKEND_TYPE", "memcache"),
        ("CONFIG_TYPE", "HTTP"),
        ("GRPC_SERVER_USE_TLS", "true"),
        ("GRPC_CLIENT_TLS_SAN", "proxy"),
        ("LOG_LEVEL", "loud"),
        ("LOG_FORMAT", "xml"),
        ("USE_PROMETHEUS", "true"),
        ("PROMETHEUS_ADDR", "9090"),
        ("REDIS_AUTH", "hunter2"),
    ];
    let failed = output(&[], &variables);
    let expected = "ratelimit: BACKEND_TYPE is not `redis`: no other store is supported
ratelimit: REDIS_URL is not set: write HOST:PORT, and set REDIS_SOCKET_TYPE=tcp
ratelimit: GRPC_HOST is not an IP address
ratelimit: GRPC_CLIENT_TLS_SAN is not supported: the authorities of GRPC_CLIENT_TLS_CACERT decide
ratelimit: GRPC_SERVER_TLS_CERT is not set, but GRPC_SERVER_USE_TLS is
ratelimit: GRPC_SERVER_TLS_KEY is not set, but GRPC_SERVER_USE_TLS is
ratelimit: PORT is not a port: a number from 0 to 65535
ratelimit: CONFIG_TYPE is not `FILE` or `GRPC_XDS_SOTW`
ratelimit: SHADOW_MODE is not `true` or `false`
ratelimit: PROMETHEUS_ADDR is not an address with a port, such as `:9090` or `127.0.0.1:9090`
ratelimit: LOG_LEVEL is not one of `panic`, `fatal`, `error`, `warn`, `info`, `debug`, `trace`
ratelimit: LOG_FORMAT is not `text` or `json`
";
    assert_eq!(String::from_utf8_lossy(&failed.stderr), expected);
    assert_eq!(failed.status.code(), Some(1));
    let unix = output(&[], &[("REDIS_URL", "redis:6379")]);
    let error = String::from_utf8_lossy(&unix.stderr).into_owned();
    assert!(error.contains("REDIS_URL is not the path of a Unix socket"), "{error}");
}

#[tokio::test]
async fn forced_start_applies_files_that_are_corrected() {
    let folder = Folder::new("ratelimit-forced");
    let variables = [("RUNTIME_ROOT", folder.path()), ("REDIS_URL", "redis://127.0.0.1:1")];
    let variables = [&PORTS[..], &variables].concat();
    let failed = output(&[], &variables);
    assert_eq!(failed.status.code(), Some(1));
    let error = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert!(error.contains("<environment>:6:") && error.contains("cannot be read"), "{error}");
    let forced = [&variables[..], &[("FORCE_START_WITHOUT_INITIAL_CONFIG", "true"), ("LOG_LEVEL", "info")]].concat();
    let mut program = Program::start(&mut ratelimit(&[], &forced));
    let [grpc, ..] = addresses(&mut program);
    assert_eq!(ask(grpc, "ann").await.statuses[0].current_limit, None);
    folder.write("config/edge.yaml", 1);
    let is_limited = async || ask(grpc, "bob").await.overall_code == OVER_LIMIT;
    soon(async { while !is_limited().await {} }).await;
}

#[tokio::test]
async fn proxies_need_a_certificate_over_tls() {
    let authority = Authority::new();
    authority.sign("api", &["api.example"]);
    authority.sign("proxy", &["proxy.example"]);
    let folder = Folder::new("ratelimit-tls");
    folder.write("config/deep/edge.yaml", 1);
    let [cert, key, ca] = ["api.pem", "api.key", "ca.pem"].map(|name| authority.path(name));
    let variables = [
        ("RUNTIME_ROOT", folder.path()),
        ("REDIS_URL", "redis://127.0.0.1:1"),
        ("GRPC_SERVER_USE_TLS", "true"),
        ("GRPC_SERVER_TLS_CERT", &cert),
        ("GRPC_SERVER_TLS_KEY", &key),
        ("GRPC_CLIENT_TLS_CACERT", &ca),
        ("LOG_FORMAT", "json"),
    ];
    let mut program = Program::start(&mut ratelimit(&["--workers", "1"], &[&PORTS[..], &variables].concat()));
    let [grpc, ..] = addresses(&mut program);
    let with_certificate = TlsClient { protocols: &["h2"], certificate: Some("proxy"), ..TlsClient::new(&authority) };
    let stream = with_certificate.connect(grpc).await.expect("should connect").stream;
    let response = GrpcClient::on(stream).await.should_rate_limit(&call([descriptor("user=ann")])).await;
    let limit = response.expect("an answer").statuses[0].current_limit.clone();
    assert_eq!(limit.map(|limit| limit.requests_per_unit), Some(1));
}
