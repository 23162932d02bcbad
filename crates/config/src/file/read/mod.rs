//! Reads the values of a rule file into the structs of [`file`](super), with their locations.
//!
//! Each value is checked against the [`Kind`] of its key. Invalid values are reported and left out, so that later steps
//! neither fail on them nor report them again. serde is not used, because it ends at the first error.

mod map;
mod scalars;

use std::collections::BTreeMap;

pub(crate) use self::map::{FromMap, MapReader, is_fixed_word};
pub(crate) use self::scalars::is_name;
use super::keys::Kind;
use super::located::{Located, OneOrList, ValueOrMap};
use crate::problem::{Checked, Problems, Reported, quote};
use crate::values::access_log::AccessLogFormat;
use crate::values::dashboard::DashboardMode;
use crate::values::team::UpstreamUse;
use crate::values::units::{Bytes, Interval, Millis};
use crate::yaml::key_value::{KeyValue, describe};
use crate::yaml::node::{Entry, MERGE_KEY, Node, Value};
use tidegate_limit::{AlgorithmName, Mode};
use tidegate_rules::charge::OnLost;
use tidegate_rules::client::Duplicates;
use tidegate_rules::limits::budget::OnDisconnect;
use tidegate_rules::limits::policy::RateLimitFields;
use tidegate_rules::limits::rule::{OnMissingClient, OnStoreFailure};
use tidegate_rules::request::facts::Scheme;
use tidegate_rules::request::identity::{IdentityKind, OnServiceFailure};
use tidegate_rules::route::{Case, Coding, RejectionPreset};
use tidegate_rules::rules::{EncodedSlash, Slashes, Underscores};
use tidegate_rules::settings::tls::TlsVersion;
use tidegate_rules::settings::upstream::{BalanceMethod, EjectMode, Protocol, RetryMode};
use tidegate_service::Window;

/// A type of values in the rule file.
pub(crate) trait FromYaml: Sized {
    /// Reads a value of this kind, and reports all errors in it.
    fn from_yaml(value: KeyValue<'_>, kind: &'static Kind, problems: &mut Problems) -> Checked<Self>;
}

/// Reads an item of the list with this key.
pub(crate) fn read_item<T: FromYaml>(
    node: &Node,
    key: &str,
    kind: &'static Kind,
    problems: &mut Problems,
) -> Located<T> {
    let value = KeyValue { node, key }.read(kind, problems).ok();
    Located::new(node.location, Some(node.location), value)
}

fn read_entry<T: FromYaml>(entry: &Entry, kind: &'static Kind, problems: &mut Problems) -> Located<T> {
    let value = KeyValue { node: &entry.value, key: &entry.key }.read(kind, problems).ok();
    Located::new(entry.value.location, Some(entry.location), value)
}

// === impl KeyValue ===

impl<'n> KeyValue<'n> {
    /// Reads the value.
    pub(crate) fn read<T: FromYaml>(self, kind: &'static Kind, problems: &mut Problems) -> Checked<T> {
        let kind = if let Kind::OrNone(kind) = kind { kind } else { kind };
        self.check_presence(kind, problems)?;
        T::from_yaml(self, kind, problems)
    }

    /// Reports a key without a value, and records a secret.
    fn check_presence(self, kind: &Kind, problems: &mut Problems) -> Checked<()> {
        if self.node.is_invalid() {
            return Err(problems.reported(self.node.location));
        }
        if self.node.is_null() {
            return Err(self.report("has no value", "give it one, or leave the key out", problems));
        }
        if let (Some(texts), Kind::Text | Kind::Form(_) | Kind::Address | Kind::Scalar | Kind::Secret) =
            (self.node.secrets(), kind)
        {
            problems.add_secrets(texts);
        }
        Ok(())
    }

    /// Reports a kind that the type of the key does not read, which is a bug.
    fn mismatch(self, problems: &mut Problems) -> Reported {
        problems.reported(self.node.location)
    }

