//! Writes the results to `docs/redisson.md`, between two markers.

use std::fmt;
use std::path::Path;

use super::Result;
use super::cost::Comparison;
use super::java;
use super::processes::Shares;

const BEGIN: &str = "<!-- shared -->";
const END: &str = "<!-- /shared -->";

#[derive(Default)]
pub struct Page {
    pub version: String,
    /// Costs, each with its rate and interval.
    pub costs: Vec<((u64, u64), Comparison)>,
    pub shares: Vec<(u64, Shares)>,
    /// The median and the longest delay of a release, in milliseconds.
    pub release: (f64, f64),
    pub java: Vec<(u64, java::Shares)>,
}

impl Page {
    /// Replaces the section, or appends it if the page has none. Does nothing without the results of a Java service.
    pub fn write(&self) -> Result<()> {
        if self.java.is_empty() {
            return Ok(());
        }
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/redisson.md");
        let old = std::fs::read_to_string(&file)?;
        let section = format!("{BEGIN}\n{self}{END}");
        let new = match old.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1))) {
            Some((before, after)) => format!("{before}{section}{after}"),
            None => format!("{}\n\n{section}\n", old.trim_end()),
        };
        Ok(std::fs::write(file, new)?)
    }
}

impl fmt::Display for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Measured by `cargo bench --bench shared` with Redis {}.\n", self.version)?;
        writeln!(
            f,
            "The CPU time of Redis for a whole call for one permit, in microseconds, and for an `acquire` of \
             Redisson's script in\nthe same run. Both logs have an entry for each permit. \
             The ratio is the median of the rounds.\n"
        )?;
        writeln!(f, "| rate | granted: Redisson | Tidegate | ratio | rejected: Redisson | Tidegate | ratio |")?;
        writeln!(f, "|--:|--:|--:|--:|--:|--:|--:|")?;
        for ((rate, interval), Comparison { redisson, tidegate, ratio }) in &self.costs {
            write!(f, "| {rate} in {} s ", interval / 1_000)?;
            write!(f, "| {:.1} | {:.1} | {:.2} x ", redisson.granted, tidegate.granted, ratio.granted)?;
            writeln!(f, "| {:.1} | {:.1} | {:.2} x |", redisson.rejected, tidegate.rejected, ratio.rejected)?;
        }
        writeln!(
            f,
            "\nTwo programs with 32 tasks each request single permits from the library as fast as they can:\n"
        )?;
        writeln!(
            f,
            "| rate per second | granted share of the rate | granted to each program | most permits in a second |"
        )?;
        writeln!(f, "|--:|--:|--:|--:|")?;
        for (rate, shares) in &self.shares {
            let (percent, [one, other], fullest) = (100.0 * shares.granted_share, shares.each, shares.fullest);
            writeln!(f, "| {rate} | {percent:.1} % | {one} and {other} | {fullest} |")?;
        }
        let (median, longest) = self.release;
        writeln!(
            f,
            "\nA waiting caller of the library receives its permit {median:.0} ms (at most {longest:.0} ms) after a"
        )?;
        writeln!(f, "`release()` of a Redisson client.")?;
        if !self.java.is_empty() {
            writeln!(
                f,
                "\nPermits per second of a real Java service (16 threads) and of a gateway (64 connections):\n"
            )?;
            writeln!(f, "| rate per second | service only | gateway only | both: service | both: gateway |")?;
            writeln!(f, "|--:|--:|--:|--:|--:|")?;
        }
        for (rate, shares) in &self.java {
            let java::Shares { java_alone, gateway_alone, java, gateway } = shares;
            writeln!(f, "| {rate} | {java_alone:.0} | {gateway_alone:.0} | {java:.0} | {gateway:.0} |")?;
        }
        Ok(())
    }
}
