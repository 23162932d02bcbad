//! Who waits for a permit, and in what order: one line for each bucket.
//!
//! Everybody who waits has a ticket, numbered in the order of arrival, and stands in the lines of all the buckets that
//! refused. It is somebody's turn when their ticket is the oldest in each of their lines; so nobody is overtaken on any
//! bucket, and no two wait for each other. Whoever goes away drops their [`Place`], and the next moves up.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::limit::{Charge, ClientId};

/// The lines of one gateway.
#[derive(Debug)]
pub(crate) struct Lines {
    state: Mutex<State>,
    closed: watch::Sender<bool>,
}

/// A place in some lines; given up when it is dropped.
#[derive(Debug)]
pub(crate) struct Place<'l> {
    lines: &'l Lines,
    ticket: u64,
    moved: Arc<Notify>,
    buckets: Vec<Bucket>,
}

/// Whose line it is: the bucket's of a charge, or that of all clients for whom the store has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Own,
    Overflow,
}

/// Nobody is let in any more: the line is full, or the gateway ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

type Bucket = (String, Option<ClientId>);

#[derive(Debug, Default)]
struct State {
    next_ticket: u64,
    lines: HashMap<Bucket, BTreeMap<u64, Arc<Notify>>>,
}

// === impl Lines ===

impl Lines {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::default(), closed: watch::Sender::new(false) }
    }

    /// Sends everybody away, and lets nobody in any more.
    pub(crate) fn close(&self) {
        self.closed.send_replace(true);
    }

    /// Returns when the lines are closed.
    pub(crate) async fn closed(&self) {
        // The sender is ours, so that the wait cannot fail.
        _ = self.closed.subscribe().wait_for(|closed| *closed).await;
    }

    /// Does anybody wait for this bucket?
    pub(crate) fn is_waited_for(&self, charge: &Charge) -> bool {
        let state = self.state.lock();
        !state.lines.is_empty() && state.lines.contains_key(&bucket(charge))
    }

    /// A new ticket, in no line yet.
    pub(crate) fn ticket(&self) -> Place<'_> {
        let mut state = self.state.lock();
        state.next_ticket += 1;
        Place { lines: self, ticket: state.next_ticket, moved: Arc::default(), buckets: Vec::new() }
    }
}

// === impl Place ===

impl Place<'_> {
    /// Joins the line of a bucket, in which at most `limit` may stand; behind all older tickets, before all younger.
    pub(crate) fn join(&mut self, charge: &Charge, line: Line, limit: usize) -> Result<(), Full> {
        let bucket = match line {
            Line::Own => bucket(charge),
            Line::Overflow => overflow(charge),
        };
        if self.buckets.contains(&bucket) {
            return Ok(());
        }
        if *self.lines.closed.borrow() {
            return Err(Full);
        }
        let mut state = self.lines.state.lock();
        let line = state.lines.entry(bucket.clone()).or_default();
        if line.len() >= limit.max(1) {
            return Err(Full);
        }
        line.insert(self.ticket, Arc::clone(&self.moved));
        self.buckets.push(bucket);
        Ok(())
    }

    /// Does it wait for this charge?
    pub(crate) fn stands_in_line_of(&self, charge: &Charge) -> bool {
        self.buckets.contains(&bucket(charge)) || self.buckets.contains(&overflow(charge))
    }

    /// Returns when this is the oldest ticket in each of its lines.
    pub(crate) async fn turn(&self) {
        while !self.is_first() {
            self.moved.notified().await;
        }
    }

    fn is_first(&self) -> bool {
        let state = self.lines.state.lock();
        let first = |bucket| state.lines.get(bucket).and_then(|line| line.first_key_value());
        self.buckets.iter().all(|bucket| first(bucket).is_none_or(|(ticket, _)| *ticket == self.ticket))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = self.lines.state.lock();
        for bucket in &self.buckets {
            let Some(line) = state.lines.get_mut(bucket) else { continue };
            line.remove(&self.ticket);
            match line.first_key_value() {
                Some((_, next)) => next.notify_one(),
                None => _ = state.lines.remove(bucket),
            }
        }
    }
}

fn bucket(charge: &Charge) -> Bucket {
    (charge.limiter.name.clone(), charge.client.clone())
}

fn overflow(charge: &Charge) -> Bucket {
    (charge.limiter.name.clone(), None)
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::limit::{Algorithm, Limiter, Mode, Quota};

    fn charge(name: &str) -> Charge {
        let quota = Quota::new(1, 1_000, Algorithm::TokenBucket).expect("a quota");
        let limiter = Arc::new(Limiter { name: name.into(), mode: Mode::Overall, quota });
        Charge { limiter, client: None, permits: 1, shadow: false }
    }

    fn place<'l>(lines: &'l Lines, buckets: &[&str]) -> Place<'l> {
        let mut place = lines.ticket();
        for bucket in buckets {
            place.join(&charge(bucket), Line::Own, 10).expect("a place");
        }
        place
    }

    fn is_their_turn(place: &Place<'_>) -> bool {
        pin!(place.turn()).as_mut().poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
    }

    #[test]
    fn nobody_is_overtaken_on_any_bucket() {
        let lines = Lines::new();
        let (one, both, other) = (place(&lines, &["a"]), place(&lines, &["a", "b"]), place(&lines, &["b"]));
        assert_eq!([&one, &both, &other].map(is_their_turn), [true, false, false]);
        drop(one);
        assert_eq!([&both, &other].map(is_their_turn), [true, false]);
        drop(both);
        assert!(is_their_turn(&other));
    }

    #[test]
    fn whoever_goes_away_gives_up_their_place() {
        let lines = Lines::new();
        let (first, second, third) = (place(&lines, &["a"]), place(&lines, &["a"]), place(&lines, &["a"]));
        drop(second);
        drop(first);
        assert!(is_their_turn(&third));
        drop(third);
        assert!(!lines.is_waited_for(&charge("a")), "an empty line was kept");
    }

    #[test]
    fn a_line_is_bounded_and_a_closed_one_takes_nobody() {
        let lines = Lines::new();
        let _first = place(&lines, &["a"]);
        assert_eq!(lines.ticket().join(&charge("a"), Line::Own, 1), Err(Full));
        assert_eq!(lines.ticket().join(&charge("b"), Line::Own, 1), Ok(()));
        lines.close();
        assert_eq!(lines.ticket().join(&charge("b"), Line::Own, 1), Err(Full));
    }
}
