//! `TIDEGATE_LOG`: which events of the process are logged.

use tracing_subscriber::filter::EnvFilter;

use crate::config::suggest::nearest;

/// The levels, each with all before it.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
/// The program's own name for what it logs.
const OWN: &str = "tidegate";

/// A filter that has been looked at.
#[derive(Clone, Debug)]
pub(in crate::cli) struct LogFilter(String);

impl LogFilter {
    /// What holds unless something is said.
    pub(in crate::cli) const DEFAULT: &str = "info";

    /// Reads `LEVEL`, `TARGET=LEVEL`, or several with commas between them. The library that filters takes `inof` for a target,
    /// of which nothing comes, and so for silence.
    ///
    /// # Errors
    /// A part that is neither, and what would be.
    pub(in crate::cli) fn parse(text: &str) -> Result<Self, String> {
        let text = if text.trim().is_empty() { Self::DEFAULT } else { text };
        let checked = text.split(',').map(str::trim).try_for_each(check);
        checked.map_err(|why| format!("{why} (`--log` is `TIDEGATE_LOG` in the environment)"))?;
        Ok(Self(text.to_owned()))
    }

    /// The filter of the subscriber.
    pub(super) fn filter(&self) -> EnvFilter {
        EnvFilter::try_new(&self.0).unwrap_or_else(|_| EnvFilter::new(Self::DEFAULT))
    }
}

fn check(part: &str) -> Result<(), String> {
    let (target, level) = part.split_once('=').map_or((None, part), |(target, level)| (Some(target), level));
    let is_level = LEVELS.iter().any(|known| known.eq_ignore_ascii_case(level));
    match target {
        None if is_level => Ok(()),
        None if part.is_empty() => Err("there is nothing between two commas, or behind the last".to_owned()),
        None if part.split("::").next() == Some(OWN) => Err(format!("`{part}` has no level: write `{part}=debug`")),
        Some(_) | None if !is_level => Err(format!("`{level}` is not a level: {}", meant(level))),
        Some(target) => named(target),
        None => Ok(()),
    }
}

fn meant(level: &str) -> String {
    let near = nearest(level, LEVELS).map(|near| format!("did you mean `{near}`? "));
    format!("{}the levels are {}", near.unwrap_or_default(), LEVELS.join(", "))
}

/// A target is a module of the program, or a crate that it uses.
fn named(target: &str) -> Result<(), String> {
    let root = target.split("::").next().unwrap_or_default();
    let is_name =
        !target.is_empty() && target.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_:".contains(&byte));
    match nearest(root, [OWN]) {
        _ if !is_name => Err(format!("`{target}` is not a target: for example `{OWN}=debug`")),
        Some(_) if root != OWN => Err(format!("`{target}` is not a target: did you mean `{OWN}`?")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_of_levels_and_of_targets_with_levels() {
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
