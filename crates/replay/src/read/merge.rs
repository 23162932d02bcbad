//! Merges the batches of several logs into the order of their times.
//!
//! A log is written in the order of responses, so the times of a log are not in order. Two successive batches of each
//! log are merged: a line can be in front of its place by at least the length of a batch.

use std::hint::black_box;

use crate::log::batch::{Batch, ParsedRequest};

/// The number of batches of a log that are merged.
const RUNS: usize = 2;

/// The number of requests that are loaded into the cache at once.
const LOADED: usize = 8;

/// A log whose batches are merged.
pub(crate) struct Source<N> {
    /// Returns the next batch; `None` at the end of the log. The argument is a batch that was consumed.
    next_batch: N,
    runs: Vec<Run>,
    /// The position of the run with the earliest request.
    earliest: usize,
    has_ended: bool,
    /// The number of lines before the next batch.
    lines: u64,
}

struct Run {
    batch: Batch,
    /// The position of the first request that has not been taken.
    next: usize,
    /// The number of lines before the batch.
    first_line: u64,
}

impl Run {
    fn position(&self) -> Option<(u64, bool)> {
        self.batch.requests.get(self.next).map(ParsedRequest::position)
    }

    /// Loads some of the next requests into the cache, and returns them. They were parsed some time ago, and by another
    /// thread. So the processor waits once for all of them.
    fn load(&self) -> &[ParsedRequest] {
        let rest = self.batch.requests.get(self.next + LOADED..).unwrap_or_default();
        let upcoming = &rest[..rest.len().min(LOADED)];
        black_box(upcoming.iter().filter_map(ParsedRequest::first_byte).fold(0, u8::wrapping_add));
        upcoming
    }
}

impl<E, N: FnMut(Option<Batch>) -> Result<Option<Batch>, E>> Source<N> {
    pub(crate) fn new(next_batch: N) -> Self {
        Self { next_batch, runs: Vec::new(), earliest: 0, has_ended: false, lines: 0 }
    }

    /// Loads batches until enough are there to merge. Returns the position of the next request; `None` at the end.
    pub(crate) fn peek(&mut self) -> Result<Option<(u64, bool)>, E> {
        let has_ended = self.runs.get(self.earliest).is_some_and(|run| run.position().is_none());
        let mut consumed = has_ended.then(|| self.runs.remove(self.earliest).batch);
        while !self.has_ended && self.runs.len() < RUNS {
            match (self.next_batch)(consumed.take())? {
                None => self.has_ended = true,
                Some(batch) => {
                    let lines = batch.lines;
                    let run = Run { batch, next: 0, first_line: self.lines };
                    self.lines += lines;
                    self.runs.extend(run.position().is_some().then_some(run));
                }
            }
        }
        let positions = self.runs.iter().enumerate().filter_map(|(index, run)| Some((run.position()?, index)));
        let earliest = positions.min();
        self.earliest = earliest.map_or(0, |(_, index)| index);
        Ok(earliest.map(|(position, _)| position))
    }

    /// Returns the request that the last [`peek`](Self::peek) found, and the number of its line. Returns the requests
    /// that were loaded into the cache, too.
    pub(crate) fn take(&mut self) -> Option<(&ParsedRequest, &[ParsedRequest], u64)> {
        let run = self.runs.get_mut(self.earliest)?;
        let next = run.next;
        run.next += 1;
        let run = &*run;
        let upcoming = if next.is_multiple_of(LOADED) { run.load() } else { &[] };
        let request = run.batch.requests.get(next)?;
        Some((request, upcoming, run.first_line + u64::from(request.line)))
    }
}

/// Calls `consume` for the requests of all logs in the order of their times, each with the requests that were loaded
/// into the cache, the position of its log and the number of its line.
pub(crate) fn merge<E, N: FnMut(Option<Batch>) -> Result<Option<Batch>, E>>(
    mut sources: Vec<Source<N>>,
    mut consume: impl FnMut(&ParsedRequest, &[ParsedRequest], usize, u64),
) -> Result<(), E> {
    let mut positions = Vec::with_capacity(sources.len());
    for source in &mut sources {
        positions.push(source.peek()?);
    }
    loop {
        let next = positions.iter().enumerate().filter_map(|(log, position)| Some(((*position)?, log))).min();
        let Some((_, log)) = next else { return Ok(()) };
        if let Some((request, upcoming, line)) = sources[log].take() {
            consume(request, upcoming, log, line);
        }
        positions[log] = sources[log].peek()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(times: &[u64]) -> Batch {
        let request = |(line, time): (usize, &u64)| ParsedRequest {
            time: *time,
            line: u32::try_from(line).expect("a line"),
            was_limited: false,
            client: None,
            status: None,
            target: None,
            headers: None,
            route: None,
            identity: None,
        };
        let mut requests: Vec<_> = times.iter().enumerate().map(request).collect();
        requests.sort_by_key(|request| request.time);
        Batch { requests, lines: times.len() as u64, ..Batch::default() }
    }

    #[test]
    fn rejected_requests_are_last_in_their_millisecond() {
        let limited = |times: &[u64]| {
            let mut batch = batch(times);
            batch.requests.iter_mut().for_each(|request| request.was_limited = true);
            batch
        };
        let mut logs = [vec![limited(&[1, 2]), batch(&[1])], vec![batch(&[1, 2])]].map(Vec::into_iter);
        let mut merged = Vec::new();
        let sources = logs.iter_mut().map(|batches| Source::new(|_| Ok::<_, ()>(batches.next()))).collect();
        merge(sources, |request, _, log, line| merged.push((request.time, log, line))).expect("no error");
        assert_eq!(merged, [(1, 0, 2), (1, 1, 0), (1, 0, 0), (2, 1, 1), (2, 0, 1)]);
    }

    #[test]
    fn requests_are_merged_in_the_order_of_their_times() {
        let logs = [vec![batch(&[1, 4, 3]), batch(&[2, 9])], vec![batch(&[]), batch(&[3, 5])], vec![]];
        let source = |batches: Vec<Batch>| {
            let mut batches = batches.into_iter();
            Source::new(move |_| Ok::<_, ()>(batches.next()))
        };
        let mut merged = Vec::new();
        let sources = logs.into_iter().map(source).collect();
        merge(sources, |request, _, log, line| merged.push((request.time, log, line))).expect("no error");
        assert_eq!(merged, [(1, 0, 0), (2, 0, 3), (3, 0, 2), (3, 1, 0), (4, 0, 1), (5, 1, 1), (9, 0, 4)]);
    }
}
