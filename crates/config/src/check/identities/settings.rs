//! The settings of `identities`, and the verifier of its credentials.

use std::path::PathBuf;

use crate::check::all;
use crate::check::matching::identity::of_kind;
use crate::file::located::Located;
use crate::file::{self, File};
use crate::problem::suggest::nearest;
use crate::problem::{Checked, Problems, quote, quote_all};
use crate::{LoadedVerifier, Purpose, Source};
use tidegate_rules::request::identity::{IdentityKind, IdentityTest, IdentityValue};
use tidegate_rules::route::Routes;
use tidegate_rules::settings::files::ConfiguredFile;
use tidegate_rules::settings::identities::{IdentitySettings, KeySetSource, KeySetUrl, TokenSettings};

/// The highest number of warnings about unknown tiers.
const MAX_UNKNOWN_TIERS: usize = 10;

/// Converts `identities`, and creates the verifier of its credentials.
pub(crate) fn identities(
    file: &File,
    source: Source<'_>,
    problems: &mut Problems,
) -> Checked<(IdentitySettings, LoadedVerifier)> {
    let Some(raw) = file.identities.optional(problems)? else { return Ok(Default::default()) };
    let Source { files, .. } = source;
    let keys = raw.keys.optional(problems)?.map(|keys| Ok(files.path(keys.file.required(problems)?))).transpose();
    let users = raw.basic.optional(problems)?.map(|basic| Ok(files.path(basic.file.required(problems)?))).transpose();
    let tokens = all_tokens(raw, source, problems);
    // The valid part is read even if others have errors.
    let valid = IdentitySettings {
        keys: keys.clone().ok().flatten(),
        users: users.clone().ok().flatten(),
        tokens: tokens.clone().unwrap_or_default(),
    };
    let Some(mut loaded) = files.checks().verifier(&valid, files.are_checked()) else {
        let (message, help) = (
            "`identities` needs a program that verifies credentials",
            "build the layer with `Gateway::layer_builder()`",
        );
        return Err(file.identities.report(message, help, problems));
    };
    let keys = report(loaded.bad_keys.take(), raw.keys.get().map(|keys| &keys.file), problems).and(keys);
    let users = report(loaded.bad_users.take(), raw.basic.get().map(|basic| &basic.file), problems).and(users);
    let key_sets = all(std::mem::take(&mut loaded.bad_key_sets).into_iter().map(|(position, fault)| {
        let jwt = raw.jwt.items().get(position).and_then(Located::get);
        report(Some(fault), jwt.map(|jwt| &jwt.jwks), problems)
    }));
    let tokens = key_sets.and(tokens);
    Ok((IdentitySettings { keys: keys?, users: users?, tokens: tokens? }, loaded))
}

/// Converts the issuers of tokens. The issuer of a token selects its entry, so no two entries have the same.
fn all_tokens(raw: &file::Identities, source: Source<'_>, problems: &mut Problems) -> Checked<Vec<TokenSettings>> {
    let Some(entries) = raw.jwt.optional(problems)? else { return Ok(Vec::new()) };
    let tokens = all(entries.iter().map(|jwt| tokens(jwt.required(problems)?, source, problems)));
    let mut checked = Ok(());
    for (position, entry) in entries.iter().enumerate() {
        let Some(jwt) = entry.get() else { continue };
        if entries.len() > 1 && !jwt.name.is_present() {
            let message = "an issuer in a list needs a name";
            checked = Err(problems.add(entry.location, message, "for example `name: customers`"));
        }
        let before = || entries[..position].iter().filter_map(Located::get);
        if jwt.name.get().is_some() && before().any(|other| other.name.get() == jwt.name.get()) {
            checked = Err(jwt.name.report("two issuers have this name", "rename one of them", problems));
        }
        if jwt.issuer.get().is_some() && before().any(|other| other.issuer.get() == jwt.issuer.get()) {
            let message = "another entry has the same `issuer`, which selects the entry of a token";
            let help = "merge the entries: `audience` and `claims` take lists";
            checked = Err(jwt.issuer.report(message, help, problems));
        }
    }
    checked.and(tokens)
}

/// Reports the message and the help about a file.
fn report(fault: Option<(String, String)>, place: Option<&Located<String>>, problems: &mut Problems) -> Checked<()> {
    let (Some((message, help)), Some(place)) = (fault, place) else { return Ok(()) };
    Err(place.report(message, help, problems))
}

/// Warns about tiers of API keys that are not defined, if a limit has the rate of the key's tier.
pub(crate) fn check_tiers(
    file: &File,
    (identities, loaded): (&IdentitySettings, &LoadedVerifier),
    routes: &Routes,
    problems: &mut Problems,
) {
    let limits = routes.iter().flat_map(|route| &route.limits);
    let by_tier = limits.filter_map(|limit| limit.rates.as_ref()).any(|rates| rates.by == IdentityValue::KeyTier);
    let (Some(path), Some(tiers), true) = (&identities.keys, file.tiers.get(), by_tier) else { return };
    let Some(raw) = file.identities.get().and_then(|identities| identities.keys.get()) else { return };
    let names = || tiers.keys().map(String::as_str);
    let unknown = loaded.tiers.iter().filter(|(_, tier)| names().all(|name| *name != **tier));
    for (line, tier) in unknown.take(MAX_UNKNOWN_TIERS) {
        let path = quote(&path.to_string_lossy());
        let message = format!("unknown tier {} on line {line} of {path}: its clients get the default", quote(tier));
        let help = match nearest(tier, names()) {
            Some(near) => format!("did you mean {}?", quote(near)),
            None => format!("the tiers are {}", quote_all(names().take(10))),
        };
        problems.warn(raw.file.location, &message, help);
    }
}

fn tokens(raw: &file::Jwt, source: Source<'_>, problems: &mut Problems) -> Checked<TokenSettings> {
    let jwks = key_set(raw, source, problems);
    let ca = authorities(raw, source, problems);
    let audiences = raw.audience.optional(problems)?;
    let audiences = all(audiences.into_iter().flatten().map(|text| audience(text, problems)));
    let claims = of_kind(&raw.claims, IdentityKind::Token, problems);
    let issuer = issuer(&raw.issuer, problems)?;
    let max_token = raw.max_token.size(TokenSettings::DEFAULT_MAX_TOKEN, problems)?;
    let (audiences, claims) = (audiences?, claims?);
    if audiences.is_empty() && !claims.iter().any(|claim| matches!(claim.test, IdentityTest::OneOf(_))) {
        let message = "`jwt` needs `audience`, or a value in `claims`: otherwise tokens for other services are valid";
        let help = "for example `audience: api`, or `claims: { client_id: web }` if tokens have no `aud`";
        return Err(problems.add(raw.claims.key_location(), message, help));
    }
    let name = raw.name.optional(problems)?.map(|name| name.as_str().into());
    Ok(TokenSettings { name, jwks: jwks?, ca: ca?, issuer, audiences, claims, max_token })
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
    let url = raw.jwks.optional(problems)?.and_then(|text| KeySetUrl::parse(text));
    if raw.jwks.is_present() && !url.is_some_and(|url| url.is_https()) {
        let help = "leave `ca` out, or fetch the key set from an `https` URL";
        return Err(raw.ca.report("`ca` has no effect without an `https` URL in `jwks`", help, problems));
    }
    let file = ConfiguredFile { key: "ca", path: &path };
    if source.files.are_checked()
        && let Err(bad) = source.files.checks().authorities(file)
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
