//! Creates the verifiers of credentials, and reads their files.

use std::path::PathBuf;
use std::sync::Arc;

use crate::config::file::{self, File};
use crate::config::key_file;
use crate::config::located::Located;
use crate::config::problem::{Checked, Problems, quote, quote_all};
use crate::config::suggest::nearest;
use crate::config::{Purpose, Source};
use crate::credentials::{ApiKeys, KeySetSource, KeySetUrl, KeyTable, TokenSettings, TokenVerifier, Verifiers};
use crate::identity::IdentityValue;
use crate::pem::PemFile;
use crate::route::Routes;
use crate::settings::files::{ConfiguredFile, read_bounded};

/// The highest number of warnings about unknown tiers.
const MAX_UNKNOWN_TIERS: usize = 10;

/// Creates the verifiers of `identities`.
pub(in crate::config::check) fn verifiers(
    file: &File,
    source: Source<'_>,
    problems: &mut Problems,
) -> Checked<Verifiers> {
    let Some(raw) = file.identities.optional(problems)? else { return Ok(Verifiers::default()) };
    let keys = raw.keys.optional(problems)?.map(|keys| api_keys(keys, source, problems)).transpose();
    let tokens = raw.jwt.optional(problems)?.map(|jwt| tokens(jwt, source, problems)).transpose();
    Ok(Verifiers { keys: keys?.map(Arc::new), tokens: tokens?.map(Arc::new) })
}

/// Warns about tiers of API keys that are not defined, if a limit has the rate of the key's tier.
pub(in crate::config::check) fn check_tiers(
    file: &File,
    verifiers: &Verifiers,
    routes: &Routes,
    problems: &mut Problems,
) {
    let limits = routes.iter().flat_map(|route| &route.limits);
    let by_tier = limits.filter_map(|limit| limit.rates.as_ref()).any(|rates| rates.by == IdentityValue::KeyTier);
    let (Some(keys), Some(tiers), true) = (&verifiers.keys, file.tiers.get(), by_tier) else { return };
    let Some(raw) = file.identities.get().and_then(|identities| identities.keys.get()) else { return };
    let names = || tiers.keys().map(String::as_str);
    let unknown = keys.tiers().into_iter().filter(|(_, tier)| names().all(|name| *name != **tier));
    for (line, tier) in unknown.take(MAX_UNKNOWN_TIERS) {
        let path = quote(&keys.path().to_string_lossy());
        let message = format!("unknown tier {} on line {line} of {path}: its clients get the default", quote(&tier));
        let help = match nearest(&tier, names()) {
            Some(near) => format!("did you mean {}?", quote(near)),
            None => format!("the tiers are {}", quote_all(names().take(10))),
        };
        problems.warn(raw.file.location, &message, help);
    }
}

fn api_keys(raw: &file::IdentityKeys, source: Source<'_>, problems: &mut Problems) -> Checked<ApiKeys> {
    let path = source.files.path(raw.file.required(problems)?);
    if !source.files.are_checked() {
        return Ok(ApiKeys::new(path, KeyTable::default()));
    }
    match key_file::read(&path) {
        Ok(table) => Ok(ApiKeys::new(path, table)),
        Err(error) => {
            let (message, help) = (format!("{} {error}", quote(&path.to_string_lossy())), error.help(&path));
            Err(raw.file.report(message, help, problems))
        }
    }
}

fn tokens(raw: &file::Jwt, source: Source<'_>, problems: &mut Problems) -> Checked<TokenVerifier> {
    let jwks = key_set(raw, source, problems);
    let ca = authorities(raw, source, problems);
    let audiences = raw.audience.required(problems)?.iter();
    let audiences = audiences.map(|text| audience(text, problems)).collect::<Vec<_>>();
    let issuer = issuer(&raw.issuer, problems)?;
    let max_token = raw.max_token.size(TokenSettings::DEFAULT_MAX_TOKEN, problems)?;
    let verifier = TokenVerifier::new(TokenSettings {
        jwks: jwks?,
        ca: ca?,
        issuer,
        audiences: audiences.into_iter().collect::<Checked<_>>()?,
        max_token,
    });
    let Some(path) = verifier.path().filter(|_| source.files.are_checked()) else { return Ok(verifier) };
    let help = "write a JSON Web Key Set: `{\"keys\": [...]}`";
    let loaded = match read_bounded(path) {
        Ok(text) => verifier.replace_keys(&text).map(drop).map_err(|error| (error.to_string(), help.to_owned())),
        Err(error) => Err((error.to_string(), error.help(path).unwrap_or_else(|| help.to_owned()))),
    };
    if let Err((fault, help)) = loaded {
        let message = format!("{} {fault}", quote(&path.to_string_lossy()));
        return Err(raw.jwks.report(message, help, problems));
    }
    Ok(verifier)
}

