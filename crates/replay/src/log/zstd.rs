//! Decompresses zstd, also several frames in a row.

use std::io::{self, BufRead, Read};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// Reads the content of all frames.
pub(super) struct ZstdReader<R> {
    source: R,
    decoder: FrameDecoder,
    /// Whether the decoder is within a frame.
    is_in_frame: bool,
}

impl<R: BufRead> ZstdReader<R> {
    pub(super) fn new(source: R) -> Self {
        Self { source, decoder: FrameDecoder::new(), is_in_frame: false }
    }

    /// Starts the next frame that has content. Returns `false` at the end of the source.
    fn start_frame(&mut self) -> io::Result<bool> {
        while !self.source.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                    let length = u64::from(length);
                    if io::copy(&mut (&mut self.source).take(length), &mut io::sink())? < length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
            }
        }
        Ok(false)
    }

    /// Checks the content of the frame that ends.
    fn end_frame(&mut self) -> io::Result<()> {
        self.is_in_frame = false;
        let expected = self.decoder.get_checksum_from_data();
        match expected.is_none_or(|expected| self.decoder.get_calculated_checksum() == Some(expected)) {
            true => Ok(()),
            false => Err(io::Error::new(io::ErrorKind::InvalidData, "the checksum does not match the content")),
        }
    }
}

impl<R: BufRead> Read for ZstdReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while !buffer.is_empty() {
            if !self.is_in_frame {
                self.is_in_frame = self.start_frame()?;
                if !self.is_in_frame {
                    break;
                }
            }
            if self.decoder.can_collect() > 0 {
                return self.decoder.read(buffer);
            }
            if self.decoder.is_finished() {
                self.end_frame()?;
            } else {
                let decoded = self.decoder.decode_blocks(&mut self.source, BlockDecodingStrategy::UptoBlocks(1));
                decoded.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            }
        }
        Ok(0)
    }
}
