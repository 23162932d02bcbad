//! Reads files of API keys: a map from `KEY` or `sha256:HEX` to the entry of the key's owner.
//!
//! The file is parsed as a stream, so that 100,000 keys need little memory. Messages must not contain keys. So
//! a message quotes an unknown name in an entry only if it is a short lowercase word and its value is a text: most keys
//! are longer, and the value of a key is a map.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use saphyr_parser::{Event, Parser, ScalarStyle, StrInput};

use super::keys::{KeyTable, digest};
use tidegate_config::suggest::nearest;
use tidegate_config::{quote, quote_all};
use tidegate_limit::text::hex;
use tidegate_rules::request::identity::{ApiKey, AttributeNames};
use tidegate_rules::settings::files::{FileReadError, read_at_most};

/// The largest file, in bytes.
const MAX_BYTES: u64 = 64 << 20;

/// The longest key, id, tier or value of an attribute, in bytes.
const MAX_TEXT: usize = 1024;

/// The highest number of attributes of a key.
const MAX_ATTRIBUTES: usize = 32;

/// The help for a file with errors.
pub(crate) const HELP: &str = "write `KEY: { id: NAME, tier: NAME, attributes: { NAME: VALUE } }`";

/// The message for an unknown name that may be a key.
const UNKNOWN_NAME: &str = "unknown name: an entry has `id`, `tier` and `attributes`";

/// The highest number of errors that a message contains.
const MAX_SHOWN: usize = 10;

/// The names of an entry's fields.
const NAMES: [&str; 3] = ["id", "tier", "attributes"];

/// The longest unknown name that a message contains, in bytes. Most keys are longer.
const MAX_UNKNOWN: usize = 20;

/// A fault, with its line.
type Fault = (usize, Cow<'static, str>);

/// Why a file of keys or users cannot be used.
#[derive(Debug)]
pub(crate) enum KeyFileError {
    File(FileReadError),
    /// The faults, each with its line.
    Faults(Vec<Fault>),
}

/// Reads the events of a file.
struct KeyReader<'t> {
    parser: Parser<'t, StrInput<'t>>,
    line: usize,
    table: KeyTable,
    /// The texts that many keys have: tiers, and names of attributes.
    shared: HashSet<Arc<str>>,
    /// The lists of attribute names that many keys share.
    shared_names: HashSet<AttributeNames>,
    faults: Vec<Fault>,
}

/// The text cannot be parsed any further.
struct Broken;

/// A scalar, or a map whose start has been read. `None` is YAML's null.
enum Node {
    Text(Option<String>),
    Map,
}

/// Reads a file of keys.
///
/// # Errors
/// The file cannot be read, or has errors.
pub(crate) fn read(path: &Path) -> Result<KeyTable, KeyFileError> {
    parse_bytes(&read_bytes(path)?)
}

/// Reads the bytes of a file of keys.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn read_bytes(path: &Path) -> Result<Vec<u8>, KeyFileError> {
    read_at_most(path, MAX_BYTES).map_err(KeyFileError::File)
}

/// Parses the bytes of a file of keys.
///
/// # Errors
/// The file has errors.
pub(crate) fn parse_bytes(bytes: &[u8]) -> Result<KeyTable, KeyFileError> {
    let text = str::from_utf8(bytes).map_err(|_| KeyFileError::Faults(vec![(1, "the file is not UTF-8".into())]))?;
    let mut table = parse(text)?;
    table.hash = Some(blake3::hash(bytes));
    Ok(table)
}

/// Returns the error of a file that had entries before and has no bytes now: probably its writer failed. `help` says how
/// to remove all entries.
pub(crate) fn emptied(help: &str) -> KeyFileError {
    KeyFileError::Faults(vec![(1, format!("the file is empty; {help}").into())])
}

fn parse(text: &str) -> Result<KeyTable, KeyFileError> {
    let parser = Parser::new_from_str(text.strip_prefix('\u{feff}').unwrap_or(text));
    let mut reader = KeyReader {
        parser,
        line: 1,
        table: KeyTable::default(),
        shared: HashSet::new(),
        shared_names: HashSet::new(),
        faults: Vec::new(),
    };
    _ = reader.file(); // the fault is recorded
    if !reader.faults.is_empty() {
        return Err(KeyFileError::Faults(reader.faults));
    }
    reader.table.shrink();
    Ok(reader.table)
}

