//! The address of a Redis and how to open a connection: its URL, password file and certificates. The files are re-read
//! for every connection, so that the next one uses a changed password or certificate.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::io::tcp::TcpSettings;
use deadpool_redis::redis::{
    AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo, ProtocolVersion, PushInfo,
    RedisError, RedisResult,
};
use deadpool_redis::{Manager, Pool, PoolError};
use tokio::task::spawn_blocking;

use tidegate_rules::settings::files::read_bounded;
use tidegate_rules::settings::store::{RedisTls, RedisUrl};

/// How to reach a Redis.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    /// The parsed URL.
    url: ConnectionInfo,
    /// `None` without TLS.
    tls: Option<RedisTls>,
    /// `None` if the URL contains a password.
    password_file: Option<PathBuf>,
}

impl Address {
    /// Creates the address of the server at this URL.
    ///
    /// # Errors
    /// The URL is not a valid Redis URL.
    pub(crate) fn new(redis_url: &RedisUrl, tls: &RedisTls, password_file: Option<&Path>) -> RedisResult<Self> {
        let url = redis_url.expose().into_connection_info()?;
        // With RESP3 the client library reports the end of an idle connection.
        let redis = url.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        // Calls are sent while earlier calls are in flight.
        let tcp = TcpSettings::default().set_nodelay(true);
        let has_password = redis.password().is_some();
        let url = url.set_redis_settings(redis).set_tcp_settings(tcp);
        let tls = redis_url.is_tls().then(|| tls.clone());
        Ok(Self { url, tls, password_file: password_file.filter(|_| !has_password).map(Path::to_owned) })
    }

    /// Returns the same login and TLS settings for another host and port.
    pub(crate) fn moved_to(&self, host: String, port: u16) -> Self {
        let addr = match self.url.addr() {
            ConnectionAddr::TcpTls { .. } => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
            ConnectionAddr::Tcp(..) | ConnectionAddr::Unix(_) | _ => ConnectionAddr::Tcp(host, port),
        };
        Self { url: self.url.clone().set_addr(addr), ..self.clone() }
    }

    /// Returns the address of another node that this node named as `host:port`. Without a host, the node has this
    /// node's host. Returns `None` for an unknown host (`?`).
    pub(crate) fn named_node(&self, host_and_port: &str) -> Option<Self> {
        let (host, port) = host_and_port.rsplit_once(':').filter(|(host, _)| *host != "?")?;
        let host = if host.is_empty() { self.host() } else { host };
        Some(self.moved_to(host.to_owned(), port.parse().ok()?))
    }

    /// Returns `true` if the connection uses TLS.
    pub(crate) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Returns the host without the port.
    pub(crate) fn host(&self) -> &str {
        match self.url.addr() {
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host,
            _ => "",
        }
    }

    pub(crate) fn host_and_port(&self) -> String {
        match self.url.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } if host.contains(':') => {
                format!("[{host}]:{port}")
            }
            addr => addr.to_string(),
        }
    }

    /// Opens a connection. Each has its own pool and is taken out of it for good, so that the end of a connection can
    /// be attributed to it. The caller sets the deadline.
    ///
    /// # Errors
    /// See [`resolve`](Self::resolve). Or the server is unreachable or rejects the login.
    pub(crate) async fn open(
        &self,
        on_push: impl Fn(&PushInfo) + Send + Sync + 'static,
    ) -> RedisResult<MultiplexedConnection> {
        let on_push = move |push: PushInfo| {
            on_push(&push);
            Ok::<(), ()>(())
        };
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let manager = Manager::new_with_config(self.resolve().await?, config.set_push_sender(on_push))?;
        let no_pool = |_| RedisError::from((ErrorKind::InvalidClientConfig, "no pool"));
        let pool = Pool::builder(manager).max_size(1).build().map_err(no_pool)?;
        match pool.get().await {
            Ok(connection) => Ok(deadpool_redis::Connection::take(connection)),
            Err(PoolError::Backend(error)) => Err(error),
            Err(_) => Err(RedisError::from((ErrorKind::Io, "no connection from the pool"))),
        }
    }

    /// Resolves the settings of the next connection.
    ///
    /// # Errors
    /// A file cannot be read, or has invalid contents.
    async fn resolve(&self) -> RedisResult<ConnectionInfo> {
        if self.tls.is_none() && self.password_file.is_none() {
            return Ok(self.url.clone());
        }
        let this = self.clone();
        let read = spawn_blocking(move || this.read()).await;
        read.unwrap_or_else(|_| Err(RedisError::from((ErrorKind::Io, "files were not read"))))
    }

    fn read(&self) -> RedisResult<ConnectionInfo> {
        let mut address = self.url.clone();
        if let Some(path) = &self.password_file {
            let redis = address.redis_settings().clone().set_password(password(path)?);
            address = address.set_redis_settings(redis);
        }
        match &self.tls {
            Some(tls) => with_tls(address, tls),
            None => Ok(address),
        }
    }
}

/// Returns the contents of the file without the end of the line.
fn password(path: &Path) -> io::Result<String> {
    let cannot = |why: &dyn Display| io::Error::other(format!("password_file `{}` {why}", path.display()));
    let text = read_bounded(path).map_err(|why| cannot(&why))?;
    let text = String::from_utf8(text).map_err(|_| cannot(&"is not UTF-8"))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

#[cfg(feature = "tls")]
fn with_tls(address: ConnectionInfo, tls: &RedisTls) -> RedisResult<ConnectionInfo> {
    use deadpool_redis::redis::Client;

    let certificates = crate::tls::read(tls).map_err(|fault| io::Error::other(fault.to_string()))?;
    Ok(Client::build_with_tls(address, certificates)?.get_connection_info().clone())
}

#[cfg(not(feature = "tls"))]
fn with_tls(_: ConnectionInfo, _: &RedisTls) -> RedisResult<ConnectionInfo> {
    Err(RedisError::from((ErrorKind::InvalidClientConfig, "TLS is not built in (feature `tls`)")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moved_address_keeps_its_login() {
        let url = RedisUrl::new("redis://gate:hush@limits/2".to_owned());
        let address = Address::new(&url, &RedisTls::default(), None).expect("an address");
        assert_eq!((address.host(), address.host_and_port().as_str()), ("limits", "limits:6379"));
        let moved = address.moved_to("2001:db8::1".to_owned(), 7_000);
        assert_eq!(moved.host_and_port(), "[2001:db8::1]:7000");
        let named = |text| address.named_node(text).map(|node| node.host_and_port());
        assert_eq!(named("other:7000").as_deref(), Some("other:7000"));
        assert_eq!((named(":7000").as_deref(), named("?:7000")), (Some("limits:7000"), None));
        let redis = moved.url.redis_settings();
        assert_eq!((redis.username(), redis.password(), redis.db()), (Some("gate"), Some("hush"), 2));
    }
}
