//! Regular expressions of paths. The rule file has none: `{name}` is a segment, `*` a part of a segment, and `/**` the rest.

use super::paths::is_allowed;

/// Path patterns of the rule file that match the paths of a regular expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathForm {
    /// At least one pattern.
    pub(crate) paths: Vec<String>,
    /// Whether the patterns also match other paths.
    pub(crate) is_wider: bool,
}

/// A part of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Literal(char),
    /// Any text of a segment.
    Wild,
    /// Any text, with slashes.
    Rest,
    /// The end of a segment or of the path: `(/|$)`.
    Boundary,
}

/// Reads an expression.
struct Reader<'r> {
    rest: &'r str,
    parts: Vec<Part>,
    is_wider: bool,
    /// The number of groups in this one.
    depth: usize,
}

/// The deepest nesting of groups.
const MAX_DEPTH: usize = 8;

/// The most patterns of an expression, each for some of its alternatives.
const MAX_PATTERNS: usize = 256;

/// Returns patterns for the paths that an expression matches. The expression must begin at the start of the path. Without `$`
/// it matches all paths that begin so. Returns `None` if no patterns of the rule file are similar.
pub(crate) fn path_of_regex(regex: &str) -> Option<PathForm> {
    let mut form = PathForm { paths: Vec::new(), is_wider: false };
    for alternative in alternatives(regex) {
        let (path, is_wider) = one_path(&alternative)?;
        form.is_wider |= is_wider;
        if !form.paths.contains(&path) {
            form.paths.push(path);
        }
    }
    Some(form)
}

/// Multiplies out groups of literal texts: `/(a|b)/c` is `/a/c` and `/b/c`.
fn alternatives(regex: &str) -> Vec<String> {
    let mut all = vec![regex.to_owned()];
    loop {
        let mut next = Vec::new();
        for one in &all {
            match literal_group(one) {
                Some((before, texts, after)) => next.extend(texts.map(|text| format!("{before}{text}{after}"))),
                None => next.push(one.clone()),
            }
        }
        if next.len() == all.len() || next.len() > MAX_PATTERNS {
            return all;
        }
        all = next;
    }
}

/// Finds the first group of literal texts: the texts, with the expression before and after it.
fn literal_group(regex: &str) -> Option<(&str, impl Iterator<Item = &str>, &str)> {
    for (start, _) in regex.match_indices('(') {
        let (before, group) = (&regex[..start], &regex[start + 1..]);
        let (content, after) = group.split_once(')')?;
        let content = content.strip_prefix("?:").unwrap_or(content);
        let is_literal = |text: &str| {
            !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_/".contains(&byte))
        };
        let is_repeated = after.starts_with(['*', '+', '?', '{']);
        if content.contains('|') && content.split('|').all(is_literal) && !is_repeated && !before.ends_with('\\') {
            return Some((before, content.split('|'), after));
        }
    }
    None
}

/// Returns a pattern for an expression, and whether it also matches other paths.
fn one_path(regex: &str) -> Option<(String, bool)> {
    let regex = regex.strip_prefix('^').unwrap_or(regex);
    let is_open = !regex.ends_with('$') || regex.ends_with("\\$");
    let regex = if is_open { regex } else { &regex[..regex.len() - 1] };
    let mut reader = Reader { rest: regex, parts: Vec::new(), is_wider: false, depth: 0 };
    reader.read(None)?;
    let mut is_wider = reader.is_wider;
    let mut parts = reader.parts;
    if is_open && parts.last() != Some(&Part::Rest) {
        // A prefix of letters becomes a prefix of segments.
        parts.push(Part::Boundary);
        parts.push(Part::Rest);
    }
    let path = write(&parts, &mut is_wider)?;
    Some((path, is_wider))
}

