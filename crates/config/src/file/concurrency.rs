//! The keys of `concurrency` of a route.

use super::HOUR;
use super::keys::Kind::{Duration, Integer, OneOrMany, Text};
use super::located::Located;
use super::shape::shape;
use crate::values::units::Millis;

const MAX_REQUESTS: u64 = 1_000_000;
const MAX_QUEUE: u64 = 100_000;

shape! {
    /// Bounds the requests in flight over all gateways. A request is in flight from its admission until its response has
    /// ended; a switched connection, such as a WebSocket, until it is closed. While it waits for permits, it holds no slot. At least `max` or `per_client` is required.
    CONCURRENCY: Concurrency = "`concurrency`" {
        /// The most requests of the route in flight; further ones are rejected with 503.
        max: u64 = Integer(1, MAX_REQUESTS), Optional;
        /// The most requests of one client in flight; further ones are rejected with 429.
        per_client: u64 = Integer(1, MAX_REQUESTS), Optional;
        /// The parts of a request that identify its client, as in a limit. Without them, the client is the address.
        client: Vec<Located<String>> = OneOrMany(&Text), Default("ip");
        /// The most requests in one gateway that wait for a slot of the route. In addition, at most `per_client` requests of
        /// each client wait for a slot of their client. Further ones are rejected at once. With 0, no request waits.
        queue: u64 = Integer(0, MAX_QUEUE), Default("0");
        /// The longest time that a request waits.
        max_wait: Millis = Duration(1, HOUR), Default("1s");
    }
}
