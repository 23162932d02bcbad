//! The differences as text: one line for each change, for the terminal and the log.

use std::fmt;

use super::limits::Rate;
use super::{Change, ChangeKind, ConfigDiff, LimitChange, PermitsInUse};
use crate::Millis;

impl ConfigDiff {
    /// Returns one line for each change.
    pub fn lines(&self) -> Vec<String> {
        let entries = |kind: &'static str, changes: &[Change]| {
            changes.iter().map(|change| format!("{kind} {change}")).collect::<Vec<_>>()
        };
        let mut lines = entries("listener", &self.listeners);
        lines.extend(entries("upstream", &self.upstreams));
        lines.extend(entries("route", &self.routes));
        lines.extend(self.routes_reordered.then(|| "routes are in another order".to_owned()));
        lines.extend(entries("domain", &self.domains));
        lines.extend(self.limits.iter().map(|change| format!("limit {change}")));
        lines.extend(self.settings.iter().map(|key| format!("setting {key}: changed")));
        lines
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.change)?;
        if self.keys.is_empty() { Ok(()) } else { write!(f, " ({})", self.keys.join(", ")) }
    }
}

impl fmt::Display for LimitChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}: {}", self.route, self.limit, self.change)?;
        if !self.keys.is_empty() {
            write!(f, " ({})", self.keys.join(", "))?;
        }
        match (&self.old, &self.new) {
            (Some(old), Some(new)) if old != new => write!(f, ", {old} -> {new}")?,
            (_, Some(rate)) | (Some(rate), None) => write!(f, ", {rate}")?,
            (None, None) => {}
        }
        match self.permits {
            Some(PermitsInUse::Kept) => f.write_str(", permits in use are kept"),
            Some(PermitsInUse::Empty) => f.write_str(", starts with no permits in use"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} per {} ({})", self.rate, Millis::show(self.interval_ms), self.algorithm)
    }
}

impl fmt::Display for ChangeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Added => "added",
            Self::Removed => "removed",
            Self::Changed => "changed",
        })
    }
}
