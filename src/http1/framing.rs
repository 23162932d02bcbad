//! Where a body ends (RFC 9112 section 6.3).

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};

use super::Malformed;

/// Where a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// After so many bytes; 0 means no body.
    Length(u64),
    /// After the last chunk.
    Chunked,
    /// When the connection closes.
    UntilClose,
}

/// What the fields of a head say about the framing of its body.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Told {
    chunked: bool,
    length: Option<u64>,
}

impl Framing {
    /// The framing of an answer to a request with this method.
    pub(crate) fn of_answer(method: &Method, status: StatusCode, told: Told) -> Self {
        let bodiless = status.is_informational() || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        match told {
            _ if bodiless || *method == Method::HEAD => Self::Length(0),
            Told { chunked: true, .. } => Self::Chunked,
            Told { length: Some(length), .. } => Self::Length(length),
            Told { length: None, .. } => Self::UntilClose,
        }
    }

    /// The framing of a request. Without framing fields it has no body.
    pub(crate) fn of_request(told: Told) -> Self {
        if told.chunked { Self::Chunked } else { Self::Length(told.length.unwrap_or(0)) }
    }
}

impl Told {
    /// Notes a field, if it is `Content-Length` or `Transfer-Encoding`.
    ///
    /// `chunked` is the only transfer coding accepted: any other would have to be decoded. A repeated length is refused even
    /// if all values agree (RFC 9110 section 8.6 leaves the choice), since it hints at two messages put together.
    ///
    /// # Errors
    /// The framing is ambiguous.
    pub(crate) fn note(&mut self, name: &HeaderName, value: &HeaderValue) -> Result<(), Malformed> {
        if *name == header::CONTENT_LENGTH {
            if self.length.replace(number(value.as_bytes())?).is_some() {
                return Err(Malformed);
            }
        } else if *name == header::TRANSFER_ENCODING {
            if self.chunked || !value.as_bytes().eq_ignore_ascii_case(b"chunked") {
                return Err(Malformed);
            }
            self.chunked = true;
        }
        Ok(())
    }

    /// Both fields are there. The length is ignored, but other parsers may have used it (RFC 9112 section 6.1).
    pub(crate) fn is_doubtful(self) -> bool {
        self.chunked && self.length.is_some()
    }

    /// Is a body announced?
    pub(crate) fn promises_body(self) -> bool {
        self.chunked || self.length.is_some_and(|length| length > 0)
    }

    /// Is the body chunked?
    pub(crate) fn is_chunked(self) -> bool {
        self.chunked
    }
}

/// The one valid `Content-Length`.
///
/// # Errors
/// It is not a number, or there is more than one.
pub(crate) fn length(headers: &HeaderMap) -> Result<Option<u64>, Malformed> {
    let mut told = Told::default();
    for value in headers.get_all(header::CONTENT_LENGTH) {
        told.note(&header::CONTENT_LENGTH, value)?;
    }
    Ok(told.length)
}

/// Parses digits: no sign, no spaces, no overflow.
fn number(digits: &[u8]) -> Result<u64, Malformed> {
    let add = |number: u64, digit: &u8| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    };
    let number = digits.iter().try_fold(0, add);
    number.filter(|_| !digits.is_empty()).ok_or(Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    fn told(fields: &[(&'static str, &'static str)]) -> Result<Told, Malformed> {
        let mut told = Told::default();
        headers(fields).iter().try_for_each(|(name, value)| told.note(name, value)).map(|()| told)
    }

    fn framing(method: &Method, status: u16, fields: &[(&'static str, &'static str)]) -> Framing {
        Framing::of_answer(method, StatusCode::from_u16(status).unwrap(), told(fields).unwrap())
    }

    #[test]
    fn an_answer_says_where_its_body_ends() {
        let get = |status, fields: &[_]| framing(&Method::GET, status, fields);
        let both = [("transfer-encoding", "chunked"), ("content-length", "5")];
        assert_eq!(get(200, &[("content-length", "5")]), Framing::Length(5));
        assert_eq!(get(200, &[("transfer-encoding", "Chunked")]), Framing::Chunked);
        assert_eq!(get(200, &both), Framing::Chunked);
        assert_eq!(get(200, &[]), Framing::UntilClose);
        for status in [100, 103, 204, 304] {
            assert_eq!(get(status, &[("content-length", "5")]), Framing::Length(0), "{status}");
        }
        assert_eq!(framing(&Method::HEAD, 200, &[("content-length", "5")]), Framing::Length(0));
        assert!(told(&both).unwrap().is_doubtful() && !told(&both[1..]).unwrap().is_doubtful());
    }

    #[test]
    fn only_chunked_alone_is_a_transfer_coding() {
        for bad in ["gzip, chunked", "chunked, chunked", "identity", "", "chunked;x"] {
            assert!(told(&[("transfer-encoding", bad)]).is_err(), "{bad:?}");
        }
        assert!(told(&[("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")]).is_err());
    }

    #[test]
    fn a_length_is_digits_and_there_once() {
        assert_eq!(length(&headers(&[])), Ok(None));
        assert_eq!(length(&headers(&[("content-length", "005")])), Ok(Some(5)));
        assert_eq!(length(&headers(&[("content-length", "18446744073709551615")])), Ok(Some(u64::MAX)));
        for bad in ["5, 5", "5, 6", " 5", "+5", "", "0x5", "5,", " ", "1 2", "18446744073709551616"] {
            assert_eq!(length(&headers(&[("content-length", bad)])), Err(Malformed), "{bad:?}");
        }
        for second in ["5", "6"] {
            assert_eq!(length(&headers(&[("content-length", "5"), ("content-length", second)])), Err(Malformed));
        }
    }
}
