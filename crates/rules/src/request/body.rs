//! The values of a request's body that rules read. The body is read once for all of them.

use std::sync::Arc;

use serde_json::Value;

use tidegate_usage::{Api, MemberPointers, MemberValue, Members, MembersError, Pointer, Request, RequestError};

/// The place of the id of a call of JSON-RPC.
pub(crate) const CALL_ID: &str = "/id";

/// The values that the limits of a route read from bodies.
#[derive(Clone, Debug)]
pub struct BodyReads {
    /// The API of the upstream, if a cost depends on the request to a language model.
    pub api: Option<Api>,
    /// The places of clients, conditions and costs.
    pub members: Option<Arc<MemberPointers>>,
}

/// A body that was read.
#[derive(Clone, Debug, Default)]
pub struct ReadBody {
    /// The request to a language model.
    pub model: Option<Request>,
    members: Option<Arc<Members>>,
    /// The call whose values are used; 0 unless the body is a batch.
    call: usize,
}

/// Why a body cannot be evaluated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// It is no request to a language model.
    #[error(transparent)]
    Model(#[from] RequestError),
    /// A value that a limit reads has no single meaning.
    #[error(transparent)]
    Members(#[from] MembersError),
}

impl BodyReads {
    /// Creates the values of requests to this API and of these places. Returns `None` without any, and if the places are too many.
    pub(crate) fn new(api: Option<Api>, pointers: &[&Pointer]) -> Option<Self> {
        let members = match pointers {
            [] => None,
            // Without the places, the limits reject each request.
            pointers => Some(Arc::new(MemberPointers::new(pointers.iter().copied()).ok()?)),
        };
        (api.is_some() || members.is_some()).then_some(Self { api, members })
    }

    /// Reads the body of a request with this path.
    ///
    /// # Errors
    /// It has no single meaning.
    pub fn read(&self, body: &[u8], path: &str) -> Result<ReadBody, BodyError> {
        let mut model = self.api.map(|api| Request::read(api, body)).transpose()?;
        if let (Some(api), Some(model)) = (self.api, &mut model) {
            model.read_path(api, path);
        }
        let members = self.members.as_ref().map(|members| Members::read(members, body)).transpose()?;
        Ok(ReadBody { model, members: members.map(Arc::new), call: 0 })
    }

    /// Returns a body without values, for requests whose body is unknown.
    pub fn unknown(&self) -> ReadBody {
        let members = self.members.as_ref().map(|members| Arc::new(Members::empty(members)));
        ReadBody { model: None, members, call: 0 }
    }
}

impl ReadBody {
    /// Returns a body that has these strings.
    pub fn with_texts(texts: &[(Pointer, String)]) -> Self {
        Self { members: Some(Arc::new(Members::with_texts(texts))), ..Self::default() }
    }

    /// Returns the number of calls: more than 1 only in a batch.
    pub fn calls(&self) -> usize {
        self.members.as_ref().map_or(1, |members| members.calls())
    }

    /// Returns `true` if the body is an array of calls.
    pub fn is_batch(&self) -> bool {
        self.members.as_ref().is_some_and(|members| members.is_batch())
    }

    /// Returns the ids of the calls of JSON-RPC, without calls that have no id. An id is null unless it is a string or a number.
    pub fn call_ids(&self) -> impl Iterator<Item = Value> {
        let pointer = Pointer::parse(CALL_ID).ok();
        (0..self.calls()).filter_map(move |call| {
            Some(match self.members.as_ref()?.value(call, pointer.as_ref()?)? {
                MemberValue::Text(text) => (&**text).into(),
                MemberValue::Number(number) => serde_json::from_str(number).unwrap_or_default(),
                _ => Value::Null,
            })
        })
    }

    /// Uses the values of the call with this number, from 0.
    pub(crate) fn select(&mut self, call: usize) {
        self.call = call;
    }

    /// Returns a value. Returns `None` if the body does not have it.
    pub fn value(&self, pointer: &Pointer) -> Option<&MemberValue> {
        self.members.as_ref()?.value(self.call, pointer)
    }
}
