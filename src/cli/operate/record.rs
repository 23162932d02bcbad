//! `tidegate record`: writes the requests of a running gateway.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use tokio::runtime::Builder;
use tokio::time::timeout;

use super::api::{AdminArgs, ApiError, Streamed};
use super::request::{path, query};
use super::write_error;
use crate::cli::signals::Signals;
use crate::config::{Bytes, Millis};
use crate::recording::Mark;

/// The longest time without a line. The gateway sends one every 5 s.
const SILENCE: Duration = Duration::from_secs(30);

/// The longest line, in bytes. The lines of the gateway are shorter.
const MAX_LINE: usize = 1 << 20;

/// Arguments of `tidegate record`.
#[derive(Debug, Args)]
pub(in crate::cli) struct RecordArgs {
    /// Share of the clients: a sample has all requests of a client or none. The first limit of a route that counts by
    /// more than the address identifies the client, otherwise the address
    #[arg(long, value_name = "SHARE", default_value = "1", value_parser = share)]
    sample: f64,
    /// Also record this value, for a limit that the rule file does not have yet: header:NAME, cookie:NAME or query:NAME.
    /// The first then identifies the clients of a sample
    #[arg(long, value_name = "SOURCE")]
    client: Vec<String>,
    /// How long, such as 30s or 2h; at most 1d
    #[arg(long = "for", value_name = "DURATION", default_value = "10m", value_parser = duration)]
    lasts: String,
    /// Size at which the recording ends
    #[arg(long, value_name = "SIZE", default_value = "100MiB", value_parser = size)]
    max_size: u64,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace FILE if it exists
    #[arg(long, requires = "output")]
    force: bool,
    #[command(flatten)]
    gateway: AdminArgs,
}

/// Why a recording ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The gateway has sent the last line at the requested time.
    Complete,
    /// The gateway has sent the last line before the requested time.
    Early,
    Size,
    Signal,
    /// The connection ended or broke before the last line.
    Lost,
}

/// The destination of lines. It gets only whole lines.
struct Sink<'o, O> {
    out: &'o mut O,
    file: Option<File>,
    max: u64,
    written: u64,
    requests: u64,
    last: Mark,
    /// The start of a line.
    rest: Vec<u8>,
}

/// Writes the requests of a gateway. Returns the exit code: 0, 1 if the gateway rejects the request, or 2 if the gateway or
/// the connection ends the recording early.
pub(in crate::cli) fn record(args: &RecordArgs, out: &mut impl Write, errors: &mut impl Write) -> io::Result<u8> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let (end, sink) = match runtime.block_on(args.record(out)) {
        Ok(recorded) => recorded,
        Err(RecordError::Api(error)) => return write_error(&error, errors),
        Err(RecordError::Output(error)) => {
            let output =
                args.output.as_ref().map_or_else(|| "standard output".into(), |file| file.display().to_string());
            let exists = error.kind() == io::ErrorKind::AlreadyExists;
            let help = if exists { "\nhelp: write to another file, or replace this one with --force" } else { "" };
            return writeln!(errors, "tidegate: {output}: {error}{help}").map(|()| 2);
        }
    };
    let Sink { written, requests, last: Mark { dropped, .. }, .. } = sink;
    write!(errors, "recorded {requests} requests in {written} bytes")?;
    if dropped > 0 {
        write!(errors, "; {dropped} more were dropped")?;
    }
    writeln!(errors)?;
    match end {
        End::Complete | End::Signal => Ok(0),
        End::Size => writeln!(errors, "ended at --max-size").map(|()| 0),
        End::Early => {
            let why = "it exits or is replaced, or the token is no longer valid";
            writeln!(errors, "tidegate: the gateway has ended the recording early: {why}").map(|()| 2)
        }
        End::Lost => writeln!(errors, "tidegate: the connection to the gateway is lost").map(|()| 2),
    }
}

/// Why there is no recording.
enum RecordError {
    Api(ApiError),
    Output(io::Error),
}

impl RecordArgs {
    async fn record<'o, O: Write>(&self, out: &'o mut O) -> Result<(End, Sink<'o, O>), RecordError> {
        let mut parameters = vec![("sample", self.sample.to_string()), ("for", self.lasts.clone())];
        parameters.extend(self.client.iter().map(|client| ("client", client.clone())));
        let target = path(&["record"]) + &query(&parameters);
        let mut lines = self.gateway.stream(&target).await.map_err(RecordError::Api)?;
        // Until here, a signal ends the process: there is nothing to finish.
        let mut signals = Signals::of_command().map_err(RecordError::Output)?;
        let file = self.output.as_ref().map(|file| create(file, self.force));
        let file = file.transpose().map_err(RecordError::Output)?;
        let (rest, last) = (Vec::new(), Mark::default());
        let mut sink = Sink { out, file, max: self.max_size, written: 0, requests: 0, last, rest };
        let end = tokio::select! {
            end = sink.write_all(&mut lines) => end.map_err(RecordError::Output)?,
            _ = signals.next() => End::Signal,
        };
        Ok((end, sink))
    }
}

