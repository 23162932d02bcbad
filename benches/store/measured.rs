//! The measured scenarios and their results.

use super::Result;
use super::redisson;
use super::scenario::{Scenario, algorithms, bounded, curves, find};
use super::slice::{Slice, Spread};
use super::window::Window;

/// The scenarios and their results, by section of the page.
pub struct Measured {
    /// Scenarios at rising concurrency.
    pub curves: Vec<Subject>,
    pub algorithms: Vec<Subject>,
    pub bounded: Vec<Subject>,
    pub comparisons: [Comparison; 2],
}

/// A comparison of the store with Redisson's script.
pub struct Comparison {
    pub subject: Subject,
    pub peer: redisson::Kind,
    /// Slices of the script. Each follows a slice of the store, so that the machine's speed is the same for both.
    pub redisson: Vec<Slice>,
    /// The required ratio of the decisions per second.
    pub goal: f64,
}

/// A scenario and its results.
pub struct Subject {
    pub scenario: Scenario,
    pub rows: Vec<Row>,
    /// The fullest window of each limit.
    pub windows: Vec<Window>,
}

/// The slices with `tasks` tasks in each process.
#[derive(Default)]
pub struct Row {
    pub tasks: u32,
    pub slices: Vec<Slice>,
}

/// Tasks in each process of a comparison: about as many decisions are in flight as `redis-benchmark` has calls.
pub const COMPARISON_TASKS: u32 = 256;

impl Measured {
    /// Creates empty results for these levels of concurrency. Scenarios without a curve run with `usual` tasks.
    pub fn new(levels: &[u32], usual: u32) -> Result<Self> {
        let subjects = |scenarios: Vec<Scenario>, levels: &[u32]| -> Vec<Subject> {
            scenarios.into_iter().map(|scenario| Subject::new(scenario, levels)).collect()
        };
        Ok(Self {
            curves: subjects(curves()?, levels),
            algorithms: subjects(algorithms()?, &[usual]),
            bounded: subjects(bounded()?, &[usual]),
            comparisons: [
                Comparison::new("OVERALL", redisson::Kind::Overall, 20.0)?,
                Comparison::new("PER_CLIENT", redisson::Kind::PerClient, 3.0)?,
            ],
        })
    }

    /// Describes the limits of which a window exceeded the rate.
    pub fn exceeded_limits(&self) -> impl Iterator<Item = String> {
        let subjects = [&self.curves, &self.algorithms, &self.bounded].into_iter().flatten();
        let subjects = subjects.chain(self.comparisons.iter().map(|comparison| &comparison.subject));
        let describe = |subject: &Subject| {
            let windows: Vec<Window> = subject.windows.iter().filter(|window| window.exceeds_rate()).copied().collect();
            let name = subject.scenario.name;
            windows.into_iter().map(move |window| format!("{name}: {} granted of {}", window.granted, window.rate))
        };
        subjects.flat_map(describe)
    }
}

// === impl Comparison ===

impl Comparison {
    fn new(scenario: &str, peer: redisson::Kind, goal: f64) -> Result<Self> {
        Ok(Self { subject: Subject::new(find(scenario)?, &[COMPARISON_TASKS]), peer, redisson: Vec::new(), goal })
    }

    /// Returns the slices of the store.
    pub fn tidegate(&self) -> &[Slice] {
        self.subject.rows.first().map_or(&[], |row| &row.slices)
    }

    /// Returns the ratio of the decisions per second over the pairs of slices. Returns `None` without slices.
    pub fn ratios(&self) -> Option<Spread> {
        Spread::new(
            self.tidegate().iter().zip(&self.redisson).map(|(tidegate, redisson)| tidegate.rate / redisson.rate),
        )
    }
}

// === impl Subject ===

impl Subject {
    fn new(scenario: Scenario, levels: &[u32]) -> Self {
        let rows = levels.iter().map(|tasks| Row { tasks: *tasks, slices: Vec::new() }).collect();
        Self { scenario, rows, windows: Vec::new() }
    }

    /// Merges the fullest windows of a slice.
    pub fn add_windows(&mut self, windows: Vec<Window>) {
        self.windows = match self.windows.is_empty() {
            true => windows,
            false => self.windows.iter().zip(windows).map(|(one, other)| one.or_fuller(other)).collect(),
        };
    }
}

// === impl Row ===

impl Row {
    /// Returns the spread of a figure over the slices.
    pub fn spread(&self, figure: impl Fn(&Slice) -> f64) -> Option<Spread> {
        Spread::new(self.slices.iter().map(figure))
    }

    /// Returns the median of a figure over the slices.
    pub fn median(&self, figure: impl Fn(&Slice) -> f64) -> f64 {
        self.spread(figure).map_or(f64::NAN, |spread| spread.median)
    }
}
