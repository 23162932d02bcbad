//! The words that keys take.

use crate::config::keys::words;

words! {
    /// What an encoded slash in a path is.
    EncodedSlash {
        /// A reason to answer with 400.
        Reject = "reject",
        /// A part of its segment.
        Keep = "keep",
        /// A slash.
        Decode = "decode",
    }
}

words! {
    /// What happens to fields with odd names.
    Underscores {
        /// They are removed.
        Drop = "drop",
        /// The request is answered with 400.
        Reject = "reject",
        /// They stay.
        Keep = "keep",
    }
}

words! {
    /// A version of TLS.
    TlsVersion {
        /// That, and what is newer.
        Tls12 = "1.2",
        /// That alone.
        Tls13 = "1.3",
    }
}

words! {
    /// One bucket, or many.
    Mode {
        /// One for all.
        Overall = "OVERALL",
        /// One for each client.
        PerClient = "PER_CLIENT",
    }
}

words! {
    /// Fields that tell clients what is left.
    Fields {
        /// `RateLimit-Policy` and `RateLimit`.
        Ietf = "ietf",
        /// `X-RateLimit-*`.
        Legacy = "legacy",
    }
}

words! {
    /// When a permit comes back.
    Algorithm {
        /// One interval after it was granted.
        TokenBucket = "token_bucket",
        /// Evenly, one by one.
        Gcra = "gcra",
        /// Evenly, and requests wait for theirs.
        LeakyBucket = "leaky_bucket",
        /// With the next window of the calendar.
        FixedWindow = "fixed_window",
        /// With the segment that it was granted in.
        SlidingWindow = "sliding_window",
    }
}

words! {
    /// What is spoken to an upstream.
    Protocol {
        /// Over TLS what the target chooses (ALPN); in clear HTTP/1.1.
        Auto = "auto",
        /// HTTP/1.1.
        Http1 = "http1",
        /// HTTP/2; in clear without asking, as the upstream is known to speak it.
        Http2 = "http2",
    }
}

words! {
    /// What a limit does without its store.
    OnStoreFailure {
        /// Each gateway decides by itself, by its share of the limit.
        Local = "local",
        /// It lets requests pass.
        Allow = "allow",
        /// It answers them with 503.
        Deny = "deny",
    }
}

words! {
    /// What a limit does without a client.
    OnMissingClient {
        /// It answers with 400.
        Deny = "deny",
        /// It does not count it.
        Skip = "skip",
        /// It counts it by its address.
        Ip = "ip",
    }
}