    /// Returns the kind of the items of a list.
    fn item_kind(self, list: &'static Kind, problems: &mut Problems) -> Checked<&'static Kind> {
        match (list, &self.node.value) {
            (Kind::Many(_) | Kind::OneOrMany(_), Value::List(items)) if items.is_empty() => {
                Err(self.report("must not be an empty list", "give it at least one entry", problems))
            }
            (Kind::List(kind) | Kind::Many(kind), Value::List(_)) | (Kind::OneOrMany(kind), _) => Ok(kind),
            (Kind::List(_) | Kind::Many(_), Value::Scalar(_) | Value::Map(_)) => {
                let help = "write `[one, another]`, or a line with `- ` for each";
                Err(self.report(&format!("must be a list, not {}", describe(self.node)), help, problems))
            }
            _ => Err(self.mismatch(problems)),
        }
    }

    /// Returns the entries of a map from names to values.
    fn entries(self, names: &str, problems: &mut Problems) -> Checked<impl Iterator<Item = &'n Entry> + use<'n>> {
        match &self.node.value {
            Value::Map(entries) => Ok(entries.iter().filter(|entry| entry.key != MERGE_KEY)),
            Value::Scalar(_) | Value::List(_) => {
                let message = format!("must be a map, not {}", describe(self.node));
                Err(self.report(&message, format!("write `{{ NAME: VALUE }}`, with {names}"), problems))
            }
        }
    }
}

// === impl FromYaml ===

impl FromYaml for String {
    fn from_yaml(value: KeyValue<'_>, kind: &'static Kind, problems: &mut Problems) -> Checked<Self> {
        let text = match kind {
            Kind::Text | Kind::Form(_) => value.text(problems),
            Kind::Address | Kind::Statuses => value.text_or_number(problems),
            Kind::Scalar => return value.scalar(problems),
            Kind::Secret => value.secret(problems),
            Kind::Name => value.name(problems),
            Kind::Prefix => value.prefix(problems),
            Kind::Label => value.label(problems),
            _ => Err(value.mismatch(problems)),
        };
        text.map(str::to_owned)
    }
}

/// Implements [`FromYaml`] for types with one kind, which a method of [`KeyValue`] reads.
macro_rules! read_scalars {
    ($($type:ty: $kind:pat => $method:ident($($bound:ident),*),)+) => {
        $(impl FromYaml for $type {
            fn from_yaml(value: KeyValue<'_>, kind: &'static Kind, problems: &mut Problems) -> Checked<Self> {
                match kind {
                    $kind => value.$method($(*$bound,)* problems),
                    _ => Err(value.mismatch(problems)),
                }
            }
        })+
    };
}

read_scalars! {
    bool: Kind::Flag => flag(),
    u64: Kind::Integer(min, max) => whole(min, max),
    f64: Kind::Decimal(max) => decimal(max),
    Millis: Kind::Duration(min, max) => duration(min, max),
    Bytes: Kind::Size(min, max) => size(min, max),
    Interval: Kind::Interval(min, max) => interval(min, max),
}

/// Implements [`FromYaml`] for types of fixed words.
macro_rules! read_words {
    ($($type:ty),+ $(,)?) => {
        $(impl FromYaml for $type {
            fn from_yaml(value: KeyValue<'_>, _: &'static Kind, problems: &mut Problems) -> Checked<Self> {
                let word = value.word(Self::WORDS, problems)?;
                Self::from_name(word).ok_or_else(|| value.mismatch(problems))
            }
        })+
    };
}

read_words! {
    AccessLogFormat, AlgorithmName, BalanceMethod, Case, Coding, DashboardMode, Duplicates, EjectMode, EncodedSlash, IdentityKind, Mode,
    OnDisconnect, OnLost, OnMissingClient, OnServiceFailure, OnStoreFailure, Protocol, RateLimitFields, RejectionPreset, RetryMode, Scheme, Slashes, TlsVersion, Underscores, UpstreamUse, Window,
}

impl<T: FromYaml> FromYaml for Vec<Located<T>> {
    fn from_yaml(value: KeyValue<'_>, kind: &'static Kind, problems: &mut Problems) -> Checked<Self> {
        let kind = value.item_kind(kind, problems)?;
        Ok(value.node.items().iter().map(|node| read_item(node, value.key, kind, problems)).collect())
    }
}

/// All entries, also those with invalid names: references to them must not be reported as unknown.
impl<T: FromYaml> FromYaml for BTreeMap<String, Located<T>> {
    fn from_yaml(value: KeyValue<'_>, kind: &'static Kind, problems: &mut Problems) -> Checked<Self> {
        let Kind::Named(kind) = kind else { return Err(value.mismatch(problems)) };
        let mut entries = Self::new();
        for entry in value.entries("names", problems)? {
            if !is_name(&entry.key) {
                let message = format!("{} is not a name", quote(&entry.key));
                problems.add(entry.location, message, scalars::NAME_HELP);
            }
            entries.insert(entry.key.clone(), read_entry(entry, kind, problems));
        }
        Ok(entries)
    }
}

/// Pairs of a name and a value, in the order of the file.
impl<T: FromYaml> FromYaml for Vec<(String, Located<T>)> {
    fn from_yaml(value: KeyValue<'_>, kind: &'static Kind, problems: &mut Problems) -> Checked<Self> {
        let (names, single, list) = match kind {
            Kind::Fields => ("names of header fields", &Kind::Text, &Kind::Text),
            Kind::Entries(kind) => ("names", *kind, *kind),
            Kind::Conditions(single, list) => ("names", *single, *list),
            _ => return Err(value.mismatch(problems)),
        };
        let entries = value.entries(names, problems)?;
        let pair = |entry: &Entry| {
            let kind = if let Value::List(_) = entry.value.value { list } else { single };
            (entry.key.clone(), read_entry(entry, kind, problems))
        };
        Ok(entries.map(pair).collect())
    }
}

impl<V: FromYaml, M: FromYaml> FromYaml for ValueOrMap<V, M> {
    fn from_yaml(value: KeyValue<'_>, kind: &'static Kind, problems: &mut Problems) -> Checked<Self> {
        match (kind, &value.node.value) {
            (Kind::OrMap(..), Value::Map(_)) => M::from_yaml(value, kind, problems).map(Self::Map),
            (Kind::OrMap(kind, _), Value::Scalar(_) | Value::List(_)) => value.read(kind, problems).map(Self::Value),
            _ => V::from_yaml(value, kind, problems).map(Self::Value), // a shape that has only this form
        }
    }
}

impl<T: FromYaml> FromYaml for OneOrList<T> {
    fn from_yaml(value: KeyValue<'_>, kind: &'static Kind, problems: &mut Problems) -> Checked<Self> {
        match kind {
            Kind::Many(_) => FromYaml::from_yaml(value, kind, problems).map(Self::List),
            _ => T::from_yaml(value, kind, problems).map(Self::One),
        }
    }
}
