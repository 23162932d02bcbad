//! All that is asked and what came of it: which slices belong together, and whether the law was kept in them.

use super::Result;
use super::law::Window;
use super::redisson;
use super::scenario::{Scenario, algorithms, bounded, curves, named};
use super::slice::{Slice, Spread};

/// What is measured.
pub struct Measured {
    /// At rising concurrency.
    pub curves: Vec<Subject>,
    pub algorithms: Vec<Subject>,
    pub bounded: Vec<Subject>,
    pub contests: [Contest; 2],
}

/// The store against Redisson's script.
pub struct Contest {
    pub subject: Subject,
    pub peer: redisson::Kind,
    /// A slice of the script right after each of the subject's, so that both had the same machine.
    pub theirs: Vec<Slice>,
    /// How many times as many decisions are to be made.
    pub goal: f64,
}

/// A scenario, and what was measured of it.
pub struct Subject {
    pub scenario: Scenario,
    pub rows: Vec<Row>,
    /// The fullest window of each of its limits.
    pub windows: Vec<Window>,
}

/// The slices in which so many tasks asked in each process.
#[derive(Default)]
pub struct Row {
    pub tasks: u32,
    pub slices: Vec<Slice>,
}

/// Tasks in each process of a contest: about as many decisions are under way as `redis-benchmark` has calls.
pub const CONTENDING: u32 = 256;

impl Measured {
    /// Nothing yet, at these levels of concurrency; what has no curve is asked at `usual`.
    pub fn new(levels: &[u32], usual: u32) -> Result<Self> {
        let subjects = |scenarios: Vec<Scenario>, levels: &[u32]| -> Vec<Subject> {
            scenarios.into_iter().map(|scenario| Subject::new(scenario, levels)).collect()
        };
        Ok(Self {
            curves: subjects(curves()?, levels),
            algorithms: subjects(algorithms()?, &[usual]),
            bounded: subjects(bounded()?, &[usual]),
            contests: [
                Contest::new("OVERALL", redisson::Kind::Overall, 20.0)?,
                Contest::new("PER_CLIENT", redisson::Kind::PerClient, 3.0)?,
            ],
        })
    }

    /// The limits of which a window held more than its rate.
    pub fn broken(&self) -> impl Iterator<Item = String> {
        let subjects = [&self.curves, &self.algorithms, &self.bounded].into_iter().flatten();
        let subjects = subjects.chain(self.contests.iter().map(|contest| &contest.subject));
        let broken = |subject: &Subject| {
            let windows: Vec<Window> = subject.windows.iter().filter(|window| window.is_too_full()).copied().collect();
            let name = subject.scenario.name;
            windows.into_iter().map(move |window| format!("{name}: {} granted of {}", window.held, window.rate))
        };
        subjects.flat_map(broken)
    }
}

// === impl Contest ===

impl Contest {
    fn new(scenario: &str, peer: redisson::Kind, goal: f64) -> Result<Self> {
        Ok(Self { subject: Subject::new(named(scenario)?, &[CONTENDING]), peer, theirs: Vec::new(), goal })
    }

    /// What the store made.
    pub fn ours(&self) -> &[Slice] {
        self.subject.rows.first().map_or(&[], |row| &row.slices)
    }

    /// How many times as many decisions, in each pair of slices.
    pub fn ratios(&self) -> Option<Spread> {
        Spread::of(self.ours().iter().zip(&self.theirs).map(|(ours, theirs)| ours.rate / theirs.rate))
    }
}

// === impl Subject ===

impl Subject {
    fn new(scenario: Scenario, levels: &[u32]) -> Self {
        let rows = levels.iter().map(|tasks| Row { tasks: *tasks, slices: Vec::new() }).collect();
        Self { scenario, rows, windows: Vec::new() }
    }

    /// Adds the fullest windows of a slice.
    pub fn saw(&mut self, windows: Vec<Window>) {
        self.windows = match self.windows.is_empty() {
            true => windows,
            false => self.windows.iter().zip(windows).map(|(one, other)| one.or_fuller(other)).collect(),
        };
    }
}

// === impl Row ===

impl Row {
    /// Of one figure of its slices.
    pub fn spread(&self, figure: impl Fn(&Slice) -> f64) -> Option<Spread> {
        Spread::of(self.slices.iter().map(figure))
    }

    /// The median of one figure of its slices.
    pub fn median(&self, figure: impl Fn(&Slice) -> f64) -> f64 {
        self.spread(figure).map_or(f64::NAN, |spread| spread.median)
    }
}
