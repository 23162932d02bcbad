//! The clients of a group of limits, and the permits that each client needs.
//!
//! Limits of a route that identify clients in the same way form a group. A client has one row for all of them: so a
//! request looks up its client once, and all demands of a client are close together in memory.

use hashbrown::HashTable;

/// The number of the interval of a limit without a request of the client.
const NO_INTERVAL: u32 = u32::MAX;

/// The clients of a group of limits. Each client has a row, with a demand for each limit.
///
/// Clients are identified by a randomly seeded hash: the statistics of two clients of a million are mixed with a
/// probability of 1 to 30 million.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    /// The hashes of the clients, with their rows.
    rows: HashTable<(u64, u32)>,
    /// The demands of all rows.
    demands: Vec<Demand>,
    /// The number of limits.
    limits: usize,
}

/// The permits that a client needs in the intervals of a limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    /// The number of the latest interval with a request.
    interval: u32,
    /// The permits in this interval.
    permits: u32,
    /// The most permits in one interval, or in use at once.
    peak: u32,
}

/// The effect of a request on the intervals of its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    /// It is the first request of the client.
    New,
    /// It is in the same interval as the previous request.
    Same,
    /// It is in another interval than the previous request. The previous interval needed these permits.
    Next(u32),
}

impl Clients {
    /// Adds a limit before the first client. Returns its position in the rows.
    pub(crate) fn add_limit(&mut self) -> usize {
        self.limits += 1;
        self.limits - 1
    }

    /// Returns the row of the client with this hash.
    pub(crate) fn row(&mut self, client: u64) -> u32 {
        if let Some((_, row)) = self.rows.find(client, |(hash, _)| *hash == client) {
            return *row;
        }
        // Beyond 2^32 clients, which need 100 GB, the last row counts all others.
        let Ok(row) = u32::try_from(self.rows.len()) else { return u32::MAX };
        self.rows.insert_unique(client, (client, row), |(hash, _)| *hash);
        self.demands.resize(self.rows.len() * self.limits, Demand::NONE);
        row
    }

    /// Reads the row of the client with this hash, if it exists. So the processor loads it into its cache.
    pub(crate) fn load(&self, client: u64) -> u32 {
        let row = self.rows.find(client, |(hash, _)| *hash == client).map(|(_, row)| *row as usize * self.limits);
        let demand = |at: usize| self.demands.get(at).map_or(0, |demand| demand.interval);
        row.map_or(0, |first| demand(first) ^ demand(first + self.limits - 1))
    }

    /// Returns the demand of a client, by its row and the position of the limit.
    pub(crate) fn demand(&mut self, row: u32, limit: usize) -> &mut Demand {
        &mut self.demands[row as usize * self.limits + limit]
    }

    /// Returns the number of limits.
    pub(crate) fn limit_count(&self) -> usize {
        self.limits
    }

    /// Iterates over the hashes of the clients, with their rows.
    pub(crate) fn hashes(&self) -> impl Iterator<Item = (u64, u32)> {
        self.rows.iter().copied()
    }

    /// Returns the demands of all rows: of each limit for each client.
    pub(crate) fn all_demands(&self) -> &[Demand] {
        &self.demands
    }

    /// Iterates over the demands of the clients of a limit.
    pub(crate) fn demands(&self, limit: usize) -> impl Iterator<Item = &Demand> {
        let demands = self.demands.iter().skip(limit).step_by(self.limits);
        demands.filter(|demand| demand.interval != NO_INTERVAL)
    }
}

impl Demand {
    const NONE: Self = Self { interval: NO_INTERVAL, permits: 0, peak: 0 };

    /// Counts the permits that a request needs in an interval, and those in use in the window before the request.
    pub(crate) fn count(&mut self, interval: u64, permits: u32, in_use: u32) -> Counted {
        #[expect(clippy::cast_possible_truncation, reason = "below 2^32")]
        let interval = (interval % u64::from(NO_INTERVAL)) as u32;
        let counted = match self.interval {
            before if before == interval => Counted::Same,
            NO_INTERVAL => Counted::New,
            _ => Counted::Next(self.permits),
        };
        if counted != Counted::Same {
            (self.interval, self.permits) = (interval, 0);
        }
        self.permits = self.permits.saturating_add(permits);
        self.peak = self.peak.max(self.permits).max(in_use);
        counted
    }

    /// Returns the most permits in one interval, or in use at once.
    pub(crate) fn peak(&self) -> u32 {
        self.peak
    }

    /// Returns the permits in the latest interval with a request.
    pub(crate) fn latest(&self) -> u32 {
        self.permits
    }
}
