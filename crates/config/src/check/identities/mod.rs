//! Checks `identities`, and that routes only read configured identities.

mod settings;

use crate::Purpose;
use crate::check::all;
use crate::check::matching::route_context::RouteContext;
use crate::check::request_value::request_value;
use crate::file::located::Located;
use crate::file::{self, File};
use crate::problem::{Checked, Problems, quote};
use tidegate_rules::client::ClientSource;
use tidegate_rules::request::identity::IdentityKinds;
use tidegate_rules::rules::Credentials;

pub(crate) use self::settings::{check_tiers, identities};

const FROM_HELP: &str = "write `header:NAME`, `cookie:NAME` or `query:NAME`";

const JWT_EXAMPLE: &str = "{ jwks: https://id.example.com/jwks.json, issuer: https://id.example.com/, audience: api }";
const LAYER_JWT_EXAMPLE: &str = "{ jwks: jwks.json, issuer: https://id.example.com/, audience: api }";
const KEYS_EXAMPLE: &str = "{ header: X-Api-Key, file: keys.yaml }";

/// Converts where requests contain credentials.
pub(crate) fn credentials(file: &File, problems: &mut Problems) -> Checked<Credentials> {
    let Some(raw) = file.identities.optional(problems)? else { return Ok(Credentials::default()) };
    let key = key_source(raw, problems);
    let token = token_source(raw, problems);
    let (key, token) = (key?, token?);
    if key.is_some() && key == token {
        let message = "API keys and tokens are in the same part of a request";
        return Err(raw.jwt.report(message, "set `from`, or another `header` of `keys`", problems));
    }
    Ok(Credentials { key, token })
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
    let Some(jwt) = raw.jwt.optional(problems)? else { return Ok(None) };
    match jwt.from.optional(problems)? {
        Some(text) => read_source(text, &jwt.from, problems).map(Some),
        None => Ok(Some(ClientSource::Header(http::header::AUTHORIZATION))),
    }
}

fn read_source(text: &str, raw: &Located<String>, problems: &mut Problems) -> Checked<ClientSource> {
    match request_value(text, raw, problems)? {
        Some(source @ (ClientSource::Header(_) | ClientSource::Cookie(_) | ClientSource::Query(_))) => Ok(source),
        _ => Err(raw.report(format!("{} is not a part of a request", quote(text)), FROM_HELP, problems)),
    }
}

/// Converts `require`.
pub(crate) fn require(
    route: &file::Route,
    context: RouteContext<'_>,
    problems: &mut Problems,
) -> Checked<IdentityKinds> {
    let Some(kinds) = route.require.optional(problems)? else { return Ok(IdentityKinds::default()) };
    let kinds: IdentityKinds = all(kinds.iter().map(|kind| kind.required(problems).copied()))?.into_iter().collect();
    check_configured(kinds, context, &route.require, problems)?;
    Ok(kinds)
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
        Purpose::Gateway => JWT_EXAMPLE,
        Purpose::Layer => LAYER_JWT_EXAMPLE, // a layer fetches no key sets
    };
    let mut result = Ok(());
    for (is_needed, is_present, key, example) in [
        (kinds.token, identities.is_some_and(|identities| identities.jwt.is_present()), "jwt", jwt),
        (kinds.key, identities.is_some_and(|identities| identities.keys.is_present()), "keys", KEYS_EXAMPLE),
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
