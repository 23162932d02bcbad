//! The keys of `compression` of a route.

use super::keys::Kind::{OneOrMany, Size, Text, Word};
use super::located::Located;
use super::shape::shape;
use crate::values::units::Bytes;
use tidegate_rules::route::Coding;

shape! {
    /// Compresses responses of the upstream for clients that accept it ([http2.md](http2.md#compression)).
    COMPRESSION: Compression = "`compression`" {
        /// The codings, the preferred one first.
        codings: Vec<Located<Coding>> = OneOrMany(&Word(Coding::WORDS)), Default("[zstd, gzip]");
        /// The media types to compress. A subtype may be `*`, or start with it: `application/*+json`.
        types: Vec<Located<String>> = OneOrMany(&Text),
            Default("[text/*, application/json, application/*+json, application/javascript, application/xml, application/*+xml, application/wasm, image/svg+xml]");
        /// The shortest body to compress. A body of unknown length is compressed, too.
        min_size: Bytes = Size(0, 1 << 30), Default("1KiB");
    }
}
