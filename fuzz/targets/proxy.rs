//! The header of the PROXY protocol: it ends where it says, and tells of somebody.

use tidegate::internals::parse_proxy_header;

/// The longest header that is read.
const LONGEST: usize = 4096;

/// The beginning of a connection.
pub fn proxy(data: &[u8]) {
    let mut given = 0;
    let told = loop {
        match parse_proxy_header(&data[..given]) {
            Some(Ok(more)) => {
                assert!(more > 0, "nothing is waited for");
                given += more;
                assert!(given <= LONGEST, "a header without end");
            }
            Some(Err(told)) => break told,
            None => return,
        }
        if given > data.len() {
            return;
        }
    };
    // However it comes, it is the same header: no part of it is a whole one, or none.
    for end in 0..given {
        let more = parse_proxy_header(&data[..end]).and_then(Result::ok).expect("a part of a header is more to come");
        assert!(more <= given - end, "bytes were asked for that are not the header's");
    }
    if let Some(client) = told {
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
