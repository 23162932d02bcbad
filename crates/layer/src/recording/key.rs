//! The random key of a recording, and the hashes that replace values.

use std::fmt;

use tidegate_limit::random::random;

/// The key of a recording. It never leaves the process.
pub(super) struct Key([u8; 32]);

impl Key {
    /// Returns `None` if the system has no random bytes: hashes with a known key could be reversed.
    pub(super) fn new() -> Option<Self> {
        let key = random();
        (key != [0; 32]).then_some(Self(key))
    }

    /// Returns the text that replaces a value of this source. It has only letters and digits, and is no number.
    pub(super) fn text(&self, source: &str, value: &[u8]) -> String {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(b"v").update(&(source.len() as u64).to_le_bytes()).update(source.as_bytes()).update(value);
        format!("h{:016x}", number(hasher.finalize()))
    }

    /// Returns the number that decides whether a client is in the sample.
    pub(super) fn rank(&self, client: &[u8]) -> u64 {
        number(blake3::Hasher::new_keyed(&self.0).update(b"s").update(client).finalize())
    }

    /// Returns pseudorandom bits for the byte of an address that starts at `at`, after the bytes before it. Each bit of
    /// the byte takes another one for each value of the bits before it.
    pub(super) fn bits(&self, is_ipv4: bool, at: u8, bytes_before: u128) -> [u8; 32] {
        let mut input = [b'a'; 19];
        (input[1], input[2]) = (u8::from(is_ipv4), at);
        input[3..].copy_from_slice(&bytes_before.to_be_bytes());
        blake3::keyed_hash(&self.0, &input).into()
    }
}

fn number(hash: blake3::Hash) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = *hash.as_bytes();
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

#[cfg(test)]
impl From<[u8; 32]> for Key {
    fn from(key: [u8; 32]) -> Self {
        Self(key)
    }
}

/// Hides the key.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}
