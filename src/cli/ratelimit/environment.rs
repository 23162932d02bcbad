//! The environment variables of a process, with their types in Go. Faults are collected, so that all are reported together.

use std::collections::BTreeMap;
use std::env;

/// Environment variables. An empty value counts as absent.
#[derive(Debug, Default)]
pub(super) struct Environment {
    values: BTreeMap<String, String>,
    faults: Vec<String>,
}

impl Environment {
    /// Reads the variables of this process.
    pub(super) fn of_process() -> Self {
        let mut environment = Self::default();
        for (name, value) in env::vars_os() {
            let Ok(name) = name.into_string() else { continue };
            match value.into_string() {
                Ok(value) => environment.set(name, value),
                // Only a variable that is read is a fault.
                Err(value) => environment.set(name, value.to_string_lossy().into_owned()),
            }
        }
        environment
    }

    fn set(&mut self, name: String, value: String) {
        if !value.is_empty() {
            self.values.insert(name, value);
        }
    }

    /// Returns the names of all variables.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }

    /// Returns a text.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// Returns a text, or the default.
    pub(super) fn text_or<'e>(&'e self, name: &str, default: &'e str) -> &'e str {
        self.text(name).unwrap_or(default)
    }

    /// Returns a boolean, as `strconv.ParseBool` reads it.
    pub(super) fn flag(&mut self, name: &str, default: bool) -> bool {
        match self.text(name) {
            None => default,
            Some("1" | "t" | "T" | "true" | "TRUE" | "True") => true,
            Some("0" | "f" | "F" | "false" | "FALSE" | "False") => false,
            Some(_) => {
                self.fault(name, "is not `true` or `false`");
                default
            }
        }
    }

    /// Returns a port.
    pub(super) fn port(&mut self, name: &str, default: u16) -> u16 {
        let port = self.text(name).map_or(Ok(default), str::parse);
        port.unwrap_or_else(|_| {
            self.fault(name, "is not a port: a number from 0 to 65535");
            default
        })
    }

    /// Reports a fault of a variable, in words that follow its name. The value can be a secret, so it is not repeated.
    pub(super) fn fault(&mut self, name: &str, fault: &str) {
        self.faults.push(format!("{name} {fault}"));
    }

    /// Returns all faults.
    pub(super) fn into_faults(self) -> Vec<String> {
        self.faults
    }
}

#[cfg(test)]
impl<const N: usize> From<[(&str, &str); N]> for Environment {
    fn from(variables: [(&str, &str); N]) -> Self {
        let mut environment = Self::default();
        variables.into_iter().for_each(|(name, value)| environment.set(name.to_owned(), value.to_owned()));
        environment
    }
}
