//! Random bytes of the operating system.

/// Returns random bytes, or zeros if the system has no source of randomness. Callers must not depend on randomness for
/// exact limits.
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    _ = getrandom::fill(&mut bytes);
    bytes
}
