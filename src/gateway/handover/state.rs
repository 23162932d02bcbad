//! Transfers the state of the store: STATE, the length as eight bytes in little-endian order, and the state.
//!
//! The old gateway sends it before RELEASE. It sends it again at the end of its drain if it owes permits that it
//! granted locally.

use std::io::{self, ErrorKind};
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::time::timeout;

use super::wire::{STATE, invalid, receive, send};
use tidegate_store::transfer::{MAX_STATE, StoreState};

/// How long it may take to send or receive a state.
const STATE_TIMEOUT: Duration = Duration::from_secs(4);

/// Sends a state.
///
/// # Errors
/// The other process does not read it.
pub(super) async fn send_state(stream: &UnixStream, state: &[u8]) -> io::Result<()> {
    let sending = async {
        send(stream, STATE, None).await?;
        write_all(stream, &(state.len() as u64).to_le_bytes()).await?;
        write_all(stream, state).await
    };
    timeout(STATE_TIMEOUT, sending).await?
}

/// Receives a state, after the caller has received STATE. Returns `None` if this gateway cannot parse the state.
///
/// # Errors
/// The other process does not send the state.
pub(super) async fn receive_state(stream: &UnixStream) -> io::Result<Option<StoreState>> {
    let receiving = async {
        let mut length = [0; 8];
        read_exact(stream, &mut length).await?;
        let length = usize::try_from(u64::from_le_bytes(length)).ok().filter(|length| *length <= MAX_STATE);
        let mut state = vec![0; length.ok_or_else(|| invalid("the state of the running gateway is too large"))?];
        read_exact(stream, &mut state).await?;
        Ok::<_, io::Error>(state)
    };
    match StoreState::new(timeout(STATE_TIMEOUT, receiving).await??) {
        Ok(state) => Ok(Some(state)),
        Err(error) => {
            tracing::warn!(error, "cannot read the state of the previous gateway, starting without it");
            Ok(None)
        }
    }
}

/// Waits for the end of a draining gateway. Returns the last state, if the gateway sends one.
pub(super) async fn receive_last_state(stream: &UnixStream) -> Option<StoreState> {
    match receive(stream).await {
        Ok((STATE, _)) => receive_state(stream).await.ok().flatten(),
        _ => None,
    }
}

async fn write_all(stream: &UnixStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.writable().await?;
        match stream.try_write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

async fn read_exact(stream: &UnixStream, mut bytes: &mut [u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.readable().await?;
        match stream.try_read(bytes) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => bytes = &mut bytes[read..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
