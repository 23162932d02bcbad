//! The decision about each request, for tests that compare a replay with a gateway.

use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::AtomicU64;

use http::{Method, StatusCode, Uri};

use super::batch::ParsedRequest;
use super::engine::Engine;
use super::read::{LogFiles, ReadError};
use crate::rules::Rules;

/// A request of a test.
#[derive(Clone, Copy, Debug)]
pub struct TracedRequest<'t> {
    /// In milliseconds since the Unix epoch.
    pub time: u64,
    /// The address of the client.
    pub client: IpAddr,
    /// The target of the request.
    pub target: &'t str,
    /// The status of the response, if the request is admitted.
    pub status: u16,
}

/// Returns for each request whether the limits admit it. The times must not decrease.
pub(crate) fn of_trace(rules: &Rules, trace: &[TracedRequest<'_>]) -> Vec<bool> {
    let mut engine = Engine::new(rules);
    for (number, traced) in (0..).zip(trace) {
        let request = ParsedRequest {
            time: traced.time,
            line: 0,
            was_limited: false,
            client: Some(traced.client),
            status: StatusCode::from_u16(traced.status).ok(),
            target: traced.target.parse::<Uri>().ok().map(|uri| (Method::GET, uri)),
            headers: None,
            route: None,
        };
        engine.replay(&request, number);
    }
    engine.end();
    in_order(&mut engine).into_iter().map(|(_, admitted)| admitted).collect()
}

/// Returns for each parsed line of a log, by its number, starting at 0, whether the limits admit the request.
pub(crate) fn of_log(rules: &Rules, log: &Path) -> Result<Vec<(u64, bool)>, ReadError> {
    let files = LogFiles { paths: vec![log.to_owned()], format: None, lines: AtomicU64::default() };
    let mut engine = Engine::new(rules);
    files.read(engine.fields(), |request, _, line| engine.replay(request, line))?;
    engine.end();
    Ok(in_order(&mut engine))
}

fn in_order(engine: &mut Engine<'_>) -> Vec<(u64, bool)> {
    let mut verdicts: Vec<_> = engine.take_verdicts().map(|verdict| (verdict.number, verdict.admitted)).collect();
    verdicts.sort_unstable();
    verdicts
}
