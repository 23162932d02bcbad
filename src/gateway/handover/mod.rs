//! A gateway hands its listening sockets over to the one that takes its place.
//!
//! A gateway listens on a Unix socket for its successor. It sends the sockets themselves, so that connections in their
//! queues wait for the successor, and the kernel resets none when the old process ends. The old gateway serves until the
//! successor takes over, and drains then. If the successor fails before that, the old one continues as before.
//!
//! ```text
//! new ─► old   VERSION; a connection that sends nothing gets nothing
//! old ─► new   VERSION, then a byte for each socket, which carries it: OF_CLIENTS, WITH_FILE or OF_SUCCESSORS; END
//! new ─► old   TAKES_OVER: the successor can serve, and begins when it has the reply
//! old ─► new   STATE, and the state of the store: the old one decides by a part of each share from now on
//! old ─► new   RELEASES: the old one drains
//! old ─► new   STATE, and the debts since then, if there are any; the end of the connection: the old one has ended
//! ```
//!
//! Instead of RELEASES, and at any time before it, the old gateway sends REFUSES to a successor that must not serve: a newer
//! one has connected, or it has taken too long. If the connection ends without either, the old process has ended, and the
//! successor serves.
//!
//! **Files of Unix sockets** ([`SocketFile`](super::socket_file::SocketFile)) belong to the successor from the first socket
//! sent. They return to the old gateway if it sees the successor fail. A successor that fails removes them only if the old
//! process has ended. A file that neither removes, as both end at the same time, is replaced by the next gateway.

mod listener;
mod predecessor;
mod state;
mod successor;
mod wire;

pub(crate) use self::listener::{Handover, Outcome};
pub(crate) use self::predecessor::{Answer, Draining, Predecessor};
pub(crate) use self::successor::{Released, Successor};

#[cfg(test)]
mod tests;