impl<O: Write> Sink<'_, O> {
    /// Writes all lines until the end.
    async fn write_all(&mut self, lines: &mut Streamed) -> io::Result<End> {
        loop {
            let Ok(Ok(Some(bytes))) = timeout(SILENCE, lines.next()).await else { return Ok(End::Lost) };
            if let Some(end) = self.write(&bytes)? {
                return Ok(end);
            }
        }
    }

    /// Writes the whole lines of the bytes, and keeps the rest.
    fn write(&mut self, bytes: &[u8]) -> io::Result<Option<End>> {
        self.rest.extend_from_slice(bytes);
        let (mut whole, mut end) = (0, None);
        let mut chunk = Vec::new();
        while let Some(length) = memchr::memchr(b'\n', &self.rest[whole..]).map(|at| at + 1).filter(|_| end.is_none()) {
            let line = &self.rest[whole..whole + length];
            whole += length;
            if line == b"\n" {
                continue;
            }
            if self.written + (chunk.len() + length) as u64 > self.max {
                end = Some(End::Size);
                continue;
            }
            chunk.extend_from_slice(line);
            match Mark::parse(line) {
                None => self.requests += 1,
                Some(mark) => {
                    end = mark.end.then_some(if mark.early { End::Early } else { End::Complete });
                    self.last = mark;
                }
            }
        }
        self.rest.drain(..whole);
        self.write_chunk(&chunk)?;
        let is_too_long = self.rest.len() > MAX_LINE;
        Ok(end.or(is_too_long.then_some(End::Lost)))
    }

    /// Writes whole lines. A file has no part of a line, even if it cannot be written.
    fn write_chunk(&mut self, chunk: &[u8]) -> io::Result<()> {
        match &mut self.file {
            None => self.out.write_all(chunk).and_then(|()| self.out.flush())?,
            Some(file) => {
                if let Err(error) = file.write_all(chunk) {
                    // Without success, the error of the write matters more.
                    _ = file.set_len(self.written);
                    return Err(error);
                }
            }
        }
        self.written += chunk.len() as u64;
        Ok(())
    }
}

/// Creates a file that only its owner can read. An existing file is replaced only if `force`.
fn create(path: &Path, force: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create(force).create_new(!force).mode(0o600).open(path)?;
    if file.metadata()?.is_file() {
        // Before the first line: an existing file keeps its mode.
        file.set_permissions(Permissions::from_mode(0o600))?;
        file.set_len(0)?;
    }
    Ok(file)
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| 0.0 < *share && *share <= 1.0);
    share.ok_or_else(|| format!("`{text}` is not a share above 0 and at most 1, such as 0.1"))
}

fn duration(text: &str) -> Result<String, String> {
    match Millis::parse(text) {
        Some(Millis(1..)) => Ok(text.to_owned()),
        _ => Err(format!("`{text}` is not a duration, such as 10m")),
    }
}

fn size(text: &str) -> Result<u64, String> {
    Bytes::parse(text).map(|size| size.0).ok_or_else(|| format!("`{text}` is not a size, such as 100MiB"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: &str = "{\"recording\":{\"sample\":1.0,\"dropped\":3,\"end\":false}}\n";
    const LAST: &str = "{\"recording\":{\"sample\":1.0,\"dropped\":4,\"end\":true}}\n";
    const LINE: &str = "{\"time\":1795521600137}\n";

    fn sink(out: &mut Vec<u8>, max: u64) -> Sink<'_, Vec<u8>> {
        let (rest, last) = (Vec::new(), Mark::default());
        Sink { out, file: None, max, written: 0, requests: 0, last, rest }
    }

    #[test]
    fn only_whole_lines_are_written() {
        let text = [MARK, LINE, "\n", LINE, "\n\n", LAST, LINE].concat();
        for size in 1..=text.len() {
            let mut out = Vec::new();
            let mut sink = sink(&mut out, u64::MAX);
            let mut ends = text.as_bytes().chunks(size).map(|chunk| {
                let end = sink.write(chunk).expect("written");
                assert!(sink.out.is_empty() || sink.out.ends_with(b"\n"));
                end
            });
            assert_eq!(ends.find_map(|end| end), Some(End::Complete));
            drop(ends);
            assert_eq!((sink.requests, sink.last.dropped, sink.written), (2, 4, sink.out.len() as u64));
            assert_eq!(String::from_utf8(out).expect("text"), [MARK, LINE, LINE, LAST].concat());
        }
    }

    #[test]
    fn size_is_bounded() {
        for (max, lines) in [(0, 0), (LINE.len(), 1), (2 * LINE.len() - 1, 1), (2 * LINE.len(), 2)] {
            let mut out = Vec::new();
            let end = sink(&mut out, max as u64).write(LINE.repeat(3).as_bytes()).expect("written");
            assert_eq!((end, out.len()), (Some(End::Size), lines * LINE.len()), "{max}");
        }
        let mut out = Vec::new();
        assert_eq!(sink(&mut out, u64::MAX).write(&vec![b'x'; MAX_LINE + 1]).expect("written"), Some(End::Lost));
    }
}
