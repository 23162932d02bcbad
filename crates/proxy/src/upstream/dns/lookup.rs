//! Looks names up: in the hosts file, then with the DNS servers of the system or of the rule file.

use std::net::SocketAddr;
use std::sync::Arc;

use hickory_resolver::TokioResolver;
use parking_lot::Mutex;
use tokio::time::timeout;

use super::DnsName;
use super::client::{Client, LIMIT, Sources, parse};
use super::state::{Answer, Host, LookupError, Missing};

/// Looks names up. Files of the system are read again when they change.
#[derive(Debug)]
pub(super) struct Lookup {
    /// The servers of the rule file. Without them, the servers of the system are used.
    servers: Mutex<Arc<[SocketAddr]>>,
    client: Mutex<Option<Arc<Client>>>,
}

// === impl Lookup ===

impl Lookup {
    pub(super) fn new(servers: Arc<[SocketAddr]>) -> Self {
        Self { servers: Mutex::new(servers), client: Mutex::default() }
    }

    /// Replaces the servers of the rule file.
    pub(super) fn set_servers(&self, servers: Arc<[SocketAddr]>) {
        *self.servers.lock() = servers;
    }

    /// Looks a name up.
    pub(super) async fn resolve(&self, name: &DnsName) -> Result<Answer, LookupError> {
        let client = self.client();
        // The caller decides how long an answer is used, so each call bypasses the cache. Removing only the answer
        // for this name would leave the targets of its aliases (CNAME) in the cache.
        client.resolver.iter().for_each(TokioResolver::clear_cache);
        let answer = async {
            match name {
                DnsName::Host(host, port) => {
                    let ((addresses, failed), ttl) = client.addresses(&parse(host)?).await?;
                    let missing = failed.map_or(Missing::Nothing, Missing::Family);
                    Ok(Answer { hosts: vec![Host::new(&addresses, *port, 1)], ttl, missing })
                }
                DnsName::Service(service) => client.service(&parse(service)?).await,
            }
        };
        let late = |_| Err(LookupError::Failed(format!("no reply within {LIMIT:?}")));
        timeout(LIMIT, answer).await.unwrap_or_else(late)
    }

    fn client(&self) -> Arc<Client> {
        let sources = Sources::new(Arc::clone(&self.servers.lock()));
        let mut client = self.client.lock();
        match &*client {
            Some(client) if client.sources == sources => Arc::clone(client),
            _ => Arc::clone(client.insert(Arc::new(Client::new(sources)))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn localhost_is_resolved_without_a_server() {
        let lookup = Lookup::new(["127.0.0.1:9".parse().unwrap()].into());
        let answer = lookup.resolve(&DnsName::Host("localhost".into(), 80)).await.unwrap();
        assert!(!answer.hosts[0].ipv4.is_empty(), "{answer:?}");
    }
}
