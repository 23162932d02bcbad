//! Recent comparisons of passwords with their hashes, so that a client with many requests pays for one. The passwords
//! themselves are not kept.

use std::time::Duration;

use hashbrown::HashMap;
use tokio::time::Instant;

use super::keys::Digest;

/// The time for which a correct password is known. A changed file ends it.
const CORRECT: Duration = Duration::from_secs(300);

/// The time for which a wrong password is known, for clients that repeat it.
const WRONG: Duration = Duration::from_secs(10);

/// The highest number of entries of each list. Guesses only fill the list of wrong passwords.
const MAX_ENTRIES: usize = 1_024;

/// The results of recent comparisons, by keyed digests of the user, the password and the version of the file.
#[derive(Debug, Default)]
pub(super) struct RecentChecks {
    correct: HashMap<Digest, Instant>,
    wrong: HashMap<Digest, Instant>,
}

impl RecentChecks {
    /// Returns whether a password is correct. Returns `None` if it was not compared recently.
    pub(super) fn get(&self, digest: &Digest, now: Instant) -> Option<bool> {
        let is_known = |list: &HashMap<Digest, Instant>| list.get(digest).is_some_and(|end| *end > now);
        if is_known(&self.correct) {
            return Some(true);
        }
        is_known(&self.wrong).then_some(false)
    }

    /// Records the result of a comparison. In a full list, it replaces the entry that ends first.
    pub(super) fn insert(&mut self, digest: Digest, is_correct: bool, now: Instant) {
        let (list, life) = if is_correct { (&mut self.correct, CORRECT) } else { (&mut self.wrong, WRONG) };
        if list.len() >= MAX_ENTRIES {
            list.retain(|_, end| *end > now);
        }
        if list.len() >= MAX_ENTRIES
            && let Some(first) = list.iter().min_by_key(|(_, end)| **end).map(|(digest, _)| *digest)
        {
            list.remove(&first);
        }
        list.insert(digest, now + life);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(number: usize) -> Digest {
        let mut digest = Digest::default();
        digest[..8].copy_from_slice(&number.to_le_bytes());
        digest
    }

    #[test]
    fn results_end_and_guesses_replace_only_guesses() {
        let (mut recent, start) = (RecentChecks::default(), Instant::now());
        recent.insert(digest(0), true, start);
        for guess in 1..=2 * MAX_ENTRIES {
            recent.insert(digest(guess), false, start + Duration::from_millis(1));
        }
        assert_eq!((recent.correct.len(), recent.wrong.len()), (1, MAX_ENTRIES));
        let get = |number, seconds| recent.get(&digest(number), start + Duration::from_secs(seconds));
        assert_eq!((get(0, 299), get(0, 300)), (Some(true), None));
        assert_eq!((get(2 * MAX_ENTRIES, 10), get(2 * MAX_ENTRIES, 11)), (Some(false), None));
        assert_eq!(get(3 * MAX_ENTRIES, 0), None);
    }
}
