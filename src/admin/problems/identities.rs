//! Problems of the key sets that the gateway fetches. The watcher of files reports those in files.

use super::entry::{GatewayProblem, ProblemKind};
use crate::credentials::Verifiers;
use tidegate_config::Config;

/// Adds the key sets whose last fetch failed.
pub(super) fn find(config: &Config, found: &mut Vec<GatewayProblem>) {
    for tokens in &Verifiers::of(&config.verifier).tokens {
        let Some(fault) = tokens.fetch_fault() else { continue };
        let in_use = match tokens.hash() {
            Some(_) => "the previous keys stay in use",
            None => "its tokens are rejected with 503",
        };
        let message = format!("key set cannot be loaded, {in_use}: {fault}");
        found.push(GatewayProblem::new(ProblemKind::KeySet, tokens.issuer(), message));
    }
}
