//! Hashes of passwords: bcrypt, as `htpasswd -B`, Caddy and Apache write it.

/// The lowest and the highest cost of a hash. Each step doubles the time; 14 takes about a second.
const COSTS: std::ops::RangeInclusive<u32> = 4..=14;

/// The longest password, in bytes: bcrypt ignores the rest.
pub(super) const MAX_PASSWORD: usize = 72;

/// The hash of a password.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct PasswordHash {
    text: Box<str>,
    pub(super) cost: u32,
}

impl PasswordHash {
    /// Parses a hash such as `$2y$10$...`.
    ///
    /// # Errors
    /// A message without the text.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        let rest = ["$2y$", "$2b$", "$2a$"].iter().find_map(|start| text.strip_prefix(start));
        let (cost, hash) = rest.and_then(|rest| rest.split_once('$')).ok_or("the hash is not bcrypt")?;
        let is_cost = cost.len() == 2 && cost.bytes().all(|byte| byte.is_ascii_digit());
        let cost = cost.parse().ok().filter(|_| is_cost).ok_or("the hash is not bcrypt")?;
        if !COSTS.contains(&cost) {
            return Err("the cost of the hash is not from 4 to 14");
        }
        let is_hash = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'/');
        match hash.len() == 53 && hash.bytes().all(is_hash) {
            true => Ok(Self { text: text.into(), cost }),
            false => Err("the hash is not bcrypt"),
        }
    }

    /// Returns a hash of no known password, with this cost.
    pub(super) fn of_nothing(cost: u32) -> Self {
        Self { text: format!("$2b${cost:02}${}", ".".repeat(53)).into(), cost }
    }

    /// Returns `true` if this is the hash of the password. Takes milliseconds to a second of CPU time.
    pub(super) fn matches(&self, password: &[u8]) -> bool {
        bcrypt::verify(password, &self.text).unwrap_or(false)
    }
}

/// Shows no hash.
impl std::fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PasswordHash").field("cost", &self.cost).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same algorithm has three names.
    #[test]
    fn hashes_of_other_programs_match() {
        let text = bcrypt::hash("secret", 4).expect("a hash");
        for start in ["$2y$", "$2b$", "$2a$"] {
            let hash = PasswordHash::parse(&format!("{start}{}", &text[4..])).expect(start);
            assert!(hash.matches(b"secret") && !hash.matches(b"Secret") && !hash.matches(b""), "{start}");
        }
    }

    #[test]
    fn hash_of_nothing_costs_the_same_and_matches_nothing() {
        let nothing = PasswordHash::of_nothing(4);
        assert_eq!(PasswordHash::parse(&nothing.text), Ok(nothing.clone()));
        assert!(bcrypt::verify("x", &nothing.text).is_ok(), "an error would be faster than a comparison");
        assert!(!nothing.matches(b"") && !nothing.matches(b"x"));
    }

    #[test]
    fn other_texts_are_no_hashes() {
        let hash = ".".repeat(53);
        for text in [
            format!("$2x$10${hash}"),
            format!("$2b$03${hash}"),
            format!("$2b$15${hash}"),
            format!("$2b$+9${hash}"),
            format!("$2b$10${hash}."),
            format!("$2b$10${}=", &hash[1..]),
            "$apr1$x$y".to_owned(),
            "{SHA}x".to_owned(),
            "secret".to_owned(),
            String::new(),
        ] {
            let error = PasswordHash::parse(&text).expect_err(&text);
            assert!(!error.contains(&text) || text.is_empty(), "{error}");
        }
    }
}
