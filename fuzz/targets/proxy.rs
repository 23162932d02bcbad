//! Fuzzes the header of the PROXY protocol.

use tidegate::internals::parse_proxy_header;

/// An upper bound for the length of a header.
const MAX_HEADER: usize = 4096;

/// Checks that the first bytes of a connection give the same header however they are split, and a valid address.
pub fn proxy(data: &[u8]) {
    let mut given = 0;
    let source = loop {
        match parse_proxy_header(&data[..given]) {
            Some(Ok(more)) => {
                assert!(more > 0, "waits for zero bytes");
                given += more;
                assert!(given <= MAX_HEADER, "an endless header");
            }
            Some(Err(source)) => break source,
            None => return,
        }
        if given > data.len() {
            return;
        }
    };
    // A prefix of a header is incomplete: neither a whole header nor an invalid one.
    for end in 0..given {
        let more = parse_proxy_header(&data[..end]).and_then(Result::ok).expect("an incomplete header");
        assert!(more <= given - end, "waits for more bytes than the header has");
    }
    if let Some(client) = source {
        let address = client.ip();
        assert!(!address.is_unspecified() && !address.is_multicast() && address == address.to_canonical());
        if let Some(text) = data[..given].strip_prefix(b"PROXY ") {
            let text = std::str::from_utf8(text).expect("text");
            let words: Vec<_> = text.trim_end_matches("\r\n").split(' ').collect();
            assert_eq!(words.len(), 5, "{text}");
            assert_eq!(words[3], client.port().to_string());
            assert_eq!(words[1].parse::<std::net::IpAddr>().map(|ip| ip.to_canonical()), Ok(address));
        }
    }
}
