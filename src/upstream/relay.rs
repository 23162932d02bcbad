//! Whom a connection without a task of its own wakes: whoever waits for it, and only while somebody does.
//!
//! Much of what wakes a connection comes from the very task that is just polling it, such as room in its channels. Passed
//! on, each would have that task polled once more for nothing.

use std::sync::Arc;
use std::task::{Wake, Waker};

use parking_lot::Mutex;

/// Stands between a connection and the task that waits for it.
#[derive(Debug, Default)]
pub(crate) struct Relay(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Who waits, or was the last to wait.
    waiting: Option<Waker>,
    listening: bool,
    /// The connection was woken while nobody listened.
    missed: bool,
}

impl Relay {
    /// From now on, wakes this one.
    pub(crate) fn listen(&self, waker: &Waker) {
        let mut state = self.0.lock();
        if !state.waiting.as_ref().is_some_and(|waiting| waiting.will_wake(waker)) {
            state.waiting = Some(waker.clone());
        }
        (state.listening, state.missed) = (true, false);
    }

    /// Wakes nobody.
    pub(crate) fn hush(&self) {
        self.0.lock().listening = false;
    }

    /// Wakes the same one as before; unless the connection was woken meanwhile, and has to be polled again first.
    pub(crate) fn listen_again(&self) -> bool {
        let mut state = self.0.lock();
        state.listening = !state.missed;
        state.listening
    }
}

impl Wake for Relay {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut state = self.0.lock();
        state.missed = true;
        if std::mem::take(&mut state.listening)
            && let Some(waiting) = state.waiting.clone()
        {
            drop(state);
            waiting.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn only_who_listens_is_woken_and_nothing_is_missed() {
        let (count, relay) = (Arc::new(Count::default()), Arc::new(Relay::default()));
        let (waiting, waker) = (Waker::from(count.clone()), Waker::from(relay.clone()));
        let woken = || count.0.load(Ordering::Relaxed);
        waker.wake_by_ref();
        assert_eq!(woken(), 0);
        relay.listen(&waiting);
        assert_eq!(woken(), 0);
        waker.wake_by_ref();
        waker.wake_by_ref();
        assert_eq!(woken(), 1);
        relay.listen(&waiting);
        relay.hush();
        assert!(relay.listen_again());
        relay.hush();
        waker.wake_by_ref();
        assert_eq!(woken(), 1);
        assert!(!relay.listen_again());
    }
}
