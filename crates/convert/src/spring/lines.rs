//! `application.properties`, as a tree of the same form as YAML.

use crate::error::ConvertError;
use crate::sources::Text;
use crate::tree::Node;
use crate::tree::branch::{Branches, Step, scalar};

/// The largest position in a list.
const MAX_ITEM: usize = 100_000;

/// Returns `true` for a file of properties.
pub(super) fn is_properties(text: &Text) -> bool {
    let is_line = |line: &str| {
        let key = line.split_once('=').map_or("", |(key, _)| key.trim());
        key.starts_with("spring.cloud.gateway") && !key.contains([' ', ':'])
    };
    text.name.ends_with(".properties") || text.text.lines().any(is_line)
}

/// Reads the documents of a file. `#---` separates them.
///
/// # Errors
/// Fails if a bound is exceeded.
pub(super) fn read(text: &Text) -> Result<Vec<Node>, ConvertError> {
    let (mut documents, mut branches) = (Vec::new(), Branches::default());
    let mut lines = (1_u32..).zip(text.text.lines());
    while let Some((number, line)) = lines.next() {
        let line = line.trim_start();
        if matches!(line.trim_end(), "#---" | "!---") {
            documents.push(std::mem::take(&mut branches).into_node());
        } else if !line.is_empty() && !line.starts_with(['#', '!']) {
            let mut whole = line.to_owned();
            while is_continued(&whole) {
                whole.pop();
                let Some((_, next)) = lines.next() else { break };
                whole.push_str(next.trim_start());
            }
            let (key, value) = split(&whole);
            let node = scalar(number, unescaped(value), false);
            let set = path(&unescaped(key)).and_then(|path| branches.set(&path, node));
            set.map_err(|message| ConvertError::syntax(&text.place(number), message))?;
        }
    }
    documents.push(branches.into_node());
    Ok(documents)
}

/// Returns `true` if the line ends with an odd number of backslashes.
fn is_continued(line: &str) -> bool {
    line.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}

/// Splits a line at the first `=`, `:` or space that is not escaped.
fn split(line: &str) -> (&str, &str) {
    let mut is_escaped = false;
    let end = line.find(|letter: char| {
        let is_end = !is_escaped && (matches!(letter, '=' | ':') || letter.is_whitespace());
        is_escaped = letter == '\\' && !is_escaped;
        is_end
    });
    let (key, rest) = line.split_at(end.unwrap_or(line.len()));
    let rest = rest.trim_start();
    (key, rest.strip_prefix(['=', ':']).unwrap_or(rest).trim_start())
}

fn unescaped(text: &str) -> String {
    let mut found = String::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match (letter, letter == '\\') {
            (_, false) => found.push(letter),
            (_, true) => match letters.next() {
                Some('t') => found.push('\t'),
                Some('n' | 'r' | 'f') => found.push('\n'),
                Some('u') => {
                    let code: String = letters.by_ref().take(4).collect();
                    found.extend(u32::from_str_radix(&code, 16).ok().and_then(char::from_u32));
                }
                other => found.extend(other),
            },
        }
    }
    found
}

/// Returns the path of a key such as `routes[0].predicates[1]` or `cors[/**].origins`.
fn path(key: &str) -> Result<Vec<Step>, String> {
    let (mut path, mut rest) = (Vec::new(), key);
    while !rest.is_empty() {
        if let Some((inner, after)) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            path.push(match inner.parse() {
                Ok(position) if position > MAX_ITEM => return Err(format!("positions are at most {MAX_ITEM}")),
                Ok(position) => Step::Item(position),
                Err(_) => Step::Key(inner.to_owned()),
            });
            rest = after.strip_prefix('.').unwrap_or(after);
        } else {
            let first = rest.chars().next().map_or(0, char::len_utf8);
            let end = rest[first..].find(['.', '[']).map_or(rest.len(), |end| first + end);
            path.push(Step::Key(rest[..end].trim_start_matches('.').to_owned()));
            rest = rest[end..].strip_prefix('.').unwrap_or(&rest[end..]);
        }
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<Node> {
        read(&Text { name: "a.properties".into(), text: text.into() }).unwrap()
    }

    #[test]
    fn keys_are_paths_and_lines_continue() {
        let documents = of("# c\na.b[1].c = x\\\n  y\na.b[0]: \\u0041=\\:\nm[/**].o z\n!---\nq=\\\\\n");
        let items = documents[0].at(&["a", "b"]).unwrap().items();
        assert_eq!(items[0].text(), Some("A=:"));
        assert_eq!((items[1].get("c").unwrap().text(), items[1].get("c").unwrap().line), (Some("xy"), 2));
        assert_eq!(documents[0].at(&["m", "/**", "o"]).and_then(Node::text), Some("z"));
        assert_eq!(documents[1].get("q").and_then(Node::text), Some("\\"));
    }

    #[test]
    fn depth_and_positions_are_bounded() {
        for text in [format!("{}=1", "a.".repeat(1_000)), "a[99999999]=1".to_owned(), "é.=1\n[=\n.é=\n]a=".repeat(2)]
        {
            let file = Text { name: "a.properties".into(), text: text.as_str().into() };
            assert_eq!(read(&file).is_err(), !text.contains('é'), "{text}");
        }
    }
}
