//! `cors` of a route, from the settings of Kong, Traefik and Spring Cloud Gateway.

use crate::draft::value::{Map, Value};
use crate::{header_fields, matching};

/// The longest time for which a browser keeps an answer, in seconds.
const MAX_AGE: u64 = 86_400;

/// The settings of a source. `*` in `methods` and `headers` means all of them, which is the default of the rule file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cors<'t> {
    pub(crate) origins: Vec<&'t str>,
    pub(crate) methods: Vec<&'t str>,
    pub(crate) headers: Vec<&'t str>,
    pub(crate) expose: Vec<&'t str>,
    pub(crate) credentials: bool,
    /// In seconds.
    pub(crate) max_age: Option<u64>,
}

impl Cors<'_> {
    /// Returns the key of a route. Returns `None` if it cannot have a value: origins are literal, and all origins have no
    /// credentials.
    pub(crate) fn map(self) -> Option<Map> {
        let is_any = self.origins == ["*"];
        let are_valid = is_any || self.origins.iter().all(|origin| is_origin(origin));
        if self.origins.is_empty() || !are_valid || is_any && self.credentials {
            return None;
        }
        let mut map = Map::of([("origins", list(self.origins.into_iter().map(str::to_owned).collect()))]);
        let name = |name: &str| header_fields::is_name(name).then(|| name.to_owned());
        for (key, texts, convert) in [
            ("methods", self.methods, &matching::method as &dyn Fn(&str) -> Option<String>),
            ("headers", self.headers, &name),
            ("expose", self.expose, &name),
        ] {
            let texts: Option<Vec<_>> = texts.into_iter().filter(|text| *text != "*").map(convert).collect();
            map.set_some(key, texts.map(|texts| (!texts.is_empty()).then(|| list(texts)))?);
        }
        map.set_some("credentials", self.credentials.then_some(true));
        let age = self.max_age.filter(|age| (1..=MAX_AGE).contains(age));
        map.set_some("max_age", age.map(|age| format!("{age}s")));
        Some(map)
    }
}

fn list(texts: Vec<String>) -> Value {
    Value::List(texts.into_iter().map(Value::Text).collect())
}

/// Returns `true` for an origin without a pattern.
fn is_origin(origin: &str) -> bool {
    let host = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://")).unwrap_or_default();
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.:".contains(&byte);
    !host.is_empty() && host.bytes().all(is_plain)
}
