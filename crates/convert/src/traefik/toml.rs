//! Reads TOML as a tree. Dates are texts.

use crate::error::ConvertError;
use crate::sources::Text;
use crate::tree::branch::{Branches, Step, scalar};
use crate::tree::{Node, Tree};

/// The deepest nesting of lists and inline tables.
const MAX_DEPTH: usize = 64;

/// The most values of lists and inline tables.
const MAX_VALUES: usize = 500_000;

/// Reads a text from its start.
struct Reader<'t> {
    rest: &'t str,
    line: u32,
    values: usize,
}

/// Reads a file.
///
/// # Errors
/// Fails if the text is not TOML, or a bound is exceeded.
pub(super) fn read(text: &Text) -> Result<Node, ConvertError> {
    let mut reader = Reader { rest: &text.text, line: 1, values: 0 };
    let tree = reader.document();
    tree.map_err(|message| ConvertError::syntax(&text.place(reader.line), format!("not TOML: {message}")))
}

impl<'t> Reader<'t> {
    fn document(&mut self) -> Result<Node, String> {
        let (mut branches, mut table) = (Branches::default(), Vec::new());
        loop {
            self.skip_lines();
            if self.rest.is_empty() {
                return Ok(branches.into_node());
            }
            let line = self.line;
            if self.eat("[[") {
                table = resolved(&mut branches, &self.keys()?, line)?;
                self.expect("]]")?;
                let next = branches.at(&table, line)?.next_item();
                table.push(Step::Item(next));
                branches.at(&table, line)?;
            } else if self.eat("[") {
                table = resolved(&mut branches, &self.keys()?, line)?;
                self.expect("]")?;
                branches.at(&table, line)?;
            } else {
                let keys = self.keys()?;
                self.expect("=")?;
                let value = self.value(0)?;
                let path: Vec<_> = table.iter().cloned().chain(keys.into_iter().map(Step::Key)).collect();
                branches.set(&path, value)?;
            }
            self.end_of_line()?;
        }
    }

    /// Reads a key with dots.
    fn keys(&mut self) -> Result<Vec<String>, String> {
        let mut keys = Vec::new();
        loop {
            self.skip_spaces();
            keys.push(match self.rest.chars().next() {
                Some(quote @ ('"' | '\'')) => self.text(quote)?,
                _ => {
                    let is_bare = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '-' | '@' | '/');
                    let end = self.rest.find(|letter| !is_bare(letter)).unwrap_or(self.rest.len());
                    if end == 0 {
                        return Err("a key is missing".to_owned());
                    }
                    self.take(end).to_owned()
                }
            });
            self.skip_spaces();
            if !self.eat(".") {
                return Ok(keys);
            }
        }
    }

    fn value(&mut self, depth: usize) -> Result<Node, String> {
        self.values += 1;
        if depth > MAX_DEPTH || self.values > MAX_VALUES {
            return Err(format!("nested more than {MAX_DEPTH} levels deep, or more than {MAX_VALUES} values"));
        }
        self.skip_spaces();
        let line = self.line;
        match self.rest.chars().next() {
            Some(quote @ ('"' | '\'')) => Ok(scalar(line, self.text(quote)?, true)),
            Some('[') => self.list(line, depth),
            Some('{') => self.inline(line, depth),
            _ => {
                let end = self.rest.find([',', ']', '}', '#', '\n']).unwrap_or(self.rest.len());
                let text = self.take(end).trim();
                if text.is_empty() {
                    return Err("a value is missing".to_owned());
                }
                let is_number = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
                Ok(scalar(line, if is_number { text.replace('_', "") } else { text.to_owned() }, false))
            }
        }
    }

    fn list(&mut self, line: u32, depth: usize) -> Result<Node, String> {
        self.take(1);
        let mut items = Vec::new();
        loop {
            self.skip_lines();
            if self.eat("]") {
                return Ok(Node { line, value: Tree::List(items) });
            }
            items.push(self.value(depth + 1)?);
            self.skip_lines();
            if !self.eat(",") && !self.rest.starts_with(']') {
                return Err("a list has no end".to_owned());
            }
        }
    }

    fn inline(&mut self, line: u32, depth: usize) -> Result<Node, String> {
        self.take(1);
        let mut branches = Branches::default();
        loop {
            self.skip_lines();
            if self.eat("}") {
                let node = branches.into_node();
                return Ok(Node { line, ..node });
            }
            let keys = self.keys()?;
            self.expect("=")?;
            let value = self.value(depth + 1 + keys.len())?;
            let path: Vec<_> = keys.into_iter().map(Step::Key).collect();
            branches.set(&path, value)?;
            self.skip_lines();
            if !self.eat(",") && !self.rest.starts_with('}') {
                return Err("a table has no end".to_owned());
            }
        }
    }

    /// Reads a text in quotes, also over several lines.
    fn text(&mut self, quote: char) -> Result<String, String> {
        let mark = quote.to_string();
        let long = mark.repeat(3);
        let end = if self.eat(&long) { long.as_str() } else { mark.as_str() };
        if end.len() == 1 {
            self.eat(end);
        } else {
            self.eat("\n");
        }
        let mut found = String::new();
        loop {
            let Some(letter) = self.rest.chars().next().filter(|letter| *letter != '\n' || end.len() > 1) else {
                return Err("a text has no end".to_owned());
            };
            if self.eat(end) {
                return Ok(found);
            }
            self.take(letter.len_utf8());
            match letter {
                '\\' if quote == '"' => self.escape(&mut found)?,
                letter => found.push(letter),
            }
        }
    }

    fn escape(&mut self, found: &mut String) -> Result<(), String> {
        let Some(letter) = self.rest.chars().next() else { return Err("a text has no end".to_owned()) };
        self.take(letter.len_utf8());
        match letter {
            'n' => found.push('\n'),
            't' => found.push('\t'),
            'r' => found.push('\r'),
            '\n' => self.skip_lines(),
            'u' | 'U' => {
                let length = if letter == 'u' { 4 } else { 8 };
                let code = self.rest.get(..length).and_then(|code| u32::from_str_radix(code, 16).ok());
                found.push(code.and_then(char::from_u32).ok_or("an escape has no character")?);
                self.take(length);
            }
            other => found.push(other),
        }
        Ok(())
    }

    /// Removes and returns the first bytes.
    fn take(&mut self, length: usize) -> &'t str {
        let (taken, rest) = self.rest.split_at(length);
        let lines = memchr::memchr_iter(b'\n', taken.as_bytes()).count();
        self.line = self.line.saturating_add(u32::try_from(lines).unwrap_or(u32::MAX));
        self.rest = rest;
        taken
    }

    fn eat(&mut self, text: &str) -> bool {
        let has = self.rest.starts_with(text);
        if has {
            self.take(text.len());
        }
        has
    }

    fn expect(&mut self, text: &str) -> Result<(), String> {
        self.skip_spaces();
        if self.eat(text) { Ok(()) } else { Err(format!("`{text}` is missing")) }
    }

    fn skip_spaces(&mut self) {
        let end = self.rest.find(|letter| !matches!(letter, ' ' | '\t' | '\r')).unwrap_or(self.rest.len());
        self.take(end);
    }

    /// Skips white space, line breaks and comments.
    fn skip_lines(&mut self) {
        loop {
            let end = self.rest.find(|letter: char| !letter.is_whitespace()).unwrap_or(self.rest.len());
            self.take(end);
            if !self.rest.starts_with('#') {
                return;
            }
            let end = self.rest.find('\n').unwrap_or(self.rest.len());
            self.take(end);
        }
    }

    fn end_of_line(&mut self) -> Result<(), String> {
        self.skip_spaces();
        match self.rest.is_empty() || self.rest.starts_with(['\n', '#']) {
            true => Ok(()),
            false => Err("a line has more than one value".to_owned()),
        }
    }
}

