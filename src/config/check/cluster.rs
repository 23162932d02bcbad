//! The nodes of a cluster that a store names. No message repeats an address, since it may hold a password.

use super::sentinel::refuse_beside;
use super::{Checked, needed, part};
use crate::config::file;
use crate::config::node::Node;
use crate::config::problem::Problems;
use crate::store::settings::RedisUrl;

const URL_HELP: &str =
    "write `redis://[user:password@]host[:port]`, special characters percent-encoded; `rediss://...` for TLS";

/// The nodes that tell of all others; none if the store is no cluster.
pub(super) fn seeds(store: &file::Store, of: &Node, problems: &mut Problems) -> Checked<Vec<RedisUrl>> {
    let Some(written) = part(&store.cluster, of, "cluster", problems)? else { return Ok(Vec::new()) };
    let node = of.at("cluster");
    let urls: Vec<_> = written.iter().zip(node.items()).map(|(url, node)| seed(url, node, problems)).collect();
    let urls = urls.into_iter().collect::<Checked<Vec<_>>>()?;
    let alone = refuse_beside(of, "cluster", problems);
    if urls.iter().any(RedisUrl::is_tls) && !urls.iter().all(RedisUrl::is_tls) {
        let message = "some nodes of the cluster are reached by TLS, and others are not";
        return Err(problems.add(node.location, message, "write `rediss://` for all of them, or for none"));
    }
    alone.map(|()| urls)
}

fn seed(url: &Option<String>, node: &Node, problems: &mut Problems) -> Checked<RedisUrl> {
    let url = needed(url, node, problems)?;
    RedisUrl::parse_node(url)
        .map_err(|fault| problems.add(node.location, format!("the URL of a node {fault}"), URL_HELP))
}
