//! How a Redis is reached: its URL, and what the files beside it hold. These are read again for every connection, so that a
//! changed password or a renewed certificate is used by the next one.

use std::path::{Path, PathBuf};
use std::{fs, io};

use deadpool_redis::redis::io::tcp::TcpSettings;
use deadpool_redis::redis::{ConnectionInfo, ErrorKind, IntoConnectionInfo, ProtocolVersion, RedisError, RedisResult};
use tokio::task::spawn_blocking;

use crate::store::settings::{RedisSettings, RedisTls};

/// Where a Redis is.
#[derive(Clone, Debug)]
pub(super) struct Address {
    /// What the URL says.
    url: ConnectionInfo,
    /// Nothing if the URL asks for none.
    tls: Option<RedisTls>,
    /// Nothing if the URL has the password.
    password_file: Option<PathBuf>,
}

impl Address {
    /// # Errors
    /// The URL is none that leads to a Redis.
    pub(super) fn new(settings: &RedisSettings) -> RedisResult<Self> {
        let url = settings.url.expose().into_connection_info()?;
        // RESP3, in which the client says when a connection ends that nobody uses.
        let redis = url.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        // A call is sent while another is under way.
        let tcp = TcpSettings::default().set_nodelay(true);
        let has_password = redis.password().is_some();
        let url = url.set_redis_settings(redis).set_tcp_settings(tcp);
        let tls = settings.url.is_tls().then(|| settings.tls.clone());
        Ok(Self { url, tls, password_file: settings.password_file.clone().filter(|_| !has_password) })
    }

    /// All that the next connection is opened with.
    ///
    /// # Errors
    /// A file cannot be read, or does not hold what it should.
    pub(super) async fn resolve(&self) -> RedisResult<ConnectionInfo> {
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

/// What the file holds, without the end of its line.
fn password(path: &Path) -> io::Result<String> {
    let cannot = |error| io::Error::other(format!("password_file `{}` cannot be read: {error}", path.display()));
    let text = fs::read_to_string(path).map_err(cannot)?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

#[cfg(feature = "tls")]
fn with_tls(address: ConnectionInfo, tls: &RedisTls) -> RedisResult<ConnectionInfo> {
    use deadpool_redis::redis::Client;

    let certificates = crate::store::tls::read(tls).map_err(|fault| io::Error::other(fault.to_string()))?;
    Ok(Client::build_with_tls(address, certificates)?.get_connection_info().clone())
}

#[cfg(not(feature = "tls"))]
fn with_tls(_: ConnectionInfo, _: &RedisTls) -> RedisResult<ConnectionInfo> {
    Err(RedisError::from((ErrorKind::InvalidClientConfig, "TLS is not built in (feature `tls`)")))
}
