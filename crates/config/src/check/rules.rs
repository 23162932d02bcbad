//! The rules: routes, and the parts of the file that they use.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::gateway::listen;
use super::identities;
use super::matching::matcher::MatchContext;
use super::matching::route_context::RouteContext;
use super::prices::PriceFiles;
use super::requests;
use super::routes::{self, RouteInput, fields};
use crate::file::File;
use crate::problem::{Checked, Problems};
use crate::{LoadedVerifier, Source};
use tidegate_rules::client::AddressRules;
use tidegate_rules::rules::Rules;
use tidegate_rules::settings::identities::IdentitySettings;
use tidegate_rules::settings::store::{BucketNames, StoreSettings};
use tidegate_rules::settings::upstream::UpstreamSettings;

/// Converts the routes, with the store and the addresses that the file configures. Returns the settings and the verifier
/// of identities with the rules, and adds the upstreams that routes define.
pub(super) fn rules(
    file: &File,
    (route_input, prices): (RouteInput, &PriceFiles),
    source: Source<'_>,
    (store, addresses): (&Checked<StoreSettings>, Checked<AddressRules>),
    upstreams: &mut Checked<BTreeMap<Arc<str>, UpstreamSettings>>,
    problems: &mut Problems,
) -> Checked<(Rules, IdentitySettings, LoadedVerifier)> {
    let Source { purpose, files, functions, .. } = source;
    let requests = requests::requests(file, problems);
    let bans = routes::action::bans(file, problems);
    let credentials = identities::credentials(file, problems);
    let identities = identities::identities(file, source, problems);
    let names = store.as_ref().map_or_else(|_| BucketNames::default(), StoreSettings::bucket_names);
    let address_rules = Arc::new(addresses.as_ref().map_or_else(|_| AddressRules::default(), Clone::clone));
    let listeners = listen::known_names(file, problems);
    let matching = MatchContext { requests: requests.ok(), addresses: &address_rules, listeners: listeners.as_deref() };
    // A program that builds rules gives its store to the layer.
    let in_memory = functions.is_none() && matches!(store, Ok(StoreSettings::Memory { .. }));
    let functions = functions.unwrap_or_default();
    let verifies_credentials = files.checks().verifies_credentials();
    let names = &names;
    let context =
        RouteContext { file, purpose, names, matching, files, verifies_credentials, in_memory, functions, prices };
    let fields = fields::fields(file, problems);
    let field_check = match (&fields, &addresses) {
        (Ok(fields), Ok(addresses)) => {
            let has_trusted_proxies = !addresses.trusted_proxies.is_empty();
            Some(fields::FieldCheck { fields, has_trusted_proxies, purpose })
        }
        _ => None,
    };
    let mut when = Vec::new();
    let routes = routes::routes(route_input, context, field_check, &mut when, problems);
    if let (Ok((identities, loaded)), Ok(routes)) = (&identities, &routes) {
        identities::check_tiers(file, (identities, loaded), routes, problems);
    }
    if let (Ok(upstreams), Ok(routes)) = (upstreams, &routes) {
        identities::add_upstreams(routes, upstreams);
    }
    let (identities, loaded) = identities?;
    let mut rules = Rules {
        requests: requests?,
        addresses: addresses?,
        fields: fields?,
        credentials: credentials?,
        bans: bans?,
        routes: routes?.with_conditions(when.iter().map(|when| &when.matcher)),
        when,
    };
    rules.distribute(names);
    Ok((rules, identities, loaded))
}