/// Writes the parts as a pattern.
fn write(parts: &[Part], is_wider: &mut bool) -> Option<String> {
    let (mut pattern, mut segment) = (Pattern::default(), String::new());
    let (mut has_rest, mut is_bounded) = (false, false);
    let mut parts = parts.iter().peekable();
    if parts.next() != Some(&Part::Literal('/')) {
        return None;
    }
    while let Some(part) = parts.next() {
        match part {
            Part::Literal('/') => pattern.close(&mut segment),
            Part::Literal(letter) => segment.push(*letter),
            Part::Wild if segment.ends_with('*') => {}
            Part::Wild => segment.push('*'),
            Part::Boundary => is_bounded = true,
            Part::Rest if has_rest => return None,
            Part::Rest => {
                has_rest = true;
                if !segment.is_empty() && !is_bounded && !segment.ends_with('*') {
                    segment.push('*');
                }
                *is_wider |= segment == "*";
                pattern.close(&mut segment);
                pattern.path.push_str("/**");
                // After `.*`, a text without slashes is the end of the last segment.
                if parts.peek().is_some_and(|next| **next != Part::Literal('/')) {
                    segment.push('*');
                }
            }
        }
    }
    pattern.close(&mut segment);
    Some(if pattern.path.is_empty() { "/".to_owned() } else { pattern.path })
}

/// A pattern until now.
#[derive(Default)]
struct Pattern {
    path: String,
    /// The number of segments with a name.
    names: usize,
}

impl Pattern {
    /// Adds a segment, and empties it.
    fn close(&mut self, segment: &mut String) {
        match segment.as_str() {
            "" => {}
            "*" => {
                self.names += 1;
                self.path.push_str(&format!("/{{p{}}}", self.names));
            }
            text => {
                self.path.push('/');
                self.path.push_str(text);
            }
        }
        segment.clear();
    }
}

// === impl Reader ===

impl Reader<'_> {
    /// Reads until the end, or until the end of the group. Returns whether the group has alternatives.
    fn read(&mut self, end: Option<char>) -> Option<bool> {
        let mut has_alternatives = false;
        loop {
            let Some(letter) = self.rest.chars().next() else { return end.is_none().then_some(has_alternatives) };
            self.rest = &self.rest[letter.len_utf8()..];
            match letter {
                ')' if end == Some(')') => return Some(has_alternatives),
                '|' if end.is_some() => has_alternatives = true,
                '(' => self.group()?,
                '[' => self.class()?,
                '.' => self.repeated(Part::Rest),
                '\\' => self.escape()?,
                '^' | '$' | ')' | '|' | '*' | '+' | '?' | '{' | '}' => return None,
                letter => self.literal(letter)?,
            }
        }
    }

    /// Adds a letter with its quantifier.
    fn literal(&mut self, letter: char) -> Option<()> {
        if !letter.is_ascii() || !is_allowed(letter as u8) && letter != '/' || letter == '*' {
            return None;
        }
        match self.quantifier()? {
            "" => self.parts.push(Part::Literal(letter)),
            // A slash at the end makes no difference, and several slashes are one.
            "?" | "*" if letter == '/' && self.rest.is_empty() => {}
            "+" if letter == '/' => self.parts.push(Part::Literal(letter)),
            _ if letter == '/' => return None,
            _ => self.wild(),
        }
        Some(())
    }

    fn escape(&mut self) -> Option<()> {
        let letter = self.rest.chars().next()?;
        self.rest = &self.rest[letter.len_utf8()..];
        match letter {
            'd' | 'w' => {
                self.quantifier()?;
                self.wild();
            }
            'S' => self.repeated(Part::Rest),
            letter if letter.is_ascii_alphanumeric() => return None,
            letter => self.literal(letter)?,
        }
        Some(())
    }

    /// Reads `[...]`.
    fn class(&mut self) -> Option<()> {
        // A bracket in the first place is a letter of the class.
        let skipped = if self.rest.starts_with("^]") { 2 } else { usize::from(self.rest.starts_with(']')) };
        let end = skipped + self.rest.get(skipped..)?.find(']')?;
        let class = &self.rest[..end];
        self.rest = &self.rest[end + 1..];
        let has_slash = class.contains('/') != class.starts_with('^');
        if has_slash {
            self.repeated(Part::Rest);
        } else {
            self.quantifier()?;
            self.wild();
        }
        Some(())
    }

    /// Reads `(...)`.
    fn group(&mut self) -> Option<()> {
        for boundary in ["/|$)", "?:/|$)", "$|/)", "?:$|/)"] {
            if let Some(rest) = self.rest.strip_prefix(boundary) {
                self.rest = rest;
                self.parts.push(Part::Boundary);
                return Some(());
            }
        }
        self.rest = group_content(self.rest)?;
        if self.depth >= MAX_DEPTH {
            return None;
        }
        self.depth += 1;
        let start = self.parts.len();
        let has_alternatives = self.read(Some(')'))?;
        self.depth -= 1;
        let inner = self.parts.split_off(start);
        let quantifier = self.quantifier()?;
        let has_slash = inner.iter().any(|part| matches!(part, Part::Literal('/') | Part::Rest | Part::Boundary));
        match inner.as_slice() {
            _ if !has_alternatives && quantifier.is_empty() => self.parts.extend(inner),
            // `(/.*)?` is the rest of the path.
            [Part::Literal('/'), Part::Rest] if !has_alternatives && matches!(quantifier, "?" | "*") => {
                self.parts.extend([Part::Boundary, Part::Rest]);
            }
            [Part::Rest] if !has_alternatives => self.parts.push(Part::Rest),
            _ if has_slash => return None,
            _ => self.wild(),
        }
        Some(())
    }

    /// Adds any text of a segment. Only some texts match the expression.
    fn wild(&mut self) {
        self.is_wider = true;
        self.parts.push(Part::Wild);
    }

    /// Adds a letter that can be a slash: with `*` or `+`, the rest of the path.
    fn repeated(&mut self, part: Part) {
        match self.quantifier() {
            Some("*") => self.parts.push(part),
            Some("+") => {
                self.is_wider = true;
                self.parts.push(part);
            }
            _ => self.wild(),
        }
    }

    /// Reads a quantifier, with the mark of a lazy one.
    fn quantifier(&mut self) -> Option<&'static str> {
        let found = match self.rest.chars().next() {
            Some('*') => "*",
            Some('+') => "+",
            Some('?') => "?",
            Some('{') => {
                let end = self.rest.find('}')?;
                self.rest = &self.rest[end..];
                "{}"
            }
            _ => return Some(""),
        };
        self.rest = &self.rest[1..];
        self.rest = self.rest.strip_prefix(['?', '+']).unwrap_or(self.rest);
        Some(found)
    }
}

