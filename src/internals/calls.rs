//! Calls of the rate limit service, for the fuzzer.

use crate::service::{read_json_call, read_message_call};
use tidegate_service::{Call, CallError, Descriptor};

/// A call that was read, and has valid bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadCall {
    /// The name of the domain.
    pub domain: String,
    /// The descriptors.
    pub descriptors: Vec<ReadDescriptor>,
    /// The cost of the request. 0 stands for 1.
    pub hits_addend: u32,
}

/// A descriptor of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadDescriptor {
    /// The keys and values.
    pub entries: Vec<(String, String)>,
    /// The requests in each unit, and the word of the unit, if the caller sets a limit.
    pub limit: Option<(u32, &'static str)>,
    /// The cost for this descriptor.
    pub hits_addend: Option<u64>,
}

impl ReadCall {
    /// Reads a call from a gRPC message.
    ///
    /// # Errors
    /// The message of the error for the caller.
    pub fn from_message(message: &[u8]) -> Result<Self, String> {
        read_message_call(message, Self::new)
    }

    /// Reads a call from JSON.
    ///
    /// # Errors
    /// The message of the error for the caller.
    pub fn from_json(body: &[u8]) -> Result<Self, String> {
        read_json_call(body, Self::new)
    }

    fn new(call: &Call<'_>) -> Result<Self, CallError> {
        call.validate()?;
        let descriptors = call.descriptors.iter().map(ReadDescriptor::new).collect();
        Ok(Self { domain: call.domain.to_owned(), descriptors, hits_addend: call.hits_addend })
    }
}

impl ReadDescriptor {
    fn new(descriptor: &Descriptor<'_>) -> Self {
        let entries = descriptor.entries.iter().map(|entry| (entry.key.to_owned(), entry.value.to_owned()));
        Self {
            entries: entries.collect(),
            limit: descriptor.limit.map(|limit| (limit.requests_per_unit, limit.unit.name())),
            hits_addend: descriptor.hits_addend,
        }
    }
}
