//! The tokens of requests to language models: the bound in a request, and the usage in a response.
//! Pure: no sockets, no clocks, no stores.
//!
//! [`UsageReader`] reads the usage from a response while the gateway forwards it: a JSON body, server-sent events, or an
//! event stream of AWS. It finds the numbers by the [`Format`] of the [`Api`], in pieces that end anywhere.
//!
//! [`EndableStream`] passes the events of a stream one by one, and can end the stream in the way of its API.
//!
//! [`Members`] reads the values of any JSON body that rules use as clients, conditions and costs.
//!
//! [`Request`] reads the bounds from a request, and writes a bound into it. It rejects bodies that another parser could read
//! in another way.
//!
//! A part of Tidegate, whose items change with each release: programs use the crates `tidegate-layer` and `tidegate`.

mod ending;
pub mod event_stream;
pub mod events;
mod filter;
mod format;
pub mod json;
mod members;
mod prices;
mod reader;
mod request;
mod usage;
mod weights;

pub use self::ending::{EndableStream, Progress};
pub use self::filter::UsageEventFilter;
pub use self::format::{Api, Count, Counts, Format};
pub use self::members::{MAX_CALLS, MemberPointers, MemberValue, Members, MembersError, Pointer};
pub use self::prices::Prices;
pub use self::reader::UsageReader;
pub use self::request::{Request, RequestError};
pub use self::usage::Usage;
pub use self::weights::Weights;
