//! Finds RST_STREAM frames in the bytes that are sent.
//!
//! `h2` itself resets a stream with a malformed head, and does not report it.

const HEADER_LENGTH: usize = 9;
const FRAME_LENGTH: usize = HEADER_LENGTH + 4;
const RST_STREAM: u8 = 3;

/// Reads frame headers, and the payload of RST_STREAM frames.
#[derive(Debug, Default)]
pub(super) struct SentResets {
    frame: [u8; FRAME_LENGTH],
    filled: usize,
    /// The number of bytes before the next frame header.
    skip: usize,
}

impl SentResets {
    /// Calls `found` with the stream and the error code of each reset that ends in these bytes.
    pub(super) fn find(&mut self, mut bytes: &[u8], mut found: impl FnMut(u32, u32)) {
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            let needed = if self.filled < HEADER_LENGTH { HEADER_LENGTH } else { FRAME_LENGTH };
            let taken = (needed - self.filled).min(bytes.len() - skipped);
            self.frame[self.filled..self.filled + taken].copy_from_slice(&bytes[skipped..skipped + taken]);
            self.filled += taken;
            bytes = &bytes[skipped + taken..];
            let [a, b, c, kind, _flags, stream @ .., e, f, g, h] = self.frame;
            match self.filled {
                HEADER_LENGTH if kind == RST_STREAM => {}
                HEADER_LENGTH => (self.filled, self.skip) = (0, u32::from_be_bytes([0, a, b, c]) as usize),
                FRAME_LENGTH => {
                    self.filled = 0;
                    found(u32::from_be_bytes(stream), u32::from_be_bytes([e, f, g, h]));
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resets_are_found_at_any_split() {
        let data = [&[0, 1, 2, 0, 1, 0, 0, 0, 1][..], &[3; 258]].concat();
        let reset = |stream, code| [0, 0, 4, RST_STREAM, 0, 0, 0, 1, stream, 0, 0, 0, code];
        let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
        let bytes = [&settings[..], &reset(5, 1), &data, &reset(7, 8), &reset(9, 1)].concat();
        for length in 1..bytes.len() {
            let (mut resets, mut found) = (SentResets::default(), Vec::new());
            bytes.chunks(length).for_each(|part| resets.find(part, |stream, code| found.push((stream, code))));
            assert_eq!(found, [(0x105, 1), (0x107, 8), (0x109, 1)], "pieces of {length}");
        }
    }
}
