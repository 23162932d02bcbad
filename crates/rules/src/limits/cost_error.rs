//! Why the cost of a request is unknown.

/// The error of an invalid cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CostError {
    /// The field is not a number.
    #[error("is not a whole number")]
    NotWhole,
    /// The number is greater than `max`.
    #[error("is above {0}")]
    AboveMax(u32),
    /// There are several different fields, and it is unknown which one the upstream would use.
    #[error("was sent twice")]
    Ambiguous,
    /// The calls of a batch are for more buckets than one decision can have.
    #[error("is for more than {0} buckets")]
    TooManyBuckets(usize),
    /// The cost depends on the body of the request, which was not read.
    #[error("is unknown without the body of the request")]
    NoBody,
    /// The model of the request has no price.
    #[error("is unknown, since no price is known for the model of the request")]
    NoPrice,
    /// This member of the request adds input that the request does not have, so its cost has no bound.
    #[error("has no bound, since `{0}` of the body adds input that the body does not have")]
    Hidden(&'static str),
}
