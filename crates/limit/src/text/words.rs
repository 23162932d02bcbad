//! Settings that are one of several fixed words in the rule file: each enum defines its words and their meanings.

/// A fixed word in the rule file.
#[derive(Debug)]
pub struct Word {
    /// The word in the rule file.
    pub name: &'static str,
    /// The meaning of the word, as docs/rules.md describes it.
    pub description: &'static str,
}

/// Defines an enum with one word for each variant. The doc comments of the variants become the text of docs/rules.md.
#[doc(hidden)]
#[macro_export]
macro_rules! define_words {
    (
        $(#[$attribute:meta])+
        pub enum $name:ident $(, default $default:ident)? {
            $($(#[doc = $description:literal])+ $variant:ident = $word:literal,)+
        }
    ) => {
        $(#[$attribute])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Deserialize, serde::Serialize)]
        #[allow(unreachable_pub, reason = "not every enum is part of the public API")]
        pub enum $name {
            $($(#[doc = $description])+ #[serde(rename = $word)] $variant,)+
        }

        #[allow(dead_code, unreachable_pub, reason = "not every enum needs all of this, or is part of the public API")]
        impl $name {
            /// All values, in the order of their words in docs/rules.md.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// All words, in the order of docs/rules.md.
            #[doc(hidden)]
            pub const WORDS: &'static [$crate::text::words::Word] = &[
                $($crate::text::words::Word { name: $word, description: concat!($($description),+) },)+
            ];

            /// Returns the word in the rule file.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }

            /// Returns the value of a word. Returns `None` for other texts.
            #[doc(hidden)]
            pub fn from_name(name: &str) -> Option<Self> {
                match name {
                    $($word => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }

        $(impl Default for $name {
            fn default() -> Self {
                Self::$default
            }
        })?
    };
}

pub use define_words as words;
