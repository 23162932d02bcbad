//! The algorithms of domains.

use crate::check::help_for_unknown;
use crate::file;
use crate::file::located::ValueOrMap;
use crate::problem::{Checked, Location, Problems, quote};
use crate::values::control_plane::Windows;
use tidegate_service::Window;

/// The algorithm of each domain.
pub(super) struct Algorithms<'f> {
    default: Window,
    /// The algorithms of single domains, with the locations of their names.
    domains: Vec<(&'f str, Window, Location)>,
}

impl<'f> Algorithms<'f> {
    /// Reads the key `algorithm`.
    pub(super) fn read(raw: &'f file::Service, problems: &mut Problems) -> Checked<Self> {
        let map = match raw.algorithm.optional(problems)? {
            None => return Ok(Self { default: Window::default(), domains: Vec::new() }),
            Some(ValueOrMap::Value(window)) => return Ok(Self { default: *window, domains: Vec::new() }),
            Some(ValueOrMap::Map(map)) => map,
        };
        let default = map.default.or_default(problems);
        let mut domains = Ok(Vec::new());
        for (name, window) in map.domains.optional(problems)?.into_iter().flatten() {
            match (window.required(problems), &mut domains) {
                (Ok(algorithm), Ok(domains)) => domains.push((name.as_str(), *algorithm, window.key_location())),
                (Ok(_), Err(_)) => {}
                (Err(reported), domains) => *domains = Err(reported),
            }
        }
        Ok(Self { default: default?, domains: domains? })
    }

    /// Returns the algorithm of a domain.
    pub(super) fn of(&self, domain: &str) -> Window {
        let own = self.domains.iter().find(|(name, ..)| *name == domain);
        own.map_or(self.default, |(_, window, _)| *window)
    }

    /// Returns the algorithms without locations.
    pub(super) fn windows(&self) -> Windows {
        let domains = self.domains.iter().map(|(name, window, _)| ((*name).to_owned(), *window));
        Windows { default: self.default, domains: domains.collect() }
    }

    /// Reports names that are not the name of a domain.
    pub(super) fn check_names<'n>(&self, known: &(impl Iterator<Item = &'n str> + Clone), problems: &mut Problems) {
        for (name, _, location) in &self.domains {
            if known.clone().all(|known| known != *name) {
                let define = || "add it to `domains` or `descriptors`".to_owned();
                let help = help_for_unknown(name, known.clone(), "domains", define);
                problems.add(*location, format!("there is no domain {}", quote(name)), help);
            }
        }
    }
}
