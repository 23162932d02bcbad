//! The clients that the proposed rate rejects most.

use serde::Serialize;

use super::abusers::Sign;
use super::crowd::Crowd;
use crate::report::RejectedClient;
use crate::report::tally::Tally;

/// A client that the proposed rate rejects.
#[derive(Clone, Debug, Serialize)]
pub struct TopClient {
    #[serde(flatten)]
    pub rejected: RejectedClient,
    /// The requests of the client.
    pub requests: u32,
    /// Its requests that failed.
    pub failed: u32,
    /// Why it is an abuser. `None` for other clients.
    pub abuser: Option<Sign>,
}

/// Returns the clients that the limit rejects most, worst first.
pub(super) fn top(tally: &Tally, crowd: &Crowd) -> Vec<TopClient> {
    let clients = tally.worst().into_iter().map(|(client, rejected)| {
        let counts = crowd.counts(client);
        TopClient { rejected, requests: counts.requests, failed: counts.failed, abuser: crowd.sign(client) }
    });
    clients.collect()
}
