//! `tidegate record`: writes the requests of a running gateway.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use http::Response;
use hyper::body::Incoming;
use tokio::runtime::Builder;
use tokio::time::timeout;

use super::api::{AdminArgs, AdminClient, ApiError};
use super::request::{path, query};
use super::sink::{End, Sink};
use super::write_error;
use crate::cli::signals::Signals;
use tidegate_config::{Bytes, Millis};
use tidegate_layer::recording::Mark;

/// The longest time in which the gateway ends a recording.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// Arguments of `tidegate record`.
#[derive(Debug, Args)]
pub(in crate::cli) struct RecordArgs {
    /// Share of the clients: a sample has all requests of a client or none. The first limit of a route that counts by
    /// more than the address identifies the client, otherwise the address
    #[arg(long, value_name = "SHARE", default_value = "1", value_parser = share)]
    sample: f64,
    /// Also record this value, for a limit that the rule file does not have yet: header:NAME, cookie:NAME, query:NAME, or
    /// jwt:CLAIM, key:NAME or basic:user of verified credentials. The first that is not of credentials then identifies the
    /// clients of a sample
    #[arg(long, value_name = "SOURCE")]
    client: Vec<String>,
    /// How long, such as 30s or 2h; at most 1d
    #[arg(long = "for", value_name = "DURATION", default_value = "10m", value_parser = duration)]
    duration: String,
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

/// Writes the requests of a gateway. Returns the exit code: 0, 1 if the gateway rejects the request, or 2 if the gateway,
/// an operator or the connection ends the recording early.
pub(in crate::cli) fn record(args: &RecordArgs, out: &mut impl Write, errors: &mut impl Write) -> io::Result<u8> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let (end, last, [requests, written]) = match runtime.block_on(args.record(out, errors)) {
        Ok(recorded) => recorded,
        Err(RecordError::Api(error)) => return write_error(&error, errors),
        Err(RecordError::Size) => {
            return writeln!(errors, "tidegate: --max-size is too small for the first line of the recording")
                .map(|()| 2);
        }
        Err(RecordError::Output(error)) => {
            let output =
                args.output.as_ref().map_or_else(|| "standard output".into(), |file| file.display().to_string());
            let exists = error.kind() == io::ErrorKind::AlreadyExists;
            let help = if exists { "\nhelp: write to another file, or replace this one with --force" } else { "" };
            return writeln!(errors, "tidegate: {output}: {error}{help}").map(|()| 2);
        }
    };
    let Mark { dropped, unfinished, end: has_end, .. } = last;
    let counted = if requests == 1 { "request" } else { "requests" };
    write!(errors, "recorded {requests} {counted} in {written} bytes")?;
    for (count, more, fate) in [(dropped, " more", "dropped"), (unfinished, "", "in flight at the end")] {
        if count > 0 {
            let verb = if count == 1 { "was" } else { "were" };
            write!(errors, "; {count}{more} {verb} {fate}")?;
        }
    }
    writeln!(errors)?;
    if end == End::Size {
        writeln!(errors, "ended at --max-size")?;
    }
    match end {
        End::Early => {
            let why = "it exits or is replaced, the token is no longer valid, or an operator has ended the recording";
            writeln!(errors, "tidegate: the gateway has ended the recording early: {why}").map(|()| 2)
        }
        End::Lost => writeln!(errors, "tidegate: the connection to the gateway is lost").map(|()| 2),
        End::Complete | End::Signal | End::Size if has_end => Ok(0),
        End::Complete | End::Signal | End::Size => {
            let why = "requests in flight and the last dropped ones are not counted";
            writeln!(errors, "tidegate: the gateway has not confirmed the end: {why}").map(|()| 2)
        }
    }
}

/// Why there is no recording.
enum RecordError {
    Api(ApiError),
    /// The size is too small for the first line.
    Size,
    Output(io::Error),
}

impl RecordArgs {
    /// Returns the end, the last mark, and the numbers of requests and bytes.
    async fn record(
        &self,
        out: &mut impl Write,
        errors: &mut impl Write,
    ) -> Result<(End, Mark, [u64; 2]), RecordError> {
        let mut parameters = vec![("sample", self.sample.to_string()), ("for", self.duration.clone())];
        parameters.extend(self.client.iter().map(|client| ("client", client.clone())));
        let target = path(&["record"]) + &query(&parameters);
        let gateway = self.gateway.client().map_err(RecordError::Api)?;
        let mut lines = gateway.stream("GET", &target).await.map_err(RecordError::Api)?;
        let file = self.output.as_ref().map(|file| create(file, self.force));
        let file = file.transpose().map_err(RecordError::Output)?;
        // Until here, a signal ends the process: there is nothing to finish, and a pipe without a reader is not opened.
        let mut signals = Signals::of_command().map_err(RecordError::Output)?;
        let mut sink = Sink::new(out, errors, file, self.max_size);
        let end = tokio::select! {
            end = sink.write_all(&mut lines) => end.map_err(RecordError::Output)?,
            _ = signals.next() => End::Signal,
        };
        if matches!(end, End::Size | End::Signal) {
            let ended = timeout(END_TIMEOUT, end_recording(&gateway, &mut lines, &mut sink));
            tokio::select! {
                // Without its end, the recording is reported as unconfirmed.
                ended = ended => ended.unwrap_or(Ok(())).map_err(RecordError::Output)?,
                _ = signals.next() => {}
            }
        }
        if end == End::Size && !sink.has_mark {
            return Err(RecordError::Size);
        }
        Ok((end, sink.last, [sink.requests, sink.written]))
    }
}

/// Ends the recording in the gateway, which then sends the last lines and what the recording lacks.
async fn end_recording<O: Write>(
    gateway: &AdminClient,
    lines: &mut Response<Incoming>,
    sink: &mut Sink<'_, O>,
) -> io::Result<()> {
    let target = path(&["record", &sink.last.id]);
    if !sink.last.end && gateway.stream("DELETE", &target).await.is_ok() {
        sink.write_all(lines).await?;
    }
    Ok(())
}

/// Creates a file that only its owner can read. An existing file is replaced only if `force`; pipes and devices are
/// always opened.
fn create(path: &Path, force: bool) -> io::Result<File> {
    let is_special = std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file());
    let mut options = OpenOptions::new();
    let file = options.write(true).create(force).create_new(!force && !is_special).mode(0o600).open(path)?;
    if file.metadata()?.is_file() {
        if is_special && !force {
            // Another program has replaced the path since.
            return Err(io::ErrorKind::AlreadyExists.into());
        }
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
