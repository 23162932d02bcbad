//! Ends open responses of clients that a ban disconnects.
//!
//! Only responses that can last watch for such bans: upgraded connections, and bodies whose length the upstream has not
//! announced. They start to watch when they first wait for the upstream, or after some frames; hashes are computed then. So
//! short responses only remember their client.

use std::fmt;
use std::future::{Future, pending};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::header::CONTENT_LENGTH;
use http::{Response, StatusCode};

use super::LayerState;
use super::overrides::{PreparedOverrides, concerns, hash};
use crate::overrides::{OverrideMatches, Scope};
use crate::ruleset::RuleSet;
use tidegate_rules::charge::ClientId;
use tidegate_rules::route::Route;
use tidegate_rules::rules::Charges;
use tidegate_store::Store;

/// The most frames of a short response.
const SHORT: u8 = 8;

/// The error of a body whose client was banned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an operator has banned the client")]
pub(super) struct ClientBanned;

/// Waits until a ban disconnects the client of a response.
pub(super) enum Disconnection {
    /// The response has not waited, and has had this number of frames.
    Idle {
        state: Arc<LayerState>,
        client: OpenClient,
        frames: u8,
    },
    Watching(Pin<Box<dyn Future<Output = ()> + Send + Sync>>),
}

/// The client of an open response.
#[derive(Clone, Debug)]
pub(super) struct OpenClient {
    address: Option<IpAddr>,
    route: Arc<str>,
    limits: Vec<OpenLimit>,
}

/// A limit that counted the request, and its client.
#[derive(Clone, Debug)]
struct OpenLimit {
    owner: Box<str>,
    name: Box<str>,
    client: ClientId,
}

// === impl Disconnection ===

impl Disconnection {
    /// Watches the response to a client with this address on this route. Returns `None` if the response cannot last.
    pub(super) fn of_response<B, E>(
        state: &Arc<LayerState>,
        (address, route): (Option<IpAddr>, Option<&Route>),
        charges: &Charges<'_>,
        response: &Result<Response<B>, E>,
    ) -> Option<Box<Self>> {
        if state.worker.is_none() || !response.as_ref().is_ok_and(can_last) {
            return None;
        }
        let client = OpenClient::new(address, route?, charges);
        Some(Box::new(Self::Idle { state: Arc::clone(state), client, frames: 0 }))
    }

    /// Returns whether the client is disconnected. If the response `waits`, the task is woken when the client is.
    pub(super) fn poll(&mut self, waits: bool, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Idle { frames, .. } if !waits && *frames < SHORT => {
                *frames += 1;
                Poll::Pending
            }
            Self::Idle { state, client, .. } => {
                let mut watching = Box::pin(until_disconnected(Arc::clone(state), client.clone()));
                let disconnected = watching.as_mut().poll(cx);
                *self = Self::Watching(watching);
                disconnected
            }
            Self::Watching(watching) => watching.as_mut().poll(cx),
        }
    }
}

impl fmt::Debug for Disconnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disconnection").finish_non_exhaustive()
    }
}

fn can_last<B>(response: &Response<B>) -> bool {
    let has_body = !matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    has_body && !response.headers().contains_key(CONTENT_LENGTH)
}

async fn until_disconnected(state: Arc<LayerState>, client: OpenClient) {
    let mut bans = state.disconnecting_bans.subscribe();
    loop {
        let is_disconnected = {
            let active = state.active.load();
            let overrides = active.overrides.as_ref();
            overrides.is_some_and(|found| found.disconnects(&active.rules, &client, state.store(&active)))
        };
        if is_disconnected {
            return;
        }
        if bans.changed().await.is_err() {
            return pending().await; // the sender is in the state
        }
    }
}

// === impl OpenClient ===

impl OpenClient {
    fn new(address: Option<IpAddr>, route: &Route, charges: &Charges<'_>) -> Self {
        let limits = charges.iter().filter_map(|entry| {
            let client = entry.charge.client.clone()?;
            Some(OpenLimit { owner: entry.limit.owner(&route.name).into(), name: (*entry.limit.name).into(), client })
        });
        Self { address, route: Arc::clone(&route.name), limits: limits.collect() }
    }
}

// === impl PreparedOverrides ===

impl PreparedOverrides {
    /// Returns `true` if a ban disconnects the client.
    fn disconnects(&self, rules: &RuleSet, client: &OpenClient, store: &Store) -> bool {
        if !self.has_disconnecting_bans {
            return false;
        }
        let (mut found, now) = (OverrideMatches::default(), || store.now());
        if let Some(address) = client.address {
            let route = rules.find_named(&client.route).map(|found| found.route);
            let in_scope = |scope: &Scope| match route {
                Some(route) => concerns(scope, route),
                None => *scope == Scope::All,
            };
            self.index.find_address(address, in_scope, now, &mut found);
        }
        for OpenLimit { owner, name, client } in &client.limits {
            if let Some(hash) = hash(store, Some(client)) {
                self.index.find_client(hash, owner, name, now, &mut found);
            }
        }
        found.disconnects()
    }
}
