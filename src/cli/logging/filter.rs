//! The filter of `--log` and `TIDEGATE_LOG`, which selects the events of the program log.

use tracing_subscriber::filter::EnvFilter;

use tidegate_config::suggest::nearest;

/// The levels. Each includes the levels before it.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
/// The root of the program's own targets.
const OWN: &str = "tidegate";

/// A valid filter.
#[derive(Clone, Debug)]
pub(in crate::cli) struct LogFilter(String);

impl LogFilter {
    /// The default filter.
    pub(in crate::cli) const DEFAULT: &str = "info";

    /// Parses `LEVEL`, `TARGET=LEVEL`, or several of them with commas in between.
    ///
    /// Stricter than the filter library, which would accept `inof` as a target without events and log nothing.
    ///
    /// # Errors
    /// A directive is neither a level nor a target with a level. The message suggests a correction.
    pub(in crate::cli) fn parse(text: &str) -> Result<Self, String> {
        let text = if text.trim().is_empty() { Self::DEFAULT } else { text };
        let checked = text.split(',').map(str::trim).try_for_each(check_directive);
        checked.map_err(|fault| format!("{fault} (set by `--log` or the variable `TIDEGATE_LOG`)"))?;
        Ok(Self(text.to_owned()))
    }

    /// Returns `true` for the default filter.
    pub(in crate::cli) fn is_default(&self) -> bool {
        self.0 == Self::DEFAULT
    }

    /// Returns the filter for the subscriber.
    pub(super) fn filter(&self) -> EnvFilter {
        EnvFilter::try_new(&self.0).unwrap_or_else(|_| EnvFilter::new(Self::DEFAULT))
    }
}

fn check_directive(directive: &str) -> Result<(), String> {
    let (target, level) = directive.split_once('=').map_or((None, directive), |(target, level)| (Some(target), level));
    let is_level = LEVELS.iter().any(|name| name.eq_ignore_ascii_case(level));
    match target {
        None if is_level => Ok(()),
        None if directive.is_empty() => {
            Err("a directive between two commas, or after the last one, is empty".to_owned())
        }
        None if directive.split("::").next() == Some(OWN) => {
            Err(format!("`{directive}` has no level: write `{directive}=debug`"))
        }
        Some(_) | None if !is_level => Err(format!("`{level}` is not a level: {}", suggest_level(level))),
        Some(target) => check_target(target),
        None => Ok(()),
    }
}

fn suggest_level(level: &str) -> String {
    let near = nearest(level, LEVELS).map(|near| format!("did you mean `{near}`? "));
    format!("{}the levels are {}", near.unwrap_or_default(), LEVELS.join(", "))
}

/// Checks a target: a module of the program, or a crate that it uses.
fn check_target(target: &str) -> Result<(), String> {
    let root = target.split("::").next().unwrap_or_default();
    let is_name =
        !target.is_empty() && target.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_:".contains(&byte));
    match nearest(root, [OWN]) {
        _ if !is_name => Err(format!("`{target}` is not a target: write for example `{OWN}=debug`")),
        Some(_) if root != OWN => Err(format!("`{target}` is not a target: did you mean `{OWN}`?")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_accepts_levels_and_targets_with_levels() {
        for good in ["", " ", "INFO", "off", "tidegate=debug", "warn, tidegate::store=trace", "h2=off,info"] {
            assert!(LogFilter::parse(good).is_ok(), "{good:?}");
        }
        for bad in [
            "inof",
            "h2",
            "tidegate",
            "tidegate::store",
            "tidegat=info",
            "=info",
            "a b=info",
            "info,",
            "5",
            "a[b]=info",
        ] {
            assert!(LogFilter::parse(bad).is_err(), "{bad:?}");
        }
    }
}
