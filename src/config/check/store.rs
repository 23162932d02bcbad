//! The store. Messages contain no addresses and no secrets, since both may contain a password.

use super::{Checked, cluster, duration, needed, number, part, sentinel, tls};
use crate::config::file::{self, File};
use crate::config::node::Node;
use crate::config::problem::{Location, Problems, quote};
use crate::config::referenced_files::ReferencedFiles;
use crate::config::suggest::nearest;
use crate::store::settings::{KeySecret, RedisSettings, RedisUrl, StoreSettings};

/// The minimum length of `key_secret` in bytes. Shorter secrets can be guessed.
const MIN_SECRET_LENGTH: usize = 16;

/// Keys that have no effect on the store `memory`.
const REDIS_KEYS: [&str; 10] = [
    "user",
    "password",
    "database",
    "tls",
    "password_file",
    "timeout",
    "prefix",
    "pool_size",
    "fail_readiness",
    "min_gateways",
];

/// The keys with the address of the store. Exactly one of them is required.
const ADDRESS_KEYS: [&str; 3] = ["url", "sentinel", "cluster"];

const URL_HELP: &str = "write `redis://[user:password@]host[:port][/database]`, special characters percent-encoded; \
                        `rediss://...` for TLS; or `unix:///path`";

/// The checked address of a store.
enum Address {
    Memory,
    Redis(RedisUrl),
}

pub(super) fn store(
    file: &File,
    root: &Node,
    files: ReferencedFiles<'_>,
    problems: &mut Problems,
) -> Checked<StoreSettings> {
    let Some(written) = part(&file.store, root, "store", problems)? else {
        return Ok(StoreSettings::Memory { key_secret: None });
    };
    let node = root.at("store");
    let key_secret = key_secret(written, node, problems);
    let single_address = check_single_address(written, node, problems);
    let cluster = cluster::seeds(written, node, problems);
    let seed = cluster.as_ref().ok().and_then(|seeds| seeds.first());
    let address = match sentinel::master(written, node, problems) {
        Ok(Some(master)) => Ok(Address::Redis(master)),
        Ok(None) => seed.map_or_else(|| url(written, node, problems), |seed| Ok(Address::Redis(seed.clone()))),
        Err(reported) => Err(reported),
    };
    let is_tls = matches!(&address, Ok(Address::Redis(url)) if url.is_tls());
    let tls = tls::tls(&written.tls, is_tls || address.is_err(), node, files, problems);
    let sentinel = sentinel::sentinel(written, &tls, node, files, problems);
    let password_file = tls::password_file(&written.password_file, node, files, problems);
    let trusted = match &tls {
        Ok(tls) if is_tls && files.are_checked() => {
            tls::check_trust_anchors(&tls.clone().unwrap_or_default(), address_location(node), problems)
        }
        _ => Ok(()),
    };
    single_address?;
    trusted?;
    match address? {
        Address::Memory => {
            reject_redis_keys(node, problems)?;
            Ok(StoreSettings::Memory { key_secret: key_secret? })
        }
        Address::Redis(url) => Ok(StoreSettings::Redis(RedisSettings {
            url,
            sentinel: sentinel?.map(Box::new),
            cluster: cluster?.into(),
            tls: tls?.unwrap_or_default(),
            password_file: password_file?,
            timeout: duration(written.timeout, StoreSettings::DEFAULT_TIMEOUT),
            prefix: written.prefix.clone().unwrap_or_default(),
            pool_size: number(written.pool_size, StoreSettings::DEFAULT_POOL_SIZE, node.at("pool_size"), problems)?,
            key_secret: key_secret?,
            fail_readiness: part(&written.fail_readiness, node, "fail_readiness", problems)?.copied().unwrap_or(false),
            min_gateways: number(written.min_gateways, 1, node.at("min_gateways"), problems)?,
        })),
    }
}

/// Reports an error unless exactly one of [`ADDRESS_KEYS`] is present.
fn check_single_address(written: &file::Store, node: &Node, problems: &mut Problems) -> Checked<()> {
    let keys: Vec<_> = node.entries().iter().filter(|entry| ADDRESS_KEYS.contains(&entry.key.as_str())).collect();
    match *keys {
        [] if written.url.is_none() => {
            let (message, help) =
                ("the store needs `url`, `sentinel` or `cluster`", "for example `url: redis://127.0.0.1:6379`");
            Err(problems.add(node.location, message, help))
        }
        [first, second, ..] => {
            let message = format!("the store has both {} and {}", quote(&first.key), quote(&second.key));
            Err(problems.add(second.location, message, "keep one of them"))
        }
        _ => Ok(()),
    }
}

/// Returns the location of the address.
fn address_location(node: &Node) -> Location {
    let written = ADDRESS_KEYS.into_iter().find(|key| node.has(key));
    written.map_or(node.location, |key| node.at(key).location)
}

/// Returns `true` if the store is a Redis Cluster.
pub(super) fn is_cluster(store: &Checked<StoreSettings>) -> bool {
    matches!(store, Ok(StoreSettings::Redis(settings)) if !settings.cluster.is_empty())
}

/// Returns the prefix of limiter names.
pub(super) fn prefix(store: &Checked<StoreSettings>) -> &str {
    match store {
        Ok(StoreSettings::Redis(settings)) => &settings.prefix,
        Ok(StoreSettings::Memory { .. }) | Err(_) => "",
    }
}

fn url(written: &file::Store, node: &Node, problems: &mut Problems) -> Checked<Address> {
    let at = node.at("url");
    let url = needed(&written.url, at, problems)?.as_str();
    let (message, help) = match url.split_once("://") {
        None if url == "memory" => return Ok(Address::Memory),
        None if nearest(url, ["memory"]).is_some() => {
            (format!("{} is not a store", quote(url)), "did you mean `memory`?")
        }
        None => ("the store must be `memory` or a URL".to_owned(), URL_HELP),
        Some(("redis" | "rediss" | "unix", _)) => match RedisUrl::parse(url) {
            Ok(url) => {
                sentinel::reject_master_keys(node, "url", problems)?;
                return Ok(Address::Redis(url));
            }
            Err(fault) => (format!("the URL of the store {fault}"), URL_HELP),
        },
        Some((scheme, _)) => (format!("{} is not a store", quote(&format!("{scheme}://"))), URL_HELP),
    };
    Err(problems.add(at.location, message, help))
}

fn key_secret(written: &file::Store, node: &Node, problems: &mut Problems) -> Checked<Option<KeySecret>> {
    let Some(secret) = part(&written.key_secret, node, "key_secret", problems)? else { return Ok(None) };
    if secret.len() < MIN_SECRET_LENGTH {
        let message = format!("`key_secret` must have at least {MIN_SECRET_LENGTH} bytes, not {}", secret.len());
        let help = "create one with `openssl rand -hex 32`, and use it for every gateway";
        return Err(problems.add(node.at("key_secret").location, message, help));
    }
    Ok(Some(KeySecret::derive(secret.as_bytes())))
}

fn reject_redis_keys(node: &Node, problems: &mut Problems) -> Checked<()> {
    let mut checked = Ok(());
    for entry in node.entries().iter().filter(|entry| REDIS_KEYS.contains(&entry.key.as_str())) {
        let message = format!("{} has no effect on the store `memory`", quote(&entry.key));
        checked = Err(problems.add(entry.location, message, "leave it out, or use `url: redis://...`"));
    }
    checked
}
