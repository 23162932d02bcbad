//! Reservations: permits for requests whose cost is known only after the response.
//!
//! A bucket has permits in use, and permits that are reserved. Permits are granted if both together leave enough. So in each
//! window, the settled costs and the open reservations are at most the rate, also if a request lasts over the end of a window.

use tidegate_limit::text::words::words;

/// The number of a reservation, unique among all gateways that share a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReservationId {
    /// The gateway that keeps the reservation open.
    pub gateway: u64,
    /// The number in this gateway.
    pub number: u64,
}

/// The wait for permits that are reserved, in milliseconds: it is unknown when the requests end. `lua/budgets.lua` has it too.
pub const RESERVED_WAIT: u64 = 1_000;

words! {
    /// The effect on the open reservations of a gateway that has died.
    pub enum OnLost, default Charge {
        /// They are charged, since their requests may have cost as much.
        Charge = "charge",
        /// They are given back.
        Refund = "refund",
    }
}
