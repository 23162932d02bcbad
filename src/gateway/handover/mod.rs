//! Hands the listening sockets of a gateway over to its successor.
//!
//! A gateway listens on a Unix socket (`--handover`) for its successor, and sends it the listening sockets. Connections
//! in the accept queues wait for the successor, and the kernel resets none of them when the old process ends. The old
//! gateway serves until the successor takes over, and then drains. If the successor fails earlier, the old gateway
//! continues.
//!
//! ```text
//! new ─► old   VERSION. A connection that sends nothing gets nothing.
//! old ─► new   VERSION, one byte with each socket (LISTENER, LISTENER_WITH_FILE or HANDOVER_SOCKET), and END
//! new ─► old   TAKE_OVER: the successor is ready, and serves when it has the reply
//! old ─► new   STATE and the state of the store. From now on, the old gateway decides with a fraction of each share.
//! old ─► new   RELEASE: the old gateway drains
//! old ─► new   STATE and the debts since then, if there are any. The connection ends with the old process.
//! ```
//!
//! Before RELEASE, the old gateway may send REFUSE to a successor that must not serve, because a newer one has
//! connected or this one has taken too long. If the connection ends without RELEASE or REFUSE, the old process has
//! ended, and the successor serves.
//!
//! **Files of Unix sockets** ([`SocketFile`](super::socket_file::SocketFile)) belong to the successor from the first
//! socket that is sent. The old gateway owns them again if the successor fails. A failing successor removes them only
//! if the old process has ended. If both end at the same time, the files stay, and the next gateway replaces them.

mod listener;
mod predecessor;
mod state;
mod successor;
mod wire;

pub(crate) use self::listener::{Handover, HandoverOutcome};
pub(crate) use self::predecessor::{DrainingPredecessor, Predecessor, TakeOverReply};
pub(crate) use self::successor::{ReleasedSuccessor, Successor};

#[cfg(test)]
mod tests;
