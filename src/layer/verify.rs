//! Verifies the credentials of a request.

use crate::clock::unix_seconds;
use crate::credentials::IdentityNeeds;
use crate::facts::Facts;
use crate::identity::IdentityFault;
use crate::ruleset::RuleSet;

/// Verifies the credentials of a request. Returns `true` if the result may change with a new key set of tokens: the known
/// set does not contain the key of the token.
pub(super) fn verify(rules: &RuleSet, needs: IdentityNeeds, facts: &mut Facts<'_>) -> bool {
    let now = if needs.reads.token { unix_seconds() } else { 0 }; // only tokens have times
    facts.identity = Some(Box::new(rules.identify(needs, facts, now)));
    facts.identity_fault() == Some(IdentityFault::UnknownKey)
}

/// Fetches the key set of tokens, unless it was just fetched, and verifies the credentials again.
pub(super) async fn verify_again(rules: &RuleSet, needs: IdentityNeeds, facts: &mut Facts<'_>) {
    // Also without a fetch: another request's fetch may have ended after the first verification.
    rules.refresh_key_set().await;
    verify(rules, needs, facts);
}
