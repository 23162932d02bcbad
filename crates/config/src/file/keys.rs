//! The types that describe the keys of the rule file: name, type, default and purpose.
//!
//! The descriptions are in [`file`](crate::file). [`read`](super::read) checks rule files against them, and
//! [`reference`](mod@crate::reference) generates `docs/rules.md` from them.

use crate::yaml::node::Node;
use tidegate_limit::text::words::Word;

/// The word that leaves a value of `defaults` out.
pub(crate) const NONE: &str = "none";

/// The type of a value.
#[derive(Debug)]
pub(crate) enum Kind {
    /// Text. Its content is checked later.
    Text,
    /// Text that this regular expression matches, for the JSON Schema. Its content is checked later, with a better message.
    Form(&'static str),
    /// Text, a whole number or a boolean, as claims of tokens are.
    Scalar,
    /// Text or a number. A port without a host is a number, and the error should not be about quotes.
    Address,
    /// A status code, or a range of them such as `200-399`. A single code is a number.
    Statuses,
    /// Text that no message contains.
    Secret,
    /// A name, which is used in keys and labels.
    Name,
    /// A name that may have colons.
    Prefix,
    /// A name of other programs, in any characters.
    Label,
    /// One of these words.
    Word(&'static [Word]),
    /// `true` or `false`.
    Flag,
    /// A whole number in this range.
    Integer(u64, u64),
    /// A number from 0 to this one.
    Decimal(u32),
    /// A duration in this range of milliseconds.
    Duration(u64, u64),
    /// A size in this range of bytes.
    Size(u64, u64),
    /// A duration in this range of milliseconds, or a unit of the calendar.
    Interval(u64, u64),
    /// A map with these keys.
    Map(&'static Shape),
    /// A map with these keys, or text as the short form of a map with only this key.
    Short(&'static str, &'static Shape),
    /// A list, possibly empty.
    List(&'static Kind),
    /// A list with at least one item.
    Many(&'static Kind),
    /// A list with at least one item, or a single item.
    OneOrMany(&'static Kind),
    /// A map from names to values of this kind.
    Named(&'static Kind),
    /// A map from names of header fields to values.
    Fields,
    /// A map from any texts to values of this kind.
    Entries(&'static Kind),
    /// A map from names to conditions on values: a word such as `present`, a value of the first kind, or a list of the
    /// second kind.
    Conditions(&'static Kind, &'static Kind),
    /// A value of this kind, or a map with these keys.
    OrMap(&'static Kind, &'static Shape),
    /// A value of this kind, or `none`, which leaves out the value of `defaults`.
    OrNone(&'static Kind),
    /// No value: the key is not supported.
    Unsupported,
}

/// A key of a map.
#[derive(Debug)]
pub(crate) struct Key {
    pub name: &'static str,
    pub kind: Kind,
    pub presence: Presence,
    pub description: &'static str,
    /// How a key of a route depends on the other keys. Empty for the keys of other maps.
    pub notes: &'static [Note],
}

/// How a key of a route depends on the other keys. Each key has at least one note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Note {
    /// It applies to every route.
    Always,
    /// A layer has no method for it.
    OnlyGateway,
    /// It has no effect without `upstream`.
    NeedsUpstream,
    /// It has no effect with `authorize`.
    NotWithAuthorize,
}

impl Kind {
    /// Returns the words that a value may be.
    pub(crate) fn words(&self) -> &'static [Word] {
        match self {
            Self::Word(words) => words,
            Self::List(kind)
            | Self::Many(kind)
            | Self::OneOrMany(kind)
            | Self::Entries(kind)
            | Self::OrMap(kind, _)
            | Self::OrNone(kind) => kind.words(),
            _ => &[],
        }
    }

    /// Returns the shape of the maps in a value, or `None` if the value contains no maps with fixed keys.
    fn shape(&self) -> Option<&'static Shape> {
        match self {
            Self::Map(shape) | Self::Short(_, shape) | Self::OrMap(_, shape) => Some(shape),
            Self::List(kind) | Self::Many(kind) | Self::OneOrMany(kind) | Self::Named(kind) | Self::OrNone(kind) => {
                kind.shape()
            }
            Self::Conditions(kind, _) => kind.shape(),
            _ => None,
        }
    }
}

/// Whether a key may be omitted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Presence {
    /// The key is required. The text is an example.
    Required(&'static str),
    /// The key is optional, with this default value in the syntax of the rule file.
    Default(&'static str),
    /// The key is optional. Its description explains what happens without it.
    Optional,
}

/// Returns `true` for the keys that another shape has as well.
type KeyFilter = fn(&Key) -> bool;

/// The keys of a map.
#[derive(Debug)]
pub(crate) struct Shape {
    /// The name of such a map in messages, such as "a limit".
    pub title: &'static str,
    pub description: &'static str,
    /// The keys, without `shared_keys`.
    pub keys: &'static [Key],
    /// Another shape, and which of its keys this shape also has.
    pub shared_keys: Option<(&'static Shape, KeyFilter)>,
}

impl Shape {
    /// Returns all keys: the own keys, then the shared keys.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &'static Key> {
        let shared = self.shared_keys.into_iter();
        self.keys.iter().chain(shared.flat_map(|(shape, has)| shape.keys.iter().filter(move |key| has(key))))
    }

    /// Returns `true` if a key of this shape has values of the other shape.
    pub(crate) fn contains(&self, other: &Shape) -> bool {
        self.keys().any(|key| key.kind.shape().is_some_and(|shape| shape.title == other.title))
    }

    pub(crate) fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys().find(|key| key.name == name)
    }

    /// Returns the required keys, each with an example.
    pub(crate) fn required_keys(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.keys().filter_map(|key| match key.presence {
            Presence::Required(example) => Some((key.name, example)),
            Presence::Default(_) | Presence::Optional => None,
        })
    }
}

/// Returns the name of the key for a struct field: the field of `match` is `r#match`.
pub(crate) const fn key_of(field: &'static str) -> &'static str {
    match field.as_bytes() {
        [b'r', b'#', ..] => field.split_at(2).1,
        _ => field,
    }
}

/// Returns `true` for the word that leaves a value of `defaults` out.
pub(crate) fn is_none(node: &Node) -> bool {
    node.scalar().is_some_and(|scalar| scalar.text == NONE)
}