/// Returns the content of a group, after its name. Returns `None` for groups that look ahead or back.
fn group_content(rest: &str) -> Option<&str> {
    let Some(special) = rest.strip_prefix('?') else { return Some(rest) };
    if let Some(rest) = special.strip_prefix(':') {
        return Some(rest);
    }
    let named = special.strip_prefix("P<").or_else(|| special.strip_prefix('<'))?;
    let (name, rest) = named.split_once('>')?;
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_').then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_regexes_are_similar() {
        for (regex, paths, is_wider) in [
            ("^/api/v1$", "/api/v1", false),
            ("/api", "/api/**", false),
            (r"/users/\d+$", "/users/{p1}", true),
            (r"^/users/(?<id>[^/]+)/posts/?$", "/users/{p1}/posts", true),
            (r"/v[0-9]+/.*", "/v*/**", true),
            (r"/api(/.*)?$", "/api/**", false),
            (r"/api(/|$)(.*)", "/api/**", false),
            (r"/read.*", "/read*/**", false),
            (r"^/.*\.css$", "/**/*.css", false),
            (r"/(a|b)/c$", "/a/c /b/c", false),
            (
                r"/(org|user)/v1/(?:read|search).*",
                "/org/v1/read*/** /org/v1/search*/** /user/v1/read*/** /user/v1/search*/**",
                false,
            ),
            (r"/(a|b)*/c$", "/{p1}/c", true),
            ("/", "/**", false),
            ("^/.*$", "/**", false),
            (r"/img-\w{2,4}\.png$", "/img-*.png", true),
        ] {
            let expected = Some(PathForm { paths: paths.split(' ').map(str::to_owned).collect(), is_wider });
            assert_eq!(path_of_regex(regex), expected, "{regex}");
        }
        for regex in ["api", "/a(?=b)", "/a|/b", "/.*/.*/a/.*", "/a*b(", "/[", "/\\b"] {
            assert_eq!(path_of_regex(regex), None, "{regex}");
        }
        let many = format!("/{}", "(a|b)".repeat(100));
        assert!(path_of_regex(&many).is_some_and(|form| form.paths.len() <= MAX_PATTERNS));
    }
}