/// Checks a value of `aud`, which is compared as a whole.
fn audience(raw: &Located<String>, problems: &mut Problems) -> Checked<String> {
    let text = raw.required(problems)?;
    if text.contains('*') {
        let message = format!("{} is not an audience: a `*` has no meaning", quote(text));
        return Err(raw.report(message, "list the values of `aud` that your issuer writes for this API", problems));
    }
    if text.contains([',', '|', ' ']) {
        let parts: Vec<_> = text.split([',', '|', ' ']).filter(|part| !part.is_empty()).collect();
        let message = format!("{} is one audience", quote(text));
        problems.warn(raw.location, &message, format!("for several, write `[{}]`", parts.join(", ")));
    }
    Ok(text.clone())
}

/// Checks `iss`, which is compared as a whole.
fn issuer(raw: &Located<String>, problems: &mut Problems) -> Checked<String> {
    let text = raw.required(problems)?;
    if text.contains('*') {
        let message = format!("{} is not an issuer: a `*` has no meaning", quote(text));
        return Err(raw.report(message, "write the `iss` of your tokens, letter by letter", problems));
    }
    if let Some((issuer, _)) = text.split_once(".well-known/") {
        let message = format!("{} is the address of a document, not the `iss` of tokens", quote(text));
        problems.warn(raw.location, &message, format!("write `issuer` of that document, probably {}", quote(issuer)));
    }
    if text.ends_with(".auth0.com") {
        let message = format!("{} is not the `iss` of Auth0, which ends with a slash", quote(text));
        problems.warn(raw.location, &message, format!("write {}", quote(&format!("{text}/"))));
    }
    Ok(text.clone())
}

/// Checks and returns the file of the authorities that sign the certificate of the key set's server.
fn authorities(raw: &file::Jwt, source: Source<'_>, problems: &mut Problems) -> Checked<Option<PathBuf>> {
    let Some(path) = raw.ca.optional(problems)?.map(|path| source.files.path(path)) else { return Ok(None) };
    let url = raw.jwks.get().and_then(|text| KeySetUrl::parse(text));
    if raw.jwks.is_present() && !url.is_some_and(|url| url.is_https()) {
        let help = "leave `ca` out, or fetch the key set from an `https` URL";
        return Err(raw.ca.report("`ca` has no effect without an `https` URL in `jwks`", help, problems));
    }
    let file = ConfiguredFile { key: "ca", path: &path };
    if source.files.are_checked()
        && let Err(bad) = file.read().and_then(|text| file.authorities(&text))
    {
        return Err(raw.ca.report(bad.to_string(), bad.help, problems));
    }
    Ok(Some(path))
}

fn key_set(raw: &file::Jwt, source: Source<'_>, problems: &mut Problems) -> Checked<KeySetSource> {
    let text = raw.jwks.required(problems)?;
    if !text.contains("://") {
        return Ok(KeySetSource::File(source.files.path(text)));
    }
    let Some(url) = KeySetUrl::parse(text) else {
        let message = "`jwks` must be an `http` or `https` URL without credentials or fragment";
        return Err(raw.jwks.report(message, "write `https://host/path`, or a path", problems));
    };
    if source.purpose == Purpose::Layer {
        let message = "a layer reads the key set only from a file";
        return Err(raw.jwks.report(message, "write the path of a file", problems));
    }
    let is_local = url.host() == "localhost" || url.host().parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback());
    if !url.is_https() && !is_local {
        let message = "`jwks` is fetched in plaintext, so that an attacker on the path can replace the keys";
        problems.warn(raw.jwks.location, message, "use `https`");
    }
    Ok(KeySetSource::Url(url))
}
