//! The key `sentinel` of the store, and the keys of its master. Messages contain no URLs, since these may contain a
//! password.

use crate::check::{Checked, all, present_keys, tls};
use crate::file;
use crate::file::located::Located;
use crate::problem::{Problems, quote};
use crate::sources::referenced_files::ReferencedFiles;
use tidegate_rules::settings::store::{RedisTls, RedisUrl, SentinelSettings};

const URL_HELP: &str =
    "write `redis://[user:password@]host:26379`, special characters percent-encoded; `rediss://...` for TLS";

/// Returns the URL of the master, whose host is the name of the master. Returns `None` without `sentinel`.
pub(crate) fn master(store: &file::Store, problems: &mut Problems) -> Checked<Option<RedisUrl>> {
    let Some(sentinel) = store.sentinel.optional(problems)? else { return Ok(None) };
    let (user, database) = (store.user.optional(problems), store.database.optional(problems));
    let password = store.password.optional(problems);
    let name = sentinel.master.required(problems);
    if store.password.is_present() && store.password_file.is_present() {
        let message = "the store has both `password` and `password_file`";
        return Err(store.password_file.report(message, "keep one of them", problems));
    }
    let (user, password) = (user?.map(String::as_str), password?.map(String::as_str));
    let url = RedisUrl::for_master(name?, user, password, database?.copied(), store.tls.is_present());
    RedisUrl::parse(url.expose()).map(Some).map_err(|fault| {
        let help = "leave `tls` out, or build with the feature `tls`";
        store.tls.report(format!("the address of the master {fault}"), help, problems)
    })
}

/// Converts the sentinels. They use the store's `tls` unless they have their own.
pub(crate) fn sentinel(
    store: &file::Store,
    tls: &Checked<Option<RedisTls>>,
    files: ReferencedFiles<'_>,
    problems: &mut Problems,
) -> Checked<Option<SentinelSettings>> {
    let Some(raw) = store.sentinel.optional(problems)? else { return Ok(None) };
    let urls = raw.urls.required(problems);
    let urls = urls.and_then(|urls| all(urls.iter().map(|url| sentinel_url(url, problems))));
    let password_file = tls::password_file(&raw.password_file, files, problems);
    let is_tls = urls.as_ref().map_or(true, |urls| urls.iter().any(RedisUrl::is_tls));
    let own = tls::tls(&raw.tls, is_tls, files, problems);
    if is_tls && urls.is_ok() && !store.tls.is_present() {
        let message = "the sentinels use TLS, but the master does not";
        return Err(raw.urls.report(message, "add `tls: {}`, or `tls: { ca: FILE }`, to the store", problems));
    }
    let tls = own?.or_else(|| tls.as_ref().ok().cloned().flatten()).unwrap_or_default();
    if is_tls && urls.is_ok() && files.are_checked() {
        tls::check_trust_anchors(&tls, files, raw.urls.location, problems)?;
    }
    Ok(Some(SentinelSettings { urls: urls?, password_file: password_file?, tls }))
}

fn sentinel_url(raw: &Located<String>, problems: &mut Problems) -> Checked<RedisUrl> {
    RedisUrl::parse_sentinel(raw.required(problems)?)
        .map_err(|fault| raw.report(format!("the URL of a sentinel {fault}"), URL_HELP, problems))
}

/// Reports keys of a master in a store with URLs, where they are part of the URLs.
pub(super) fn reject_master_keys(store: &file::Store, address_key: &str, problems: &mut Problems) -> Checked<()> {
    let mut checked = Ok(());
    for (key, location) in present_keys!(store, user password database) {
        let message = format!("{} has no effect with {}", quote(key), quote(address_key));
        let help = match key {
            "database" if address_key == "cluster" => "leave it out: a cluster has only one database",
            _ if address_key == "cluster" => "put it into the URLs: `redis://user:password@host`",
            _ => "put it into the URL: `redis://user:password@host/database`",
        };
        checked = Err(problems.add(location, message, help));
    }
    checked
}
