//! The usual metrics of a process, with the names and meanings of Prometheus's client libraries. Reads `/proc`, so only
//! Linux has them.

use std::fmt;
use std::fs::{read_dir, read_to_string};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// The ticks of a second in `/proc`: the constant `USER_HZ` of Linux.
const TICKS: f64 = 100.0;

/// Reads what the process uses, at each request for metrics.
#[derive(Debug)]
pub(crate) struct Usage;

impl Collector for Usage {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        if let Some(seconds) = cpu_seconds() {
            let meaning = "User and system CPU time, in seconds";
            let counter = encoder.encode_descriptor("process_cpu_seconds", meaning, None, MetricType::Counter)?;
            ConstCounter::new(seconds).encode(counter)?;
        }
        let gauges = [
            ("process_start_time_seconds", "Start of the process since the Unix epoch, in seconds", start_time()),
            ("process_resident_memory_bytes", "Resident memory, in bytes", memory("VmRSS:")),
            ("process_virtual_memory_bytes", "Virtual memory, in bytes", memory("VmSize:")),
            ("process_open_fds", "Open file descriptors", open_descriptors()),
            ("process_max_fds", "The limit of open file descriptors", max_descriptors()),
        ];
        for (name, meaning, value) in gauges {
            let Some(value) = value else { continue };
            ConstGauge::new(value).encode(encoder.encode_descriptor(name, meaning, None, MetricType::Gauge)?)?;
        }
        Ok(())
    }
}

/// Returns a number of `/proc/self/stat`, counted from the field after the name of the program, which may contain spaces.
fn stat(index: usize) -> Option<f64> {
    read_to_string("/proc/self/stat").ok()?.rsplit_once(") ")?.1.split(' ').nth(index)?.parse().ok()
}

fn cpu_seconds() -> Option<f64> {
    Some((stat(11)? + stat(12)?) / TICKS)
}

fn start_time() -> Option<f64> {
    let since_boot = stat(19)? / TICKS;
    let boot: f64 =
        read_to_string("/proc/stat").ok()?.lines().find_map(|line| line.strip_prefix("btime "))?.parse().ok()?;
    Some(boot + since_boot)
}

/// Returns a value of `/proc/self/status`, which are in KiB.
fn memory(name: &str) -> Option<f64> {
    let status = read_to_string("/proc/self/status").ok()?;
    let kibibytes: f64 =
        status.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix(" kB"))?.parse().ok()?;
    Some(kibibytes * 1_024.0)
}

fn open_descriptors() -> Option<f64> {
    // The folder that is read is one of them.
    let count = read_dir("/proc/self/fd").ok()?.count().saturating_sub(1);
    u32::try_from(count).ok().map(f64::from)
}

fn max_descriptors() -> Option<f64> {
    let limits = read_to_string("/proc/self/limits").ok()?;
    limits.lines().find_map(|line| line.strip_prefix("Max open files"))?.split_whitespace().next()?.parse().ok()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use crate::Metrics;

    #[test]
    fn gateway_reports_what_its_process_uses() {
        let text = Metrics::of_gateway(&[]).render();
        let value = |name: &str| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().expect("a number")
        };
        assert!(value("process_cpu_seconds_total") >= 0.0);
        assert!(value("process_start_time_seconds") > 1.7e9);
        assert!((1e6..1e11).contains(&value("process_resident_memory_bytes")));
        assert!(value("process_virtual_memory_bytes") >= value("process_resident_memory_bytes"));
        assert!((3.0..=value("process_max_fds")).contains(&value("process_open_fds")));
        assert!(!Metrics::new().render().contains("process_"));
    }
}
