//! The store. Messages contain no addresses and no secrets, since both may contain a password.

pub(crate) mod cluster;
pub(crate) mod sentinel;

use std::time::Duration;

use crate::check::{Checked, present_keys, reject_keys, tls};
use crate::file::{self, File};
use crate::problem::suggest::nearest;
use crate::problem::{Location, Problems, quote};
use crate::sources::referenced_files::ReferencedFiles;
use tidegate_rules::settings::store::{KeySecret, RedisSettings, RedisUrl, StoreSettings};
use tidegate_service::AnswerSettings;

/// The minimum length of `key_secret` in bytes. Shorter secrets can be guessed.
const MIN_SECRET_LENGTH: usize = 16;

const URL_HELP: &str = "write `redis://[user:password@]host[:port][/database]`, special characters percent-encoded; \
                        `rediss://...` for TLS; or `unix:///path`";

/// The checked address of a store.
enum Address {
    Memory,
    Redis(RedisUrl),
}

pub(crate) fn store(file: &File, files: ReferencedFiles<'_>, problems: &mut Problems) -> Checked<StoreSettings> {
    let Some(raw) = file.store.optional(problems)? else {
        return Ok(StoreSettings::Memory { key_secret: None });
    };
    let key_secret = key_secret(raw, problems);
    let single_address = check_single_address(raw, problems);
    let cluster = cluster::seeds(raw, problems);
    let seed = cluster.as_ref().ok().and_then(|seeds| seeds.first());
    let address = match sentinel::master(raw, problems) {
        Ok(Some(master)) => Ok(Address::Redis(master)),
        Ok(None) => seed.map_or_else(|| url(raw, problems), |seed| Ok(Address::Redis(seed.clone()))),
        Err(reported) => Err(reported),
    };
    let is_tls = matches!(&address, Ok(Address::Redis(url)) if url.is_tls());
    let tls = tls::tls(&raw.tls, is_tls || address.is_err(), files, problems);
    let sentinel = sentinel::sentinel(raw, &tls, files, problems);
    let password_file = tls::password_file(&raw.password_file, files, problems);
    let trusted = match &tls {
        Ok(tls) if is_tls && files.are_checked() => {
            tls::check_trust_anchors(&tls.clone().unwrap_or_default(), files, address_location(raw), problems)
        }
        _ => Ok(()),
    };
    single_address?;
    trusted?;
    match address? {
        Address::Memory => {
            reject_redis_keys(raw, problems)?;
            Ok(StoreSettings::Memory { key_secret: key_secret? })
        }
        Address::Redis(url) => Ok(StoreSettings::Redis(RedisSettings {
            url,
            sentinel: sentinel?.map(Box::new),
            cluster: cluster?.into(),
            tls: tls?.unwrap_or_default(),
            password_file: password_file?,
            timeout: raw.timeout.duration(default_timeout(file)),
            prefix: raw.prefix.get().cloned().unwrap_or_default(),
            pool_size: raw.pool_size.number(StoreSettings::DEFAULT_POOL_SIZE, problems)?,
            key_secret: key_secret?,
            fail_readiness: raw.fail_readiness.or_default(problems)?,
            min_gateways: raw.min_gateways.number(1, problems)?,
        })),
    }
}

/// Returns the timeout of a store without the key. If only a service uses the store, a store that is too slow for its calls is
/// an outage.
fn default_timeout(file: &File) -> Duration {
    match file.service.get() {
        Some(service) if !file.routes.is_present() => service.timeout.duration(AnswerSettings::DEFAULT_TIMEOUT),
        _ => StoreSettings::DEFAULT_TIMEOUT,
    }
}

/// Reports an error unless exactly one key with an address is present.
fn check_single_address(raw: &file::Store, problems: &mut Problems) -> Checked<()> {
    let mut present = present_keys!(raw, url sentinel cluster);
    present.sort_unstable_by_key(|(_, location)| *location);
    match *present {
        [] => {
            let message = "the store needs `url`, `sentinel` or `cluster`";
            Err(raw.url.report(message, "for example `url: redis://127.0.0.1:6379`", problems))
        }
        [(first, _), (second, second_location), ..] => {
            let message = format!("the store has both {} and {}", quote(first), quote(second));
            Err(problems.add(second_location, message, "keep one of them"))
        }
        _ => Ok(()),
    }
}

fn address_location(raw: &file::Store) -> Location {
    let sentinel = raw.sentinel.key.map(|_| raw.sentinel.location);
    raw.url.key.map(|_| raw.url.location).or(sentinel).unwrap_or(raw.cluster.location)
}

fn url(raw: &file::Store, problems: &mut Problems) -> Checked<Address> {
    let url = raw.url.required(problems)?.as_str();
    let (message, help) = match url.split_once("://") {
        None if url == "memory" => return Ok(Address::Memory),
        None if nearest(url, ["memory"]).is_some() => {
            (format!("{} is not a store", quote(url)), "did you mean `memory`?")
        }
        None => ("the store must be `memory` or a URL".to_owned(), URL_HELP),
        Some(("redis" | "rediss" | "unix", _)) => match RedisUrl::parse(url) {
            Ok(url) => {
                sentinel::reject_master_keys(raw, "url", problems)?;
                return Ok(Address::Redis(url));
            }
            Err(fault) => (format!("the URL of the store {fault}"), URL_HELP),
        },
        Some((scheme, _)) => (format!("{} is not a store", quote(&format!("{scheme}://"))), URL_HELP),
    };
    Err(raw.url.report(message, help, problems))
}

fn key_secret(raw: &file::Store, problems: &mut Problems) -> Checked<Option<KeySecret>> {
    let Some(secret) = raw.key_secret.optional(problems)? else { return Ok(None) };
    if secret.len() < MIN_SECRET_LENGTH {
        let message = format!("`key_secret` must have at least {MIN_SECRET_LENGTH} bytes, not {}", secret.len());
        let help = "create one with `openssl rand -hex 32`, and use it for every gateway";
        return Err(raw.key_secret.report(message, help, problems));
    }
    Ok(Some(KeySecret::derive(secret.as_bytes())))
}

/// Reports keys that have no effect on the store `memory`.
fn reject_redis_keys(raw: &file::Store, problems: &mut Problems) -> Checked<()> {
    let keys = present_keys!(
        raw, user password database tls password_file timeout prefix pool_size fail_readiness min_gateways
    );
    reject_keys(&keys, "on the store `memory`", "leave it out, or use `url: redis://...`", problems)
}
