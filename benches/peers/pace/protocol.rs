//! What is sent on a connection, and when its answer is whole.

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

    /// Has all of the expected answer come?
    ///
    /// # Errors
    /// It is another one.
    pub(super) fn is_whole(self, answer: &[u8]) -> Result<bool> {
        let good: &[u8] = match self {
            Self::Http => b"HTTP/1.1 200",
            Self::Redis => b"+PONG\r\n",
        };
        let length = good.len().min(answer.len());
        if answer.get(..length) != good.get(..length) {
            return Err(format!("not the answer: {}", String::from_utf8_lossy(answer)).into());
        }
        match self {
            Self::Http => Ok(http_length(answer)?.is_some_and(|length| answer.len() >= length)),
            Self::Redis => Ok(answer.len() == good.len()),
        }
    }
}

/// The length of head and body, as soon as the head is whole.
fn http_length(answer: &[u8]) -> Result<Option<usize>> {
    let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let head = std::str::from_utf8(answer.get(..end).unwrap_or_default())?;
    let fields = head.lines().filter_map(|line| line.split_once(':'));
    let length = fields.into_iter().find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let (_, length) = length.ok_or("an answer without a length")?;
    Ok(Some(end + 4 + length.trim().parse::<usize>()?))
}
