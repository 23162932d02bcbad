//! The words that keys take.

use crate::config::keys::words;

words! {
    /// What an encoded slash in a path is.
    EncodedSlash {
        /// The request is answered with 400.
        Reject = "reject",
        /// It stays as it is.
        Keep = "keep",
        /// It is a slash.
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
    /// What a limit does without its store.
    OnStoreFailure {
        /// It lets requests pass.
        Allow = "allow",
        /// It refuses them.
        Deny = "deny",
        unbuilt "local"
    }
}

words! {
    /// What a limit does without a client.
    OnMissingClient {
        /// It refuses the request.
        Deny = "deny",
        /// It does not count it.
        Skip = "skip",
        /// It counts it by its address.
        Ip = "ip",
    }
}
