//! The macro that defines a map of the rule file.

/// Defines a map of the rule file: the [`Shape`](super::keys::Shape) for its checks, and the struct with its values and
/// their locations. The doc comments become the text of `docs/rules.md`. `also` adds a field with keys of another shape.
macro_rules! shape {
    (
        $(#[doc = $description:literal])+
        $shape:ident: $name:ident = $title:literal {
            $(
                $(#[doc = $key_description:literal])+
                $field:ident: $type:ty = $kind:expr, $presence:ident $(($presence_text:expr))? $(, $($note:ident)+)?;
            )*
            $(also $other:ident: $other_type:ty = $other_shape:expr, $has:expr;)?
            $(unsupported $($unsupported:ident),+;)?
        }
    ) => {
        $(#[doc = $description])+
        ///
        /// Not `Debug`, since some of these structs contain secrets.
        pub(crate) struct $name {
            $($(#[doc = $key_description])+ pub $field: $crate::file::located::Located<$type>,)*
            $(pub $other: $other_type,)?
        }

        impl $crate::file::read::FromMap for $name {
            fn from_map(map: &$crate::file::read::MapReader<'_>, problems: &mut $crate::problem::Problems) -> Self {
                Self {
                    $($field: map.read($crate::file::keys::key_of(stringify!($field)), problems),)*
                    $($other: <$other_type as $crate::file::read::FromMap>::from_map(map, problems),)?
                }
            }
        }

        $(#[doc = $description])+
        pub(crate) static $shape: $crate::file::keys::Shape = $crate::file::keys::Shape {
            title: $title,
            description: concat!($($description),+),
            keys: &[
                $($crate::file::keys::Key {
                    name: $crate::file::keys::key_of(stringify!($field)),
                    kind: $kind,
                    presence: $crate::file::keys::Presence::$presence $(($presence_text))?,
                    description: concat!($($key_description),+),
                    notes: &[$($($crate::file::keys::Note::$note),+)?],
                },)*
                $($($crate::file::keys::Key {
                    name: stringify!($unsupported),
                    kind: $crate::file::keys::Kind::Unsupported,
                    presence: $crate::file::keys::Presence::Optional,
                    description: "",
                    notes: &[],
                },)+)?
            ],
            shared_keys: shape!(@shared $($other_shape, $has)?),
        };
    };
    (@shared) => { None };
    (@shared $shape:expr, $has:expr) => { Some(($shape, $has)) };
}

pub(crate) use shape;
