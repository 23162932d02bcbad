//! The settings of answers of the service.

use std::time::Duration;

use http::HeaderName;

use crate::check::all;
use crate::check::names::{Message, changed_field};
use crate::file::located::Located;
use crate::file::{self, File};
use crate::problem::{Checked, Problems};
use tidegate_rules::limits::policy::{RateLimitFields, RateLimitHeaders};
use tidegate_service::{AnswerSettings, LegacyNames};

/// Converts the keys about answers.
pub(super) fn answers(file: &File, raw: &file::Service, problems: &mut Problems) -> Checked<AnswerSettings> {
    let (headers, legacy_names) = (headers(raw, problems), legacy_names(raw, problems));
    let dynamic_metadata = raw.dynamic_metadata.or_default(problems);
    let (headers, legacy_names) = (headers?, legacy_names?);
    if raw.legacy_names.is_present() && !headers.legacy {
        let message = "`legacy_names` has no effect without `legacy`";
        return Err(raw.legacy_names.report(message, "add `headers: [ietf, legacy]`", problems));
    }
    let timeout = raw.timeout.duration(default_timeout(file));
    Ok(AnswerSettings { headers, legacy_names, dynamic_metadata: dynamic_metadata?, timeout })
}

/// Returns the timeout of a service without the key. A timeout of the store that the file has is meant for the service, too.
fn default_timeout(file: &File) -> Duration {
    let default = AnswerSettings::DEFAULT_TIMEOUT;
    file.store.get().map_or(default, |store| store.timeout.duration(default))
}

/// Converts `headers`. An empty list sends no fields.
fn headers(raw: &file::Service, problems: &mut Problems) -> Checked<RateLimitHeaders> {
    let Some(fields) = raw.headers.optional(problems)? else { return Ok(RateLimitHeaders::default()) };
    let fields = all(fields.iter().map(|field| field.required(problems)))?;
    let has = |field| fields.contains(&&field);
    if has(RateLimitFields::OpenAi) || has(RateLimitFields::Anthropic) {
        let message = "the rate limit service has only the fields `ietf` and `legacy`";
        return Err(raw.headers.report(message, "leave the others out", problems));
    }
    Ok(RateLimitHeaders::new(has))
}

fn legacy_names(raw: &file::Service, problems: &mut Problems) -> Checked<LegacyNames> {
    let Some(names) = raw.legacy_names.optional(problems)? else { return Ok(LegacyNames::default()) };
    let default = LegacyNames::default();
    let limit = name(&names.limit, default.limit, problems);
    let (remaining, reset) =
        (name(&names.remaining, default.remaining, problems), name(&names.reset, default.reset, problems));
    Ok(LegacyNames { limit: limit?, remaining: remaining?, reset: reset? })
}

fn name(raw: &Located<String>, default: HeaderName, problems: &mut Problems) -> Checked<HeaderName> {
    let Some(text) = raw.optional(problems)? else { return Ok(default) };
    changed_field(text, raw.location, Message::Response, problems)
}
