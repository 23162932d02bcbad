//! Compares `tidegate replay` with goaccess: both read the same file.

use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tidegate_limit::clock::Stopwatch;

/// Odd, so that a round is the median.
const ROUNDS: usize = 3;

/// The files of a comparison. Dropping it removes them.
struct Files(PathBuf);

/// The seconds that a program took.
#[derive(Clone, Copy)]
struct Seconds {
    cpu: f64,
    wall: f64,
}

impl Drop for Files {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns the rows of a log with this number of lines and clients.
pub(crate) fn compare(log: &str, rules: &str, lines: usize, clients: usize) -> Result<String, Box<dyn Error>> {
    let files = Files(Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("replay-bench-{}", std::process::id())));
    fs::create_dir_all(&files.0)?;
    let path = |name: &str| files.0.join(name).display().to_string();
    let (rules_file, log_file, report) = (path("rules.yaml"), path("access.log"), path("report.json"));
    fs::write(&rules_file, rules)?;
    fs::write(&log_file, log)?;

    let replay = [env!("CARGO_BIN_EXE_tidegate"), "replay", "-c", &rules_file, &log_file];
    let one_core = ["taskset", "-c", "0"];
    let goaccess =
        ["goaccess", &log_file, "--log-format=COMBINED", "--no-global-config", "--no-progress", "-o", &report];
    let commands = [[&one_core[..], &replay].concat(), replay.to_vec(), [&one_core[..], &goaccess].concat()];
    let mut measured = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        for (command, measured) in commands.iter().zip(&mut measured) {
            measured.push(seconds(command)?);
        }
    }
    let [one, all, goaccess] = measured.map(|mut rounds| {
        rounds.sort_by(|one, other| one.wall.total_cmp(&other.wall));
        rounds[ROUNDS / 2]
    });
    let mut rows = String::new();
    let rate = |seconds: f64| format!("{:.0} lines/s", lines as f64 / seconds);
    writeln!(rows, "replay combined, five limits, {clients} clients, one core: {} of CPU time", rate(one.cpu))?;
    writeln!(rows, "  all cores: {}, {:.2} x as fast as one core", rate(all.wall), one.wall / all.wall)?;
    write!(
        rows,
        "  goaccess, one core: {} of CPU time, {:.2} x the time of replay",
        rate(goaccess.cpu),
        goaccess.cpu / one.cpu
    )?;
    Ok(rows)
}

/// Runs a command, and returns the time that it took.
fn seconds(command: &[&str]) -> Result<Seconds, Box<dyn Error>> {
    let (before, stopwatch) = (children_cpu()?, Stopwatch::start());
    let status = Command::new(command[0]).args(&command[1..]).stdout(Stdio::null()).status();
    let status = status.map_err(|error| format!("{}: {error}: install goaccess and util-linux", command[0]))?;
    if !status.success() {
        return Err(format!("{} failed: {status}", command.join(" ")).into());
    }
    Ok(Seconds { cpu: children_cpu()? - before, wall: stopwatch.elapsed().as_secs_f64() })
}

/// Returns the CPU seconds of all children that have ended, in steps of 10 ms.
fn children_cpu() -> Result<f64, Box<dyn Error>> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
    let ticks: Result<Vec<f64>, _> = fields.skip(13).take(2).map(str::parse).collect();
    Ok(ticks?.iter().sum::<f64>() / 100.0)
}
