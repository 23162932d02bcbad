//! TLS: which certificate is shown to whom, and what the files hold that it is made of.
//!
//! rustls speaks it. What is ours is to read the files (`files`, `certificate`) so that a mistake is told with its
//! place, and to choose a certificate by the name that a client asks for (`names`).

mod bounded;
#[cfg(feature = "tls")]
mod certificate;
#[cfg(feature = "tls")]
mod certified;
#[cfg(feature = "tls")]
mod der;
#[cfg(feature = "tls")]
pub(crate) mod files;
#[cfg(feature = "gateway")]
mod names;
#[cfg(feature = "tls")]
mod ocsp;
#[cfg(feature = "gateway")]
mod renewal;
pub mod settings;
#[cfg(feature = "tls")]
mod subject;
#[cfg(feature = "gateway")]
mod termination;
#[cfg(feature = "gateway")]
#[cfg(test)]
mod tests;
#[cfg(feature = "gateway")]
mod tickets;
#[cfg(feature = "gateway")]
mod watch;

pub(crate) use self::bounded::read_bounded;
#[cfg(feature = "tls")]
pub(crate) use self::certified::Certified;
#[cfg(feature = "tls")]
pub(crate) use self::files::BadFile;
#[cfg(feature = "gateway")]
pub(crate) use self::renewal::{Renewable, Shown};
#[cfg(feature = "gateway")]
pub use self::termination::CannotSpeak;
#[cfg(feature = "gateway")]
pub(crate) use self::termination::Termination;
#[cfg(feature = "gateway")]
pub(crate) use self::watch::Watch;
