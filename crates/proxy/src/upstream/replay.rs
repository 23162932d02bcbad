//! Keeps the start of a request body, so that the request can be sent again.

use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;

use super::replay_budget::KeptBytes;
use crate::transport::BodyData;

/// The minimum length of data that is shared, not copied. Shared data keeps its whole read buffer of 64 KiB in memory,
/// which is too much for each of many short frames.
const MIN_SHARED: usize = 16 * 1024;

/// The frames that were read of a body, up to a bound.
#[derive(Debug, Default)]
pub(crate) struct ReplayBuffer {
    frames: Vec<KeptFrame>,
    /// The number of recorded bytes, including those that were not kept.
    bytes: usize,
    max_bytes: usize,
    /// The kept bytes, which count in the budget of the client's connection.
    kept: KeptBytes,
    /// The number of frames that this attempt has read.
    position: usize,
    /// The bytes of the frames that this attempt has not read yet.
    unread: u64,
    /// Whether the client's stream has ended.
    has_ended: bool,
    /// Whether the body cannot be replayed any more.
    is_incomplete: bool,
}

#[derive(Clone, Debug)]
enum KeptFrame {
    /// Data that is shared with the connection.
    Shared(Bytes),
    /// Short data, joined.
    Copied(Vec<u8>),
    Trailers(HeaderMap),
}

impl ReplayBuffer {
    /// Creates a buffer for a body of at most `max_bytes` bytes.
    pub(super) fn new(max_bytes: usize, kept: KeptBytes) -> Self {
        Self { max_bytes, kept, ..Self::default() }
    }

    /// Returns the next kept frame of this attempt. Returns `None` if the next frame is not buffered.
    pub(crate) fn next(&mut self) -> Option<Frame<BodyData>> {
        let frame = match self.frames.get(self.position)? {
            KeptFrame::Shared(data) => Frame::data(data.clone().into()),
            KeptFrame::Copied(data) => Frame::data(Bytes::copy_from_slice(data).into()),
            KeptFrame::Trailers(trailers) => Frame::trailers(trailers.clone()),
        };
        self.position += 1;
        self.unread -= frame.data_ref().map_or(0, BodyData::len) as u64;
        Some(frame)
    }

    /// Keeps a frame of the client's stream, unless the body is too long, or the client's connection keeps too much.
    pub(crate) fn record(&mut self, frame: &Frame<BodyData>) {
        self.has_ended |= frame.is_trailers();
        let length = frame.data_ref().map_or(0, BodyData::len);
        self.bytes = self.bytes.saturating_add(length);
        if self.bytes > self.max_bytes || !self.is_incomplete && !self.kept.try_add(length) {
            self.stop();
        }
        if self.is_incomplete {
            return;
        }
        match (frame.data_ref(), frame.trailers_ref(), self.frames.last_mut()) {
            (Some(BodyData::Piped(_)), ..) => return self.stop(), // not in memory
            (Some(BodyData::Bytes(data)), _, Some(KeptFrame::Copied(last))) if data.len() < MIN_SHARED => {
                last.extend_from_slice(data);
            }
            (Some(BodyData::Bytes(data)), ..) if data.len() < MIN_SHARED => {
                self.frames.push(KeptFrame::Copied(data.to_vec()));
            }
            (Some(BodyData::Bytes(data)), ..) => self.frames.push(KeptFrame::Shared(data.clone())),
            (None, Some(trailers), _) => self.frames.push(KeptFrame::Trailers(trailers.clone())),
            (None, None, _) => {}
        }
        self.position = self.frames.len();
    }

    /// Records that the client's stream has ended.
    pub(crate) fn record_end(&mut self) {
        self.has_ended = true;
    }

    /// Stops recording. Drops the frames that this attempt has read.
    pub(crate) fn stop(&mut self) {
        self.frames.drain(..self.position);
        (self.position, self.is_incomplete) = (0, true);
        self.kept.shrink(usize::try_from(self.unread).unwrap_or(usize::MAX));
    }

    /// Starts again with the first frame. Returns `false` if a part of the body was not kept.
    pub(crate) fn rewind(&mut self) -> bool {
        if self.is_incomplete {
            return false;
        }
        (self.position, self.unread) = (0, self.bytes as u64);
        true
    }

    /// Returns the bytes that this attempt has to read before the client's stream.
    pub(crate) fn unread(&self) -> u64 {
        self.unread
    }

    /// Returns `true` if this attempt has read all kept frames.
    pub(crate) fn is_read(&self) -> bool {
        self.position == self.frames.len()
    }

    /// Returns `true` if the client's stream has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Buf;

    use super::super::replay_budget::ReplayBudget;
    use super::*;

