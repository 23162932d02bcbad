//! Cross-origin access to a route.

use http::HeaderValue;

use crate::check::matching::matcher::method;
use crate::check::names::header_name;
use crate::check::{Checked, all};
use crate::file;
use crate::file::located::Located;
use crate::problem::{Problems, quote};
use tidegate_rules::route::{Cors, OriginPattern};

/// All methods or fields, for a browser.
const ANY: &str = "*";

pub(crate) fn cors(route: &file::Route, problems: &mut Problems) -> Checked<Option<Box<Cors>>> {
    let Some(raw) = route.cors.optional(problems)? else { return Ok(None) };
    let origins = all(raw.origins.items().iter().map(|raw| origin(raw, problems)));
    let methods = all(raw.methods.items().iter().map(|raw| allowed_method(raw, problems)));
    let headers = all(raw.headers.items().iter().map(|raw| field(raw, problems)));
    let exposed = all(raw.expose.items().iter().map(|raw| field(raw, problems)));
    let credentials = raw.credentials.or_default(problems);
    if let Ok(true) = credentials {
        [&raw.methods, &raw.headers, &raw.expose].iter().for_each(|list| reject_any(list, problems));
    }
    let max_age = raw.max_age.optional(problems);
    raw.origins.required(problems)?;
    let (origins, credentials) = (origins?, credentials?);
    if credentials && origins.contains(&OriginPattern::Any) {
        let message = "`credentials` with the origin `*` would let any page act as the user";
        return Err(raw.credentials.report(message, "list the origins", problems));
    }
    let exposed = exposed?;
    let names: Vec<&str> = Cors::EXPOSED.into_iter().chain(exposed.iter().map(http::HeaderName::as_str)).collect();
    Ok(Some(Box::new(Cors {
        origins,
        methods: methods?,
        headers: headers?,
        expose: HeaderValue::try_from(names.join(", ")).map_err(|_| problems.reported(raw.expose.location))?,
        credentials,
        max_age: max_age?.map(|max_age| max_age.0 / 1_000),
    })))
}

fn origin(raw: &Located<String>, problems: &mut Problems) -> Checked<OriginPattern> {
    let text = raw.required(problems)?;
    OriginPattern::parse(text).ok_or_else(|| {
        let message = format!("{} is not an origin as browsers send it", quote(text));
        let help =
            "write scheme and host in lower case, without a path and without the usual port: `https://app.example.com`";
        raw.report(message, help, problems)
    })
}

/// Reports a `*`, which browsers take for a literal name if requests may contain credentials (Fetch).
fn reject_any(list: &Located<Vec<Located<String>>>, problems: &mut Problems) {
    for any in list.items().iter().filter(|item| item.get().is_some_and(|text| text == ANY)) {
        any.report("`*` matches nothing with `credentials`", "list the names, or leave the key out", problems);
    }
}

fn allowed_method(raw: &Located<String>, problems: &mut Problems) -> Checked<http::Method> {
    match raw.get().and_then(|text| http::Method::from_bytes(text.as_bytes()).ok()) {
        Some(any) if any.as_str() == ANY => Ok(any),
        _ => method(raw, problems),
    }
}

fn field(raw: &Located<String>, problems: &mut Problems) -> Checked<http::HeaderName> {
    if raw.get().is_some_and(|text| text == ANY) {
        return Ok(http::HeaderName::from_static(ANY));
    }
    header_name(raw.required(problems)?, raw.location, problems)
}
