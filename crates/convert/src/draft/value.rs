//! Values of the rule file, without a form.

/// A value of the rule file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// A text. The writer quotes it, and escapes `$`.
    Text(String),
    Number(u64),
    Flag(bool),
    List(Vec<Value>),
    Map(Map),
    /// An entry that is only written as a comment.
    Disabled(Box<Value>),
}

/// A map of the rule file. Keys keep their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Map {
    pub(crate) entries: Vec<(String, Value)>,
    /// A comment at the end of its first line, such as `nginx.conf:12`.
    pub(crate) comment: Option<String>,
}

// === impl Map ===

impl Map {
    /// Creates a map with these entries.
    pub(crate) fn of<const N: usize>(entries: [(&str, Value); N]) -> Self {
        Self { entries: entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(), comment: None }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Sets a key, in its place if the map has it, otherwise at the end.
    pub(crate) fn set(&mut self, key: &str, value: impl Into<Value>) {
        match self.get_mut(key) {
            Some(old) => *old = value.into(),
            None => self.entries.push((key.to_owned(), value.into())),
        }
    }

    /// Sets a key if there is a value.
    pub(crate) fn set_some(&mut self, key: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.set(key, value);
        }
    }

    /// Sets a key to a list, or to its only item. Does nothing if the list is empty.
    pub(crate) fn set_list<V: Into<Value>>(&mut self, key: &str, items: impl IntoIterator<Item = V>) {
        let mut items: Vec<Value> = items.into_iter().map(Into::into).collect();
        match items.len() {
            0 => {}
            1 => self.set(key, items.remove(0)),
            _ => self.set(key, Value::List(items)),
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.entries.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    pub(crate) fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        self.entries.iter_mut().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// Appends all entries of another map.
    pub(crate) fn extend(&mut self, more: Self) {
        for (key, value) in more.entries {
            self.set(&key, value);
        }
    }
}

// === impl Value ===

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl From<Vec<Value>> for Value {
    fn from(items: Vec<Value>) -> Self {
        Self::List(items)
    }
}

impl From<Map> for Value {
    fn from(map: Map) -> Self {
        Self::Map(map)
    }
}
