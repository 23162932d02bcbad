//! Checks `identities`, and that routes only read configured identities.

mod require;
mod service;
mod settings;

use std::sync::Arc;

use crate::Purpose;
use crate::check::matching::route_context::RouteContext;
use crate::check::request_value::request_value;
use crate::file::located::Located;
use crate::file::{self, File};
use crate::problem::{Checked, Problems, quote};
use tidegate_rules::client::ClientSource;
use tidegate_rules::request::identity::IdentityKinds;
use tidegate_rules::rules::Credentials;

pub(crate) use self::require::require;
pub(crate) use self::service::add_upstreams;
pub(crate) use self::settings::{check_tiers, identities};

const FROM_HELP: &str = "write `header:NAME`, `cookie:NAME` or `query:NAME`";

const JWT_EXAMPLE: &str = "{ jwks: https://id.example.com/jwks.json, issuer: https://id.example.com/, audience: api }";
const LAYER_JWT_EXAMPLE: &str = "{ jwks: jwks.json, issuer: https://id.example.com/, audience: api }";
const KEYS_EXAMPLE: &str = "{ header: X-Api-Key, file: keys.yaml }";
const BASIC_EXAMPLE: &str = "{ file: users.htpasswd }";

/// The default of `realm`.
const DEFAULT_REALM: &str = "internal";

/// Converts where requests contain credentials.
pub(crate) fn credentials(file: &File, problems: &mut Problems) -> Checked<Credentials> {
    let Some(raw) = file.identities.optional(problems)? else { return Ok(Credentials::default()) };
    let key = key_source(raw, problems);
    let token = token_source(raw, problems);
    let realm = realm(raw, problems);
    let (key, token, realm) = (key?, token?, realm?);
    if key.is_some() && key == token {
        let message = "API keys and tokens are in the same part of a request";
        return Err(raw.jwt.report(message, "set `from`, or another `header` of `keys`", problems));
    }
    Ok(Credentials { key, token, realm })
}

/// Returns the names of the issuers of tokens. A single issuer may have none.
pub(crate) fn issuers(file: &File) -> Vec<&str> {
    let entries = file.identities.get().into_iter().flat_map(|identities| identities.jwt.items());
    entries.filter_map(|jwt| jwt.get()?.name.get().map(String::as_str)).collect()
}

fn realm(raw: &file::Identities, problems: &mut Problems) -> Checked<Option<Arc<str>>> {
    let Some(basic) = raw.basic.optional(problems)? else { return Ok(None) };
    let realm = basic.realm.optional(problems)?.map_or(DEFAULT_REALM, String::as_str);
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b' ' | b'.' | b'_' | b'-');
    if realm.len() > 64 || !realm.bytes().all(is_valid) {
        let message = format!("{} is not the name of a realm", quote(realm));
        return Err(basic.realm.report(message, "use at most 64 letters, digits, spaces and `._-`", problems));
    }
    Ok(Some(realm.into()))
}

fn key_source(raw: &file::Identities, problems: &mut Problems) -> Checked<Option<ClientSource>> {
    let Some(keys) = raw.keys.optional(problems)? else { return Ok(None) };
    let sources = [("header", &keys.header), ("cookie", &keys.cookie), ("query", &keys.query)];
    let given: Vec<_> = sources.into_iter().filter(|(_, source)| source.is_present()).collect();
    let [(kind, source)] = given[..] else {
        let message = "`keys` needs exactly one of `header`, `cookie` and `query`";
        return Err(raw.keys.report(message, "for example `header: X-Api-Key`", problems));
    };
    let name = source.required(problems)?;
    read_source(&format!("{kind}:{name}"), source, problems).map(Some)
}

fn token_source(raw: &file::Identities, problems: &mut Problems) -> Checked<Option<ClientSource>> {
    let mut common = None;
    for jwt in raw.jwt.optional(problems)?.into_iter().flatten() {
        let raw = &jwt.required(problems)?.from;
        let source = match raw.optional(problems)? {
            Some(text) => read_source(text, raw, problems)?,
            None => ClientSource::Header(http::header::AUTHORIZATION),
        };
        if common.as_ref().is_some_and(|common| *common != source) {
            let message = "all issuers need the same `from`: a request has one token";
            return Err(problems.add(jwt.location, message, "set `from` of each entry to the same value"));
        }
        common = Some(source);
    }
    Ok(common)
}

fn read_source(text: &str, raw: &Located<String>, problems: &mut Problems) -> Checked<ClientSource> {
    match request_value(text, raw, problems)? {
        Some(source @ (ClientSource::Header(_) | ClientSource::Cookie(_) | ClientSource::Query(_))) => Ok(source),
        _ => Err(raw.report(format!("{} is not a part of a request", quote(text)), FROM_HELP, problems)),
    }
}

/// Reports an error if these kinds of credentials are not configured.
pub(super) fn check_configured<T>(
    kinds: IdentityKinds,
    context: RouteContext<'_>,
    raw: &Located<T>,
    problems: &mut Problems,
) -> Checked<()> {
    let identities = context.file.identities.optional(problems)?;
    let jwt = match context.purpose {
        Purpose::Gateway | Purpose::Command => JWT_EXAMPLE,
        Purpose::Layer => LAYER_JWT_EXAMPLE, // a layer fetches no key sets
    };
    let mut result = Ok(());
    for (is_needed, is_present, key, example) in [
        (kinds.token, identities.is_some_and(|identities| identities.jwt.is_present()), "jwt", jwt),
        (kinds.key, identities.is_some_and(|identities| identities.keys.is_present()), "keys", KEYS_EXAMPLE),
        (kinds.user, identities.is_some_and(|identities| identities.basic.is_present()), "basic", BASIC_EXAMPLE),
    ] {
        if is_needed && !is_present {
            let message = format!("this needs `identities.{key}`, which is not configured");
            let help = match identities {
                _ if !context.verifies_credentials => {
                    format!(
                        "build the layer with `Gateway::layer_builder()`, and add `identities: {{ {key}: {example} }}`"
                    )
                }
                Some(_) => format!("add it to `identities`: `{key}: {example}`"),
                None => format!("add it at the top level: `identities: {{ {key}: {example} }}`"),
            };
            result = Err(raw.report(message, help, problems));
        }
    }
    result
}
