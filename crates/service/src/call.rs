//! The calls of a rate limit service, and their bounds: a caller is not trusted to keep them small.

use crate::unit::Unit;

/// One call: the question whether a request is over a limit.
#[derive(Clone, Debug, Default)]
pub struct Call<'c> {
    /// The name of the domain, which separates the limits of different applications.
    pub domain: &'c str,
    /// The descriptors. Each has a status in the response.
    pub descriptors: Vec<Descriptor<'c>>,
    /// The cost of the request. 0 stands for 1.
    pub hits_addend: u32,
}

/// One view of the request, for example its path, or its user and its path.
#[derive(Clone, Debug, Default)]
pub struct Descriptor<'c> {
    /// The entries, from the outer to the inner level of the rules.
    pub entries: Vec<Entry<'c>>,
    /// The limit that applies instead of the limit of the rules.
    pub limit: Option<Override>,
    /// The cost of the request for this descriptor, in place of the cost of the call. 0 only checks the limit.
    pub hits_addend: Option<u64>,
}

/// A key with a value, which the proxy takes from the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'c> {
    /// The key, from the configuration of the proxy.
    pub key: &'c str,
    /// The value. It may come from a client.
    pub value: &'c str,
}

/// A limit that the caller sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Override {
    /// The requests in each unit of time. 0 rejects all.
    pub requests_per_unit: u32,
    /// The unit of time.
    pub unit: Unit,
}

/// The error of a call that cannot be decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The name of the domain is empty. The message is that of envoyproxy/ratelimit.
    #[error("rate limit domain must not be empty")]
    NoDomain,
    /// There is nothing to decide. The message is that of envoyproxy/ratelimit.
    #[error("rate limit descriptor list must not be empty")]
    NoDescriptors,
    /// There are too many descriptors.
    #[error("a call has at most {} descriptors", Call::MAX_DESCRIPTORS)]
    TooManyDescriptors,
    /// A descriptor has too many entries.
    #[error("a descriptor has at most {} entries", Call::MAX_ENTRIES)]
    TooManyEntries,
    /// A text is too long.
    #[error("names of domains, keys and values have at most {} bytes", Call::MAX_TEXT)]
    TooLong,
}

impl Call<'_> {
    /// The maximum number of descriptors.
    pub const MAX_DESCRIPTORS: usize = 100;

    /// The maximum number of entries of a descriptor.
    pub const MAX_ENTRIES: usize = 32;

    /// The maximum length of a domain's name, a key or a value, in bytes: what Envoy accepts by default as all header fields of a
    /// request. A client whose value is an error would have no limit if its proxy passes requests after errors.
    pub const MAX_TEXT: usize = 60 << 10;

    /// Checks the bounds of the call.
    ///
    /// # Errors
    /// The call exceeds a bound, or has no domain or no descriptors.
    pub fn validate(&self) -> Result<(), CallError> {
        if self.domain.is_empty() {
            return Err(CallError::NoDomain);
        }
        if self.descriptors.is_empty() {
            return Err(CallError::NoDescriptors);
        }
        if self.descriptors.len() > Self::MAX_DESCRIPTORS {
            return Err(CallError::TooManyDescriptors);
        }
        if self.descriptors.iter().any(|descriptor| descriptor.entries.len() > Self::MAX_ENTRIES) {
            return Err(CallError::TooManyEntries);
        }
        let entries = self.descriptors.iter().flat_map(|descriptor| &descriptor.entries);
        let texts = entries.flat_map(|entry| [entry.key, entry.value]);
        match texts.chain([self.domain]).any(|text| text.len() > Self::MAX_TEXT) {
            true => Err(CallError::TooLong),
            false => Ok(()),
        }
    }

    /// Returns `true` if the caller states the cost of the request, as it does in reports of costs after the response.
    pub fn states_hits(&self) -> bool {
        let states_hits = |descriptor: &Descriptor<'_>| descriptor.hits_addend.is_some_and(|hits| hits > 0);
        self.hits_addend > 0 || self.descriptors.iter().any(states_hits)
    }

    /// Returns the permits that a descriptor costs.
    pub(crate) fn permits(&self, descriptor: &Descriptor<'_>) -> u32 {
        let hits = descriptor.hits_addend.unwrap_or_else(|| self.hits_addend.max(1).into());
        u32::try_from(hits).unwrap_or(u32::MAX)
    }
}
