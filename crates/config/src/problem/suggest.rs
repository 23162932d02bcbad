//! Suggestions for misspelt words.

/// Longer words get no suggestion.
const MAX_LENGTH: usize = 64;

/// Returns the candidate that is most similar to `word`, if it is similar enough to suggest.
pub fn nearest<'w>(word: &str, candidates: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    if word.len() > MAX_LENGTH {
        return None;
    }
    let word = word.to_ascii_lowercase();
    let distance = |candidate: &str| strsim::osa_distance(&word, &candidate.to_ascii_lowercase());
    let near =
        |candidate: &'w str| Some((distance(candidate), candidate)).filter(|(far, _)| *far <= max_distance(candidate));
    candidates.into_iter().filter_map(near).min_by_key(|(far, _)| *far).map(|(_, candidate)| candidate)
}

/// Returns how many letters may differ.
fn max_distance(word: &str) -> usize {
    (word.len() / 3).clamp(1, 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_similar_words_are_suggested() {
        let keys = ["rate", "interval", "mode", "client"];
        assert_eq!(nearest("intervall", keys), Some("interval"));
        assert_eq!(nearest("Rate", keys), Some("rate"));
        assert_eq!(nearest("reat", keys), None);
        assert_eq!(nearest("cleint", keys), Some("client"));
        assert_eq!(nearest("burst", keys), None);
        assert_eq!(nearest(&"rate".repeat(1000), keys), None);
    }
}