// === impl KeyReader ===

impl<'t> KeyReader<'t> {
    fn file(&mut self) -> Result<(), Broken> {
        loop {
            match self.next()? {
                Event::StreamStart | Event::DocumentStart(_) => {}
                Event::MappingStart(..) => break self.keys()?,
                Event::StreamEnd => return Ok(()), // a file without keys
                Event::Scalar(text, ScalarStyle::Plain, ..) if text.is_empty() || text == "~" => break,
                _ => return self.broken("the file must be a map of keys"),
            }
        }
        loop {
            match self.next()? {
                Event::StreamEnd => return Ok(()),
                Event::DocumentEnd => {}
                _ => return self.broken("the file has a second document"),
            }
        }
    }

    fn keys(&mut self) -> Result<(), Broken> {
        while let Some(key) = self.name()? {
            let line = self.line;
            let entry = match self.node()? {
                Node::Map => self.entry()?,
                Node::Text(_) => {
                    self.fault("a key needs a map, such as `{ id: NAME }`");
                    continue;
                }
            };
            let Some(digest) = digest_of(&key) else {
                let fault = "a key has 1 to 1024 visible ASCII characters, or is `sha256:` and 64 hex digits";
                self.faults.push((line, fault.into()));
                continue;
            };
            match entry.map(|entry| self.table.insert(digest, entry)) {
                Some(true) => {}
                Some(false) => self.faults.push((line, "the key occurs twice".into())),
                None => self.faults.push((line, "an entry needs `id`".into())),
            }
        }
        Ok(())
    }

    /// Reads the rest of an entry. Returns `None` if it has no id.
    fn entry(&mut self) -> Result<Option<ApiKey>, Broken> {
        let (mut id, mut tier, mut names, mut values) = (None, None, Vec::new(), Vec::new());
        let mut seen = Vec::new();
        while let Some(name) = self.name()? {
            if seen.contains(&name) {
                self.fault("the name occurs twice in the entry");
            }
            match (name.as_str(), self.node()?) {
                ("id", Node::Text(text)) => id = text,
                ("tier", Node::Text(Some(text))) => tier = Some(self.tier(&text)),
                ("tier", Node::Text(None)) => self.fault("`tier` has no value"),
                ("attributes", Node::Map) => self.attributes(&mut names, &mut values)?,
                ("id" | "tier", Node::Map) => return self.broken("`id` and `tier` are texts"),
                ("attributes", Node::Text(_)) => self.fault("`attributes` is a map"),
                (unknown, Node::Text(Some(_))) => self.unknown_name(unknown),
                (_, Node::Text(None)) => self.fault(UNKNOWN_NAME),
                // A key has a map too, so this can be a key with a wrong indentation.
                (_, Node::Map) => return self.broken(UNKNOWN_NAME),
            }
            seen.push(name);
        }
        let Some(id) = id.filter(|id| !id.is_empty()) else { return Ok(None) };
        let names = self.share_names(&names);
        Ok(ApiKey::new(&id, tier, names, values.iter().map(String::as_str)))
    }

    fn attributes(&mut self, names: &mut Vec<Arc<str>>, values: &mut Vec<String>) -> Result<(), Broken> {
        while let Some(name) = self.name()? {
            match self.node()? {
                Node::Map => return self.broken("an attribute is a text"),
                Node::Text(_) if names.len() == MAX_ATTRIBUTES => self.fault("a key has at most 32 attributes"),
                Node::Text(_) if names.iter().any(|existing| **existing == name) => {
                    self.fault("the attribute occurs twice");
                }
                Node::Text(Some(text)) => {
                    names.push(self.share(&name));
                    values.push(text);
                }
                Node::Text(None) => self.fault("the attribute has no value"),
            }
        }
        Ok(())
    }

    /// Returns the next name of the current map. Returns `None` at its end.
    fn name(&mut self) -> Result<Option<String>, Broken> {
        match self.next()? {
            Event::MappingEnd => Ok(None),
            Event::Scalar(text, _, 0, None) => Ok(Some(text.into_owned())),
            _ => self.broken("a name is a text, without anchors, aliases and tags"),
        }
    }

