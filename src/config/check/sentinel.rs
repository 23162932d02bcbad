//! The key `sentinel` of the store, and the keys of its master. Messages contain no URLs, since these may contain a
//! password.

use super::{Checked, needed, part, tls};
use crate::config::file;
use crate::config::node::Node;
use crate::config::problem::{Problems, quote};
use crate::config::referenced_files::ReferencedFiles;
use crate::store::settings::{RedisTls, RedisUrl, SentinelSettings};

const URL_HELP: &str =
    "write `redis://[user:password@]host:26379`, special characters percent-encoded; `rediss://...` for TLS";

/// Keys of the master, which are part of the URL with `url`.
const MASTER_KEYS: [&str; 3] = ["user", "password", "database"];

/// Returns the URL of the master, whose host is the name of the master. Returns `None` without `sentinel`.
pub(super) fn master(store: &file::Store, of: &Node, problems: &mut Problems) -> Checked<Option<RedisUrl>> {
    let Some(sentinel) = part(&store.sentinel, of, "sentinel", problems)? else { return Ok(None) };
    let (user, database) = (part(&store.user, of, "user", problems), part(&store.database, of, "database", problems));
    let password = part(&store.password, of, "password", problems);
    let name = needed(&sentinel.master, of.at("sentinel").at("master"), problems);
    if of.has("password") && of.has("password_file") {
        let message = "the store has both `password` and `password_file`";
        return Err(problems.add(of.at("password_file").location, message, "keep one of them"));
    }
    let (user, password) = (user?.map(String::as_str), password?.map(String::as_str));
    let url = RedisUrl::for_master(name?, user, password, database?.copied(), of.has("tls"));
    RedisUrl::parse(url.expose()).map(Some).map_err(|fault| {
        let location = of.at("tls").location;
        problems.add(
            location,
            format!("the address of the master {fault}"),
            "leave `tls` out, or build with the feature `tls`",
        )
    })
}

/// Converts the sentinels. They use the store's `tls` unless they have their own.
pub(super) fn sentinel(
    store: &file::Store,
    tls: &Checked<Option<RedisTls>>,
    of: &Node,
    files: ReferencedFiles<'_>,
    problems: &mut Problems,
) -> Checked<Option<SentinelSettings>> {
    let Some(written) = part(&store.sentinel, of, "sentinel", problems)? else { return Ok(None) };
    let node = of.at("sentinel");
    let urls = urls(written, node, problems);
    let password_file = tls::password_file(&written.password_file, node, files, problems);
    let is_tls = urls.as_ref().map_or(true, |urls| urls.iter().any(RedisUrl::is_tls));
    let own = tls::tls(&written.tls, is_tls, node, files, problems);
    if is_tls && urls.is_ok() && !of.has("tls") {
        let message = "the sentinels use TLS, but the master does not";
        return Err(problems.add(
            node.at("urls").location,
            message,
            "add `tls: {}`, or `tls: { ca: FILE }`, to the store",
        ));
    }
    let tls = own?.or_else(|| tls.as_ref().ok().cloned().flatten()).unwrap_or_default();
    if is_tls && urls.is_ok() && files.are_checked() {
        tls::check_trust_anchors(&tls, node.at("urls").location, problems)?;
    }
    Ok(Some(SentinelSettings { urls: urls?, password_file: password_file?, tls }))
}

fn urls(written: &file::Sentinel, of: &Node, problems: &mut Problems) -> Checked<Vec<RedisUrl>> {
    let at = of.at("urls");
    let urls = needed(&written.urls, at, problems)?.iter().zip(at.items());
    let urls: Vec<_> = urls.map(|(url, node)| sentinel_url(needed(url, node, problems)?, node, problems)).collect();
    urls.into_iter().collect()
}

fn sentinel_url(url: &str, node: &Node, problems: &mut Problems) -> Checked<RedisUrl> {
    RedisUrl::parse_sentinel(url)
        .map_err(|fault| problems.add(node.location, format!("the URL of a sentinel {fault}"), URL_HELP))
}

/// Reports keys of a master in a store with URLs, where they are part of the URLs.
pub(super) fn reject_master_keys(node: &Node, address_key: &str, problems: &mut Problems) -> Checked<()> {
    let mut checked = Ok(());
    for entry in node.entries().iter().filter(|entry| MASTER_KEYS.contains(&entry.key.as_str())) {
        let message = format!("{} has no effect with {}", quote(&entry.key), quote(address_key));
        let help = match entry.key.as_str() {
            "database" if address_key == "cluster" => "leave it out: a cluster has only one database",
            _ if address_key == "cluster" => "put it into the URLs: `redis://user:password@host`",
            _ => "put it into the URL: `redis://user:password@host/database`",
        };
        checked = Err(problems.add(entry.location, message, help));
    }
    checked
}
