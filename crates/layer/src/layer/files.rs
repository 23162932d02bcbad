//! The checks of the files that a rule file of a layer names.

use tidegate_config::FileChecks;
#[cfg(feature = "tls")]
use tidegate_rules::settings::files::TlsFileError;
#[cfg(feature = "tls")]
use tidegate_rules::settings::store::RedisTls;

/// The checks of the program that builds a layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProgramChecks(pub(super) &'static dyn FileChecks);

/// The checks of a layer: it opens a store, and verifies no credentials.
#[derive(Debug)]
struct LayerFiles;

impl Default for ProgramChecks {
    fn default() -> Self {
        Self(&LayerFiles)
    }
}

impl FileChecks for LayerFiles {
    #[cfg(feature = "tls")]
    fn redis_tls(&self, tls: &RedisTls) -> Result<(), TlsFileError> {
        tidegate_store::tls::read(tls).map(drop)
    }
}
