//! The header of the PROXY protocol, versions 1 and 2: in front of everything else on a connection, a proxy tells who has
//! connected to it (<https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>).
//!
//! Written here, since what is to be known while bytes come, how many more of them are the header's, takes as much as to
//! read it, and the crates there are do not tell.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// What begins a header of version 1, and no request.
const TEXT: &[u8] = b"PROXY ";
/// What begins one of version 2.
const BINARY: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// What both have at least, so that no byte too many is read before it is known which it is.
const SHORTEST: usize = 12;
/// The longest of version 1, with its end.
const LONGEST_TEXT: usize = 107;
/// The fixed part of version 2.
const FIXED: usize = 16;
/// The longest of version 2 that is read. It may say 64 KiB; addresses have 216 bytes, and the rest is what we do not ask for.
const LONGEST_BINARY: usize = 4096;

/// What some bytes tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// So many more bytes, one at least, are the header's if it is one.
    More(usize),
    /// They are a whole header.
    Whole(Origin),
}

/// Who has connected to a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Client(SocketAddr),
    /// The proxy itself, as to see whether we are there; or somebody without an address.
    Proxy,
}

/// Bytes that are no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Reads the beginning of a connection, of which no more is given than was asked for.
///
/// # Errors
/// It is no header, whatever follows.
pub(crate) fn parse(bytes: &[u8]) -> Result<Parsed, Malformed> {
    let begins = |start: &[u8]| bytes.iter().zip(start).all(|(byte, wanted)| byte == wanted);
    match bytes.len() {
        _ if !begins(TEXT) && !begins(BINARY) => Err(Malformed),
        length @ ..SHORTEST => Ok(Parsed::More(SHORTEST - length)),
        _ if begins(BINARY) => binary(bytes),
        _ => text(bytes),
    }
}

/// A line that ends in CR LF.
fn text(bytes: &[u8]) -> Result<Parsed, Malformed> {
    if let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
        let line = bytes.strip_suffix(b"\r\n").filter(|line| end == line.len() + 1).ok_or(Malformed)?;
        return std::str::from_utf8(line).map_err(|_| Malformed).and_then(line_of_text).map(Parsed::Whole);
    }
    let shortest = match bytes[TEXT.len()..] {
        [b'T', b'C', b'P', b'4', ..] => "PROXY TCP4 1.1.1.1 1.1.1.1 1 1\r\n".len(),
        [b'T', b'C', b'P', b'6', ..] => "PROXY TCP6 :: :: 1 1\r\n".len(),
        _ => "PROXY UNKNOWN\r\n".len(),
    };
    match bytes.len() {
        LONGEST_TEXT.. => Err(Malformed),
        length => Ok(Parsed::More(shortest.saturating_sub(length).max(1))),
    }
}

fn line_of_text(line: &str) -> Result<Origin, Malformed> {
    let mut words = line.split(' ').skip(1);
    let (family, mut next) = (words.next(), || words.next().ok_or(Malformed));
    let source = match family {
        Some("TCP4") => addresses::<Ipv4Addr>(next()?, next()?)?,
        Some("TCP6") => addresses::<Ipv6Addr>(next()?, next()?)?,
        // What follows is to be ignored.
        Some("UNKNOWN") => return Ok(Origin::Proxy),
        _ => return Err(Malformed),
    };
    let (port, _) = (port(next()?)?, port(next()?)?);
    if words.next().is_some() {
        return Err(Malformed);
    }
    client(source, port)
}

/// The first of two addresses of one family.
fn addresses<A: FromStr + Into<IpAddr>>(source: &str, destination: &str) -> Result<IpAddr, Malformed> {
    destination.parse::<A>().map_err(|_| Malformed)?;
    source.parse::<A>().map(Into::into).map_err(|_| Malformed)
}

fn port(text: &str) -> Result<u16, Malformed> {
    // Without signs and leading zeros, which some would read in another way.
    let is_plain = text == "0" || (!text.starts_with(['0', '+']));
    if is_plain { text.parse().map_err(|_| Malformed) } else { Err(Malformed) }
}

