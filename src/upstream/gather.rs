//! A socket that is written to in one piece where the pieces are small.
//!
//! A head and a short body come as two. Copying them together costs less than having the kernel gather them; anything
//! long goes as it is.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The most bytes that are copied, on the stack.
const SMALL: usize = 2 * 1024;

/// The socket.
#[derive(Debug)]
pub(crate) struct Gather(TcpStream);

impl Gather {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self(stream)
    }

    /// The socket itself.
    pub(crate) fn socket(&self) -> &TcpStream {
        &self.0
    }
}

impl AsyncRead for Gather {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Gather {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length: usize = slices.iter().map(|slice| slice.len()).sum();
        match slices {
            [one] => Pin::new(&mut self.0).poll_write(cx, one),
            _ if length <= SMALL => Pin::new(&mut self.0).poll_write(cx, copied(slices, &mut [0; SMALL])),
            _ => Pin::new(&mut self.0).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// All slices, one after the other; they fit.
fn copied<'b>(slices: &[IoSlice<'_>], buffer: &'b mut [u8; SMALL]) -> &'b [u8] {
    let mut end = 0;
    for slice in slices {
        buffer[end..end + slice.len()].copy_from_slice(slice);
        end += slice.len();
    }
    &buffer[..end]
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn what_is_written_in_pieces_arrives_in_their_order_whatever_their_length() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut other, mut gather) = (listener.accept().await.unwrap().0, Gather::new(stream));
        for lengths in [&[5][..], &[1, 2, 3], &[1024, 1024], &[2048, 1], &[9000, 0, 7], &[0, 0]] {
            let pieces: Vec<Vec<u8>> = (b'a'..).zip(lengths).map(|(byte, length)| vec![byte; *length]).collect();
            let slices: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
            let written = poll_fn(|cx| Pin::new(&mut gather).poll_write_vectored(cx, &slices)).await.unwrap();
            assert_eq!(written, lengths.iter().sum::<usize>());
            let mut read = vec![0; written];
            other.read_exact(&mut read).await.unwrap();
            assert_eq!(read, pieces.concat());
        }
    }
}
