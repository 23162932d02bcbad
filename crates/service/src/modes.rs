//! Modes that change how all limits of a domain reject calls.

/// The modes of a domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modes {
    /// Whether all calls pass. The descriptors still exceed their limits.
    pub shadow: bool,
    /// Whether a call is rejected only if all its descriptors exceed their limits.
    pub quota: bool,
}
