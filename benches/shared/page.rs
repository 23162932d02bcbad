//! What was measured, as a section of `docs/redisson.md`: what stands between its two markers.

use std::fmt;
use std::path::Path;

use super::Result;
use super::cost::Compared;
use super::java;
use super::processes::Shares;

const BEGIN: &str = "<!-- shared -->";
const END: &str = "<!-- /shared -->";

#[derive(Default)]
pub struct Page {
    pub version: String,
    /// By rate and interval.
    pub costs: Vec<((u64, u64), Compared)>,
    pub shares: Vec<(u64, Shares)>,
    /// Milliseconds: the median and the longest.
    pub release: (f64, f64),
    pub java: Vec<(u64, java::Shares)>,
}

impl Page {
    /// Writes the section, at the end of the page if it is not there. Without a Java service it is only told.
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
            "Microseconds of Redis's processor for a call about one permit, all included, beside an `acquire` of Redisson's\nscript in the same run, an entry for each permit in both logs. How many times as much ours is: the median of the rounds.\n"
        )?;
        writeln!(f, "| rate | granted: Redisson | ours | | refused: Redisson | ours | |")?;
        writeln!(f, "|--:|--:|--:|--:|--:|--:|--:|")?;
        for ((rate, interval), Compared { theirs, ours, times }) in &self.costs {
            write!(f, "| {rate} in {} s ", interval / 1_000)?;
            write!(f, "| {:.1} | {:.1} | {:.2} x ", theirs.granted, ours.granted, times.granted)?;
            writeln!(f, "| {:.1} | {:.1} | {:.2} x |", theirs.refused, ours.refused, times.refused)?;
        }
        writeln!(f, "\nTwo programs of the library, 32 tasks in each, ask for single permits as fast as they can:\n")?;
        writeln!(f, "| rate a second | granted of it | each | fullest second |")?;
        writeln!(f, "|--:|--:|--:|--:|")?;
        for (rate, shares) in &self.shares {
            let (part, [one, other], fullest) = (100.0 * shares.part, shares.each, shares.fullest);
            writeln!(f, "| {rate} | {part:.1} % | {one} and {other} | {fullest} |")?;
        }
        let (median, longest) = self.release;
        writeln!(
            f,
            "\nA program of the library that waits has its permit {median:.0} ms (at most {longest:.0} ms) after a"
        )?;
        writeln!(f, "`release()` of a client of Redisson.")?;
        if !self.java.is_empty() {
            writeln!(f, "\nPermits a second of a real Java service (16 threads) and of a gateway (64 connections):\n")?;
            writeln!(
                f,
                "| rate a second | the service alone | the gateway alone | together: the service | the gateway |"
            )?;
            writeln!(f, "|--:|--:|--:|--:|--:|")?;
        }
        for (rate, shares) in &self.java {
            let java::Shares { java_alone, gateway_alone, java, gateway } = shares;
            writeln!(f, "| {rate} | {java_alone:.0} | {gateway_alone:.0} | {java:.0} | {gateway:.0} |")?;
        }
        Ok(())
    }
}
