//! The options of a suggestion.

use ipnet::IpNet;

use tidegate_rules::limits::status_range::StatusRange;

/// The statuses that show an abuser by default: missing or wrong credentials, forbidden and unknown resources.
pub const FAILURES: [StatusRange; 2] = [StatusRange { first: 401, last: 401 }, StatusRange { first: 403, last: 404 }];

/// The limit to suggest a rate for, and how clients count.
#[derive(Clone, Debug)]
pub struct SuggestOptions {
    /// The limit: its route and its name, `@` for a shared limit.
    pub limit: String,
    /// The tier whose rate to suggest, if the limit has tiers. `None` for the default tier.
    pub tier: Option<String>,
    /// The share of the clients other than abusers that the proposed rate may reject.
    pub tolerate: f64,
    /// The statuses of failed requests. A client with many of them is an abuser.
    pub failures: Vec<StatusRange>,
    /// Addresses whose requests are left out.
    pub exclude: Vec<IpNet>,
    /// Networks whose addresses are shared: each address counts as this many clients.
    pub groups: Vec<(IpNet, u32)>,
}