    fn record(buffer: &mut ReplayBuffer, data: &'static str) {
        buffer.record(&Frame::data(Bytes::from_static(data.as_bytes()).into()));
    }

    fn read(buffer: &mut ReplayBuffer) -> String {
        let mut text = String::new();
        while let Some(frame) = buffer.next() {
            text.push_str(std::str::from_utf8(frame.data_ref().unwrap().chunk()).unwrap());
        }
        text
    }

    #[test]
    fn body_is_replayed_for_each_attempt() {
        let mut buffer = ReplayBuffer::new(8, KeptBytes::default());
        record(&mut buffer, "abc");
        assert!(buffer.next().is_none() && buffer.is_read());
        assert!(buffer.rewind());
        assert_eq!((buffer.unread(), buffer.is_read()), (3, false));
        assert_eq!(read(&mut buffer), "abc");
        record(&mut buffer, "defgh");
        assert!(buffer.rewind());
        assert_eq!((read(&mut buffer), buffer.unread()), ("abcdefgh".to_owned(), 0));
    }

    #[test]
    fn body_with_one_byte_too_many_is_not_kept() {
        let mut buffer = ReplayBuffer::new(8, KeptBytes::default());
        record(&mut buffer, "abcdefgh");
        assert!(buffer.rewind());
        assert_eq!(read(&mut buffer), "abcdefgh");
        record(&mut buffer, "i");
        assert!(!buffer.rewind());
        assert!(buffer.frames.is_empty());
    }

    #[test]
    fn frames_that_were_not_read_stay_after_the_last_attempt() {
        let mut buffer = ReplayBuffer::new(4 * MIN_SHARED, KeptBytes::default());
        for text in ["a", "b"] {
            buffer.record(&Frame::data(Bytes::from(text.repeat(MIN_SHARED)).into()));
        }
        assert!(buffer.rewind());
        _ = buffer.next();
        buffer.stop();
        assert_eq!((buffer.unread(), read(&mut buffer)), (MIN_SHARED as u64, "b".repeat(MIN_SHARED)));
        assert!(!buffer.rewind());
    }

    #[test]
    fn bytes_in_a_pipe_are_not_kept() {
        let mut buffer = ReplayBuffer::new(8, KeptBytes::default());
        record(&mut buffer, "a");
        buffer.record(&Frame::data(BodyData::Piped(1)));
        assert!(!buffer.rewind());
    }

    #[test]
    fn short_frames_are_joined() {
        let mut buffer = ReplayBuffer::new(2 * MIN_SHARED, KeptBytes::default());
        for _ in 0..1_000 {
            record(&mut buffer, "x");
        }
        buffer.record(&Frame::data(Bytes::from("y".repeat(MIN_SHARED)).into()));
        record(&mut buffer, "z");
        assert!(buffer.rewind());
        assert_eq!(buffer.frames.len(), 3);
        assert_eq!(read(&mut buffer), ["x".repeat(1_000), "y".repeat(MIN_SHARED), "z".to_owned()].concat());
    }

    #[test]
    fn requests_of_a_connection_share_a_budget() {
        let budget = Arc::<ReplayBudget>::default();
        let buffer = || ReplayBuffer::new(usize::MAX, KeptBytes::new(Some(Arc::clone(&budget))));
        let data = Bytes::from(vec![b'x'; 200 << 10]);
        let mut buffers: Vec<_> = (0..3).map(|_| buffer()).collect();
        buffers.iter_mut().for_each(|buffer| buffer.record(&Frame::data(data.clone().into())));
        assert_eq!(buffers.iter_mut().map(ReplayBuffer::rewind).collect::<Vec<_>>(), [true, true, false]);
        assert!(buffers[2].frames.is_empty());
        // The first buffer still has to be read; the second one is not needed any more.
        buffers[0].stop();
        buffers.truncate(1);
        let mut others = [buffer(), buffer()];
        others.iter_mut().for_each(|buffer| buffer.record(&Frame::data(data.clone().into())));
        assert_eq!(others.each_mut().map(ReplayBuffer::rewind), [true, false]);
        drop((buffers, others));
        let mut single = buffer();
        (0..5).for_each(|_| single.record(&Frame::data(data.clone().into())));
        assert!(single.rewind(), "the only request may keep more");
    }

    #[test]
    fn trailers_are_replayed_and_end_the_body() {
        let mut buffer = ReplayBuffer::new(0, KeptBytes::default());
        buffer.record(&Frame::trailers(HeaderMap::from_iter([(http::header::ETAG, "a".parse().unwrap())])));
        assert!(buffer.rewind() && buffer.has_ended());
        assert_eq!(buffer.next().unwrap().trailers_ref().unwrap()["etag"], "a");
    }
}