    fn node(&mut self) -> Result<Node, Broken> {
        match self.next()? {
            Event::MappingStart(0, None) => Ok(Node::Map),
            Event::Scalar(text, style, 0, None) => {
                if text.len() > MAX_TEXT {
                    self.fault("a text has at most 1024 bytes");
                }
                if text.contains('\0') {
                    self.fault("a text has no NUL character");
                }
                let is_null = style == ScalarStyle::Plain && matches!(&*text, "" | "~" | "null" | "Null" | "NULL");
                Ok(Node::Text((!is_null).then(|| text.into_owned())))
            }
            _ => self.broken("a value is a text or a map, without anchors, aliases and tags"),
        }
    }

    fn next(&mut self) -> Result<Event<'t>, Broken> {
        let event = self.parser.next_event();
        match event {
            Some(Ok((event, span))) => {
                self.line = span.start.line();
                Ok(event)
            }
            Some(Err(error)) => {
                self.faults.push((error.marker().line(), "the text is not YAML".into()));
                Err(Broken)
            }
            None => Err(Broken),
        }
    }

    /// Returns a tier, and records the line of its first use.
    fn tier(&mut self, text: &str) -> Arc<str> {
        let tier = self.share(text);
        if !self.table.tiers.contains_key(&tier) {
            self.table.tiers.insert(Arc::clone(&tier), self.line);
        }
        tier
    }

    fn share(&mut self, text: &str) -> Arc<str> {
        if let Some(existing) = self.shared.get(text) {
            return Arc::clone(existing);
        }
        let new: Arc<str> = text.into();
        self.shared.insert(Arc::clone(&new));
        new
    }

    fn share_names(&mut self, names: &[Arc<str>]) -> AttributeNames {
        if let Some(existing) = self.shared_names.get(names) {
            return Arc::clone(existing);
        }
        let new: AttributeNames = names.into();
        self.shared_names.insert(Arc::clone(&new));
        new
    }

    /// Reports an unknown name in an entry. Quotes short lowercase words only, since other names may be keys.
    fn unknown_name(&mut self, name: &str) {
        let is_word = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        if !is_word || name.len() > MAX_UNKNOWN || self.faults.len() >= MAX_SHOWN {
            return self.fault(UNKNOWN_NAME);
        }
        let (quoted, near) = (quote(name), nearest(name, NAMES));
        let fault = match near {
            Some(near) => format!("unknown name {quoted}: did you mean {}?", quote(near)),
            None => {
                format!("unknown name {quoted}: an entry has {}; put other values into `attributes`", quote_all(NAMES))
            }
        };
        self.faults.push((self.line, fault.into()));
    }

    fn fault(&mut self, fault: &'static str) {
        self.faults.push((self.line, fault.into()));
    }

    fn broken<T>(&mut self, fault: &'static str) -> Result<T, Broken> {
        self.fault(fault);
        Err(Broken)
    }
}

/// Returns the digest of a key, or the digest that the text contains. Returns `None` if the text is neither. A misspelt
/// digest is not read as a key: otherwise a client that knows the digest could send it as its key.
fn digest_of(text: &str) -> Option<[u8; 32]> {
    let start = text.split_once([':', '=']).map_or("", |(start, _)| start);
    if !start.eq_ignore_ascii_case("sha256") && !start.eq_ignore_ascii_case("sha-256") {
        let is_key = (1..=MAX_TEXT).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
        return is_key.then(|| digest(text.as_bytes()));
    }
    let hex = text.strip_prefix("sha256:")?;
    hex::decode(hex)?.try_into().ok()
}

// === impl KeyFileError ===

impl KeyFileError {
    /// Returns the `help:` text of the error. `form` describes a file without errors.
    pub(crate) fn help(&self, path: &Path, form: &str) -> String {
        let of_file = match self {
            Self::File(error) => error.help(path),
            Self::Faults(_) => None,
        };
        of_file.unwrap_or_else(|| form.to_owned())
    }
}

impl fmt::Display for KeyFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults = match self {
            Self::File(error) => return error.fmt(f),
            Self::Faults(faults) => faults,
        };
        for (number, (line, fault)) in faults.iter().take(MAX_SHOWN).enumerate() {
            write!(f, "{}line {line}: {fault}", if number == 0 { "has errors: " } else { "; " })?;
        }
        match faults.len().saturating_sub(MAX_SHOWN) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}
