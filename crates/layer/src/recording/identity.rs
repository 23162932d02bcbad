//! The verified credentials of a recorded request. Hashes replace their values.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::key::Key;
use tidegate_limit::Mode;
use tidegate_rules::client::ClientSource;
use tidegate_rules::limits::rule::Limit;
use tidegate_rules::request::identity::{
    ApiKey, AttributeNames, Claims, Identity, IdentityKind, IdentityKinds, IdentityTest, IdentityValue, is_list,
};
use tidegate_rules::route::Matcher;
use tidegate_rules::rules::{Rules, When};

/// The most digits of a rate.
const MAX_DIGITS: usize = 20;

/// The verified credentials of a request: the values that rules read, and the id and the tier of the API key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct RecordedIdentity {
    /// The kinds of credentials that the gateway has verified.
    verified: Vec<String>,
    /// The claims of the token.
    #[serde(skip_serializing_if = "Option::is_none")]
    jwt: Option<BTreeMap<String, Value>>,
    /// The id, the tier and the attributes of the API key.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<BTreeMap<String, String>>,
    /// The user.
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
}

/// A value of verified credentials.
#[derive(Clone, Debug)]
pub(super) struct IdentityInput {
    pub(super) value: IdentityValue,
    /// The value as text.
    pub(super) name: String,
    /// Whether the rules read it. The id and the tier of an API key, and the user, are recorded anyway.
    pub(super) is_read: bool,
    /// The constants of conditions and the tiers, which stay readable.
    pub(super) readable: Vec<Box<str>>,
    /// Constants that come from files. Their requests are dropped.
    hidden: Vec<Box<str>>,
    /// Whether it is the rate of a limit, which stays readable.
    pub(super) is_rate: bool,
}

/// The values of verified credentials that rules read, each once.
#[derive(Clone, Debug, Default)]
pub(super) struct IdentityInputs(Vec<IdentityInput>);

// === impl RecordedIdentity ===

impl RecordedIdentity {
    /// Returns the identity for a replay.
    pub fn into_identity(self) -> Identity {
        let Self { verified, jwt, key, user } = self;
        let kinds = verified.iter().filter_map(|word| IdentityKind::ALL.iter().find(|kind| kind.name() == word));
        let mut claims = Claims::default();
        for (name, value) in jwt.iter().flatten() {
            _ = claims.insert(name, value.clone());
        }
        Identity {
            key: key.and_then(|values| api_key(&values)).map(Arc::new),
            token: jwt.is_some().then(|| Arc::new(claims)),
            user: user.map(Into::into),
            verified: kinds.copied().collect::<IdentityKinds>(),
            ..Identity::default()
        }
    }
}

fn api_key(values: &BTreeMap<String, String>) -> Option<ApiKey> {
    let attributes = || values.iter().filter(|(name, _)| !matches!(name.as_str(), "id" | "tier"));
    let names: AttributeNames = attributes().map(|(name, _)| Arc::from(name.as_str())).collect();
    let (id, tier) = (values.get("id").map_or("", String::as_str), values.get("tier").map(|tier| tier.as_str().into()));
    ApiKey::new(id, tier, names, attributes().map(|(_, value)| value.as_str()))
}

// === impl IdentityInputs ===

