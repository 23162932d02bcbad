//! `enable-cors`: pages of other origins.

use super::Conversion;
use super::manifest::Ingress;
use crate::draft::value::{Map, Value};
use crate::report::Verdict;

/// The annotations of a rule for other origins.
const NAMES: [&str; 6] = [
    "enable-cors",
    "cors-allow-origin",
    "cors-allow-methods",
    "cors-allow-headers",
    "cors-expose-headers",
    "cors-max-age",
];

impl Conversion<'_> {
    /// Sets `cors`. By default, the controller allows all origins with credentials, which browsers do not accept.
    pub(super) fn cors(&mut self, ingress: &Ingress<'_>, more: &mut Map) {
        let origins = list(ingress, "cors-allow-origin", "*");
        let [methods, headers, expose] =
            ["cors-allow-methods", "cors-allow-headers", "cors-expose-headers"].map(|name| list(ingress, name, ""));
        let are_tokens = [&methods, &headers, &expose].iter().all(|list| list.iter().all(|word| is_token(word)));
        if !origins.iter().all(|origin| is_origin(origin)) || !are_tokens {
            self.lost(ingress, "enable-cors", "an origin, a method or a field has no equivalent");
            return;
        }
        let has_any = origins.iter().any(|origin| origin == "*");
        let mut cors = Map::default();
        cors.set("origins", origins.into_iter().map(Value::from).collect::<Vec<_>>());
        for (key, items) in [("methods", methods), ("headers", headers), ("expose", expose)] {
            let items: Vec<Value> = items.into_iter().map(Value::from).collect();
            cors.set_some(key, (!items.is_empty()).then_some(items));
        }
        let has_credentials = ingress.text("cors-allow-credentials") != Some("false");
        cors.set_some("credentials", (has_credentials && !has_any).then_some(true));
        let age = ingress.number("cors-max-age").filter(|age| (1..=86_400).contains(age));
        cors.set_some("max_age", age.map(|age| format!("{age}s")));
        more.set("cors", cors);
        NAMES.into_iter().for_each(|name| self.same(ingress, name, "`cors`"));
        let verdict = if has_credentials && has_any { Verdict::Stricter } else { Verdict::Same };
        self.note(ingress, "cors-allow-credentials", verdict, "no credentials with the origin `*`");
    }
}

/// Returns the items of an annotation with commas.
fn list(ingress: &Ingress<'_>, name: &str, default: &str) -> Vec<String> {
    let items = ingress.text(name).unwrap_or(default).split(',').map(str::trim);
    items.filter(|item| !item.is_empty()).map(str::to_owned).collect()
}

fn is_origin(origin: &str) -> bool {
    let is_host = |rest: &str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-.:*".contains(&byte);
        !rest.is_empty() && rest.bytes().all(is_plain) && !rest[1..].contains('*') && !rest.starts_with("*:")
    };
    let rest = origin.strip_prefix("https://").or(origin.strip_prefix("http://"));
    origin == "*" || rest.is_some_and(is_host)
}

fn is_token(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}
