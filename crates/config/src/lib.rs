//! Parses and validates rule files. Reports all errors of a file at once.
//!
//! A file passes three steps, which `load` runs. `yaml` parses the text to a tree with the location of each value, and
//! replaces placeholders; `load` adds included files. `file` reads the tree into structs, one for each map, whose fields
//! are the keys: each value is checked against the description of its key. `check` converts the structs to [`Config`].
//! Each step adds its errors to `problem` and continues with the remaining values. `reference` generates the
//! documentation of the keys. Rules that a program builds start as a tree (`load::built`), and pass the same steps.
//!
//! A part of Tidegate, whose items change with each release: programs use the crates `tidegate-layer` and `tidegate`.

mod check;
mod descriptors;
pub mod diff;
mod file;
mod limit_entry;
mod load;
mod problem;
mod reference;
mod sources;
#[cfg(test)]
mod tests;
mod values;
mod yaml;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use self::limit_entry::LimitEntry;
pub use self::load::{
    ConfigLoadError, Loaded, PartlyChecked, RuleFile, WithSentDomains, WrittenRules, built, load_for_layer,
};
use self::problem::secrets::Secrets;
pub use self::problem::{Problem, Problems, quote, quote_all, suggest};
pub use self::reference::{reference, schema::schema};
pub use self::sources::SourceFiles;
pub use self::sources::file_checks::{
    AnyIdentities, CheckedCertificate, FileChecks, LibraryFiles, LoadedVerifier, UpstreamTlsFault,
};
use self::sources::referenced_files::ReferencedFiles;
pub use self::sources::rule_texts::{IncludedText, RuleTexts};
pub use self::values::access_log::{AccessLog, AccessLogDestination, AccessLogFormat, Sample};
pub use self::values::control_plane::ControlPlane;
pub use self::values::dashboard;
use self::values::dashboard::DashboardMode;
pub use self::values::listen::{AddressError, Listen, ListenAddress};
pub use self::values::service::{Service, ServiceListener};
pub use self::values::team::{Team, TeamVersion, UpstreamUse};
pub use self::values::tokens::{Tokens, TokensError};
pub use self::values::units::{Bytes, Millis};
use tidegate_rules::client::ClientFunction;
use tidegate_rules::rules::{Rules, Verifier};
use tidegate_rules::settings::identities::IdentitySettings;
use tidegate_rules::settings::store::StoreSettings;
use tidegate_rules::settings::upstream::UpstreamSettings;

/// The configuration from a valid rule file of at most 1 MiB. Parsing also reads the password files that the
/// rule file names, and reports errors in them; for the gateway also certificates and keys.
#[derive(Clone, Debug)]
pub struct Config {
    /// The listeners for clients. At least one if the file was read for the gateway, unless it has only a service.
    #[doc(hidden)]
    pub listen: Vec<Listen>,
    /// The highest number of client connections over all listeners.
    #[doc(hidden)]
    pub max_connections: usize,
    /// The address of the admin listener, or `None` if it is off.
    #[doc(hidden)]
    pub admin: Option<ListenAddress>,
    /// The file with the tokens of operators who may change things over TCP.
    #[doc(hidden)]
    pub admin_tokens: Option<PathBuf>,
    /// Whether operators see the values of rejected clients.
    #[doc(hidden)]
    pub show_clients: bool,
    /// Whether the requests of each client are counted for operators.
    #[doc(hidden)]
    pub talkers: bool,
    /// Whether the admin listener serves the dashboard.
    #[doc(hidden)]
    pub dashboard: DashboardMode,
    /// The access log.
    #[doc(hidden)]
    pub access_log: AccessLog,
    /// The upper bounds of histograms of durations; empty for the default.
    #[doc(hidden)]
    pub buckets: Vec<Duration>,
    /// The store for rate limit buckets.
    #[doc(hidden)]
    pub store: StoreSettings,
    /// The DNS servers for names of upstreams; empty for the servers of the system.
    #[doc(hidden)]
    pub dns_servers: Vec<SocketAddr>,
    /// The upstreams by name.
    #[doc(hidden)]
    pub upstreams: BTreeMap<Arc<str>, UpstreamSettings>,
    /// The included files.
    #[doc(hidden)]
    pub included: Vec<String>,
    /// The teams with their own included files.
    #[doc(hidden)]
    pub teams: Vec<Team>,
    /// The rate limit service. `None` if the file has no `service`.
    #[doc(hidden)]
    pub service: Option<Service>,
    /// The credentials that the rules accept.
    #[doc(hidden)]
    pub identities: IdentitySettings,
    /// The verifier of these credentials, with its keys.
    #[doc(hidden)]
    pub verifier: Verifier,
    /// Routes with their limits, and the rules for clients and requests. Shared with the layer: they can be large.
    #[doc(hidden)]
    pub rules: Arc<Rules>,
    /// The texts that come from files, which are masked wherever the configuration is shown.
    #[doc(hidden)]
    pub secrets: Secrets,
    /// Valid values that are probably not intended.
    #[doc(hidden)]
    pub warnings: Vec<Problem>,
}

