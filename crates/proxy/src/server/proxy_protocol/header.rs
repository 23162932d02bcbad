//! Parses PROXY protocol headers, versions 1 and 2. A proxy sends such a header before all other bytes of a
//! connection, to name the client that connected to it
//! (<https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>).
//!
//! An incremental reader must know how many further bytes belong to the header. The existing crates do not report
//! that for version 1, and computing it takes about as much code as the parser.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// The start of a version 1 header.
const V1_START: &[u8] = b"PROXY ";
/// The start of a version 2 header.
const V2_SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// The length of the first read: the signature of version 2. All headers are longer, so it stays within the header.
const FIRST_READ: usize = V2_SIGNATURE.len();
/// The maximum length of version 1, including the end of the line.
const V1_MAX_LENGTH: usize = 107;
/// The length of the fixed part of version 2.
const V2_FIXED_LENGTH: usize = 16;
/// The maximum accepted length of version 2. The format allows 64 KiB. Addresses take at most 216 bytes; the rest are
/// extensions. The gateway reads only `PP2_TYPE_SSL`.
const V2_MAX_LENGTH: usize = 4096;
/// The type of the extension about TLS, and the bit of its first byte that is set if the client used TLS.
const SSL_EXTENSION: u8 = 0x20;
const CLIENT_USED_TLS: u8 = 1;

/// The result of parsing the bytes read so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// The header has at least this many further bytes, never 0.
    More(usize),
    /// The header is complete.
    Complete(ProxySource),
}

/// The source of a proxied connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProxySource {
    Client(ProxiedClient),
    /// The proxy itself, for example for a health check, or a client without an address.
    Proxy,
}

/// The client of a proxied connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProxiedClient {
    pub(crate) address: SocketAddr,
    /// Whether the client's connection to the proxy used TLS. Only version 2 reports that.
    pub(crate) over_tls: bool,
}

/// The header is malformed or not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Parses all bytes that were read from a connection. The caller must not read more than the previous call requested.
///
/// # Errors
/// The header is malformed or not accepted.
pub(crate) fn parse(bytes: &[u8]) -> Result<Parsed, Malformed> {
    let begins = |start: &[u8]| bytes.iter().zip(start).all(|(byte, wanted)| byte == wanted);
    match bytes.len() {
        _ if !begins(V1_START) && !begins(V2_SIGNATURE) => Err(Malformed),
        length @ ..FIRST_READ => Ok(Parsed::More(FIRST_READ - length)),
        _ if begins(V2_SIGNATURE) => parse_v2(bytes),
        _ => parse_v1(bytes),
    }
}

/// Parses a line that ends in CR LF.
fn parse_v1(bytes: &[u8]) -> Result<Parsed, Malformed> {
    if let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
        let line = bytes.strip_suffix(b"\r\n").filter(|line| end == line.len() + 1).ok_or(Malformed)?;
        return std::str::from_utf8(line).map_err(|_| Malformed).and_then(parse_v1_line).map(Parsed::Complete);
    }
    let shortest_length = match bytes[V1_START.len()..] {
        [b'T', b'C', b'P', b'4', ..] => "PROXY TCP4 1.1.1.1 1.1.1.1 1 1\r\n".len(),
        [b'T', b'C', b'P', b'6', ..] => "PROXY TCP6 :: :: 1 1\r\n".len(),
        _ => "PROXY UNKNOWN\r\n".len(),
    };
    match bytes.len() {
        V1_MAX_LENGTH.. => Err(Malformed),
        length => Ok(Parsed::More(shortest_length.saturating_sub(length).max(1))),
    }
}

fn parse_v1_line(line: &str) -> Result<ProxySource, Malformed> {
    let mut words = line.split(' ').skip(1);
    let (family, mut next) = (words.next(), || words.next().ok_or(Malformed));
    let source = match family {
        Some("TCP4") => parse_source::<Ipv4Addr>(next()?, next()?)?,
        Some("TCP6") => parse_source::<Ipv6Addr>(next()?, next()?)?,
        // The specification says to ignore the rest of the line.
        Some("UNKNOWN") => return Ok(ProxySource::Proxy),
        _ => return Err(Malformed),
    };
    let (port, _) = (parse_port(next()?)?, parse_port(next()?)?);
    if words.next().is_some() {
        return Err(Malformed);
    }
    client_source(source, port, false)
}

/// Parses two addresses of one family, and returns the first.
fn parse_source<A: FromStr + Into<IpAddr>>(source: &str, destination: &str) -> Result<IpAddr, Malformed> {
    destination.parse::<A>().map_err(|_| Malformed)?;
    source.parse::<A>().map(Into::into).map_err(|_| Malformed)
}

