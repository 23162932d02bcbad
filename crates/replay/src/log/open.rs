//! Opens logs, compressed or not.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::bufread::MultiGzDecoder;

use super::zstd::ZstdReader;

const BUFFER: usize = 256 * 1024;
const GZIP_MAGIC: &[u8] = b"\x1f\x8b";
const ZSTD_MAGIC: &[u8] = b"\x28\xb5\x2f\xfd";

/// Counts the bytes that are read.
struct CountedReader<R> {
    source: R,
    bytes_read: Arc<AtomicU64>,
}

impl<R: Read> Read for CountedReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.source.read(buffer)?;
        self.bytes_read.fetch_add(length as u64, Ordering::Relaxed);
        Ok(length)
    }
}

/// Opens a log, and recognizes gzip and zstd by the first bytes. `-` is standard input. Adds the bytes that are read,
/// before decompression, to `bytes_read`.
///
/// # Errors
/// The file cannot be opened or read. A damaged compressed file is an error of a later read.
pub(crate) fn open(path: &Path, bytes_read: &Arc<AtomicU64>) -> io::Result<Box<dyn BufRead + Send>> {
    let bytes_read = Arc::clone(bytes_read);
    match path.as_os_str() == "-" {
        true => decompress(CountedReader { source: io::stdin(), bytes_read }),
        false => decompress(CountedReader { source: File::open(path)?, bytes_read }),
    }
}

fn decompress(source: impl Read + Send + 'static) -> io::Result<Box<dyn BufRead + Send>> {
    let mut source = BufReader::with_capacity(BUFFER, source);
    let mut start = Vec::new();
    (&mut source).take(4).read_to_end(&mut start)?;
    let (is_gzip, is_zstd) = (start.starts_with(GZIP_MAGIC), start == ZSTD_MAGIC);
    let source = Cursor::new(start).chain(source);
    Ok(match (is_gzip, is_zstd) {
        (true, _) => Box::new(BufReader::with_capacity(BUFFER, MultiGzDecoder::new(source))),
        (_, true) => Box::new(BufReader::with_capacity(BUFFER, ZstdReader::new(source))),
        _ => Box::new(source),
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    const TEXT: &[u8] = b"one\ntwo\n";

    fn read(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        decompress(Cursor::new(bytes.to_vec()))?.read_to_end(&mut content)?;
        Ok(content)
    }

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(text: &[u8]) -> Vec<u8> {
        compress_to_vec(text, CompressionLevel::Fastest)
    }

    #[test]
    fn logs_are_decompressed_by_content() {
        let large: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
        for text in [&b""[..], b"a", TEXT, &large] {
            assert!(
                read(text).unwrap() == text && read(&gzip(text)).unwrap() == text && read(&zstd(text)).unwrap() == text
            );
        }
    }

    #[test]
    fn concatenated_parts_are_one_log() {
        let both = [TEXT, TEXT].concat();
        assert_eq!(read(&gzip(TEXT).repeat(2)).unwrap(), both);
        let skipped = b"\x50\x2a\x4d\x18\x03\0\0\0abc";
        assert_eq!(read(&[&zstd(TEXT)[..], skipped, &zstd(TEXT)].concat()).unwrap(), both);
    }

    #[test]
    fn damaged_logs_are_errors() {
        for compressed in [gzip(TEXT), zstd(TEXT)] {
            for length in 5..compressed.len() {
                read(&compressed[..length]).unwrap_err();
            }
            read(&[&compressed[..], b"rest of another format"].concat()).unwrap_err();
        }
        let mut damaged = gzip(TEXT);
        let checksum = damaged.len() - 8;
        damaged[checksum] ^= 1;
        read(&damaged).unwrap_err();
        let cut = [&zstd(TEXT)[..], b"\x50\x2a\x4d\x18\x03\0\0\0ab"].concat();
        assert_eq!(read(&cut).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn files_are_opened_by_path() {
        let path = std::env::temp_dir().join(format!("tidegate-open-{}.log", std::process::id()));
        std::fs::write(&path, gzip(TEXT)).unwrap();
        let bytes_read = Arc::default();
        let lines: Vec<_> = open(&path, &bytes_read).unwrap().lines().collect::<Result<_, _>>().unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(lines, ["one", "two"]);
        assert_eq!(bytes_read.load(Ordering::Relaxed), gzip(TEXT).len() as u64);
        assert!(open(&path, &bytes_read).is_err());
    }
}
