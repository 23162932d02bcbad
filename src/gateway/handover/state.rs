//! The state of the store, as the old gateway sends it: STATE, its length in eight bytes, least significant first, and the
//! state itself. The old gateway sends it before RELEASES, and again at the end of its drain if it owes
//! permits that it granted locally.

use std::io::{self, ErrorKind};
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::time::timeout;

use super::wire::{STATE, invalid, receive, send};
use crate::store::transfer::{MAX_STATE, StoreState};

/// How long it may take to send or receive a state.
const PATIENCE: Duration = Duration::from_secs(4);

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
    timeout(PATIENCE, sending).await?
}

/// Receives a state, of which the first byte has been read. `None` if this gateway cannot read such a state.
///
/// # Errors
/// The other process does not send it.
pub(super) async fn receive_state(stream: &UnixStream) -> io::Result<Option<StoreState>> {
    let receiving = async {
        let mut length = [0; 8];
        read_exact(stream, &mut length).await?;
        let length = usize::try_from(u64::from_le_bytes(length)).ok().filter(|length| *length <= MAX_STATE);
        let mut state = vec![0; length.ok_or_else(|| invalid("the state of the gateway there is too large"))?];
        read_exact(stream, &mut state).await?;
        Ok::<_, io::Error>(state)
    };
    match StoreState::new(timeout(PATIENCE, receiving).await??) {
        Ok(state) => Ok(Some(state)),
        Err(error) => {
            tracing::warn!(error, "cannot read the state of the gateway before this one: starts without it");
            Ok(None)
        }
    }
}

/// Waits for the end of a gateway that drains; returns the last state that it sends, if it sends one.
pub(super) async fn last_state(stream: &UnixStream) -> Option<StoreState> {
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