fn parse_port(text: &str) -> Result<u16, Malformed> {
    // Signs and leading zeros are rejected, because parsers disagree on them.
    let is_plain = text == "0" || (!text.starts_with(['0', '+']));
    if is_plain { text.parse().map_err(|_| Malformed) } else { Err(Malformed) }
}

fn parse_v2(bytes: &[u8]) -> Result<Parsed, Malformed> {
    let Some((&[version, family, high, low], rest)) = bytes[V2_SIGNATURE.len()..].split_first_chunk() else {
        return Ok(Parsed::More(V2_FIXED_LENGTH - bytes.len()));
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    let needed = match (version, family) {
        (0x20, _) | (0x21, 0x00) => 0,
        (0x21, 0x11) => 12,
        (0x21, 0x21) => 36,
        (0x21, 0x31) => 216,
        _ => return Err(Malformed),
    };
    if length < needed || V2_FIXED_LENGTH + length > V2_MAX_LENGTH || rest.len() > length {
        return Err(Malformed);
    }
    if rest.len() < length {
        return Ok(Parsed::More(length - rest.len()));
    }
    let over_tls = uses_tls(&rest[needed..]);
    let source = match (version, family, rest) {
        (0x21, 0x11, &[a, b, c, d, _, _, _, _, high, low, ..]) => {
            client_source(Ipv4Addr::new(a, b, c, d).into(), u16::from_be_bytes([high, low]), over_tls)?
        }
        (0x21, 0x21, _) => {
            let source: [u8; 16] = rest[..16].try_into().map_err(|_| Malformed)?;
            client_source(Ipv6Addr::from(source).into(), u16::from_be_bytes([rest[32], rest[33]]), over_tls)?
        }
        _ => ProxySource::Proxy,
    };
    Ok(Parsed::Complete(source))
}

/// Returns the client in canonical form. Rejects unspecified, multicast and broadcast addresses, which no host can
/// connect from.
fn client_source(address: IpAddr, port: u16, over_tls: bool) -> Result<ProxySource, Malformed> {
    let address = address.to_canonical();
    let is_no_host = address.is_unspecified() || address.is_multicast() || address == IpAddr::V4(Ipv4Addr::BROADCAST);
    let client = ProxiedClient { address: SocketAddr::new(address, port), over_tls };
    if is_no_host { Err(Malformed) } else { Ok(ProxySource::Client(client)) }
}

/// Returns `true` if the first extension about TLS says that the client used TLS. Extensions follow the addresses; the rest
/// is ignored if it is malformed.
fn uses_tls(mut extensions: &[u8]) -> bool {
    while let Some((&[kind, high, low], rest)) = extensions.split_first_chunk() {
        let Some((value, after)) = rest.split_at_checked(usize::from(u16::from_be_bytes([high, low]))) else { break };
        if kind == SSL_EXTENSION {
            return value.first().is_some_and(|client| client & CLIENT_USED_TLS != 0);
        }
        extensions = after;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses the bytes incrementally. Returns the result and the number of bytes that were read.
    fn parse_incrementally(bytes: &[u8]) -> Option<(Result<ProxySource, Malformed>, usize)> {
        let mut given = 0;
        loop {
            match parse(&bytes[..given]) {
                Ok(Parsed::More(more)) => {
                    assert!(more > 0);
                    given += more;
                }
                Ok(Parsed::Complete(source)) => return Some((Ok(source), given)),
                Err(malformed) => return Some((Err(malformed), given)),
            }
            if given > bytes.len() {
                return None;
            }
        }
    }

    fn v2(version: u8, family: u8, payload: &[u8]) -> Vec<u8> {
        let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
        [V2_SIGNATURE, &[version, family], &length, payload].concat()
    }

    fn client(address: &str) -> Result<ProxySource, Malformed> {
        Ok(ProxySource::Client(ProxiedClient { address: address.parse().unwrap(), over_tls: false }))
    }

    #[test]
    fn tls_extension_reports_the_connection_of_the_client() {
        // TLS with a verified certificate, the version and the cipher as nested extensions.
        let ssl = [0x20, 0, 12, 1, 0, 0, 0, 0, 0x21, 0, 4, b'T', b'L', b'S', b'1'];
        let other = [4, 0, 3, 0x20, 0, 1];
        let plaintext = [0x20, 0, 5, 0, 0, 0, 0, 0];
        for (extensions, over_tls) in [
            (ssl.to_vec(), true),
            ([&other[..], &ssl].concat(), true),
            ([&plaintext[..], &ssl].concat(), false),
            (other.to_vec(), false),
            (ssl[..3].to_vec(), false),
            (ssl[..8].to_vec(), false),
            (vec![0x20, 0, 0], false),
            (vec![0x20, 0xFF, 0xFF, 1], false),
        ] {
            let six = [&[0x20; 36][..], &extensions].concat();
            for header in [v2(0x21, 0x11, &[IPV4_ADDRESSES, &extensions].concat()), v2(0x21, 0x21, &six)] {
                let Some((Ok(ProxySource::Client(client)), _)) = parse_incrementally(&header) else {
                    panic!("{header:?}")
                };
                assert_eq!(client.over_tls, over_tls, "{extensions:?}");
            }
        }
        let local = v2(0x20, 0x11, &[IPV4_ADDRESSES, &ssl].concat());
        assert_eq!(parse_incrementally(&local).map(|(source, _)| source), Some(Ok(ProxySource::Proxy)));
    }

    const IPV4_ADDRESSES: &[u8] = &[192, 0, 2, 7, 10, 0, 0, 1, 0xC0, 0, 0x1F, 0x90];

    #[test]
    fn header_is_read_to_its_end_and_no_further() {
        let mut six = [0; 36];
        six[..16].copy_from_slice(&"2001:db8::7".parse::<Ipv6Addr>().unwrap().octets());
        six[33] = 9;
        let with_more = [IPV4_ADDRESSES, b"\x04\0\x03abc"].concat();
        let headers = [
            (b"PROXY TCP4 192.0.2.7 10.0.0.1 49152 8080\r\n".to_vec(), client("192.0.2.7:49152")),
            (b"PROXY TCP4 1.1.1.1 1.1.1.1 0 1\r\n".to_vec(), client("1.1.1.1:0")),
            (b"PROXY TCP6 2001:db8::7 ::1 9 8080\r\n".to_vec(), client("[2001:db8::7]:9")),
            (b"PROXY TCP6 ::1 :: 1 1\r\n".to_vec(), client("[::1]:1")),
            (b"PROXY TCP6 ::ffff:192.0.2.7 ::1 9 80\r\n".to_vec(), client("192.0.2.7:9")),
            (b"PROXY UNKNOWN\r\n".to_vec(), Ok(ProxySource::Proxy)),
            (b"PROXY UNKNOWN ffff:f...f ffff:f...f 65535 65535\r\n".to_vec(), Ok(ProxySource::Proxy)),
            (v2(0x21, 0x11, IPV4_ADDRESSES), client("192.0.2.7:49152")),
            (v2(0x21, 0x11, &with_more), client("192.0.2.7:49152")),
            (v2(0x21, 0x21, &six), client("[2001:db8::7]:9")),
            (v2(0x21, 0x31, &[0; 216]), Ok(ProxySource::Proxy)),
            (v2(0x21, 0x00, b"whatever"), Ok(ProxySource::Proxy)),
            (v2(0x20, 0x00, b""), Ok(ProxySource::Proxy)),
            (v2(0x20, 0x11, IPV4_ADDRESSES), Ok(ProxySource::Proxy)),
            (v2(0x20, 0xEE, b"a family of the future"), Ok(ProxySource::Proxy)),
        ];
        for (header, wanted) in headers {
            let sent = [&header, b"GET / HTTP/1.1\r\n\r\n".as_slice()].concat();
            assert_eq!(
                parse_incrementally(&sent),
                Some((wanted, header.len())),
                "{:?}",
                String::from_utf8_lossy(&header)
            );
            // No prefix is complete, and none asks for more bytes than the header has.
            for end in 0..header.len() {
                assert!(matches!(parse(&header[..end]), Ok(Parsed::More(more)) if more <= header.len() - end), "{end}");
            }
        }
    }

    #[test]
    fn malformed_headers_are_rejected() {
        let long = format!("PROXY UNKNOWN {}\r\n", "a".repeat(V1_MAX_LENGTH));
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
            let parsed = parse_incrementally(text.as_bytes()).map(|(source, _)| source);
            assert_eq!(parsed, Some(Err(Malformed)), "{text:?}");
        }
        let no_host = [&[0; 4], &IPV4_ADDRESSES[4..]].concat();
        let headers = [
            v2(0x11, 0x11, IPV4_ADDRESSES),
            v2(0x22, 0x11, IPV4_ADDRESSES),
            v2(0x21, 0x12, IPV4_ADDRESSES),
            v2(0x21, 0x10, IPV4_ADDRESSES),
            v2(0x21, 0x41, IPV4_ADDRESSES),
            v2(0x21, 0x11, &IPV4_ADDRESSES[1..]),
            v2(0x21, 0x21, IPV4_ADDRESSES),
            v2(0x21, 0x31, &[0; 215]),
            v2(0x21, 0x11, &no_host),
            v2(0x20, 0x00, &vec![0; V2_MAX_LENGTH]),
            b"\r\n\r\n\0\r\nQUIX\n     ".to_vec(),
        ];
        for header in headers {
            assert_eq!(parse_incrementally(&header).map(|(source, _)| source), Some(Err(Malformed)), "{header:02x?}");
        }
    }
}
