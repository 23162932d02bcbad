//! The entries of API keys. A file has many of them, so an entry is small: its texts share one allocation, and entries
//! share the names of attributes.

use std::sync::Arc;

/// Separates the texts of an entry.
const SEPARATOR: char = '\0';

/// The entry of an API key in the file of keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiKey {
    /// The id, then the values of the attributes.
    texts: Box<str>,
    tier: Option<Arc<str>>,
    /// The names of the attributes.
    names: AttributeNames,
}

/// The names of the attributes of a key.
pub type AttributeNames = Arc<[Arc<str>]>;

impl ApiKey {
    /// Creates the entry of an owner with this tier, and with a value for each of these attributes. Returns `None` if a
    /// text contains NUL.
    pub fn new<'t>(
        id: &'t str,
        tier: Option<Arc<str>>,
        names: AttributeNames,
        values: impl IntoIterator<Item = &'t str>,
    ) -> Option<Self> {
        let mut texts = String::new();
        for (index, text) in std::iter::once(id).chain(values).enumerate() {
            if text.contains(SEPARATOR) {
                return None;
            }
            if index > 0 {
                texts.push(SEPARATOR);
            }
            texts.push_str(text);
        }
        Some(Self { texts: texts.into(), tier, names })
    }

    /// Returns the public name of the key's owner. Never the key itself.
    pub fn id(&self) -> &str {
        let end = self.texts.bytes().position(|byte| char::from(byte) == SEPARATOR);
        &self.texts[..end.unwrap_or(self.texts.len())]
    }

    /// Returns the tier of the owner, by which limits choose a rate. `None` if the key has no tier.
    pub fn tier(&self) -> Option<&str> {
        self.tier.as_deref()
    }

    /// Returns the value of an attribute, which may be empty. `None` if keys have no attribute with this name.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes().find_map(|(key, value)| (key == name).then_some(value))
    }

    /// Returns the names and values of all attributes.
    pub fn attributes(&self) -> impl Iterator<Item = (&str, &str)> {
        self.names.iter().map(|name| &**name).zip(self.texts.split(SEPARATOR).skip(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_an_entry_are_found_by_name() {
        let names: AttributeNames = ["rate".into(), "plan".into(), "team".into()].into();
        let key = ApiKey::new("one", Some("pro".into()), Arc::clone(&names), ["5", "", "a b"]).expect("an entry");
        assert_eq!((key.id(), key.tier()), ("one", Some("pro")));
        assert_eq!(key.attributes().collect::<Vec<_>>(), [("rate", "5"), ("plan", ""), ("team", "a b")]);
        assert_eq!((key.attribute("plan"), key.attribute("id")), (Some(""), None));
        assert_eq!(ApiKey::new("one", None, Arc::default(), []).expect("an entry").id(), "one");
        assert_eq!(ApiKey::new("o\0ne", None, Arc::default(), []), None);
        assert_eq!(ApiKey::new("one", None, names, ["5", "\0", ""]), None);
    }
}
