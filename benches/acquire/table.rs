//! Formats the results as a table.

use std::fmt;

use super::bucket::MeasuredBucket;

/// The results of a run.
pub struct Table<'t> {
    pub buckets: &'t [MeasuredBucket],
    pub redis: String,
    pub seconds: u64,
}

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers = ["us/acquire", "ratio", "longest us", "typical", "for all us", "expired us", "bytes"];
        let [cost, ratio, longest, usual, all, expired, bytes] = headers;
        write!(f, "{:<15} {:>9} {cost:>10} {ratio:>6} {longest:>10} {usual:>7}", "algorithm", "rate")?;
        writeln!(f, " {all:>10} {expired:>10} {bytes:>10}")?;
        let least = self.buckets.first().map_or(f64::NAN, cost_of);
        for bucket in self.buckets {
            row(f, bucket, least)?;
        }
        writeln!(f, "us/acquire: Redis's time per decision, the median of the rounds; ratio: to the first line")?;
        writeln!(f, "longest: the longest single call of all rounds; typical: the median of the rounds' longest")?;
        writeln!(f, "for all: a call that requests the whole rate while most is in use, the longest of several")?;
        writeln!(f, "expired: the first call after all permits have expired together, the longest of several")?;
        write!(f, "Redis {}; {} seconds", self.redis, self.seconds)
    }
}

fn row(f: &mut fmt::Formatter<'_>, bucket: &MeasuredBucket, least: f64) -> fmt::Result {
    let mut longest: Vec<u64> = bucket.rounds.iter().map(|round| round.longest).collect();
    longest.sort_unstable();
    let (most, usual) = (longest.last().unwrap_or(&0), longest.get(longest.len() / 2).unwrap_or(&0));
    let (all, expired) = (bucket.refusals.iter().max().unwrap_or(&0), bucket.expiries.iter().max().unwrap_or(&0));
    let cost = cost_of(bucket);
    write!(f, "{:<15} {:>9} {cost:>10.1} {:>6.2}", bucket.subject.name, bucket.subject.rate, cost / least)?;
    writeln!(f, " {most:>10} {usual:>7} {all:>10} {expired:>10} {:>10}", bucket.bytes)
}

/// Microseconds per decision: the median of the rounds.
fn cost_of(bucket: &MeasuredBucket) -> f64 {
    let mut costs: Vec<f64> = bucket.rounds.iter().map(|round| round.per_call).collect();
    costs.sort_by(f64::total_cmp);
    costs.get(costs.len() / 2).copied().unwrap_or(f64::NAN)
}
