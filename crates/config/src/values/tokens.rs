//! The tokens of the admin API: a file with a line `name:token` for each.

use std::path::Path;

use tidegate_rules::settings::files::{FileReadError, read_bounded};

/// The shortest token, in characters, so that it cannot be guessed.
const MIN_LENGTH: usize = 16;

/// The purpose of the keys that are derived from tokens.
const SIGNING_CONTEXT: &str = "tidegate 2026 commands for all gateways";

/// The names of the operators, each with the hash of its token.
#[derive(Clone, Debug)]
pub struct Tokens(Vec<(String, blake3::Hash)>);

/// The error of an unusable token file. Messages never contain a token.
#[derive(Debug, thiserror::Error)]
pub enum TokensError {
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] FileReadError),
    /// The file has no tokens.
    #[error("has no tokens")]
    Empty,
    /// A line is not `name:token`.
    #[error("line {0} is not `name:token`")]
    Line(usize),
    /// A token is too short.
    #[error("line {0} has a token of less than {MIN_LENGTH} characters")]
    Short(usize),
}

impl Tokens {
    /// Reads a file. Lines that are empty or begin with `#` are skipped.
    ///
    /// # Errors
    /// The file cannot be read, contains no tokens, or a line is invalid.
    #[doc(hidden)]
    pub fn read(path: &Path) -> Result<Self, TokensError> {
        let text = read_bounded(path)?;
        let mut tokens = Vec::new();
        for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let line = std::str::from_utf8(line).map_err(|_| TokensError::Line(number))?;
            let (name, token) = line.split_once(':').ok_or(TokensError::Line(number))?;
            let token = token.trim();
            if !is_name(name) || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(TokensError::Line(number));
            }
            if token.len() < MIN_LENGTH {
                return Err(TokensError::Short(number));
            }
            tokens.push((name.to_owned(), blake3::hash(token.as_bytes())));
        }
        if tokens.is_empty() { Err(TokensError::Empty) } else { Ok(Self(tokens)) }
    }

    /// Returns the name of the operator with this token. Compares the hash with all hashes, each in constant time, so that
    /// the duration reveals nothing.
    #[doc(hidden)]
    pub fn name_of(&self, token: &[u8]) -> Option<&str> {
        let hash = blake3::hash(token);
        self.0.iter().fold(None, |found, (name, expected)| if *expected == hash { Some(name.as_str()) } else { found })
    }

    /// Returns the signature of a text with a token. It does not contain the token, but a reader of the text and its signature can
    /// test guesses of the token.
    #[doc(hidden)]
    pub fn sign(token: &[u8], text: &str) -> blake3::Hash {
        signature(&blake3::hash(token), text)
    }

    /// Returns the name of the operator whose token has signed a text. Compares all signatures in constant time.
    #[doc(hidden)]
    pub fn signer_of(&self, text: &str, signed: &blake3::Hash) -> Option<&str> {
        let is_signer = |hash: &blake3::Hash| signature(hash, text) == *signed;
        self.0.iter().fold(None, |found, (name, hash)| if is_signer(hash) { Some(name.as_str()) } else { found })
    }
}

/// Returns a keyed hash of a text. The key is derived from the hash of a token, which the gateway keeps.
fn signature(token_hash: &blake3::Hash, text: &str) -> blake3::Hash {
    blake3::keyed_hash(&blake3::derive_key(SIGNING_CONTEXT, token_hash.as_bytes()), text.as_bytes())
}

/// Returns `true` for a name such as `ann` or `deploy-bot`. Names are logged, so other characters are invalid.
fn is_name(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=64).contains(&text.len()) && text.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Tokens, String> {
        let number = u64::from_le_bytes(tidegate_limit::random::random());
        let path = std::env::temp_dir().join(format!("tidegate-tokens-{number:016x}"));
        std::fs::write(&path, text).expect("written");
        let tokens = Tokens::read(&path).map_err(|error| error.to_string());
        std::fs::remove_file(&path).expect("removed");
        tokens
    }

    #[test]
    fn token_has_the_name_of_its_line() {
        let tokens = read("# operators\n\nann:0123456789abcdef\r\nbob: fedcba9876543210:x\n").expect("tokens");
        assert_eq!(tokens.name_of(b"0123456789abcdef"), Some("ann"));
        assert_eq!(tokens.name_of(b"fedcba9876543210:x"), Some("bob"));
        for other in [&b""[..], b"0123456789abcde", b"0123456789abcdeF", b"ann"] {
            assert_eq!(tokens.name_of(other), None);
        }
    }

    #[test]
    fn invalid_files_are_errors_without_the_token() {
        for (text, error) in [
            ("", "has no tokens"),
            ("# none", "has no tokens"),
            ("\n0123456789abcdef", "line 2 is not `name:token`"),
            ("a b:0123456789abcdef", "line 1 is not `name:token`"),
            ("ann:0123456789 abcdef", "line 1 is not `name:token`"),
            ("ann:secret", "line 1 has a token of less than 16 characters"),
        ] {
            assert_eq!(read(text).expect_err("an error"), error);
        }
    }

    #[test]
    fn only_the_same_text_and_token_have_a_signature() {
        let tokens = read("ann:0123456789abcdef\nbob:fedcba9876543210\n").expect("tokens");
        let signed = Tokens::sign(b"fedcba9876543210", "reload");
        assert_eq!(tokens.signer_of("reload", &signed), Some("bob"));
        assert_eq!(tokens.signer_of("drain", &signed), None);
        assert_eq!(tokens.signer_of("reload", &Tokens::sign(b"fedcba9876543211", "reload")), None);
        assert_ne!(signed, blake3::hash(b"fedcba9876543210"));
    }
}