impl IdentityInputs {
    /// Returns the values that these rules read. `is_secret` returns `true` for constants from files.
    pub(super) fn new(rules: &Rules, is_secret: &dyn Fn(&str) -> bool) -> Self {
        let mut inputs = Self::default();
        let owned = [
            (rules.credentials.key.is_some(), IdentityValue::KeyId),
            (rules.credentials.key.is_some(), IdentityValue::KeyTier),
            (rules.credentials.realm.is_some(), IdentityValue::User),
        ];
        for (_, value) in owned.into_iter().filter(|(is_configured, _)| *is_configured) {
            inputs.input(&value);
        }
        for route in rules.routes.iter() {
            inputs.add_conditions(&route.matcher, is_secret);
            for limit in &route.limits {
                inputs.add_limit(limit, rules.when(limit), is_secret);
            }
        }
        for input in &mut inputs.0 {
            input.readable.sort_unstable();
            input.readable.dedup();
        }
        inputs
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &IdentityInput> {
        self.0.iter()
    }

    /// Adds the source of a client. Values from header fields and from the program are ignored.
    pub(super) fn add_client(&mut self, value: &IdentityValue) {
        if !value.kinds().is_empty() {
            self.read(value);
        }
    }

    /// Returns the values to record. Returns `None` if a hash would replace a value with which the rules compare.
    pub(super) fn mask(&self, identity: &Identity, key: &Key) -> Option<RecordedIdentity> {
        let Identity { verified, token, key: api_key, user, .. } = identity;
        let kinds = [
            (IdentityKind::Token, verified.token),
            (IdentityKind::Key, verified.key),
            (IdentityKind::User, verified.user),
        ];
        let verified = kinds.iter().filter(|(_, is_verified)| *is_verified).map(|(kind, _)| kind.name().to_owned());
        let mut recorded = RecordedIdentity {
            verified: verified.collect(),
            jwt: token.as_ref().map(|_| BTreeMap::new()),
            key: api_key.as_ref().map(|_| BTreeMap::new()),
            user: None,
        };
        for input in &self.0 {
            if let (IdentityValue::Claim(claim), Some(token), Some(jwt)) = (&input.value, token, &mut recorded.jwt) {
                if let Some(value) = token.find(claim) {
                    jwt.insert(claim.to_string(), input.mask_value(value, is_list(claim), key)?);
                }
                continue;
            }
            let Some(text) = input.value.read(Some(identity), None, None) else { continue };
            let masked = input.mask_text(&text, key)?;
            match (&input.value, &mut recorded.key) {
                (IdentityValue::User, _) => recorded.user = user.is_some().then_some(masked),
                (value, Some(values)) if value.reads_key() => {
                    values.insert(value.source_and_name().1.to_owned(), masked);
                }
                _ => {}
            }
        }
        Some(recorded)
    }

    fn add_conditions(&mut self, matcher: &Matcher, is_secret: &dyn Fn(&str) -> bool) {
        for condition in &matcher.identity {
            let constants = match &condition.test {
                IdentityTest::OneOf(constants) | IdentityTest::NoneOf(constants) => constants.as_slice(),
                IdentityTest::Present | IdentityTest::Absent => &[],
            };
            self.read(&condition.value).add_constants(constants.iter().map(|constant| &**constant), is_secret);
        }
    }

    fn add_limit(&mut self, limit: &Limit, when: Option<&When>, is_secret: &dyn Fn(&str) -> bool) {
        let sources = if limit.mode() == Mode::PerClient { limit.client.sources() } else { Vec::new() };
        for source in sources {
            if let ClientSource::Identity(value) = source {
                self.add_client(value);
            }
        }
        if let Some(rates) = limit.rates.as_ref().filter(|rates| !rates.by.kinds().is_empty()) {
            let input = self.read(&rates.by);
            input.is_rate |= rates.max().is_some();
            input.add_constants(rates.tiers().map(|(name, _)| name), is_secret);
        }
        if limit.reads_key_tier {
            let tiers = when.map(|when| when.tiers.as_slice()).unwrap_or_default();
            self.read(&IdentityValue::KeyTier).add_constants(tiers.iter().map(|tier| &**tier), is_secret);
        }
    }

    fn read(&mut self, value: &IdentityValue) -> &mut IdentityInput {
        let input = self.input(value);
        input.is_read = true;
        input
    }

    fn input(&mut self, value: &IdentityValue) -> &mut IdentityInput {
        let position = self.0.iter().position(|input| input.value == *value).unwrap_or_else(|| {
            let (value, name) = (value.clone(), value.to_string());
            let (readable, hidden) = (Vec::new(), Vec::new());
            self.0.push(IdentityInput { value, name, is_read: false, readable, hidden, is_rate: false });
            self.0.len() - 1
        });
        &mut self.0[position]
    }
}

// === impl IdentityInput ===

impl IdentityInput {
    /// Returns all values with which the rules compare.
    pub(super) fn constants(&self) -> impl Iterator<Item = &str> {
        self.readable.iter().chain(&self.hidden).map(|constant| &**constant)
    }

    fn add_constants<'c>(&mut self, constants: impl Iterator<Item = &'c str>, is_secret: &dyn Fn(&str) -> bool) {
        for constant in constants {
            let list = if is_secret(constant) { &mut self.hidden } else { &mut self.readable };
            list.push(constant.into());
        }
    }

    /// Returns the value for a claim. Rules read no contents of nested values, so that these are left out.
    fn mask_value(&self, value: &Value, is_list: bool, key: &Key) -> Option<Value> {
        Some(match value {
            Value::Null => Value::Null,
            Value::String(list) if is_list => {
                let words: Option<Vec<_>> = list.split(' ').map(|word| self.mask_text(word, key)).collect();
                words?.join(" ").into()
            }
            Value::String(text) => self.mask_text(text, key)?.into(),
            Value::Number(number) => self.mask_text(&number.to_string(), key)?.into(),
            Value::Bool(flag) => self.mask_text(if *flag { "true" } else { "false" }, key)?.into(),
            Value::Array(items) => {
                let items = items.iter().map(|item| match item {
                    Value::Array(_) => Some(Value::Array(Vec::new())),
                    item => self.mask_value(item, false, key),
                });
                Value::Array(items.collect::<Option<_>>()?)
            }
            Value::Object(_) => Value::Object(Map::new()),
        })
    }

    /// Returns the text for a value. Constants of the rules and rates stay.
    fn mask_text(&self, text: &str, key: &Key) -> Option<String> {
        let is_rate = || self.is_rate && text.len() <= MAX_DIGITS && text.bytes().all(|byte| byte.is_ascii_digit());
        let is = |constants: &[Box<str>]| constants.iter().any(|constant| **constant == *text);
        if is(&self.hidden) {
            return None;
        }
        let stays = text.is_empty() || is(&self.readable) || is_rate();
        Some(if stays { text.to_owned() } else { key.text(&self.name, text.as_bytes()) })
    }
}
