//! What somebody probably meant.

/// Words beyond this length are not slips of the finger.
const LONGEST_WORD: usize = 64;

/// The candidate nearest to `word`, if it is near enough to have been meant.
pub(crate) fn nearest<'w>(word: &str, candidates: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    if word.len() > LONGEST_WORD {
        return None;
    }
    let word = word.to_ascii_lowercase();
    let distance = |candidate: &str| strsim::osa_distance(&word, &candidate.to_ascii_lowercase());
    let near = |candidate: &'w str| Some((distance(candidate), candidate)).filter(|(far, _)| *far <= reach(candidate));
    candidates.into_iter().filter_map(near).min_by_key(|(far, _)| *far).map(|(_, candidate)| candidate)
}

/// How many letters may differ.
fn reach(word: &str) -> usize {
    (word.len() / 3).clamp(1, 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_finger_is_recognised_and_another_word_is_not() {
        let keys = ["rate", "interval", "mode", "client"];
        assert_eq!(nearest("intervall", keys), Some("interval"));
        assert_eq!(nearest("Rate", keys), Some("rate"));
        assert_eq!(nearest("reat", keys), None);
        assert_eq!(nearest("cleint", keys), Some("client"));
        assert_eq!(nearest("burst", keys), None);
        assert_eq!(nearest(&"rate".repeat(1000), keys), None);
    }
}
