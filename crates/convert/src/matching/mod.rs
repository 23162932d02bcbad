//! Conditions of other products as conditions of the rule file: paths, regular expressions, hosts and methods.

mod hosts;
mod paths;
mod patterns;
mod regexes;

pub(crate) use self::hosts::{host, host_of_regex, method};
pub(crate) use self::paths::{below, exact};
pub(crate) use self::patterns::path_of_regex;
pub(crate) use self::regexes::{contained, whole};
