//! The formats.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// The format of configuration files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// `nginx.conf`.
    Nginx,
    /// Ingress resources with annotations of ingress-nginx, and its ConfigMap.
    IngressNginx,
    /// The declarative configuration of Kong.
    Kong,
    /// Domains of envoyproxy/ratelimit, and configurations of Envoy.
    Ratelimit,
    /// The static and dynamic configuration of Traefik.
    Traefik,
    /// The routes of Spring Cloud Gateway.
    Spring,
    /// Rules of Sentinel, as JSON.
    Sentinel,
}

/// An unknown format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the formats are nginx, ingress-nginx, kong, ratelimit, traefik, spring and sentinel")]
pub struct FormatError;

// === impl Format ===

impl Format {
    /// All formats.
    pub const ALL: [Self; 7] =
        [Self::Nginx, Self::IngressNginx, Self::Kong, Self::Ratelimit, Self::Traefik, Self::Spring, Self::Sentinel];

    /// Returns the word of the format, as in `--from`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::IngressNginx => "ingress-nginx",
            Self::Kong => "kong",
            Self::Ratelimit => "ratelimit",
            Self::Traefik => "traefik",
            Self::Spring => "spring",
            Self::Sentinel => "sentinel",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for Format {
    type Err = FormatError;

    fn from_str(word: &str) -> Result<Self, FormatError> {
        Self::ALL.into_iter().find(|format| format.word() == word).ok_or(FormatError)
    }
}

impl Serialize for Format {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}
