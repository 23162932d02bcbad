//! Ejects a target after consecutive failures (a state machine without clocks and sockets).
//!
//! After the time of the ejection, a single probe request decides about the return. Passed checks can end the ejection
//! earlier. The limits of an upstream, for
//! example that the last usable target stays, belong to its [selection](super::selection).

use std::time::Duration;

use tokio::time::Instant;

use super::settings::Eject;

/// The connect errors in a row after which a target is ejected, if `after` is not lower.
const AFTER_CONNECT_ERRORS: u32 = 2;

/// The longest ejection, unless `for` is longer.
const MAX_TIME: Duration = Duration::from_secs(300);

/// The time after which another probe may start, although the last one has no result. A slow upload could otherwise keep
/// the target out.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);

/// The passive health of one target.
#[derive(Debug, Default)]
pub(super) struct Ejection {
    state: State,
    /// The failures in a row.
    failures: u32,
    /// The connect errors in a row.
    connect_errors: u32,
    /// The ejections in a row, without a longer time of health between them.
    ejections: u32,
    /// When the last ejection ended, and how long it took.
    returned: Option<(Instant, Duration)>,
    /// Whether passed checks show that the target has recovered: its checks have failed in the ejection, or it was
    /// ejected because no connection could be opened. The checks may not notice other failures.
    checks_count: bool,
    /// The checks that the target has passed in a row in the ejection.
    passed_checks: u32,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Included,
    Ejected {
        since: Instant,
        until: Instant,
        why: String,
    },
    /// A probe request is in flight.
    Probing {
        started: Instant,
        since: Instant,
        until: Instant,
        why: String,
    },
}

/// A failure of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailureKind {
    /// No connection could be opened.
    Connect,
    /// A failed request, or a response with a status that counts as a failure.
    Request,
}

impl Ejection {
    /// Returns until when the target is ejected, and why.
    pub(super) fn ejected_until(&self) -> Option<(Instant, &str)> {
        match &self.state {
            State::Included => None,
            State::Ejected { until, why, .. } | State::Probing { until, why, .. } => Some((*until, why)),
        }
    }

    /// Returns `true` if there were failures since the last success.
    pub(super) fn has_failures(&self) -> bool {
        self.failures > 0
    }

    /// Records a success of a request that is not a probe. A request that began before the ejection does not end it.
    pub(super) fn record_success(&mut self) {
        if matches!(self.state, State::Included) {
            (self.failures, self.connect_errors) = (0, 0);
        }
    }

    /// Records a failure of a request that is not a probe. Returns `true` if the target should be ejected.
    pub(super) fn record_failure(&mut self, kind: FailureKind, settings: &Eject) -> bool {
        if !matches!(self.state, State::Included) {
            return false;
        }
        self.failures = self.failures.saturating_add(1);
        self.connect_errors = match kind {
            FailureKind::Connect => self.connect_errors.saturating_add(1),
            FailureKind::Request => 0,
        };
        self.failures >= settings.after || self.connect_errors >= AFTER_CONNECT_ERRORS.min(settings.after)
    }

    /// Ejects the target. `random` lengthens the time by up to a tenth. Returns the time.
    pub(super) fn eject(&mut self, now: Instant, settings: &Eject, random: u64, why: String) -> Duration {
        if self.returned.is_some_and(|(returned, time)| now.saturating_duration_since(returned) > time) {
            self.ejections = 0;
        }
        self.ejections = self.ejections.saturating_add(1);
        let time = settings.time.saturating_mul(self.ejections).min(MAX_TIME.max(settings.time));
        (self.checks_count, self.passed_checks) = (self.connect_errors > 0, 0);
        let jitter = u32::try_from(random >> 32).unwrap_or(0);
        let time = time + (time / 10).mul_f64(f64::from(jitter) / f64::from(u32::MAX));
        self.state = State::Ejected { since: now, until: now + time, why };
        time
    }

    /// Starts a probe, if the time of the ejection has passed and no other probe has started recently. Returns `true` if
    /// it started.
    pub(super) fn start_probe(&mut self, now: Instant) -> bool {
        match &mut self.state {
            State::Ejected { since, until, why } if *until <= now => {
                let why = std::mem::take(why);
                self.state = State::Probing { started: now, since: *since, until: *until, why };
                true
            }
            State::Probing { started, .. } if *started + PROBE_INTERVAL <= now => {
                *started = now;
                true
            }
            _ => false,
        }
    }

    /// Returns the target after a successful probe. Returns how long it was ejected.
    pub(super) fn probe_succeeded(&mut self, now: Instant) -> Option<Duration> {
        let State::Probing { since, .. } = self.state else { return None };
        Some(self.end(since, now))
    }

    /// Records a health check of the target. Returns how long the target was ejected if this ends the ejection: `rise`
    /// checks in a row have passed again.
    pub(super) fn record_check(&mut self, has_passed: bool, rise: u32, now: Instant) -> Option<Duration> {
        let (State::Ejected { since, .. } | State::Probing { since, .. }) = self.state else { return None };
        if !has_passed {
            (self.checks_count, self.passed_checks) = (true, 0);
            return None;
        }
        self.passed_checks = self.passed_checks.saturating_add(1);
        (self.checks_count && self.passed_checks >= rise).then(|| self.end(since, now))
    }

    fn end(&mut self, since: Instant, now: Instant) -> Duration {
        let time = now.saturating_duration_since(since);
        self.state = State::Included;
        (self.failures, self.connect_errors) = (0, 0);
        self.returned = Some((now, time));
        time
    }

    /// Allows another probe: the last one had no result, for example because its client disconnected.
    pub(super) fn probe_canceled(&mut self) {
        if let State::Probing { since, until, why, .. } = &mut self.state {
            self.state = State::Ejected { since: *since, until: *until, why: std::mem::take(why) };
        }
    }
}

