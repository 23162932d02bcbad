//! Patterns of file names, as in `include conf.d/*.conf`.

use std::path::Path;

/// Returns `true` if the text has a character that matches more than itself: `*`, `?` or `[`.
#[must_use]
pub fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// Returns `true` if the name matches the pattern: `*` stands for any characters, `?` for one, and `[a-z]` or `[!a-z]`
/// for one of a set. As in a shell, a name that starts with a dot needs a pattern that starts with a dot. Takes time in
/// proportion to the product of both lengths.
#[must_use]
pub fn matches(pattern: &str, name: &str) -> bool {
    if name.starts_with('.') && !pattern.starts_with('.') {
        return false;
    }
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    // After a mismatch, the last `*` takes one character more.
    let (mut at, mut read, mut star) = (0, 0, None);
    while read < name.len() {
        if pattern.get(at) == Some(&'*') {
            star = Some((at, read));
            at += 1;
        } else if let Some(length) = step(&pattern[at..], name[read]) {
            (at, read) = (at + length, read + 1);
        } else if let Some((last, taken)) = star {
            (at, read, star) = (last + 1, taken + 1, Some((last, taken + 1)));
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(|&rest| rest == '*')
}

/// Returns `true` if the path has as many segments as the pattern, and each segment matches.
#[must_use]
pub fn matches_path(pattern: &Path, path: &Path) -> bool {
    let (mut patterns, mut segments) = (pattern.components(), path.components());
    loop {
        match (patterns.next(), segments.next()) {
            (None, None) => return true,
            (Some(pattern), Some(segment)) => {
                let (pattern, segment) = (pattern.as_os_str().to_string_lossy(), segment.as_os_str().to_string_lossy());
                if !matches(&pattern, &segment) {
                    return false;
                }
            }
            _ => return false,
        }
    }
}

/// Returns the length of the first element of the pattern, if it matches the character.
fn step(pattern: &[char], character: char) -> Option<usize> {
    match *pattern.first()? {
        '?' => Some(1),
        '[' => set(pattern, character),
        '\\' if pattern.len() > 1 => (pattern[1] == character).then_some(2),
        first => (first == character).then_some(1),
    }
}

/// Returns the length of a set such as `[a-z]`, if it contains the character. An unclosed set is a literal `[`.
fn set(pattern: &[char], character: char) -> Option<usize> {
    let negated = matches!(pattern.get(1), Some('!' | '^'));
    let start = if negated { 2 } else { 1 };
    let Some(end) = (start + 1..pattern.len()).find(|&at| pattern[at] == ']') else {
        return (character == '[').then_some(1);
    };
    let (mut at, mut contains) = (start, false);
    while at < end {
        let is_range = at + 2 < end && pattern[at + 1] == '-';
        let length = if is_range { 3 } else { 1 };
        contains |= (pattern[at]..=pattern[at + length - 1]).contains(&character);
        at += length;
    }
    (contains != negated).then_some(end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_a_shell() {
        for (pattern, name) in
            [("*.conf", "a.conf"), ("?[a-c]x", "zbx"), ("a*b*c", "a1b2b3c"), ("[!a]", "b"), ("[", "[")]
        {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("*.conf", "a.conf2"), ("*", ".hidden"), ("[!a]", "a"), ("a*b", "ac"), ("?", "")] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn star_stays_within_a_segment() {
        assert!(matches_path(Path::new("/etc/*/a*"), Path::new("/etc/x/ab")));
        assert!(!matches_path(Path::new("/etc/*"), Path::new("/etc/x/ab")));
    }
}
