//! The action of a route: `upstream`, `redirect` or `respond`.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, StatusCode};

use super::field_changes;
use super::templates::{self, Variables};
use crate::Purpose;
use crate::check::matching::route_context::RouteContext;
use crate::check::{Checked, help_for_unknown, present_keys};
use crate::file::located::Located;
use crate::file::{self, File};
use crate::problem::{Problems, quote, quote_all};
use tidegate_rules::route::{Action, FixedResponse, Redirect};
use tidegate_rules::template::{Escape, Variable};

/// The largest body of a response.
const MAX_BODY: usize = 64 << 10;

pub(crate) fn action(raw: &file::Route, context: RouteContext<'_>, problems: &mut Problems) -> Checked<Action> {
    if raw.authorize.is_present() {
        return Ok(Action::Forward(None));
    }
    let present = present_keys!(raw, upstream redirect respond);
    if let [_, (_, second), ..] = present[..] {
        let names = quote_all(present.iter().map(|(name, _)| *name));
        let message = format!("a route has one action, not {}: {names}", present.len());
        return Err(problems.add(second, message, "keep one of them, and remove the others"));
    }
    match present.first() {
        Some(("redirect", _)) => {
            let redirect = redirect(raw.redirect.required(problems)?, context, problems)?;
            warn_of_any_host(raw, &redirect, problems);
            Ok(Action::Redirect(Box::new(redirect)))
        }
        Some(("respond", _)) => Ok(Action::Respond(Box::new(fixed(raw.respond.required(problems)?, 200, problems)?))),
        Some(_) => upstream(&raw.upstream, context.file, problems).map(|name| Action::Forward(Some(name))),
        None => match context.purpose {
            Purpose::Layer | Purpose::Command => Ok(Action::Forward(None)),
            Purpose::Gateway => {
                let help = "add `upstream: NAME` with a name from `upstreams`, or `redirect`, `respond` or `authorize`";
                let message = "a route of a gateway needs `upstream`".to_owned();
                Err(problems.add_missing(raw.upstream.location, "upstream", message, help))
            }
        },
    }
}

pub(super) fn upstream(raw: &Located<String>, file: &File, problems: &mut Problems) -> Checked<Arc<str>> {
    let name = raw.required(problems)?;
    let declared = file.upstreams.get().into_iter().flatten().map(|(name, _)| name.as_str());
    if problems.has_unknown_file() || declared.clone().any(|declared| declared == name) {
        return Ok(Arc::from(name.as_str()));
    }
    let help = help_for_unknown(name, declared, "upstreams", || "add it to `upstreams`".to_owned());
    Err(raw.report(format!("unknown upstream {}", quote(name)), help, problems))
}

/// Warns about a redirect to the host of the request, if the route matches all hosts: a link or a cache could send others
/// to a host that is not a server of the operator.
fn warn_of_any_host(route: &file::Route, redirect: &Redirect, problems: &mut Problems) {
    let has_host = route.r#match.get().is_none_or(|conditions| conditions.host.is_present());
    if let Some(raw) = route.redirect.get()
        && !has_host
        && redirect.to.variables().any(|variable| *variable == Variable::Host)
    {
        let message = "a request can choose the server of this redirect: the route matches all hosts";
        problems.warn(
            raw.to.location,
            message,
            "add `host` to `match`, or write the name of the server instead of `{host}`",
        );
    }
}

fn redirect(raw: &file::Redirect, context: RouteContext<'_>, problems: &mut Problems) -> Checked<Redirect> {
    let to = templates::template(&raw.to, Escape::Url, Variables::request(context), problems);
    let to = to.and_then(|to| match (Redirect::has_safe_authority(&to), is_url(&to.to_string())) {
        (true, true) => Ok(to),
        (true, false) => {
            let message = format!("{} is not a URL", quote(&to.to_string()));
            Err(raw.to.report(message, "percent-encode spaces and other special characters", problems))
        }
        (false, _) => {
            let message = format!("{} does not name a server that is fixed", quote(&to.to_string()));
            let help =
                "start with `https://NAME`, `https://{host}`, `/` or `{uri}`, and put `{uri}` or `/` after the name";
            Err(raw.to.report(message, help, problems))
        }
    });
    let status = match raw.status.optional(problems)?.copied() {
        None => Ok(StatusCode::TEMPORARY_REDIRECT),
        Some(code @ (301..=303 | 307 | 308)) => status(code, &raw.status, problems),
        Some(code) => {
            let message = format!("{code} is not the status of a redirect");
            Err(raw.status.report(message, "use 301, 302, 303, 307 or 308", problems))
        }
    };
    Ok(Redirect { to: to?, status: status? })
}

/// Returns `true` if the text has only characters of URLs.
fn is_url(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"<>\\^`|".contains(&byte))
}

/// Returns the response to banned clients.
pub(crate) fn bans(file: &File, problems: &mut Problems) -> Checked<Option<Arc<FixedResponse>>> {
    let Some(raw) = file.bans.optional(problems)? else { return Ok(None) };
    fixed(raw, 403, problems).map(|fixed| Some(Arc::new(fixed)))
}

type RawFields = Located<Vec<(String, Located<String>)>>;

fn fixed(raw: &file::Respond, default: u64, problems: &mut Problems) -> Checked<FixedResponse> {
    let code = raw.status.optional(problems)?.copied().unwrap_or(default);
    let status = status(code, &raw.status, problems);
    let body = raw.body.optional(problems)?.map(String::as_str).unwrap_or_default();
    if body.len() > MAX_BODY {
        let message = format!("the body has {} bytes, more than 64 KiB", body.len());
        return Err(raw.body.report(message, "serve large documents from an upstream", problems));
    }
    if !body.is_empty() && matches!(code, 204 | 205 | 304) {
        let message = format!("a response with status {code} has no body");
        return Err(raw.body.report(message, "remove `body`, or use another status", problems));
    }
    let content_type = content_type(&raw.content_type, "text/plain; charset=utf-8", problems);
    let headers = headers(&raw.headers, problems);
    Ok(FixedResponse {
        status: status?,
        content_type: Some(content_type?).filter(|_| !body.is_empty()),
        body: body.as_bytes().into(),
        headers: headers?,
    })
}

fn headers(raw: &RawFields, problems: &mut Problems) -> Checked<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in raw.optional(problems)?.into_iter().flatten() {
        let name = field_changes::name(name, value.key_location(), field_changes::Message::Response, problems)?;
        headers.insert(name, field_changes::value(value, problems)?);
    }
    Ok(headers)
}

pub(crate) fn content_type(
    raw: &Located<String>,
    default: &'static str,
    problems: &mut Problems,
) -> Checked<HeaderValue> {
    match raw.optional(problems)? {
        None => Ok(HeaderValue::from_static(default)),
        Some(text) if !text.contains('/') => {
            let message = format!("{} is not a content type", quote(text));
            Err(raw.report(message, "for example `application/json`", problems))
        }
        Some(_) => field_changes::value(raw, problems),
    }
}

/// Converts a status whose range was validated.
pub(crate) fn status(code: u64, raw: &Located<u64>, problems: &mut Problems) -> Checked<StatusCode> {
    let status = u16::try_from(code).ok().and_then(|code| StatusCode::from_u16(code).ok());
    status.ok_or_else(|| problems.reported(raw.location))
}
