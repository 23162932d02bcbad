//! Functions of the gateway that benchmarks measure and the fuzzer calls.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Response};
use http_body_util::Full;

use crate::admin;
use crate::credentials::{ApiKeys, key_file};
use crate::gateway::GATEWAY_FILES;
use tidegate_config::RuleFile;
use tidegate_layer::headers::Members;
use tidegate_layer::layer::{LayerError, RateLimitLayer};
use tidegate_layer::local_response::LocalResponse;
use tidegate_layer::rejected::RejectedClients;
use tidegate_metrics::Metrics;
use tidegate_replay::LogFormat;
use tidegate_rules::charge::{Charge, Decision};
use tidegate_rules::limits::rule::Limit;
use tidegate_rules::request::path::EncodedSlash;
use tidegate_rules::settings::store::{KeySecret, StoreSettings};
use tidegate_store::Store;

/// Writes each Redis key of a charge's bucket into `key`. Returns the total length of the keys in bytes.
pub fn write_redis_keys(charge: &Charge, secret: &KeySecret, key: &mut String) -> usize {
    let mut length = 0;
    tidegate_store::redis_keys(charge, secret, key, |key| length += key.len());
    length
}

/// Returns the configuration of a rule file as `/api/v1/config` shows it, without the files that it names.
///
/// # Errors
/// The rule file is invalid.
pub fn show_config(file: &Path) -> Result<serde_json::Value, String> {
    let config = RuleFile::Path(file.to_owned())
        .load_without_referenced_files(GATEWAY_FILES)
        .map_err(|error| error.to_string())?;
    let store = Store::open(&StoreSettings::Memory { key_secret: None }, Metrics::of_gateway(&[]).into());
    Ok(admin::show_config(&config, &store.map_err(|error| error.to_string())?))
}

/// Parses the lines of an access log. Returns the number of parsed requests.
///
/// # Errors
/// The format is unknown.
pub fn parse_log(format: &str, log: &[u8]) -> Result<usize, String> {
    let format = LogFormat::parse_mapping(format)?;
    let lines = log.split_inclusive(|byte| *byte == b'\n');
    Ok(lines.filter(|line| black_box(format.parse(line)).is_some()).count())
}

/// The API keys of a file.
#[derive(Debug)]
pub struct ApiKeyFile(ApiKeys);

impl ApiKeyFile {
    /// Reads a file of keys.
    ///
    /// # Errors
    /// The file cannot be read, or has errors.
    pub fn read(path: &Path) -> Result<Self, String> {
        let table = key_file::read(path).map_err(|error| error.to_string())?;
        Ok(Self(ApiKeys::new(path.to_owned(), table)))
    }

    /// Returns `true` if the file contains the key.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.0.find(key).is_some()
    }
}

/// Creates a layer that records rejected clients, as the gateway does.
///
/// # Errors
/// See [`LayerError`].
pub fn recording_layer(rules: &str) -> Result<RateLimitLayer, LayerError> {
    RateLimitLayer::builder().record_rejected(Arc::new(RejectedClients::new(1))).from_yaml(rules)
}

/// The input of the `RateLimit` field: the limits of a route, prepared at load, and their decisions.
#[derive(Debug)]
pub struct RateLimitFieldBuilder {
    members: Members,
    decisions: Vec<Decision>,
}

impl RateLimitFieldBuilder {
    /// Creates the input from limits and their decisions.
    pub fn new(limits: &[Limit], decisions: &[Decision]) -> Self {
        Self { members: Members::new(limits), decisions: decisions.to_vec() }
    }

    /// Returns the value of the field, or `None` if no limit is visible to clients.
    pub fn write(&self) -> Option<HeaderValue> {
        self.members.rate_limit(self.decisions.iter().enumerate())
    }
}

/// Returns the response to a request that the named limits rejected, with this `Retry-After`.
pub fn limited_response(names: &[&str], seconds: u64) -> Response<Full<Bytes>> {
    let violated = names.iter().copied().collect();
    LocalResponse::Limited { violated, retry_after: Some(seconds) }.into_response()
}

/// Calls `each` with each Redis key of a charge's bucket.
pub fn for_each_redis_key(charge: &Charge, secret: &KeySecret, mut each: impl FnMut(&str)) {
    tidegate_store::redis_keys(charge, secret, &mut String::new(), |key| each(key));
}

/// Returns the normalized path, or `None` if the path is invalid.
pub fn normalize_path(path: &str) -> Option<String> {
    let normal = tidegate_rules::request::path::normalize(path, EncodedSlash::Reject).ok()?;
    Some(normal.normalized().to_owned())
}
