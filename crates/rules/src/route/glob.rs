//! A segment of a path pattern with `*`, which stands for any characters of the segment.

use super::case::Case;

/// Returns `true` if the pattern matches the whole segment. The time is at most the product of their lengths.
pub(super) fn matches(pattern: &str, segment: &str, case: Case) -> bool {
    let (mut parts, segment) = (pattern.as_bytes().split(|byte| *byte == b'*'), segment.as_bytes());
    let (Some(first), Some(last)) = (parts.next(), parts.next_back()) else {
        return case.is_equal(pattern.as_bytes(), segment); // without `*`
    };
    let inner = case.strip_prefix(segment, first).and_then(|rest| case.strip_suffix(rest, last));
    // The first place of each part leaves the longest rest for the other parts.
    inner.is_some_and(|inner| parts.try_fold(inner, |rest, part| case.after(rest, part)).is_some())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Compares letter by letter, and tries each length for a `*`.
    fn naive(pattern: &[u8], segment: &[u8]) -> bool {
        match pattern {
            [] => segment.is_empty(),
            [b'*', rest @ ..] => (0..=segment.len()).any(|length| naive(rest, &segment[length..])),
            [letter, rest @ ..] => segment.first() == Some(letter) && naive(rest, &segment[1..]),
        }
    }

    proptest! {
        #[test]
        fn glob_matches_like_a_naive_matcher(pattern in "[ab*]{0,7}", segment in "[abA]{0,9}") {
            let lower = segment.to_ascii_lowercase();
            prop_assert_eq!(matches(&pattern, &segment, Case::Sensitive), naive(pattern.as_bytes(), segment.as_bytes()));
            prop_assert_eq!(matches(&pattern, &segment, Case::Insensitive), naive(pattern.as_bytes(), lower.as_bytes()));
        }
    }
}
