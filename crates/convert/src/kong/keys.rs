//! Consumers and their API keys: `identities` and `keys.yaml`.

use ring::digest::{SHA256, digest};

use super::model::{Consumer, Model, Plugin};
use super::plan::Auth;
use super::plugins::{Sender, applying};
use crate::draft::value::{Map, Value};
use crate::draft::{Draft, NewFile};
use crate::fields::setting;
use crate::header_fields;
use crate::report::{Report, Verdict};
use crate::tree::Node;

const NAME: &str = "key-auth";

/// The file with the keys.
const FILE: &str = "keys.yaml";

/// The name of the field with a key, if no plugin sets it.
const DEFAULT_FIELD: &str = "apikey";

/// Other plugins that identify consumers.
const OTHERS: [&str; 11] = [
    "basic-auth",
    "jwt",
    "oauth2",
    "oauth2-introspection",
    "hmac-auth",
    "ldap-auth",
    "ldap-auth-advanced",
    "openid-connect",
    "session",
    "mtls-auth",
    "key-auth-enc",
];

/// How consumers are identified.
#[derive(Clone, Debug, Default)]
pub(super) struct Keys {
    /// The header field with the key, or the query parameter. `None` if no plugin reads keys.
    field: Option<Field>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    name: String,
    is_query: bool,
}

/// Converts the consumers and the plugins `key-auth`.
pub(super) fn convert(model: &Model<'_>, draft: &mut Draft, report: &mut Report) -> Keys {
    let mut keys = Keys::default();
    for plugin in model.plugins.iter().filter(|plugin| plugin.name == NAME) {
        keys.read(plugin, report);
    }
    if let Some(field) = &keys.field {
        let kind = if field.is_query { "query" } else { "header" };
        let source = Map::of([(kind, field.name.as_str().into()), ("file", FILE.into())]);
        draft.identities.set("keys", source);
        let text = key_file(&model.consumers, report);
        draft.more_files.push(NewFile { name: FILE.to_owned(), text, is_secret: true });
    }
    for consumer in &model.consumers {
        report_rest(consumer, keys.field.is_some(), report);
    }
    keys
}

