//! The settings of traces, from the environment variables that OpenTelemetry defines.

use std::cell::Cell;
use std::env;

use http::Uri;
use http::uri::Scheme;

use super::super::sample::select;
use super::context::TraceParent;
use tidegate_config::Sample;

/// The settings of traces.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) sampler: Sampler,
    /// Whether the environment sets the name of the service.
    pub(super) has_service_name: bool,
}

/// Selects the requests that are traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sampler {
    /// Whether a trusted peer's `traceparent` decides.
    follows_parent: bool,
    /// The share of 2^64 of the other requests.
    threshold: u64,
}

thread_local! {
    static POSITION: Cell<u64> = const { Cell::new(0) };
}

// === impl Settings ===

impl Settings {
    /// Reads the environment. Returns `None` if it has no endpoint, or turns traces off.
    ///
    /// # Errors
    /// The message names the invalid variable.
    pub(super) fn from_environment() -> Result<Option<Self>, String> {
        let read = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        let endpoint = read("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").or_else(|| read("OTEL_EXPORTER_OTLP_ENDPOINT"));
        let is_off = read("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
            || read("OTEL_TRACES_EXPORTER").is_some_and(|value| value == "none");
        let Some(endpoint) = endpoint.filter(|_| !is_off) else { return Ok(None) };
        let url = endpoint.parse::<Uri>().ok().filter(|url| url.scheme() == Some(&Scheme::HTTP));
        if url.is_none() {
            // Not quoted: the value may contain a password.
            return Err("`OTEL_EXPORTER_OTLP_ENDPOINT` must be an `http://` URL".to_owned());
        }
        let sampler =
            Sampler::parse(read("OTEL_TRACES_SAMPLER").as_deref(), read("OTEL_TRACES_SAMPLER_ARG").as_deref())?;
        let attributes = read("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
        let has_service_name =
            read("OTEL_SERVICE_NAME").is_some() || attributes.split(',').any(|pair| pair.starts_with("service.name="));
        Ok(Some(Self { sampler, has_service_name }))
    }
}

// === impl Sampler ===

impl Sampler {
    fn parse(name: Option<&str>, share: Option<&str>) -> Result<Self, String> {
        // With only a share, the share is meant.
        let default = if share.is_some() { "parentbased_traceidratio" } else { "parentbased_always_on" };
        let name = name.unwrap_or(default);
        let share = share.map_or(Some(1.0), |share| share.parse().ok().filter(|share| (0.0..=1.0).contains(share)));
        let (follows_parent, root) = name.strip_prefix("parentbased_").map_or((false, name), |root| (true, root));
        let share = match root {
            "always_on" => 1.0,
            "always_off" => 0.0,
            "traceidratio" => share.ok_or("`OTEL_TRACES_SAMPLER_ARG` must be a number from 0 to 1")?,
            _ => return Err(format!("`OTEL_TRACES_SAMPLER` has no value `{name}`")),
        };
        Ok(Self { follows_parent, threshold: Sample::from_share(share).threshold() })
    }

    /// Returns `true` if the next request of this thread is traced.
    pub(super) fn selects(self, parent: Option<TraceParent>) -> bool {
        match parent {
            Some(parent) if self.follows_parent => parent.is_sampled,
            _ => select(&POSITION, self.threshold),
        }
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::{SpanId, TraceId};

    use super::*;

    fn sampler(name: &'static str, share: &'static str) -> Result<Sampler, String> {
        let value = |text: &'static str| Some(text).filter(|text| !text.is_empty());
        Sampler::parse(value(name), value(share))
    }

    #[test]
    fn samplers_are_parsed() {
        let all = Sampler { follows_parent: true, threshold: u64::MAX };
        assert_eq!(sampler("", ""), Ok(all));
        assert_eq!(sampler("parentbased_traceidratio", ""), Ok(all));
        assert_eq!(sampler("always_off", "1"), Ok(Sampler { follows_parent: false, threshold: 0 }));
        let half = sampler("", "0.5").expect("a sampler");
        assert!(half.follows_parent && half.threshold.abs_diff(u64::MAX / 2) < 1_000_000, "{half:?}");
        for (name, share) in [("", "2"), ("", "-1"), ("", "NaN"), ("", "x"), ("jaeger_remote", ""), ("always", "")] {
            assert!(sampler(name, share).is_err(), "{name} {share}");
        }
    }

    #[test]
    fn parents_decide_only_if_the_sampler_follows_them() {
        let parent =
            |is_sampled| Some(TraceParent { trace: TraceId::from(1_u128), span: SpanId::from(1_u64), is_sampled });
        let (following, off) = (sampler("", "").expect("a sampler"), sampler("always_off", "").expect("a sampler"));
        assert!(following.selects(None) && following.selects(parent(true)) && !following.selects(parent(false)));
        assert!(!off.selects(parent(true)));
    }
}
