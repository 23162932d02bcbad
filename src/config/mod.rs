//! The rule file: from text to what the gateway runs on, or to all of its mistakes.
//!
//! A text passes four modules. `tree` reads it into values that know their places; `shape` holds them against the
//! descriptions of keys in `file` and lets through what is right; serde fills `file` from that; `check` makes the types of
//! the program. `reference` writes the descriptions down. Each reports what it finds to `problem` and goes on with the rest.

mod check;
mod file;
mod item;
mod keys;
mod listen;
mod load;
mod named_files;
mod node;
mod problem;
mod reference;
mod scalar;
mod shape;
pub(crate) mod suggest;
#[cfg(test)]
mod tests;
mod tree;
mod units;
mod word;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use self::listen::{BadAddress, Listen, ListenAddress};
pub use self::load::ConfigLoadError;
#[cfg(feature = "gateway")]
pub(crate) use self::load::RuleFile;
use self::named_files::NamedFiles;
#[cfg(feature = "gateway")]
pub(crate) use self::problem::quote;
pub use self::problem::{Problem, Problems};
pub use self::reference::reference;
#[cfg(feature = "gateway")]
pub(crate) use self::units::Millis;
use crate::rules::Rules;
use crate::store::settings::StoreSettings;
use crate::upstream::settings::UpstreamSettings;

/// A rule file without mistakes, in the types the program uses.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where clients connect; at least one if it was read for a gateway.
    pub(crate) listen: Vec<Listen>,
    /// Client connections over all of `listen`; beyond this many they are turned away.
    pub(crate) max_connections: usize,
    /// Where operators connect; nowhere if `off`.
    pub(crate) admin: Option<ListenAddress>,
    /// Where the access log goes.
    pub(crate) access_log: AccessLog,
    /// Where buckets are kept.
    pub(crate) store: StoreSettings,
    /// Where requests go, by name.
    pub(crate) upstreams: BTreeMap<Arc<str>, UpstreamSettings>,
    /// Routes, limits and clients.
    pub(crate) rules: Rules,
    /// Values that are valid and probably not what the operator means.
    pub(crate) warnings: Vec<Problem>,
}

/// Where one line for each request goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AccessLog {
    /// Nowhere.
    #[default]
    Off,
    /// Standard output.
    Stdout,
    /// The end of this file.
    File(PathBuf),
}

/// Where the text of a rule file comes from, and how it is used.
#[derive(Clone, Copy, Debug)]
struct Source<'p> {
    purpose: Purpose,
    named: NamedFiles<'p>,
}

/// What a rule file is read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// A layer in somebody's own service, which listens and forwards by itself.
    Layer,
    /// The gateway: it needs `listen`, and every route needs `upstream`.
    Gateway,
}

// === impl Config ===

impl Config {
    /// Where operators connect unless the rule file says otherwise: only from this machine.
    pub const DEFAULT_ADMIN: ListenAddress =
        ListenAddress::Tcp(SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9901)));

    /// Connections over all of `listen` unless the rule file says otherwise, as Envoy at the edge has it.
    pub const DEFAULT_MAX_CONNECTIONS: usize = 50_000;

    /// Reads a rule file for a layer in somebody's own service: `listen` and the routes' `upstream` may be missing.
    ///
    /// # Errors
    /// All mistakes of the text.
    pub fn parse(text: &str) -> Result<Self, Problems> {
        Self::read(text, Source { purpose: Purpose::Layer, named: NamedFiles::of_text() })
    }

    /// Reads a rule file for the gateway, which needs `listen` and an `upstream` in every route.
    ///
    /// # Errors
    /// All mistakes of the text.
    pub fn parse_for_gateway(text: &str) -> Result<Self, Problems> {
        Self::read(text, Source { purpose: Purpose::Gateway, named: NamedFiles::of_text() })
    }

    /// Like [`parse`](Self::parse), from a file. Relative paths in the file start at its folder.
    ///
    /// # Errors
    /// The file cannot be read, or has mistakes.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, ConfigLoadError> {
        load::load(path.as_ref(), Purpose::Layer)
    }

    /// Like [`parse_for_gateway`](Self::parse_for_gateway), from a file. Relative paths in the file start at its folder.
    ///
    /// # Errors
    /// The file cannot be read, or has mistakes.
    pub fn load_for_gateway(path: impl AsRef<Path>) -> Result<Self, ConfigLoadError> {
        load::load(path.as_ref(), Purpose::Gateway)
    }

    fn read(text: &str, source: Source<'_>) -> Result<Self, Problems> {
        if text.len() > load::MAX_BYTES {
            return Err(load::too_large());
        }
        check::check(text, source)
    }
}
