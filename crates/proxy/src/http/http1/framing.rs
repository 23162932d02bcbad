//! Determines where a message body ends (RFC 9112 section 6.3).

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};

use super::Malformed;

/// The framing of a body: how to find its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// The body has this number of bytes; 0 means no body.
    Length(u64),
    /// The body is chunked.
    Chunked,
    /// The body ends when the connection closes.
    UntilClose,
}

/// The framing fields of a head: `Content-Length` and `Transfer-Encoding`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FramingFields {
    chunked: bool,
    length: Option<u64>,
}

impl Framing {
    /// Returns the framing of a response to a request with this method.
    pub(crate) fn of_response(method: &Method, status: StatusCode, framing_fields: FramingFields) -> Self {
        let bodiless = status.is_informational() || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        match framing_fields {
            _ if bodiless || *method == Method::HEAD => Self::Length(0),
            FramingFields { chunked: true, .. } => Self::Chunked,
            FramingFields { length: Some(length), .. } => Self::Length(length),
            FramingFields { length: None, .. } => Self::UntilClose,
        }
    }

    /// Returns the framing of a request. Without framing fields a request has no body.
    pub(crate) fn of_request(framing_fields: FramingFields) -> Self {
        if framing_fields.chunked { Self::Chunked } else { Self::Length(framing_fields.length.unwrap_or(0)) }
    }
}

impl FramingFields {
    /// Records a field if it is `Content-Length` or `Transfer-Encoding`.
    ///
    /// `chunked` is the only accepted transfer coding, because any other coding would have to be decoded. A repeated
    /// length is rejected even if all values agree, because it suggests two merged messages. RFC 9110 section 8.6
    /// allows both.
    ///
    /// # Errors
    /// The framing is ambiguous.
    pub(crate) fn record(&mut self, name: &HeaderName, value: &HeaderValue) -> Result<(), Malformed> {
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

    /// Returns `true` if the message has both fields. The length is ignored, but other parsers may have used it (RFC
    /// 9112 section 6.1).
    pub(crate) fn is_ambiguous(self) -> bool {
        self.chunked && self.length.is_some()
    }

    /// Returns `true` if the fields announce a body.
    pub(crate) fn announces_body(self) -> bool {
        self.chunked || self.length.is_some_and(|length| length > 0)
    }

    /// Returns `true` if the body is chunked.
    pub(crate) fn is_chunked(self) -> bool {
        self.chunked
    }
}

/// Returns the value of `Content-Length`.
///
/// # Errors
/// The value is not a number, or the field is repeated.
pub(crate) fn length(headers: &HeaderMap) -> Result<Option<u64>, Malformed> {
    let mut framing_fields = FramingFields::default();
    for value in headers.get_all(header::CONTENT_LENGTH) {
        framing_fields.record(&header::CONTENT_LENGTH, value)?;
    }
    Ok(framing_fields.length)
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

    fn framing_fields(fields: &[(&'static str, &'static str)]) -> Result<FramingFields, Malformed> {
        let mut framing_fields = FramingFields::default();
        headers(fields).iter().try_for_each(|(name, value)| framing_fields.record(name, value)).map(|()| framing_fields)
    }

    fn framing(method: &Method, status: u16, fields: &[(&'static str, &'static str)]) -> Framing {
        Framing::of_response(method, StatusCode::from_u16(status).unwrap(), framing_fields(fields).unwrap())
    }

    #[test]
    fn response_framing_follows_status_and_fields() {
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
        assert!(framing_fields(&both).unwrap().is_ambiguous() && !framing_fields(&both[1..]).unwrap().is_ambiguous());
    }

    #[test]
    fn only_a_single_chunked_coding_is_accepted() {
        for bad in ["gzip, chunked", "chunked, chunked", "identity", "", "chunked;x"] {
            assert!(framing_fields(&[("transfer-encoding", bad)]).is_err(), "{bad:?}");
        }
        assert!(framing_fields(&[("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")]).is_err());
    }

    #[test]
    fn content_length_is_one_number() {
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