fn binary(bytes: &[u8]) -> Result<Parsed, Malformed> {
    let Some((&[version, family, high, low], rest)) = bytes[BINARY.len()..].split_first_chunk() else {
        return Ok(Parsed::More(FIXED - bytes.len()));
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    let needed = match (version, family) {
        (0x20, _) | (0x21, 0x00) => 0,
        (0x21, 0x11) => 12,
        (0x21, 0x21) => 36,
        (0x21, 0x31) => 216,
        _ => return Err(Malformed),
    };
    if length < needed || FIXED + length > LONGEST_BINARY || rest.len() > length {
        return Err(Malformed);
    }
    if rest.len() < length {
        return Ok(Parsed::More(length - rest.len()));
    }
    // Behind the addresses is what else the proxy has to tell, which nobody asked for.
    let origin = match (version, family, rest) {
        (0x21, 0x11, &[a, b, c, d, _, _, _, _, high, low, ..]) => {
            client(Ipv4Addr::new(a, b, c, d).into(), u16::from_be_bytes([high, low]))?
        }
        (0x21, 0x21, _) => {
            let source: [u8; 16] = rest[..16].try_into().map_err(|_| Malformed)?;
            client(Ipv6Addr::from(source).into(), u16::from_be_bytes([rest[32], rest[33]]))?
        }
        _ => Origin::Proxy,
    };
    Ok(Parsed::Whole(origin))
}

/// Somebody, in the one form of an address. Nobody connects from an address that stands for none, or for many.
fn client(address: IpAddr, port: u16) -> Result<Origin, Malformed> {
    let address = address.to_canonical();
    let is_nobody = address.is_unspecified() || address.is_multicast() || address == IpAddr::V4(Ipv4Addr::BROADCAST);
    if is_nobody { Err(Malformed) } else { Ok(Origin::Client(SocketAddr::new(address, port))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is made of the bytes if they come as they are asked for; and how many were.
    fn fed(bytes: &[u8]) -> Option<(Result<Origin, Malformed>, usize)> {
        let mut given = 0;
        loop {
            match parse(&bytes[..given]) {
                Ok(Parsed::More(more)) => {
                    assert!(more > 0);
                    given += more;
                }
                Ok(Parsed::Whole(origin)) => return Some((Ok(origin), given)),
                Err(malformed) => return Some((Err(malformed), given)),
            }
            if given > bytes.len() {
                return None;
            }
        }
    }

    fn v2(version: u8, family: u8, payload: &[u8]) -> Vec<u8> {
        let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
        [BINARY, &[version, family], &length, payload].concat()
    }

    fn origin(address: &str) -> Result<Origin, Malformed> {
        Ok(Origin::Client(address.parse().unwrap()))
    }

    const FOUR: &[u8] = &[192, 0, 2, 7, 10, 0, 0, 1, 0xC0, 0, 0x1F, 0x90];

    #[test]
    fn headers_are_read_to_their_end_and_no_further() {
        let mut six = [0; 36];
        six[..16].copy_from_slice(&"2001:db8::7".parse::<Ipv6Addr>().unwrap().octets());
        six[33] = 9;
        let with_more = [FOUR, b"\x04\0\x03abc"].concat();
        let headers = [
            (b"PROXY TCP4 192.0.2.7 10.0.0.1 49152 8080\r\n".to_vec(), origin("192.0.2.7:49152")),
            (b"PROXY TCP4 1.1.1.1 1.1.1.1 0 1\r\n".to_vec(), origin("1.1.1.1:0")),
            (b"PROXY TCP6 2001:db8::7 ::1 9 8080\r\n".to_vec(), origin("[2001:db8::7]:9")),
            (b"PROXY TCP6 ::1 :: 1 1\r\n".to_vec(), origin("[::1]:1")),
            (b"PROXY TCP6 ::ffff:192.0.2.7 ::1 9 80\r\n".to_vec(), origin("192.0.2.7:9")),
            (b"PROXY UNKNOWN\r\n".to_vec(), Ok(Origin::Proxy)),
            (b"PROXY UNKNOWN ffff:f...f ffff:f...f 65535 65535\r\n".to_vec(), Ok(Origin::Proxy)),
            (v2(0x21, 0x11, FOUR), origin("192.0.2.7:49152")),
            (v2(0x21, 0x11, &with_more), origin("192.0.2.7:49152")),
            (v2(0x21, 0x21, &six), origin("[2001:db8::7]:9")),
            (v2(0x21, 0x31, &[0; 216]), Ok(Origin::Proxy)),
            (v2(0x21, 0x00, b"whatever"), Ok(Origin::Proxy)),
            (v2(0x20, 0x00, b""), Ok(Origin::Proxy)),
            (v2(0x20, 0x11, FOUR), Ok(Origin::Proxy)),
            (v2(0x20, 0xEE, b"a family of the future"), Ok(Origin::Proxy)),
        ];
        for (header, wanted) in headers {
            let sent = [&header, b"GET / HTTP/1.1\r\n\r\n".as_slice()].concat();
            assert_eq!(fed(&sent), Some((wanted, header.len())), "{:?}", String::from_utf8_lossy(&header));
            // Of no part of it is the end told.
            for end in 0..header.len() {
                assert!(matches!(parse(&header[..end]), Ok(Parsed::More(more)) if more <= header.len() - end), "{end}");
            }
        }
    }

    #[test]
    fn what_is_no_header_is_told() {
        let long = format!("PROXY UNKNOWN {}\r\n", "a".repeat(LONGEST_TEXT));
        let texts = [
            "GET / HTTP/1.1\r\n\r\n",
            "PROXI TCP4 1.1.1.1 1.1.1.1 1 1\r\n",
            "PROXY TCP4 0.0.0.0 10.0.0.1 1 1\r\n",
            "PROXY TCP6 :: ::1 1 1\r\n",
            "PROXY TCP6 ::ffff:0.0.0.0 ::1 1 1\r\n",
            "PROXY TCP4 224.0.0.1 10.0.0.1 1 1\r\n",
            "PROXY TCP4 255.255.255.255 10.0.0.1 1 1\r\n",
            "PROXY TCP4 ::1 ::1 1 1 1 1 1 1\r\n",
            "PROXY TCP6 192.0.2.7 192.0.2.8 1 1\r\n",
            "PROXY TCP4 192.0.2.07 10.0.0.1 1 1\r\n",
            "PROXY TCP4 192.0.2.7 10.0.0.1 +1 1\r\n",
            "PROXY TCP4 192.0.2.7 10.0.0.1 01 1\r\n",
            "PROXY TCP4 192.0.2.7 10.0.0.1 65536 1\r\n",
            "PROXY TCP4 192.0.2.7 10.0.0.1 1\r\n     ",
            "PROXY TCP4 192.0.2.7 10.0.0.1 1 1 1\r\n",
            "PROXY TCP4  192.0.2.7 10.0.0.1 1 1\r\n",
            "PROXY TCP4 192.0.2.7 10.0.0.1 1 1\n",
            "PROXY TCP4\r\nGET / HTTP/1.1\r\n\r\n",
            "PROXY UDP4 192.0.2.7 10.0.0.1 1 1\r\n",
            "PROXY \r\n         ",
            &long,
        ];
        for text in texts {
            let told = fed(text.as_bytes()).map(|(origin, _)| origin);
            assert_eq!(told, Some(Err(Malformed)), "{text:?}");
        }
        let nobody = [&[0; 4], &FOUR[4..]].concat();
        let headers = [
            v2(0x11, 0x11, FOUR),
            v2(0x22, 0x11, FOUR),
            v2(0x21, 0x12, FOUR),
            v2(0x21, 0x10, FOUR),
            v2(0x21, 0x41, FOUR),
            v2(0x21, 0x11, &FOUR[1..]),
            v2(0x21, 0x21, FOUR),
            v2(0x21, 0x31, &[0; 215]),
            v2(0x21, 0x11, &nobody),
            v2(0x20, 0x00, &vec![0; LONGEST_BINARY]),
            b"\r\n\r\n\0\r\nQUIX\n     ".to_vec(),
        ];
        for header in headers {
            assert_eq!(fed(&header).map(|(origin, _)| origin), Some(Err(Malformed)), "{header:02x?}");
        }
    }
}
