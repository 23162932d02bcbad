//! Writes the lines of a recording, up to a size.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Write};
use std::time::Duration;

use http::Response;
use hyper::body::Incoming;
use tokio::time::timeout;

use super::api::next;
use super::table::printable;
use tidegate_layer::recording::Mark;

/// The longest time without a line. The gateway sends one every 5 s.
const SILENCE: Duration = Duration::from_secs(30);

/// The longest line, in bytes. The lines of the gateway are shorter.
const MAX_LINE: usize = 1 << 20;

/// The bytes that are left for the last line.
const LAST_LINE: u64 = 512;

/// Why a recording ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
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
pub(super) struct Sink<'o, O> {
    out: &'o mut O,
    /// Gets what the recording lacks, as soon as the gateway reports it.
    errors: &'o mut dyn Write,
    file: Option<File>,
    max: u64,
    pub(super) written: u64,
    pub(super) requests: u64,
    pub(super) last: Mark,
    /// Whether the first mark has been written, without which the requests mean nothing.
    pub(super) has_mark: bool,
    lacks: HashSet<String>,
    /// Whether a line was too long for the rest of the size. Only the last line can follow.
    is_full: bool,
    /// The start of a line.
    rest: Vec<u8>,
}

impl<'o, O: Write> Sink<'o, O> {
    /// Creates a sink for at most `max` bytes in the file, or in `out` without one.
    pub(super) fn new(out: &'o mut O, errors: &'o mut dyn Write, file: Option<File>, max: u64) -> Self {
        Self {
            out,
            errors,
            file,
            max,
            written: 0,
            requests: 0,
            last: Mark::default(),
            has_mark: false,
            lacks: HashSet::new(),
            is_full: false,
            rest: Vec::new(),
        }
    }

    /// Writes all lines until the end, or until the size is reached. Then, another call skips the requests.
    pub(super) async fn write_all(&mut self, lines: &mut Response<Incoming>) -> io::Result<End> {
        loop {
            let Ok(Ok(Some(bytes))) = timeout(SILENCE, next(lines)).await else { return Ok(End::Lost) };
            if let Some(end) = self.write(&bytes)? {
                return Ok(end);
            }
        }
    }

    /// Writes the whole lines of the bytes, and keeps the rest.
    fn write(&mut self, bytes: &[u8]) -> io::Result<Option<End>> {
        self.rest.extend_from_slice(bytes);
        let (mut whole, mut end) = (0, None);
        let (mut chunk, mut notes) = (Vec::new(), Vec::new());
        while let Some(length) = memchr::memchr(b'\n', &self.rest[whole..]).map(|at| at + 1).filter(|_| !self.last.end)
        {
            let line = &self.rest[whole..whole + length];
            whole += length;
            if line == b"\n" {
                continue;
            }
            let mark = Mark::parse(line);
            let is_last = mark.as_ref().is_some_and(|mark| mark.end);
            let max = if is_last { self.max } else { self.max.saturating_sub(LAST_LINE) };
            let fits = self.written + (chunk.len() + length) as u64 <= max;
            if fits && (!self.is_full || is_last) {
                chunk.extend_from_slice(line);
                self.requests += u64::from(mark.is_none());
                self.has_mark |= mark.as_ref().is_some_and(|mark| !mark.end);
            } else if !self.is_full && !is_last {
                (self.is_full, end) = (true, Some(End::Size));
            }
            if let Some(mark) = mark {
                let of_gateway = is_last.then_some(if mark.early { End::Early } else { End::Complete });
                end = end.or(of_gateway);
                notes.extend(mark.lacks.iter().filter(|lacking| self.lacks.insert((*lacking).clone())).cloned());
                self.last = mark;
            }
        }
        self.rest.drain(..whole);
        self.write_chunk(&chunk)?;
        for lacking in notes {
            // The recording continues without its terminal.
            _ = writeln!(self.errors, "note: the recording lacks {}, which the rules read", printable(&lacking));
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: &str = "{\"recording\":{\"sample\":1.0,\"dropped\":3,\"end\":false}}\n";
    const LAST: &str = "{\"recording\":{\"sample\":1.0,\"dropped\":4,\"end\":true}}\n";
    const LINE: &str = "{\"time\":1795521600137}\n";

    #[test]
    fn only_whole_lines_are_written() {
        let text = [MARK, LINE, "\n", LINE, "\n\n", LAST, LINE].concat();
        for size in 1..=text.len() {
            let (mut out, mut errors) = (Vec::new(), Vec::new());
            let mut sink = Sink::new(&mut out, &mut errors, None, u64::MAX);
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
    fn size_can_be_too_small_for_the_first_mark() {
        for (max, has_mark) in [(MARK.len() - 1, false), (MARK.len(), true)] {
            let (mut out, mut errors) = (Vec::new(), Vec::new());
            let mut sink = Sink::new(&mut out, &mut errors, None, max as u64 + LAST_LINE);
            assert_eq!(sink.write([MARK, LINE].concat().as_bytes()).expect("written"), Some(End::Size));
            assert_eq!(sink.write(LAST.as_bytes()).expect("written"), Some(End::Complete));
            assert_eq!(sink.has_mark, has_mark);
        }
    }

    #[test]
    fn failing_terminal_loses_no_line() {
        let mark = "{\"recording\":{\"sample\":1.0,\"lacks\":[\"`tls:san`\"]}}\n";
        let (mut out, mut closed) = (Vec::new(), &mut [0_u8; 0][..]);
        let mut sink = Sink::new(&mut out, &mut closed, None, u64::MAX);
        assert_eq!(sink.write([mark, LINE, LAST].concat().as_bytes()).expect("written"), Some(End::Complete));
        assert_eq!(String::from_utf8(out).expect("text"), [mark, LINE, LAST].concat());
    }

    #[test]
    fn size_is_bounded() {
        for (max, lines) in [(0, 0), (LINE.len(), 1), (2 * LINE.len() - 1, 1), (2 * LINE.len(), 2)] {
            let (mut out, mut errors) = (Vec::new(), Vec::new());
            let mut sink = Sink::new(&mut out, &mut errors, None, max as u64 + LAST_LINE);
            let end = sink.write(LINE.repeat(3).as_bytes()).expect("written");
            assert_eq!((end, sink.out.len()), (Some(End::Size), lines * LINE.len()), "{max}");
            // The rest is skipped until the last line.
            assert_eq!(sink.write([LINE, MARK, LINE].concat().as_bytes()).expect("written"), None);
            assert_eq!(sink.write(LAST.as_bytes()).expect("written"), Some(End::Complete));
            assert_eq!((sink.requests, sink.last.dropped), (lines as u64, 4));
            assert_eq!(String::from_utf8(out).expect("text"), LINE.repeat(lines) + LAST);
        }
        let (mut out, mut errors) = (Vec::new(), Vec::new());
        assert_eq!(
            Sink::new(&mut out, &mut errors, None, u64::MAX).write(&vec![b'x'; MAX_LINE + 1]).expect("written"),
            Some(End::Lost)
        );
    }
}
