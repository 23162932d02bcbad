//! Compares passwords with their hashes in other threads. A comparison takes up to a second of CPU time, so the
//! number of comparisons is bounded: of those that run, of those that wait, and of each client.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use ipnet::IpNet;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

use super::keys::Digest;
use super::password::PasswordHash;
use super::recent_checks::RecentChecks;

/// The highest number of comparisons that run or wait.
const MAX_IN_FLIGHT: usize = 128;

/// The highest number of comparisons of one client. Browsers send parallel requests with the same password, which share
/// one.
const MAX_PER_CLIENT: u32 = 4;

/// The longest time that a request waits for its comparison.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// The comparisons that run, and the results of recent ones.
#[derive(Debug)]
pub(super) struct PasswordChecks {
    slots: Semaphore,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    recent: RecentChecks,
    in_flight: HashMap<Digest, watch::Receiver<Option<bool>>>,
    /// The comparisons of each client.
    clients: HashMap<Option<IpNet>, u32>,
}

/// A comparison in flight. It is removed when dropped, also if its thread panics.
struct InFlight {
    checks: Arc<PasswordChecks>,
    digest: Digest,
    client: Option<IpNet>,
    result: watch::Sender<Option<bool>>,
}

/// The comparison of a request.
enum Joined {
    /// Another request has started it.
    Running(watch::Receiver<Option<bool>>),
    /// It has to be started.
    New(InFlight),
}

/// Too many passwords are being compared.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Busy;

impl PasswordChecks {
    /// Creates checks that run on at most a quarter of the processors, and on at least one.
    pub(super) fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self { slots: Semaphore::new((cores / 4).max(1)), state: Mutex::default() }
    }

    /// Returns the result of a recent comparison.
    pub(super) fn recent(&self, digest: &Digest) -> Option<bool> {
        self.state.lock().recent.get(digest, Instant::now())
    }

    /// Returns whether a password belongs to a hash. Requests with the same digest share a comparison, which continues if
    /// the client disconnects.
    ///
    /// # Errors
    /// Too many passwords are being compared, of this client or of all.
    pub(super) async fn check(
        self: &Arc<Self>,
        digest: Digest,
        client: Option<IpNet>,
        (hash, password): (PasswordHash, &[u8]),
    ) -> Result<bool, Busy> {
        if let Some(is_correct) = self.recent(&digest) {
            return Ok(is_correct);
        }
        let mut result = match self.join(digest, client)? {
            Joined::Running(result) => result,
            Joined::New(new) => {
                let (result, password) = (new.result.subscribe(), password.to_owned());
                drop(tokio::spawn(new.run(hash, password)));
                result
            }
        };
        let decided = timeout(MAX_WAIT, result.wait_for(Option::is_some)).await;
        decided.ok().and_then(|result| *result.ok()?).ok_or(Busy)
    }

    /// Compares a password in this thread, unless all slots are in use.
    ///
    /// # Errors
    /// Too many passwords are being compared.
    pub(super) fn check_blocking(&self, digest: Digest, hash: &PasswordHash, password: &[u8]) -> Result<bool, Busy> {
        let _slot = self.slots.try_acquire().map_err(|_| Busy)?;
        let is_correct = hash.matches(password);
        self.state.lock().recent.insert(digest, is_correct, Instant::now());
        Ok(is_correct)
    }

    /// Joins the comparison with this digest, or starts it.
    fn join(self: &Arc<Self>, digest: Digest, client: Option<IpNet>) -> Result<Joined, Busy> {
        let mut state = self.state.lock();
        if let Some(running) = state.in_flight.get(&digest) {
            return Ok(Joined::Running(running.clone()));
        }
        let of_client = state.clients.get(&client).copied().unwrap_or(0);
        if state.in_flight.len() >= MAX_IN_FLIGHT || of_client >= MAX_PER_CLIENT {
            return Err(Busy);
        }
        let (result, receiver) = watch::channel(None);
        state.in_flight.insert(digest, receiver);
        state.clients.insert(client, of_client + 1);
        Ok(Joined::New(InFlight { checks: Arc::clone(self), digest, client, result }))
    }
}

impl InFlight {
    /// Waits for a slot, compares the password in a thread for blocking work, and sends the result.
    async fn run(self, hash: PasswordHash, password: Vec<u8>) {
        let Ok(_slot) = self.checks.slots.acquire().await else { return };
        let Ok(is_correct) = spawn_blocking(move || hash.matches(&password)).await else { return };
        self.checks.state.lock().recent.insert(self.digest, is_correct, Instant::now());
        self.result.send_replace(Some(is_correct));
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut state = self.checks.state.lock();
        state.in_flight.remove(&self.digest);
        if let Some(count) = state.clients.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                state.clients.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(number: u8) -> Digest {
        [number; 32]
    }

    fn client(number: u8) -> Option<IpNet> {
        Some(std::net::IpAddr::from([192, 0, 2, number]).into())
    }

    /// Checks whose only slot is taken, so that comparisons wait.
    fn stopped() -> (Arc<PasswordChecks>, PasswordHash) {
        let checks = PasswordChecks { slots: Semaphore::new(0), state: Mutex::default() };
        (Arc::new(checks), PasswordHash::of_nothing(4))
    }

    #[tokio::test]
    async fn client_cannot_take_the_capacity_of_others() {
        let (checks, hash) = stopped();
        let start = |number, of: u8| checks.join(digest(number), client(of));
        let running: Vec<_> = (0..4).map(|number| start(number, 1).expect("capacity")).collect();
        assert!(matches!(start(9, 1), Err(Busy)) && start(9, 2).is_ok());
        assert!(matches!(start(3, 1), Ok(Joined::Running(_))), "the same password shares a comparison");
        drop(running);
        assert!(checks.state.lock().in_flight.is_empty() && checks.state.lock().clients.is_empty());
        let all: Vec<_> = (0..128).map(|number| start(number, number).expect("capacity")).collect();
        assert!(matches!(start(200, 200), Err(Busy)));
        assert_eq!(checks.check_blocking(digest(201), &hash, b"x"), Err(Busy));
        drop(all);
    }

    #[tokio::test(start_paused = true)]
    async fn request_gives_up_while_all_slots_are_taken() {
        let (checks, hash) = stopped();
        assert_eq!(checks.check(digest(1), client(1), (hash.clone(), b"x")).await, Err(Busy));
        // The comparison continues when a slot is free, and the next request finds its result.
        checks.slots.add_permits(1);
        assert_eq!(checks.check(digest(1), client(1), (hash, b"x")).await, Ok(false));
        assert_eq!(checks.recent(&digest(1)), Some(false));
    }
}
