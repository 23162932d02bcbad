//! Keys that accept one of several fixed words.

use crate::config::keys::words;

words! {
    /// How to interpret an encoded slash in a path.
    EncodedSlash {
        /// Rejected with 400.
        Reject = "reject",
        /// Kept as part of its segment.
        Keep = "keep",
        /// Decoded to a slash.
        Decode = "decode",
    }
}

words! {
    /// How to handle fields with unusual names.
    Underscores {
        /// The fields are removed.
        Drop = "drop",
        /// The request is rejected with 400.
        Reject = "reject",
        /// The fields are kept.
        Keep = "keep",
    }
}

words! {
    /// A version of TLS.
    TlsVersion {
        /// TLS 1.2 and newer.
        Tls12 = "1.2",
        /// TLS 1.3 only.
        Tls13 = "1.3",
    }
}

words! {
    /// Whether all clients share one bucket.
    Mode {
        /// One bucket for all clients.
        Overall = "OVERALL",
        /// One bucket for each client.
        PerClient = "PER_CLIENT",
    }
}

words! {
    /// Response fields that report the remaining permits.
    Fields {
        /// `RateLimit-Policy` and `RateLimit`.
        Ietf = "ietf",
        /// `X-RateLimit-*`.
        Legacy = "legacy",
    }
}

words! {
    /// When a permit becomes available again.
    Algorithm {
        /// One interval after it was granted.
        TokenBucket = "token_bucket",
        /// Evenly, one at a time.
        Gcra = "gcra",
        /// Evenly, and requests wait for their time slot.
        LeakyBucket = "leaky_bucket",
        /// When the next calendar window starts.
        FixedWindow = "fixed_window",
        /// When the segment in which it was granted leaves the window.
        SlidingWindow = "sliding_window",
    }
}

words! {
    /// The protocol between the gateway and an upstream.
    Protocol {
        /// Over TLS the protocol that the target selects (ALPN), in plaintext HTTP/1.1.
        Auto = "auto",
        /// HTTP/1.1.
        Http1 = "http1",
        /// HTTP/2, in plaintext without negotiation (prior knowledge).
        Http2 = "http2",
    }
}

words! {
    /// How a limit decides while the store is unreachable.
    OnStoreFailure {
        /// Each gateway enforces its share of the limit.
        Local = "local",
        /// Requests are admitted.
        Allow = "allow",
        /// Requests are rejected with 503.
        Deny = "deny",
    }
}

words! {
    /// How a limit handles a request without a client key.
    OnMissingClient {
        /// The request is rejected with 400.
        Deny = "deny",
        /// The limit does not apply.
        Skip = "skip",
        /// The client's address is the key.
        Ip = "ip",
    }
}
