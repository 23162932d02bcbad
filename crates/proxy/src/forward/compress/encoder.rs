//! The encoders of gzip and zstd. Each compresses one response, in memory of bounded size.

use std::io::{self, Write};
use std::mem::take;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use flate2::write::GzEncoder;
use zstd::stream::write::Encoder as ZstdEncoder;

use tidegate_rules::route::Coding;

/// The maximum number of responses that are compressed at the same time, by the whole process.
/// Further responses are not compressed.
const MAX_ENCODERS: usize = 512;

/// Low levels: a worker's other requests wait while it compresses.
const GZIP_LEVEL: u32 = 4;
const ZSTD_LEVEL: i32 = 1;

/// The window of zstd, as a power of two: 128 KiB. The default of the level is four times as large.
const ZSTD_WINDOW_LOG: u32 = 17;

static ENCODERS: AtomicUsize = AtomicUsize::new(0);

/// Compresses one response.
pub(crate) struct Encoder {
    stream: Stream,
    _slot: Slot,
}

enum Stream {
    Gzip(GzEncoder<Vec<u8>>),
    Zstd(ZstdEncoder<'static, Vec<u8>>),
}

/// Counts an encoder until it is dropped.
struct Slot;

impl Encoder {
    /// Creates an encoder. Returns `None` if too many responses are being compressed.
    pub(crate) fn new(coding: Coding) -> Option<Self> {
        let _slot = Slot::take()?;
        let stream = match coding {
            Coding::Gzip => Stream::Gzip(GzEncoder::new(Vec::new(), flate2::Compression::new(GZIP_LEVEL))),
            Coding::Zstd => {
                let mut encoder = ZstdEncoder::new(Vec::new(), ZSTD_LEVEL).ok()?;
                encoder.window_log(ZSTD_WINDOW_LOG).ok()?;
                Stream::Zstd(encoder)
            }
        };
        Some(Self { stream, _slot })
    }

    /// Compresses a piece of the body. Returns the bytes to send, which may be none yet.
    pub(crate) fn compress(&mut self, piece: &[u8]) -> io::Result<Bytes> {
        match &mut self.stream {
            Stream::Gzip(encoder) => encoder.write_all(piece)?,
            Stream::Zstd(encoder) => encoder.write_all(piece)?,
        }
        Ok(self.output())
    }

    /// Returns all bytes that the client needs for the pieces so far.
    pub(crate) fn flush(&mut self) -> io::Result<Bytes> {
        match &mut self.stream {
            Stream::Gzip(encoder) => encoder.flush()?,
            Stream::Zstd(encoder) => encoder.flush()?,
        }
        Ok(self.output())
    }

    /// Ends the body. Returns its last bytes.
    pub(crate) fn finish(self) -> io::Result<Bytes> {
        match self.stream {
            Stream::Gzip(encoder) => encoder.finish().map(Bytes::from),
            Stream::Zstd(encoder) => encoder.finish().map(Bytes::from),
        }
    }

    fn output(&mut self) -> Bytes {
        let output = match &mut self.stream {
            Stream::Gzip(encoder) => encoder.get_mut(),
            Stream::Zstd(encoder) => encoder.get_mut(),
        };
        take(output).into()
    }
}

impl Slot {
    fn take() -> Option<Self> {
        let taken = ENCODERS.fetch_update(Relaxed, Relaxed, |count| (count < MAX_ENCODERS).then_some(count + 1));
        taken.ok().map(|_| Self)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        ENCODERS.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use proptest::prelude::*;

    use super::*;

    /// Held by a test that creates encoders: their number is of the process.
    static ENCODING: parking_lot::Mutex<()> = parking_lot::Mutex::new(());

    fn decode(coding: Coding, bytes: &[u8]) -> Vec<u8> {
        let mut decoded = Vec::new();
        match coding {
            Coding::Gzip => flate2::read::GzDecoder::new(bytes).read_to_end(&mut decoded).map(drop),
            Coding::Zstd => zstd::stream::copy_decode(bytes, &mut decoded),
        }
        .expect("a valid stream");
        decoded
    }

    proptest! {
        #[test]
        fn pieces_are_restored(pieces in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..3_000), any::<bool>()), 0..9)) {
            let _encoding = ENCODING.lock();
            for coding in Coding::ALL {
                let (mut encoder, mut sent) = (Encoder::new(*coding).expect("an encoder"), Vec::new());
                for (piece, is_flushed) in &pieces {
                    sent.extend(encoder.compress(piece).expect("compressed"));
                    if *is_flushed {
                        sent.extend(encoder.flush().expect("flushed"));
                    }
                }
                sent.extend(encoder.finish().expect("finished"));
                let original: Vec<u8> = pieces.iter().flat_map(|(piece, _)| piece.clone()).collect();
                prop_assert_eq!(decode(*coding, &sent), original);
            }
        }
    }

    #[test]
    fn number_of_encoders_is_bounded() {
        let _encoding = ENCODING.lock();
        let taken: Vec<_> = std::iter::from_fn(Slot::take).take(MAX_ENCODERS + 1).collect();
        assert!(taken.len() == MAX_ENCODERS && Encoder::new(Coding::Zstd).is_none());
        drop(taken);
        assert!(Encoder::new(Coding::Zstd).is_some());
    }
}