#[cfg(test)]
mod tests {
    use FailureKind::{Connect, Request};

    use super::*;

    const SETTINGS: Eject = Eject { after: 5, time: Duration::from_secs(30), max_percent: 50 };
    const SECOND: Duration = Duration::from_secs(1);

    fn eject(ejection: &mut Ejection, now: Instant) -> u64 {
        ejection.eject(now, &SETTINGS, 0, "failed".to_owned()).as_secs()
    }

    #[test]
    fn consecutive_failures_eject() {
        let mut ejection = Ejection::default();
        assert!((0..4).all(|_| !ejection.record_failure(Request, &SETTINGS)));
        ejection.record_success();
        assert!((0..4).all(|_| !ejection.record_failure(Request, &SETTINGS)));
        assert!(ejection.record_failure(Request, &SETTINGS));
    }

    #[test]
    fn two_connect_errors_eject() {
        let mut ejection = Ejection::default();
        let failures = [Connect, Request, Connect, Connect];
        assert_eq!(failures.map(|kind| ejection.record_failure(kind, &SETTINGS)), [false, false, false, true]);
        let once = Eject { after: 1, ..SETTINGS };
        assert!(Ejection::default().record_failure(Connect, &once));
    }

    #[test]
    fn single_probe_decides_about_the_return() {
        let (mut ejection, start) = (Ejection::default(), Instant::now());
        eject(&mut ejection, start);
        assert!(!ejection.start_probe(start + 29 * SECOND));
        assert!(ejection.start_probe(start + 30 * SECOND));
        assert!(!ejection.start_probe(start + 34 * SECOND));
        // Requests from before the ejection change nothing.
        ejection.record_success();
        assert!(!ejection.record_failure(Connect, &SETTINGS));
        assert!(ejection.ejected_until().is_some());
        assert_eq!(ejection.probe_succeeded(start + 31 * SECOND), Some(31 * SECOND));
        assert!(ejection.ejected_until().is_none() && !ejection.has_failures());
    }

    #[test]
    fn slow_probe_allows_another() {
        let (mut ejection, start) = (Ejection::default(), Instant::now());
        eject(&mut ejection, start);
        assert_eq!(
            [30, 34, 35, 39, 40].map(|at| ejection.start_probe(start + at * SECOND)),
            [true, false, true, false, true]
        );
        assert_eq!(ejection.probe_succeeded(start + 41 * SECOND), Some(41 * SECOND));
        assert_eq!(ejection.probe_succeeded(start + 42 * SECOND), None, "the target has returned");
    }

    #[test]
    fn canceled_probe_allows_another() {
        let (mut ejection, start) = (Ejection::default(), Instant::now());
        eject(&mut ejection, start);
        let later = start + 30 * SECOND;
        assert!(ejection.start_probe(later));
        ejection.probe_canceled();
        assert!(ejection.start_probe(later));
    }

    #[test]
    fn passed_checks_end_an_ejection_after_connect_errors() {
        let (mut ejection, start) = (Ejection::default(), Instant::now());
        assert!(!ejection.record_failure(Connect, &SETTINGS) && ejection.record_failure(Connect, &SETTINGS));
        eject(&mut ejection, start);
        let mut check = |passed, at| ejection.record_check(passed, 2, start + at * SECOND);
        assert_eq!([check(true, 1), check(false, 2), check(true, 3)], [None; 3]);
        assert_eq!(check(true, 4), Some(4 * SECOND));
        assert_eq!(check(true, 5), None, "the target has returned");
        assert!(ejection.ejected_until().is_none() && !ejection.has_failures());
    }

    /// A check can pass all the time while requests fail.
    #[test]
    fn checks_that_never_failed_do_not_end_an_ejection() {
        let (mut ejection, start) = (Ejection::default(), Instant::now());
        assert!((0..5).all(|number| ejection.record_failure(Request, &SETTINGS) == (number == 4)));
        eject(&mut ejection, start);
        assert!((0..9).all(|at| ejection.record_check(true, 1, start + at * SECOND).is_none()));
        assert_eq!(ejection.record_check(false, 1, start + 10 * SECOND), None);
        assert!(ejection.start_probe(start + 30 * SECOND));
        assert_eq!(ejection.record_check(true, 1, start + 31 * SECOND), Some(31 * SECOND));
        assert_eq!(ejection.probe_succeeded(start + 32 * SECOND), None);
    }

    #[test]
    fn repeated_ejections_take_longer() {
        let (mut ejection, mut now) = (Ejection::default(), Instant::now());
        for seconds in [30, 60, 90, 120, 150, 180, 210, 240, 270, 300, 300] {
            assert_eq!(eject(&mut ejection, now), seconds);
            now += Duration::from_secs(seconds);
            assert!(ejection.start_probe(now));
        }
        ejection.probe_succeeded(now);
        now += 299 * SECOND;
        assert_eq!(eject(&mut ejection, now), 300);
        now += 300 * SECOND;
        assert!(ejection.start_probe(now));
        ejection.probe_succeeded(now);
        now += 301 * SECOND;
        assert_eq!(eject(&mut ejection, now), 30);
    }

    #[test]
    fn jitter_lengthens_the_time_by_at_most_a_tenth() {
        let time = |random| Ejection::default().eject(Instant::now(), &SETTINGS, random, String::new());
        assert_eq!((time(0), time(u64::MAX)), (30 * SECOND, 33 * SECOND));
        let hour = Eject { time: 3600 * SECOND, ..SETTINGS };
        assert_eq!(Ejection::default().eject(Instant::now(), &hour, 0, String::new()), 3600 * SECOND);
    }
}
