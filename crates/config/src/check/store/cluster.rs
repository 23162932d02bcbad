//! The configured nodes of a Redis Cluster. Messages contain no addresses, since these may contain a password.

use super::sentinel::reject_master_keys;
use crate::check::{Checked, all};
use crate::file;
use crate::file::located::Located;
use crate::problem::Problems;
use tidegate_rules::settings::store::RedisUrl;

const URL_HELP: &str =
    "write `redis://[user:password@]host[:port]`, special characters percent-encoded; `rediss://...` for TLS";

/// Converts the configured nodes. Returns an empty list if the store is no cluster.
pub(super) fn seeds(store: &file::Store, problems: &mut Problems) -> Checked<Vec<RedisUrl>> {
    let Some(raw) = store.cluster.optional(problems)? else { return Ok(Vec::new()) };
    let urls = all(raw.iter().map(|url| seed(url, problems)))?;
    let keys = reject_master_keys(store, "cluster", problems);
    if urls.iter().any(RedisUrl::is_tls) && !urls.iter().all(RedisUrl::is_tls) {
        let message = "only some nodes of the cluster use TLS";
        return Err(store.cluster.report(message, "use `rediss://` for all nodes, or for none", problems));
    }
    keys.map(|()| urls)
}

fn seed(url: &Located<String>, problems: &mut Problems) -> Checked<RedisUrl> {
    RedisUrl::parse_node(url.required(problems)?)
        .map_err(|fault| url.report(format!("the URL of a node {fault}"), URL_HELP, problems))
}
