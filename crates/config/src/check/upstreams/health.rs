//! Active health checks of an upstream.

use http::uri::PathAndQuery;

use super::percent::percent;
use crate::check::{Checked, all};
use crate::file;
use crate::file::located::Located;
use crate::problem::{Problems, quote};
use tidegate_rules::limits::status_range::StatusRange;
use tidegate_rules::settings::upstream::{HealthRequest, HealthSettings};

/// The statuses that pass by default.
const DEFAULT_EXPECT: StatusRange = StatusRange { first: 200, last: 399 };

pub(crate) fn health(raw: &Located<file::Health>, problems: &mut Problems) -> Checked<Option<HealthSettings>> {
    let Some(health) = raw.optional(problems)? else { return Ok(None) };
    let request = match (health.path.optional(problems)?, health.grpc.optional(problems)?) {
        (Some(path), None) => {
            let path = parse_path(path, &health.path, problems)?;
            let expect = match health.expect.optional(problems)? {
                None => vec![DEFAULT_EXPECT],
                Some(_) => status_ranges(&health.expect, problems)?,
            };
            HealthRequest::Http { path, expect }
        }
        (None, Some(_)) if health.expect.is_present() => {
            let help = "leave it out: a gRPC check passes if the service is `SERVING`";
            return Err(problems.add(health.expect.key_location(), "`expect` has no effect with `grpc`", help));
        }
        (None, Some(service)) => {
            HealthRequest::Grpc { grpc: if service == "*" { String::new() } else { service.clone() } }
        }
        _ => {
            let help = "write `path: /healthz` for HTTP, or `grpc: my.Service` for gRPC";
            return Err(raw.report("`health` needs either `path` or `grpc`", help, problems));
        }
    };
    let interval = health.interval.duration(HealthSettings::DEFAULT_INTERVAL);
    let timeout = health.timeout.duration(HealthSettings::DEFAULT_TIMEOUT.min(interval));
    if timeout > interval {
        return Err(health.timeout.report("`timeout` is longer than `interval`", "use a shorter timeout", problems));
    }
    let rise = health.rise.number(HealthSettings::DEFAULT_RISE, problems)?;
    let fall = health.fall.number(HealthSettings::DEFAULT_FALL, problems)?;
    let panic_percent = percent(&health.panic, HealthSettings::DEFAULT_PANIC_PERCENT, problems)?;
    Ok(Some(HealthSettings { request, interval, timeout, rise, fall, panic_percent }))
}

/// Parses the path of a check. Only visible ASCII characters are valid in a request line.
fn parse_path(text: &str, at: &Located<String>, problems: &mut Problems) -> Checked<PathAndQuery> {
    let is_path = text.starts_with('/') && !text.contains('#') && text.bytes().all(|byte| byte.is_ascii_graphic());
    let parsed = text.parse().ok().filter(|_| is_path);
    parsed.ok_or_else(|| at.report(format!("{} is not a path", quote(text)), "write it as `/healthz`", problems))
}

/// Converts a list of statuses and ranges.
pub(crate) fn status_ranges(raw: &Located<Vec<Located<String>>>, problems: &mut Problems) -> Checked<Vec<StatusRange>> {
    all(raw.items().iter().map(|raw| status_range(raw, problems)))
}

fn status_range(raw: &Located<String>, problems: &mut Problems) -> Checked<StatusRange> {
    let text = raw.required(problems)?;
    let status = |text: &str| text.parse().ok().filter(|status| (200..=599).contains(status));
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (status(first), status(last)) {
        (Some(first), Some(last)) if first <= last => Ok(StatusRange { first, last }),
        _ => {
            let help = match text.as_bytes() {
                [class @ b'2'..=b'5', rest @ ..] if rest.eq_ignore_ascii_case(b"xx") => {
                    let class = char::from(*class);
                    format!("write `{class}00-{class}99`")
                }
                _ => "write a status from 200 to 599, or a range such as `200-399`".to_owned(),
            };
            Err(raw.report(format!("{} is not a range of statuses", quote(text)), help, problems))
        }
    }
}
