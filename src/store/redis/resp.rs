//! What goes over a connection that decides: commands, and the few kinds of replies that come back (RESP2, see
//! <https://redis.io/docs/latest/develop/reference/protocol-spec/>).

/// A command that is being written, argument by argument.
pub(super) struct Command<'b>(&'b mut Vec<u8>);

/// A reply, as far as anybody here wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply<'b> {
    /// A string: what `admit` returns.
    Text(&'b [u8]),
    /// An error: its first word, and the rest.
    Error(&'b str, &'b str),
    /// Anything else that is well-formed.
    Other,
}

/// The bytes are no reply that anybody here expects.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// What is at the front, and what follows it; nothing if it is not whole yet.
type Read<'b, T> = Result<Option<(T, &'b [u8])>, Malformed>;

/// Longer replies are none of ours: the answers of a call of 4,096 requests are some 200 kB.
const LONGEST: usize = 4 << 20;

// === impl Command ===

impl<'b> Command<'b> {
    /// Begins a command of so many arguments, its name among them.
    pub(super) fn begin(bytes: &'b mut Vec<u8>, arguments: usize) -> Self {
        write_length(bytes, b'*', arguments);
        Self(bytes)
    }

    pub(super) fn arg(&mut self, argument: &[u8]) -> &mut Self {
        write_length(self.0, b'$', argument.len());
        self.0.extend_from_slice(argument);
        self.0.extend_from_slice(b"\r\n");
        self
    }
}

fn write_length(bytes: &mut Vec<u8>, kind: u8, length: usize) {
    bytes.push(kind);
    bytes.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
    bytes.extend_from_slice(b"\r\n");
}

// === impl Reply ===

impl<'b> Reply<'b> {
    /// Reads the reply at the front.
    ///
    /// # Errors
    /// There is none, whatever follows.
    pub(super) fn read(bytes: &'b [u8]) -> Read<'b, Self> {
        let Some((head, rest)) = line(bytes)? else { return Ok(None) };
        match head {
            [b'-', error @ ..] => Ok(Some((Self::error(error), rest))),
            [b'+' | b':', ..] => Ok(Some((Self::Other, rest))),
            [b'$', length @ ..] => Ok(string(length, rest)?.map(|(text, rest)| (Self::Text(text), rest))),
            _ => Err(Malformed),
        }
    }

    fn error(text: &'b [u8]) -> Self {
        let text = std::str::from_utf8(text).unwrap_or("ERR");
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        Self::Error(word, rest)
    }
}

/// A line without its end, and what follows it.
fn line(bytes: &[u8]) -> Read<'_, &[u8]> {
    match bytes.iter().position(|&byte| byte == b'\r') {
        Some(end) if bytes.len() > end + 1 => match bytes[end + 1] {
            b'\n' => Ok(Some((&bytes[..end], &bytes[end + 2..]))),
            _ => Err(Malformed),
        },
        None if bytes.len() > LONGEST => Err(Malformed),
        _ => Ok(None),
    }
}

/// A string of this length, which the end of a line follows, and what follows that.
fn string<'b>(length: &[u8], bytes: &'b [u8]) -> Read<'b, &'b [u8]> {
    let length = usize::try_from(decimal(length)?).ok().filter(|length| *length <= LONGEST).ok_or(Malformed)?;
    match bytes.get(length..length + 2) {
        Some(b"\r\n") => Ok(Some((&bytes[..length], &bytes[length + 2..]))),
        Some(_) => Err(Malformed),
        None => Ok(None),
    }
}

fn decimal(digits: &[u8]) -> Result<i64, Malformed> {
    std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).ok_or(Malformed)
}

#[cfg(test)]
mod tests {
    use deadpool_redis::redis::{Cmd, Value, parse_redis_value};
    use proptest::prelude::*;

    use super::*;

    fn read(bytes: &[u8]) -> Option<(Reply<'_>, usize)> {
        Reply::read(bytes).expect("well-formed").map(|(reply, rest)| (reply, bytes.len() - rest.len()))
    }

    proptest! {
        #[test]
        fn commands_are_written_as_the_library_writes_them(
            arguments in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..2_000), 1..20),
        ) {
            let mut bytes = Vec::new();
            let mut command = Command::begin(&mut bytes, arguments.len());
            arguments.iter().for_each(|argument| _ = command.arg(argument));
            let mut theirs = Cmd::new();
            arguments.iter().for_each(|argument| _ = theirs.arg(&argument[..]));
            prop_assert_eq!(bytes, theirs.get_packed_command());
        }

        #[test]
        fn a_string_is_read_as_the_library_reads_it_and_only_when_it_is_whole(
            text in prop::collection::vec(any::<u8>(), 0..300),
            rest in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            let mut bytes = format!("${}\r\n", text.len()).into_bytes();
            bytes.extend([&text[..], b"\r\n"].concat());
            let theirs = parse_redis_value(&bytes).expect("a value");
            prop_assert_eq!(theirs, Value::BulkString(text.clone()));
            for end in 0..bytes.len() {
                prop_assert_eq!(Reply::read(&bytes[..end]), Ok(None));
            }
            let whole = bytes.len();
            bytes.extend(rest);
            prop_assert_eq!(read(&bytes), Some((Reply::Text(&text), whole)));
        }

        #[test]
        fn whatever_comes_nothing_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            _ = Reply::read(&bytes);
        }
    }

    #[test]
    fn errors_are_told_by_their_first_word() {
        assert_eq!(read(b"-NOSCRIPT No script\r\n"), Some((Reply::Error("NOSCRIPT", "No script"), 21)));
        assert_eq!(read(b"-ERR\r\n+"), Some((Reply::Error("ERR", ""), 6)));
        assert_eq!(read(b"-\xff\r\n"), Some((Reply::Error("ERR", ""), 4)));
    }

    #[test]
    fn other_replies_are_passed_over() {
        for bytes in [&b"+OK\r\n"[..], b":-3\r\n"] {
            assert_eq!(read(bytes), Some((Reply::Other, bytes.len())));
        }
    }

    #[test]
    fn what_is_no_reply_of_ours_is_malformed() {
        let texts = ["HTTP/1.1 200 OK\r\n", "*2\r\n", "$-1\r\n", "$x\r\n", "+a\rb", "$1\r\nabc", "$99999999999\r\n"];
        for bytes in texts {
            assert_eq!(Reply::read(bytes.as_bytes()), Err(Malformed), "{bytes}");
        }
    }
}
