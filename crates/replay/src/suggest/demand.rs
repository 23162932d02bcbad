//! The demand of the clients other than abusers: the most permits that each needs in any window of an interval.
//!
//! A token bucket whose rate is never reached counts them: so windows of more than 511 permits are up to a 511th of the
//! interval too long, as in the gateway.

use serde::Serialize;

use super::abusers::Abusers;
use super::window::Window;
use crate::report::responses::ClientResponses;
use tidegate_limit::{Algorithm, MAX_RATE, Quota};

/// The demand of the clients in an interval.
#[derive(Clone, Debug, Serialize)]
pub struct Demand {
    pub interval: String,
    /// The peak that half of the other clients do not exceed.
    pub median: u32,
    /// The peak that 99 % of the other clients do not exceed.
    pub p99: u32,
    /// The highest peak of another client.
    pub max: u32,
    /// The peak that half of the abusers do not exceed. `None` without abusers.
    pub abuser_median: Option<u32>,
    /// The lowest peak of an abuser.
    #[serde(skip)]
    lowest_abuser: Option<u32>,
    #[serde(skip)]
    others: Peaks,
}

/// The peaks of clients in ascending order, each with the people that share the client.
#[derive(Clone, Debug, Default)]
struct Peaks {
    sorted: Vec<(u32, u32)>,
    people: u64,
}

/// Returns the quota that measures the demand in an interval.
pub(super) fn quota(window: &Window) -> Option<Quota> {
    Quota::new(MAX_RATE.into(), window.millis, Algorithm::TokenBucket).ok()
}

impl Demand {
    /// Returns the demand in the interval at this position.
    pub(super) fn new(position: usize, window: &Window, clients: &ClientResponses, abusers: &Abusers) -> Self {
        let peaks = |is_abuser: bool| {
            let chosen = clients.iter().filter(move |client| abusers.sign(client.hash).is_some() == is_abuser);
            Peaks::new(chosen.map(|client| (client.peaks[position], client.counts.people.max(1))).collect())
        };
        let (others, of_abusers) = (peaks(false), peaks(true));
        Self {
            interval: window.show(),
            median: others.quantile(0.5),
            p99: others.quantile(0.99),
            max: others.quantile(1.0),
            abuser_median: (of_abusers.people > 0).then(|| of_abusers.quantile(0.5)),
            lowest_abuser: of_abusers.sorted.first().map(|(peak, _)| *peak),
            others,
        }
    }

    /// Returns the smallest rates that reject at most this share of the other clients, and none of them: rounded up to two
    /// digits, but below the peaks of the abusers.
    pub(super) fn rates(&self, tolerate: f64) -> [u32; 2] {
        [tolerate, 0.0].map(|share| {
            let exact = self.others.quantile(1.0 - share).max(1);
            let rounded = round_up(exact);
            self.lowest_abuser.map_or(rounded, |abuser| rounded.min(abuser.saturating_sub(1)).max(exact))
        })
    }
}

impl Peaks {
    fn new(mut sorted: Vec<(u32, u32)>) -> Self {
        sorted.sort_unstable();
        let people = sorted.iter().map(|(_, people)| u64::from(*people)).sum();
        Self { sorted, people }
    }

    /// Returns the smallest peak that at least this share of the people do not exceed.
    fn quantile(&self, share: f64) -> u32 {
        let allowed = tolerated(self.people, 1.0 - share);
        let mut above = 0;
        for (peak, people) in self.sorted.iter().rev() {
            above += u64::from(*people);
            if above > allowed {
                return *peak;
            }
        }
        0
    }
}

/// Returns this share of a number of clients, rounded down.
pub(super) fn tolerated(clients: u64, share: f64) -> u64 {
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share")]
    let tolerated = (clients as f64 * share + 1e-9) as u64;
    tolerated.min(clients)
}

/// Rounds up to two digits.
fn round_up(number: u32) -> u32 {
    let power = 10_u32.pow(number.checked_ilog10().unwrap_or(0).saturating_sub(1));
    number.div_ceil(power).saturating_mul(power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_client_counts_as_its_people() {
        let peaks = Peaks::new(vec![(50, 400), (1, 1), (2, 599)]);
        assert_eq!([0.5, 0.6, 0.61, 1.0].map(|share| peaks.quantile(share)), [2, 2, 50, 50]);
        assert_eq!(Peaks::default().quantile(0.5), 0);
    }

    #[test]
    fn rates_are_rounded_up() {
        assert_eq!([1, 64, 99, 101, 1_234].map(round_up), [1, 64, 99, 110, 1_300]);
    }
}