/// How to read the text of a rule file.
#[derive(Clone, Copy, Debug)]
struct Source<'p> {
    purpose: Purpose,
    files: ReferencedFiles<'p>,
    /// The name of the file.
    name: &'p Path,
    /// The functions of rules that a program built, which `client: function:NUMBER` names. `None` for a rule file.
    functions: Option<&'p [ClientFunction]>,
    /// The texts of all files. `None` to read them from the file system.
    texts: Option<&'p RuleTexts>,
    /// Whether to keep the texts. The texts of a rule file with teams are always kept.
    keeps_texts: bool,
}

/// The program that a rule file is read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// A Tower layer, whose service listens and forwards by itself.
    Layer,
    /// A command that evaluates the rules of a layer or a gateway. All keys may be present, and only `routes` must be.
    Command,
    /// The gateway, which requires `listen`, and `upstream` in every route.
    Gateway,
}

// === impl Config ===

impl Config {
    /// The default address of the admin listener: reachable only from this machine.
    #[doc(hidden)]
    pub const DEFAULT_ADMIN: ListenAddress =
        ListenAddress::Tcp(SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9901)));

    /// The default of `max_connections`, which Envoy recommends for edge proxies.
    #[doc(hidden)]
    pub const DEFAULT_MAX_CONNECTIONS: usize = 50_000;

    /// Parses a rule file for a Tower layer: `listen` and the routes' `upstream` are optional. Relative paths start at the
    /// current folder.
    ///
    /// # Errors
    /// Returns all errors of the text, with their positions.
    pub fn parse(text: &str) -> Result<Self, Problems> {
        Self::read(text, Source::text(Purpose::Layer))
    }

    /// Like [`parse`](Self::parse), with these checks of files.
    ///
    /// # Errors
    /// Returns all errors of the text, with their positions.
    #[doc(hidden)]
    pub fn parse_with(text: &str, checks: &'static dyn FileChecks) -> Result<Self, Problems> {
        Self::read(text, Source::text(Purpose::Layer).with_checks(checks))
    }

    /// Parses a rule file for the gateway, which requires `listen`, and `upstream` in every route. Relative paths start at
    /// the current folder.
    ///
    /// # Errors
    /// Returns all errors of the text, with their positions.
    #[doc(hidden)]
    pub fn parse_for_gateway(text: &str, checks: &'static dyn FileChecks) -> Result<Self, Problems> {
        Self::read(text, Source::text(Purpose::Gateway).with_checks(checks))
    }

    /// Like [`parse`](Self::parse), but reads a file. Relative paths start at its folder.
    ///
    /// # Errors
    /// Fails if the file cannot be read or has errors.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, ConfigLoadError> {
        load::load(path.as_ref(), Purpose::Layer, &LibraryFiles)
    }

    /// Like [`parse_for_gateway`](Self::parse_for_gateway), but reads a file. Relative paths start at its folder.
    ///
    /// # Errors
    /// Fails if the file cannot be read or has errors.
    #[doc(hidden)]
    pub fn load_for_gateway(path: impl AsRef<Path>, checks: &'static dyn FileChecks) -> Result<Self, ConfigLoadError> {
        load::load(path.as_ref(), Purpose::Gateway, checks)
    }

    /// Like [`load`](Self::load), with these checks of files.
    ///
    /// # Errors
    /// Fails if the file cannot be read or has errors.
    #[doc(hidden)]
    pub fn load_with(path: impl AsRef<Path>, checks: &'static dyn FileChecks) -> Result<Self, ConfigLoadError> {
        load::load(path.as_ref(), Purpose::Layer, checks)
    }

    /// Returns the warnings: valid values that are probably not intended.
    pub fn warnings(&self) -> &[Problem] {
        &self.warnings
    }

    fn read(text: &str, source: Source<'_>) -> Result<Self, Problems> {
        load::run(text.into(), source, &mut SourceFiles::default())
    }
}

// === impl Source ===

impl Source<'_> {
    fn with_checks(self, checks: &'static dyn FileChecks) -> Self {
        Self { files: self.files.with_checks(checks), ..self }
    }

    /// Reads a text that is not from a file.
    fn text(purpose: Purpose) -> Self {
        let files = ReferencedFiles::in_current_folder();
        Self { purpose, files, name: Path::new("<text>"), functions: None, texts: None, keeps_texts: false }
    }
}
