//! The values of a JSON body that rules read. A body that parsers could read in two ways is an error.
//!
//! A body that is an array is a batch of calls, as in JSON-RPC: each element has its own values.

mod batch;
mod pointer;
mod reading;
mod value;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde::de::IgnoredAny;

pub use self::batch::MAX_CALLS;
pub use self::pointer::Pointer;
use self::reading::Values;
pub use self::value::MemberValue;
use crate::json::{Field, PointerError, Pointers};

/// The places of all values that the rules of a route read.
#[derive(Clone, Debug)]
pub struct MemberPointers {
    /// The pointers, and the pointers to the objects and arrays around them: a repeated object hides values.
    fields: Vec<Box<str>>,
    scanned: Arc<Pointers>,
}

/// The values of a body.
#[derive(Clone, Debug)]
pub struct Members {
    pointers: Arc<MemberPointers>,
    calls: Vec<Values>,
    is_batch: bool,
}

/// A body without a single meaning.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MembersError {
    /// The body is not JSON in UTF-8, or nested more than 128 times.
    #[error("the body is not JSON")]
    NotJson,
    /// A member that a rule reads is repeated, or an object around it: the upstream may use any of the values.
    #[error("the body has `{0}` twice")]
    Repeated(Box<str>),
    /// A key differs from one that a rule reads only in upper and lower case. Some upstreams ignore the case.
    #[error("a key of the body differs from one that a limit reads only in upper and lower case")]
    Lookalike,
    /// A number that some parsers round or reject.
    #[error("`{0}` of the body is a number that parsers read in different ways")]
    Number(Box<str>),
    /// A string with half of a character of UTF-16.
    #[error("`{0}` of the body is not Unicode")]
    Text(Box<str>),
    /// The body is an array with more than [`MAX_CALLS`] elements.
    #[error("the body has more than {MAX_CALLS} calls")]
    TooManyCalls,
}

impl MemberPointers {
    /// Creates the places of these values.
    ///
    /// # Errors
    /// The pointers have too many segments together.
    pub fn new<'p>(all: impl IntoIterator<Item = &'p Pointer>) -> Result<Self, PointerError> {
        let (mut fields, mut scanned) = (Vec::<Box<str>>::new(), Pointers::default());
        for place in all.into_iter().flat_map(Pointer::prefixes) {
            if fields.iter().any(|field| **field == *place) {
                continue;
            }
            let field = u8::try_from(fields.len()).map_err(|_| PointerError::TooMany)?;
            scanned = scanned.value(place, Field(field))?;
            fields.push(place.into());
        }
        Ok(Self { fields, scanned: Arc::new(scanned) })
    }
}

impl Members {
    /// Reads the values of a body. An empty body has no values.
    ///
    /// # Errors
    /// See [`MembersError`].
    pub fn read(pointers: &Arc<MemberPointers>, body: &[u8]) -> Result<Self, MembersError> {
        let text = body.trim_ascii();
        if text.is_empty() {
            return Ok(Self::empty(pointers));
        }
        // The scanner accepts numbers and strings that a parser does not.
        let valid = str::from_utf8(text).map_err(|_| MembersError::NotJson)?;
        serde_json::from_str::<IgnoredAny>(valid).map_err(|_| MembersError::NotJson)?;
        let elements = batch::elements(text)?;
        if elements.is_empty() {
            return Ok(Self { calls: vec![reading::read(pointers, text)?], ..Self::empty(pointers) });
        }
        let calls = elements.into_iter().map(|element| reading::read(pointers, element)).collect::<Result<_, _>>()?;
        Ok(Self { calls, is_batch: true, ..Self::empty(pointers) })
    }

    /// Returns the values of a body without values.
    pub fn empty(pointers: &Arc<MemberPointers>) -> Self {
        Self { pointers: Arc::clone(pointers), calls: vec![Values::new()], is_batch: false }
    }

    /// Returns the values of a body that has these strings.
    pub fn with_texts(texts: &[(Pointer, String)]) -> Self {
        let pointers = MemberPointers::new(texts.iter().map(|(pointer, _)| pointer));
        let pointers = pointers.unwrap_or_else(|_| MemberPointers { fields: Vec::new(), scanned: Arc::default() });
        let text = |field: &str| {
            let (_, text) = texts.iter().find(|(pointer, _)| pointer.as_str() == field)?;
            Some(MemberValue::Text(text.as_str().into()))
        };
        let calls = vec![pointers.fields.iter().map(|field| text(field)).collect()];
        Self { pointers: Arc::new(pointers), calls, is_batch: false }
    }

    /// Returns the number of calls, at least 1.
    pub fn calls(&self) -> usize {
        self.calls.len()
    }

    /// Returns `true` if the body is an array of calls.
    pub fn is_batch(&self) -> bool {
        self.is_batch
    }

    /// Returns a value of the call with this number, from 0. Returns `None` if the call does not have it.
    pub fn value(&self, call: usize, pointer: &Pointer) -> Option<&MemberValue> {
        let field = self.pointers.fields.iter().position(|field| **field == *pointer.as_str())?;
        self.calls.get(call)?.get(field)?.as_ref()
    }
}
