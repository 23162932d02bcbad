//! Finds the address that a program logs when it listens.

use std::io::BufRead;
use std::net::SocketAddr;

/// Reads lines until one contains `before`, and returns the address that follows it.
#[track_caller]
pub fn address(lines: &mut impl BufRead, before: &str) -> SocketAddr {
    let mut line = String::new();
    loop {
        line.clear();
        assert_ne!(lines.read_line(&mut line).expect("text"), 0, "waited for `{before}`, but the output has ended");
        if let Some((_, address)) = line.split_once(before) {
            let end = address.find(['/', '"', '\n', ' ']).unwrap_or(address.len());
            return address[..end].parse().expect("an address");
        }
    }
}
