//! Active health checks. For each target address of the process, one prober sends a request at intervals. A target that
//! fails its checks gets no requests.
//!
//! A check uses the code of other requests, but no connection slot and no connection of the workers: it opens its own
//! connection, so that it also notices a target that accepts no new ones.

mod grpc;
mod lag;
mod prober;
mod request;

pub(super) use self::prober::CheckSettings;
pub use self::prober::run_checks;
