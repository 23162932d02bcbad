//! The configured nodes of a Redis Cluster. Messages contain no addresses, since these may contain a password.

use super::sentinel::reject_master_keys;
use super::{Checked, needed, part};
use crate::config::file;
use crate::config::node::Node;
use crate::config::problem::Problems;
use crate::store::settings::RedisUrl;

const URL_HELP: &str =
    "write `redis://[user:password@]host[:port]`, special characters percent-encoded; `rediss://...` for TLS";

/// Converts the configured nodes. Returns an empty list if the store is no cluster.
pub(super) fn seeds(store: &file::Store, of: &Node, problems: &mut Problems) -> Checked<Vec<RedisUrl>> {
    let Some(written) = part(&store.cluster, of, "cluster", problems)? else { return Ok(Vec::new()) };
    let node = of.at("cluster");
    let urls: Vec<_> = written.iter().zip(node.items()).map(|(url, node)| seed(url, node, problems)).collect();
    let urls = urls.into_iter().collect::<Checked<Vec<_>>>()?;
    let keys = reject_master_keys(of, "cluster", problems);
    if urls.iter().any(RedisUrl::is_tls) && !urls.iter().all(RedisUrl::is_tls) {
        let message = "only some nodes of the cluster use TLS";
        return Err(problems.add(node.location, message, "use `rediss://` for all nodes, or for none"));
    }
    keys.map(|()| urls)
}

fn seed(url: &Option<String>, node: &Node, problems: &mut Problems) -> Checked<RedisUrl> {
    let url = needed(url, node, problems)?;
    RedisUrl::parse_node(url)
        .map_err(|fault| problems.add(node.location, format!("the URL of a node {fault}"), URL_HELP))
}
