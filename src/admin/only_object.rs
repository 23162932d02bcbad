//! A JSON object in the body of a request.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A JSON object. serde would also read a struct from an array.
#[derive(Debug, Default)]
pub(super) struct OnlyObject<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OnlyObject<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Members<T> {
            type Value = OnlyObject<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<OnlyObject<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(OnlyObject)
            }
        }

        deserializer.deserialize_map(Members(PhantomData))
    }
}