/// Returns the file with the digests of all keys.
fn key_file(consumers: &[Consumer<'_>], report: &mut Report) -> String {
    let mut text = "# The digests of the keys of Kong's consumers.\n".to_owned();
    let start = text.len();
    for consumer in consumers {
        for (number, key) in (1..).zip(&consumer.keys) {
            let place = key.place();
            let Some(value) = key.node.get("key").and_then(Node::text).filter(|key| is_written(key)) else {
                report.lost(
                    &place,
                    "keyauth_credentials.key",
                    "the file does not contain the key: add it to keys.yaml",
                );
                continue;
            };
            let hex: String =
                digest(&SHA256, value.as_bytes()).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
            let quoted = |text: &str| serde_json::Value::from(text).to_string();
            let group = consumer.groups.first().map(|group| format!(", group: {}", quoted(group)));
            let credential = quoted(&format!("{}-{number}", consumer.name));
            let (id, group) = (quoted(consumer.name), group.unwrap_or_default());
            text += &format!("sha256:{hex}: {{ id: {id}, attributes: {{ credential: {credential}{group} }} }}\n");
            report.same(&place, "keyauth_credentials", "`keys.yaml`, as a digest");
        }
    }
    if text.len() == start {
        text += "{}\n";
    }
    text
}

/// Returns `true` for a key, and `false` for a reference to a vault or a variable.
fn is_written(key: &str) -> bool {
    !key.is_empty() && !key.starts_with("{vault:") && !key.contains("${")
}

/// Reports credentials that are not converted.
fn report_rest(consumer: &Consumer<'_>, has_keys: bool, report: &mut Report) {
    const CREDENTIALS: [&str; 6] = [
        "basicauth_credentials",
        "jwt_secrets",
        "oauth2_credentials",
        "hmacauth_credentials",
        "acls",
        "mtls_auth_credentials",
    ];
    for entry in consumer.entity.node.entries() {
        let place = consumer.entity.place_of(entry);
        if CREDENTIALS.contains(&entry.key.as_str()) {
            report.lost(&place, &entry.key, "only API keys (`key-auth`) are converted");
        } else if entry.key == "keyauth_credentials" && !has_keys {
            report.lost(&place, &entry.key, "no plugin `key-auth` reads the keys");
        }
    }
}

// === impl Keys ===

impl Keys {
    /// Reads a plugin. The first one decides about the field.
    fn read(&mut self, plugin: &Plugin<'_>, report: &mut Report) {
        let mut fields = plugin.settings();
        let names = fields.take("key_names");
        let texts: Vec<_> =
            names.map_or(&[][..], |entry| entry.value.one_or_more()).iter().filter_map(Node::text).collect();
        let flag = |entry: Option<&crate::tree::Entry>| entry.and_then(|entry| entry.value.flag());
        let in_header = flag(fields.take("key_in_header")).unwrap_or(true);
        let in_query = flag(fields.take("key_in_query")).unwrap_or(true);
        let name = texts.first().copied().filter(|name| header_fields::is_name(name)).unwrap_or(DEFAULT_FIELD);
        let field = Field { name: name.to_owned(), is_query: !in_header };
        let is_other = self.field.as_ref().is_some_and(|first| *first != field);
        let (verdict, reason) = match () {
            () if is_other => {
                (Verdict::Lost, "the rule file reads keys from one field, which an earlier plugin has set")
            }
            () if texts.len() > 1 => (Verdict::Stricter, "only the first name of `key_names` is read"),
            () if in_header && in_query => {
                (Verdict::Stricter, "keys are read from the header field only, not from the query")
            }
            () => (Verdict::Same, "`identities.keys` and `require`"),
        };
        report.add(&plugin.entity.place(), verdict, format!("{NAME} ({name})"), reason);
        self.field.get_or_insert(field);
        for (key, reason) in [("hide_credentials", "`request_headers.remove`"), ("anonymous", "no `require`")] {
            if let Some(entry) = fields.take(key) {
                report.same(&plugin.entity.place_of(entry), plugin.setting(&setting(entry)), reason);
            }
        }
        if let Some(entry) = fields.take("key_in_body").filter(|entry| entry.value.flag() == Some(true)) {
            report.lost(&plugin.entity.place_of(entry), plugin.setting(&setting(entry)), "keys in bodies are not read");
        }
        fields.skip(&["run_on_preflight", "realm"]);
        for entry in fields.rest() {
            let place = plugin.entity.place_of(entry);
            report.lost(&place, plugin.setting(&setting(entry)), "the rule file has no such key");
        }
    }

    /// Returns how a route identifies consumers.
    pub(super) fn auth(&self, model: &Model<'_>, route: usize) -> Auth {
        if let Some(plugin) = self.plugin(model, route) {
            let setting = model.plugins[plugin].config.and_then(|config| config.get("anonymous"));
            let is_optional = setting.and_then(Node::text).is_some_and(|consumer| !consumer.is_empty());
            return Auth::Keys { is_optional };
        }
        let sender = Sender::default();
        let has_other = OTHERS.into_iter().any(|name| applying(model, name, route, &sender).is_some());
        if has_other { Auth::Other } else { Auth::None }
    }

    /// Adds the keys that `key-auth` needs to a route.
    pub(super) fn require(&self, model: &Model<'_>, route: usize, auth: Auth, more: &mut Map) {
        if (auth == Auth::Keys { is_optional: false }) {
            more.set("require", "keys");
        }
        let config = self.plugin(model, route).and_then(|plugin| model.plugins[plugin].config);
        let hides = config.and_then(|config| config.get("hide_credentials")?.flag()) == Some(true);
        if let Some(field) = self.field.as_ref().filter(|field| hides && !field.is_query) {
            let remove = Value::List(vec![field.name.as_str().into()]);
            more.set("request_headers", Map::of([("remove", remove)]));
        }
    }

    fn plugin(&self, model: &Model<'_>, route: usize) -> Option<usize> {
        self.field.as_ref()?;
        applying(model, NAME, route, &Sender::default())
    }
}
