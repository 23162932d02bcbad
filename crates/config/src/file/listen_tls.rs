//! The keys of TLS for clients.

use super::keys::Kind::{Flag, Integer, Map, OneOrMany, Text, Word};
use super::located::Located;
use super::shape::shape;
use tidegate_rules::settings::tls::TlsVersion;

shape! {
    /// TLS 1.2 and 1.3 for clients; only cipher suites with forward secrecy and AEAD. Files are PEM, not encrypted. A
    /// relative path starts at the folder of the rule file.
    LISTEN_TLS: ListenTls = "`tls` of a listener" {
        /// The certificates. The gateway presents the one that matches the client's server name (SNI), or else the
        /// first.
        certificates: Vec<Located<Certificate>> =
            OneOrMany(&Map(&CERTIFICATE)), Required("certificates: [{ cert: api.pem, key: api.key }]");
        /// The oldest TLS version that is accepted, in quotes.
        min_version: TlsVersion = Word(TlsVersion::WORDS), Default("1.2");
        /// Verifies client certificates.
        client_auth: ClientAuth = Map(&CLIENT_AUTH), Optional;
        /// The highest number of TLS handshakes of one client per second, averaged over ten seconds; further
        /// connections are closed. 0 means no limit. Trusted proxies are not counted.
        max_handshake_rate: u64 = Integer(0, 1_000_000), Default("100");
    }
}

shape! {
    /// A certificate for clients. The gateway reads its names from the file; `*.example.com` matches exactly one label.
    CERTIFICATE: Certificate = "a certificate" {
        /// The file with the certificate, followed by its intermediate certificates.
        cert: String = Text, Required("cert: api.pem");
        /// The file with the private key.
        key: String = Text, Required("key: api.key");
        /// The file with an OCSP response in DER, which is stapled to the handshake.
        ocsp: String = Text, Optional;
    }
}

shape! {
    /// Verification of client certificates. Limits can then use `client: tls:subject`, the certificate's subject such
    /// as `CN=alice,O=Example` (RFC 4514), or `tls:san`, its first alternative name that is a URI, a host name or an
    /// email address.
    CLIENT_AUTH: ClientAuth = "`client_auth`" {
        /// The file with the authorities that sign client certificates.
        ca: String = Text, Required("ca: clients.pem");
        /// The file with the revocation lists of the authorities, in PEM ([http2.md](http2.md#certificate-files)).
        crl: String = Text, Optional;
        /// Whether to reject clients without a certificate.
        required: bool = Flag, Default("true");
    }
}
