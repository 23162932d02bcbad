//! Writes values of a rule file.

/// A map of the rule file in one line.
#[derive(Debug, Default)]
pub(super) struct FlowMap(Vec<String>);

/// Returns a text in quotes, in which dollar signs start no placeholders.
pub(super) fn quoted(text: &str) -> String {
    quoted_with_placeholders(&text.replace('$', "$$"))
}

/// Returns a text in quotes.
pub(super) fn quoted_with_placeholders(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Returns a list in one line.
pub(super) fn flow_list(items: impl IntoIterator<Item = String>) -> String {
    format!("[{}]", items.into_iter().collect::<Vec<_>>().join(", "))
}

impl FlowMap {
    /// Adds a key with a value in YAML.
    pub(super) fn add(&mut self, key: &str, value: impl std::fmt::Display) {
        self.0.push(format!("{key}: {value}"));
    }

    /// Adds a key with a text, if there is one.
    pub(super) fn add_text(&mut self, key: &str, text: Option<&str>) {
        text.into_iter().for_each(|text| self.add(key, quoted(text)));
    }

    /// Adds a key that is true.
    pub(super) fn add_flag(&mut self, key: &str, is_set: bool) {
        if is_set {
            self.add(key, true);
        }
    }

    /// Returns the map in one line.
    pub(super) fn flow(&self) -> String {
        if self.0.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", self.0.join(", ")) }
    }

    /// Returns a line for each key.
    pub(super) fn block(&self) -> String {
        self.0.iter().map(|line| format!("  {line}\n")).collect()
    }
}
