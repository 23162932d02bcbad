//! Writes the rule file for environment variables.

use super::descriptors::descriptors;
use super::environment::Environment;
use super::listeners::{admin, grpc, http};
use super::service::service;
use super::store::store;
use super::variables::{IGNORED, IgnoredVariable, USED};
use super::yaml::FlowMap;

/// The result of a translation.
#[derive(Clone, Debug, Default)]
pub(super) struct Translation {
    /// The rule file.
    pub(super) text: String,
    /// The values of its placeholders, which are secret.
    pub(super) secrets: Vec<(String, String)>,
    /// Whether the gateway starts with no rules if they are invalid.
    pub(super) starts_without_rules: bool,
    /// The level of the log.
    pub(super) log_level: Option<&'static str>,
    /// Whether log lines are JSON objects.
    pub(super) is_log_json: bool,
    /// The variables that are set.
    used: Vec<&'static str>,
    ignored: Vec<(String, IgnoredVariable)>,
}

/// Translates environment variables.
///
/// # Errors
/// All faults of their values.
pub(super) fn translate(mut environment: Environment) -> Result<Translation, Vec<String>> {
    let mut secrets = Vec::new();
    let env = &mut environment;
    let store = store(env, &mut secrets);
    let mut keys = FlowMap::default();
    keys.add("grpc", grpc(env));
    keys.add("http", http(env));
    keys.add("descriptors", descriptors(env));
    service(env, &mut keys);
    let text = format!("admin: {}\nstore: {store}\nservice:\n{}", admin(env), keys.block());
    let (log_level, log_format) = (log_level(env), env.text("LOG_FORMAT").map(str::to_ascii_lowercase));
    if !matches!(log_format.as_deref(), None | Some("text" | "json")) {
        env.fault("LOG_FORMAT", "is not `text` or `json`");
    }
    let starts_without_rules = env.flag("FORCE_START_WITHOUT_INITIAL_CONFIG", false);
    let used = USED.iter().copied().filter(|name| env.text(name).is_some()).collect();
    let ignored = |name: &str| Some((name.to_owned(), *IGNORED.iter().find(|ignored| ignored.includes(name))?));
    let ignored = env.names().filter_map(ignored).collect();
    let faults = environment.into_faults();
    if !faults.is_empty() {
        return Err(faults);
    }
    let is_log_json = log_format.as_deref() == Some("json");
    Ok(Translation { text, secrets, starts_without_rules, log_level, is_log_json, used, ignored })
}

/// Returns the level of Tidegate for the level of logrus.
fn log_level(env: &mut Environment) -> Option<&'static str> {
    let level = match env.text("LOG_LEVEL")?.to_ascii_lowercase().as_str() {
        "panic" | "fatal" | "error" => "error",
        "warn" | "warning" => "warn",
        "info" => "info",
        "debug" => "debug",
        "trace" => "trace",
        _ => {
            env.fault("LOG_LEVEL", "is not one of `panic`, `fatal`, `error`, `warn`, `info`, `debug`, `trace`");
            return None;
        }
    };
    Some(level)
}

impl Translation {
    /// Returns the rule file for a reader, without secrets.
    pub(super) fn shown(&self) -> String {
        let mut lines = vec!["# The rule file for the environment variables of envoyproxy/ratelimit.".to_owned()];
        for (name, _) in &self.secrets {
            lines.push(format!(
                "# Set {name}: a user and a password as in a URL, percent-encoded, or `:` and a password."
            ));
        }
        for (name, ignored) in &self.ignored {
            lines.push(format!("# {name} has no effect: {}.", ignored.reason));
        }
        lines.push(self.text.trim_end().to_owned());
        lines.join("\n")
    }

    /// Logs which variables have an effect.
    pub(super) fn log(&self) {
        tracing::info!(variables = self.used.join(" "), "environment variables of envoyproxy/ratelimit are in use");
        if !self.ignored.is_empty() {
            let ignored = self.ignored.iter().map(|(name, ignored)| format!("{name} ({})", ignored.reason));
            let variables = ignored.collect::<Vec<_>>().join(", ");
            tracing::warn!(variables, "environment variables have no effect");
        }
    }
}
