//! The store: `REDIS_*`. Passwords become placeholders, so that the rule file contains none.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::environment::Environment;
use super::yaml::{FlowMap, flow_list, quoted, quoted_with_placeholders};

/// The placeholders of the user and password of Redis and of the sentinels, and of the password of a Sentinel's master.
const LOGIN: &str = "TIDEGATE_REDIS_LOGIN";
const SENTINEL_LOGIN: &str = "TIDEGATE_SENTINEL_LOGIN";
const PASSWORD: &str = "TIDEGATE_REDIS_PASSWORD";

/// Values of placeholders.
type Secrets = Vec<(String, String)>;

/// The address of a server.
struct Server<'e> {
    /// The user and password, percent-encoded.
    login: Option<String>,
    /// With a port.
    host: &'e str,
    database: Option<&'e str>,
}

/// Returns `store` of the rule file.
pub(super) fn store(env: &mut Environment, secrets: &mut Secrets) -> String {
    if !matches!(env.text_or("BACKEND_TYPE", "redis"), "redis") {
        env.fault("BACKEND_TYPE", "is not `redis`: no other store is supported");
    }
    let Some(url) = env.text("REDIS_URL").map(str::to_owned) else {
        env.fault("REDIS_URL", "is not set: write HOST:PORT, and set REDIS_SOCKET_TYPE=tcp");
        return String::new();
    };
    let is_tls = env.flag("REDIS_TLS", false);
    let mut store = FlowMap::default();
    match env.text_or("REDIS_TYPE", "SINGLE").to_ascii_lowercase().as_str() {
        "single" => store.add("url", single(env, &url, is_tls, secrets)),
        "cluster" => {
            let urls: Vec<_> = url.split(',').map(|url| tcp(env, url, is_tls, secrets)).collect();
            store.add("cluster", flow_list(urls));
        }
        "sentinel" => sentinel(env, &url, is_tls, (&mut store, secrets)),
        _ => env.fault("REDIS_TYPE", "is not `SINGLE`, `CLUSTER` or `SENTINEL`"),
    }
    if is_tls {
        store.add("tls", tls(env));
    }
    store.add_text("prefix", env.text("CACHE_KEY_PREFIX"));
    store.add_flag("fail_readiness", env.flag("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", false));
    store.flow()
}

fn single(env: &mut Environment, url: &str, is_tls: bool, secrets: &mut Secrets) -> String {
    match env.text_or("REDIS_SOCKET_TYPE", "unix") {
        _ if url.starts_with("redis://") => tcp(env, url, is_tls, secrets),
        "tcp" | "tcp4" | "tcp6" => tcp(env, url, is_tls, secrets),
        "unix" if !url.starts_with('/') => {
            env.fault("REDIS_URL", "is not the path of a Unix socket: for HOST:PORT, set REDIS_SOCKET_TYPE=tcp");
            String::new()
        }
        "unix" => {
            if env.text("REDIS_AUTH").is_some() {
                env.fault("REDIS_AUTH", "has no effect on a Unix socket: use a rule file with `password_file`");
            }
            quoted(&format!("unix://{url}"))
        }
        _ => {
            env.fault("REDIS_SOCKET_TYPE", "is not `tcp` or `unix`");
            String::new()
        }
    }
}

/// Returns the URL of a server. `REDIS_AUTH` precedes a password in `url`.
fn tcp(env: &Environment, url: &str, is_tls: bool, secrets: &mut Secrets) -> String {
    let server = Server::parse(url);
    let login = env.text("REDIS_AUTH").map(login).or(server.login);
    let database = server.database.map(|database| format!("/{}", literal(database))).unwrap_or_default();
    server_url(is_tls, (LOGIN, login), &format!("{}{database}", literal(server.host)), secrets)
}

/// Returns the URL of a server with a placeholder for the login. The first server sets its value.
fn server_url(is_tls: bool, (name, login): (&str, Option<String>), host: &str, secrets: &mut Secrets) -> String {
    let scheme = if is_tls { "rediss" } else { "redis" };
    let Some(login) = login else { return quoted_with_placeholders(&format!("{scheme}://{host}")) };
    if secrets.iter().all(|(other, _)| other != name) {
        secrets.push((name.to_owned(), login));
    }
    quoted_with_placeholders(&format!("{scheme}://${{{name}}}@{host}"))
}

/// Adds the keys for Sentinel. `url` has the name of the master and the sentinels.
fn sentinel(env: &mut Environment, url: &str, is_tls: bool, (store, secrets): (&mut FlowMap, &mut Secrets)) {
    let (master, sentinels) = url.split_once(',').unwrap_or((url, ""));
    if sentinels.is_empty() {
        return env.fault("REDIS_URL", "is not `MASTER,SENTINEL,...`: the name of the master, and the sentinels");
    }
    let of_sentinels = env.text("REDIS_SENTINEL_AUTH").map(login);
    let url = |url: &str| {
        let Server { login, host, .. } = Server::parse(url);
        (of_sentinels.clone().or(login), literal(host))
    };
    let urls = sentinels.split(',').map(url);
    let urls: Vec<_> = urls.map(|(login, host)| server_url(is_tls, (SENTINEL_LOGIN, login), &host, secrets)).collect();
    store.add("sentinel", format!("{{ master: {}, urls: {} }}", quoted(master), flow_list(urls)));
    if let Some(auth) = env.text("REDIS_AUTH") {
        let (user, password) = auth.split_once(':').map_or((None, auth), |(user, password)| (Some(user), password));
        store.add_text("user", user);
        store.add("password", quoted_with_placeholders(&format!("${{{PASSWORD}}}")));
        secrets.push((PASSWORD.to_owned(), password.to_owned()));
    }
}

fn tls(env: &mut Environment) -> String {
    if env.flag("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", false) {
        env.fault("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", "is not supported: the host name is always verified");
    }
    let mut tls = FlowMap::default();
    tls.add_text("ca", env.text("REDIS_TLS_CACERT"));
    tls.add_text("cert", env.text("REDIS_TLS_CLIENT_CERT"));
    tls.add_text("key", env.text("REDIS_TLS_CLIENT_KEY"));
    tls.flow()
}

/// Returns `USER:PASSWORD` or `PASSWORD` as a URL has it.
fn login(auth: &str) -> String {
    let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let (user, password) = auth.split_once(':').unwrap_or(("", auth));
    format!("{}:{}", encoded(user), encoded(password))
}

/// Returns a text in which dollar signs start no placeholders.
fn literal(text: &str) -> String {
    text.replace('$', "$$")
}

impl<'e> Server<'e> {
    /// Parses `HOST:PORT` or `redis://[USER:PASSWORD@]HOST:PORT[/DATABASE][?db=...&username=...&password=...]`.
    fn parse(url: &'e str) -> Self {
        let Some(rest) = url.strip_prefix("redis://") else { return Self { login: None, host: url, database: None } };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (own, host) = authority.rsplit_once('@').map_or((None, authority), |(login, host)| (Some(login), host));
        let value = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        let of_query = || Some(format!("{}:{}", value("username").unwrap_or_default(), value("password")?));
        let database = Some(database).filter(|database| !database.is_empty()).or_else(|| value("db"));
        Self { login: own.map(str::to_owned).or_else(of_query), host, database }
    }
}
