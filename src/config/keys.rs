//! How a key of the rule file is described, once: its name, what it takes, what holds without it, and what it does. The
//! descriptions stand in [`file`](super::file), each at the field that it fills; [`shape`](super::shape) holds files against
//! them, and [`reference`](mod@super::reference) writes them down for people.

/// What a value must be.
#[derive(Debug)]
pub(crate) enum Kind {
    /// Text; what it says is checked later.
    Text,
    /// Text, or a number, since a port alone is one and deserves a better answer than quotes.
    Address,
    /// Text that no message repeats.
    Secret,
    /// Text that is the name of something.
    Name,
    /// One of these words.
    Word(&'static Words),
    /// `true` or `false`.
    Flag,
    /// A whole number in this range.
    Whole(u64, u64),
    /// A duration in this range of milliseconds.
    Duration(u64, u64),
    /// A size in this range of bytes.
    Size(u64, u64),
    /// A duration in this range of milliseconds, or a unit of the calendar.
    Interval(u64, u64),
    /// A map with these keys.
    Map(&'static Shape),
    /// A map with these keys, or a text, which stands for the map that has only this key.
    Short(&'static str, &'static Shape),
    /// A list, maybe empty.
    List(&'static Kind),
    /// A list of at least one.
    Many(&'static Kind),
    /// A list of at least one, or that one alone.
    OneOrMany(&'static Kind),
    /// A map from names to these.
    Named(&'static Kind),
    /// A map from names of header fields to values.
    Fields,
    /// This, or a map with these keys.
    OrMap(&'static Kind, &'static Shape),
    /// Nothing yet: the key is not built.
    Unbuilt,
}

/// The words that a key takes.
#[derive(Debug)]
pub(crate) struct Words {
    pub(crate) built: &'static [&'static str],
    /// What each of them does.
    pub(crate) told: &'static [&'static str],
    pub(crate) unbuilt: &'static [&'static str],
}

/// A key of a map.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// If a map must have it.
    pub(crate) need: Need,
    /// What it does.
    pub(crate) about: &'static str,
}

impl Kind {
    /// Returns the shape of the maps that a value consists of, or `None` if it has none.
    fn shape(&self) -> Option<&'static Shape> {
        match self {
            Self::Map(shape) | Self::Short(_, shape) | Self::OrMap(_, shape) => Some(shape),
            Self::List(kind) | Self::Many(kind) | Self::OneOrMany(kind) | Self::Named(kind) => kind.shape(),
            _ => None,
        }
    }
}

/// Whether a key may be left out.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Need {
    /// It must be there; for example like this.
    Needed(&'static str),
    /// Without it this holds, written as its value.
    Default(&'static str),
    /// Without it, what the description says.
    Optional,
}

/// The keys of a map.
#[derive(Debug)]
pub(crate) struct Shape {
    /// What such a map describes, for messages.
    pub(crate) what: &'static str,
    /// What it is for.
    pub(crate) about: &'static str,
    /// All its keys.
    pub(crate) keys: &'static [Key],
    /// Another shape, and those of its keys that this one has too.
    pub(crate) like: Option<(&'static Shape, &'static [&'static str])>,
}

impl Shape {
    /// All keys, its own first.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &'static Key> {
        let (other, names): (&[Key], &[&str]) = self.like.map_or((&[], &[]), |(shape, names)| (shape.keys, names));
        self.keys.iter().chain(names.iter().filter_map(|name| other.iter().find(|key| key.name == *name)))
    }

    /// Returns `true` if the value of one of its keys has this shape.
    pub(crate) fn contains(&self, other: &Shape) -> bool {
        self.keys().any(|key| key.kind.shape().is_some_and(|shape| shape.what == other.what))
    }

    /// The key of this name.
    pub(crate) fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys().find(|key| key.name == name)
    }

    /// The keys that it must have, with an example of each.
    pub(crate) fn needs(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.keys().filter_map(|key| match key.need {
            Need::Needed(example) => Some((key.name, example)),
            Need::Default(_) | Need::Optional => None,
        })
    }
}

/// `r#match` is the field of the key `match`.
pub(crate) const fn key_of(field: &'static str) -> &'static str {
    match field.as_bytes() {
        [b'r', b'#', ..] => field.split_at(2).1,
        _ => field,
    }
}

/// Describes the keys of a map, one for each field: the shape that files are held against, and the struct that serde fills.
/// The comments are what people are told.
macro_rules! shape {
    (
        $(#[doc = $about:literal])+
        $shape:ident: $name:ident = $what:literal {
            $(
                $(#[doc = $told:literal])+
                $field:ident: $type:ty = $kind:expr, $need:ident $(($need_text:expr))?;
            )*
            $(unbuilt $($unbuilt:ident),+;)?
        }
    ) => {
        $(#[doc = $about])+
        ///
        /// Not `Debug`: some hold secrets.
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct $name {
            $($(#[doc = $told])+ pub(crate) $field: Option<$type>,)*
        }

        $(#[doc = $about])+
        pub(crate) static $shape: $crate::config::keys::Shape = $crate::config::keys::Shape {
            what: $what,
            about: concat!($($about),+),
            keys: &[
                $($crate::config::keys::Key {
                    name: $crate::config::keys::key_of(stringify!($field)),
                    kind: $kind,
                    need: $crate::config::keys::Need::$need $(($need_text))?,
                    about: concat!($($told),+),
                },)*
                $($($crate::config::keys::Key {
                    name: stringify!($unbuilt),
                    kind: $crate::config::keys::Kind::Unbuilt,
                    need: $crate::config::keys::Need::Optional,
                    about: "",
                },)+)?
            ],
            like: None,
        };
    };
}

/// The words that a key takes, each with what it does.
macro_rules! words {
    (
        $(#[doc = $about:literal])+
        $name:ident { $($(#[doc = $told:literal])+ $variant:ident = $word:literal,)+ $(unbuilt $($unbuilt:literal),+)? }
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
        pub(crate) enum $name {
            $($(#[doc = $told])+ #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            /// What a value must be.
            pub(crate) const KIND: $crate::config::keys::Kind =
                $crate::config::keys::Kind::Word(&$crate::config::keys::Words {
                    built: &[$($word),+],
                    told: &[$(concat!($($told),+)),+],
                    unbuilt: &[$($($unbuilt),+)?],
                });

            /// The word in the rule file.
            #[allow(dead_code, reason = "not every word is told in a message")]
            pub(crate) const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }
    };
}

pub(crate) use {shape, words};