/// Returns the path of a table. The name of a list means its last item.
fn resolved(branches: &mut Branches, keys: &[String], line: u32) -> Result<Vec<Step>, String> {
    let mut path = Vec::new();
    for (number, key) in (1..).zip(keys) {
        path.push(Step::Key(key.clone()));
        let branch = branches.at(&path, line)?;
        if branch.has_items() && number < keys.len() {
            path.push(Step::Item(branch.next_item() - 1));
        }
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Node, ConvertError> {
        read(&Text { name: "a.toml".into(), text: text.into() })
    }

    #[test]
    fn tables_and_values_become_a_tree() {
        let text = "a = 1_000 # c\nb.c = 'x\\y'\n[t.\"u v\"]\nlist = [\n  \"a\\n\", # c\n  true,\n]\nin = { p = 1, q.r = \"s\" }\n\
                    [[t.items]]\nname = \"one\"\n[[t.items]]\nname = \"two\"\n[t.items.inner]\nx = \"\"\"\nlong\"\"\"\n";
        let root = of(text).unwrap();
        assert_eq!(root.get("a").and_then(Node::number), Some(1_000));
        assert_eq!(root.at(&["b", "c"]).and_then(Node::text), Some("x\\y"));
        let table = root.at(&["t", "u v"]).unwrap();
        assert_eq!(
            table.get("list").unwrap().items().iter().map(Node::text).collect::<Vec<_>>(),
            [Some("a\n"), Some("true")]
        );
        assert_eq!(table.at(&["in", "q", "r"]).and_then(Node::text), Some("s"));
        let items = root.at(&["t", "items"]).unwrap().items();
        assert_eq!(items.len(), 2);
        assert_eq!(items[1].at(&["inner", "x"]).map(|node| (node.text(), node.line)), Some((Some("long"), 14)));
    }

    #[test]
    fn malformed_and_deep_texts_are_errors_with_lines() {
        for (text, line) in [("a", 1), ("\na = ", 2), ("a = \"x", 1), ("[a", 1), ("a = 1 2 = 3\nb", 2), ("a = [1", 1)] {
            let error = of(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("a.toml:{line}: not TOML: ")), "{text}: {error}");
        }
        for text in [format!("a = {}", "[".repeat(100_000)), format!("a = {}", "{a=".repeat(100_000)), "a.".repeat(100)]
        {
            assert!(of(&text).is_err());
        }
    }

    proptest::proptest! {
        #[test]
        fn any_words_are_a_tree_or_an_error(words in proptest::collection::vec(
            proptest::sample::select(vec!["[", "]", "[[", "]]", "a", ".", "=", "\"", "'", "\n", "{", "}", ",", "#", "\\u00e9", "é", "1"]),
            0..40,
        )) {
            let _ = of(&words.concat());
        }
    }
}
