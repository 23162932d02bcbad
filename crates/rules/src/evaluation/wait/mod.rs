//! Waits for permits, as data: which request is next for a bucket, and what a request that may wait does at each moment. A
//! gateway drives them with tasks and timers, a replay with the times of its log.

mod order;
mod queues;
mod request;

pub use self::queues::{Claim, JoinError, Place, WaitQueues};
pub use self::request::{Hold, WaitBounds, WaitStep, WaitingRequest, bucket_of};
