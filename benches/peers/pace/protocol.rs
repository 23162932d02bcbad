//! The requests of both protocols, and the end of their responses.

use super::Result;

#[derive(Clone, Copy)]
pub(super) enum Protocol {
    Http,
    Redis,
}

impl Protocol {
    pub(super) fn request(self) -> &'static [u8] {
        match self {
            Self::Http => b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
            Self::Redis => b"*1\r\n$4\r\nPING\r\n",
        }
    }

    /// Returns `true` if the response is complete.
    ///
    /// # Errors
    /// Fails if it is not the expected response.
    pub(super) fn is_complete(self, response: &[u8]) -> Result<bool> {
        let expected: &[u8] = match self {
            Self::Http => b"HTTP/1.1 200",
            Self::Redis => b"+PONG\r\n",
        };
        let length = expected.len().min(response.len());
        if response.get(..length) != expected.get(..length) {
            return Err(format!("unexpected response: {}", String::from_utf8_lossy(response)).into());
        }
        match self {
            Self::Http => Ok(http_length(response)?.is_some_and(|length| response.len() >= length)),
            Self::Redis => Ok(response.len() == expected.len()),
        }
    }
}

/// Returns the length of the response with its head, once the head is complete.
fn http_length(response: &[u8]) -> Result<Option<usize>> {
    let Some(end) = response.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let head = std::str::from_utf8(response.get(..end).unwrap_or_default())?;
    let fields = head.lines().filter_map(|line| line.split_once(':'));
    let length = fields.into_iter().find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let (_, length) = length.ok_or("a response without a content length")?;
    Ok(Some(end + 4 + length.trim().parse::<usize>()?))
}
