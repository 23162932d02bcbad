//! The limits of a rate limit service: a proxy describes a request by descriptors, and asks whether it is over a limit.
//! Pure: no sockets, no clocks, no stores.
//!
//! A call names a [`Domain`], which has a tree of [`Rule`]s. Each descriptor of the call finds at most one limit in the
//! tree. [`Domain::charges`] returns the charges of the call, which `admit` decides like the charges of a request to a route.
//! [`CallCharges::statuses`] then returns the status of each descriptor.
//!
//! A part of Tidegate, whose items change with each release: programs use the crates `tidegate-layer` and `tidegate`.

mod answers;
mod call;
mod change;
mod charges;
mod client;
mod domain;
mod domains;
mod effect;
mod found;
mod limit;
mod modes;
mod name;
mod named;
mod status;
#[cfg(test)]
mod tests;
mod trace;
mod tree;
mod unit;

pub use self::answers::{AnswerSettings, LegacyNames};
pub use self::call::{Call, CallError, Descriptor, Entry, Override};
pub use self::change::LimitChange;
pub use self::charges::CallCharges;
pub use self::domain::{Domain, DomainError};
pub use self::domains::{Domains, DuplicateDomain};
pub use self::found::{FoundBucket, FoundLimits};
pub use self::modes::Modes;
pub use self::named::{LimitPaths, NamedBucket, NamedBucketError};
pub use self::status::{CurrentLimit, Status};
pub use self::trace::{NamedLimit, Trace};
pub use self::tree::rule::{Metadata, Rate, Rule, RuleLimit};
pub use self::tree::{FoundRule, Matched};
pub use self::unit::{Unit, Window};
