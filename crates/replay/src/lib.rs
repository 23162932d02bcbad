//! Replays access logs through the rules in virtual time: `tidegate replay` and `tidegate suggest`. Explains the treatment of
//! one request: [`explain`].
//!
//! Threads parse the log (`log`), and one thread decides in the order of the times: with the rules, the admission and the
//! store of the gateway, and a clock that follows the log. A test compares the decisions with a layer's.
//!
//! A part of Tidegate, whose items change with each release: programs use the crates `tidegate-layer` and `tidegate`.

mod comparison;
mod engine;
pub mod explain;
mod log;
mod page;
mod read;
mod report;
mod suggest;
pub mod verdicts;

pub use self::comparison::replay;
pub use self::log::LogFormat;
pub use self::page::page;
pub use self::read::{LogFiles, Progress, ReadSummary};
pub use self::report::{Difference, RejectedClient, Report};
pub use self::suggest::{Candidate, FAILURES, Sign, SuggestError, SuggestOptions, Suggestion, suggest};
