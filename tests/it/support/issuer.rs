//! An issuer of tokens: keys of all supported types, signed tokens, and a server for the key set.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use parking_lot::Mutex;
use ring::rand::SystemRandom;
use ring::rsa::PublicKeyComponents;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair,
    RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384, RSA_PSS_SHA512, RsaEncoding,
    RsaKeyPair,
};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

use super::tls::Authority;

/// A key that signs tokens.
pub enum SigningKey {
    Rsa(RsaKeyPair),
    Ec(EcdsaKeyPair),
    Ec384(EcdsaKeyPair),
    Ed(Ed25519KeyPair),
}

/// A server for a key set, in a separate thread.
pub struct KeySetServer {
    pub url: String,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    response: Mutex<KeySetResponse>,
    requests: AtomicUsize,
    /// The connections without a response.
    silent: Mutex<Vec<TcpStream>>,
}

/// The response of a server for a key set.
#[derive(Clone, Default)]
enum KeySetResponse {
    Bytes(Vec<u8>),
    /// Closes the connection.
    #[default]
    Close,
    /// Keeps the connection open without a response.
    Silence,
}

impl SigningKey {
    pub fn ec() -> Self {
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).expect("a key");
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.as_ref(), &random);
        Self::Ec(key.expect("a key"))
    }

    pub fn ec384() -> Self {
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P384_SHA384_FIXED_SIGNING, &random).expect("a key");
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P384_SHA384_FIXED_SIGNING, key.as_ref(), &random);
        Self::Ec384(key.expect("a key"))
    }

    pub fn ed() -> Self {
        let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("a key");
        Self::Ed(Ed25519KeyPair::from_pkcs8(key.as_ref()).expect("a key"))
    }

    /// Generates the key with `openssl`: ring generates no RSA keys.
    pub fn rsa() -> Self {
        let options = ["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-outform", "DER"];
        let output = Command::new("openssl").args(options).output().expect("openssl runs");
        // PKCS #8 or PKCS #1, which depends on the version of openssl.
        let key = RsaKeyPair::from_pkcs8(&output.stdout).or_else(|_| RsaKeyPair::from_der(&output.stdout));
        Self::Rsa(key.expect("a key"))
    }

    /// Returns the public key as a JWK.
    pub fn jwk(&self, id: &str) -> Value {
        match self {
            Self::Rsa(key) => {
                let PublicKeyComponents { n, e } = PublicKeyComponents::<Vec<u8>>::from(key.public());
                json!({ "kty": "RSA", "kid": id, "n": base64(&n), "e": base64(&e), "use": "sig" })
            }
            Self::Ec(key) => {
                let (x, y) = key.public_key().as_ref()[1..].split_at(32);
                json!({ "kty": "EC", "kid": id, "crv": "P-256", "x": base64(x), "y": base64(y), "alg": "ES256" })
            }
            Self::Ec384(key) => {
                let (x, y) = key.public_key().as_ref()[1..].split_at(48);
                json!({ "kty": "EC", "kid": id, "crv": "P-384", "x": base64(x), "y": base64(y) })
            }
            Self::Ed(key) => {
                json!({ "kty": "OKP", "kid": id, "crv": "Ed25519", "x": base64(key.public_key().as_ref()) })
            }
        }
    }

    /// Returns a token with the usual algorithm of the key.
    pub fn token(&self, id: &str, claims: &Value) -> String {
        let algorithm = match self {
            Self::Rsa(_) => "RS256",
            Self::Ec(_) => "ES256",
            Self::Ec384(_) => "ES384",
            Self::Ed(_) => "EdDSA",
        };
        self.token_with(&json!({ "alg": algorithm, "typ": "JWT", "kid": id }), claims)
    }

    /// Returns a token with these header parameters.
    pub fn token_with(&self, header: &Value, claims: &Value) -> String {
        let text = format!("{}.{}", base64(header.to_string().as_bytes()), base64(claims.to_string().as_bytes()));
        let (random, message) = (SystemRandom::new(), text.as_bytes());
        let signature = match self {
            Self::Rsa(key) => {
                let encoding: &dyn RsaEncoding = match header["alg"].as_str() {
                    Some("RS384") => &RSA_PKCS1_SHA384,
                    Some("RS512") => &RSA_PKCS1_SHA512,
                    Some("PS256") => &RSA_PSS_SHA256,
                    Some("PS384") => &RSA_PSS_SHA384,
                    Some("PS512") => &RSA_PSS_SHA512,
                    _ => &RSA_PKCS1_SHA256,
                };
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(encoding, &random, message, &mut signature).expect("a signature");
                signature
            }
            Self::Ec(key) | Self::Ec384(key) => key.sign(&random, message).expect("a signature").as_ref().to_vec(),
            Self::Ed(key) => key.sign(message).as_ref().to_vec(),
        };
        format!("{text}.{}", base64(&signature))
    }
}

/// Returns valid claims for this subject.
pub fn claims(subject: &str) -> Value {
    json!({ "iss": "https://id.test/", "aud": "api", "sub": subject, "exp": now() + 300 })
}

/// Returns seconds since the Unix epoch.
pub fn now() -> i64 {
    #[expect(clippy::disallowed_methods, reason = "tokens have times of the wall clock")]
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970");
    i64::try_from(now.as_secs()).expect("a time")
}

/// Returns a key set.
pub fn key_set(keys: &[Value]) -> String {
    json!({ "keys": keys }).to_string()
}

/// Encodes bytes as base64url without padding.
pub fn base64(bytes: &[u8]) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

/// Replaces a file in one step.
pub fn replace_file(path: &str, text: &str) {
    let new = format!("{path}.new");
    std::fs::write(&new, text).expect("written");
    std::fs::rename(new, Path::new(path)).expect("renamed");
}

impl KeySetServer {
    pub fn start(key_set: &str) -> Self {
        Self::start_with(key_set, "http", |stream, shared| shared.serve(stream))
    }

    /// Starts a server with this certificate, which must be signed for 127.0.0.1.
    pub fn start_with_tls(key_set: &str, authority: &Authority, certificate: &str) -> Self {
        let chain =
            CertificateDer::from_pem_file(authority.path(&format!("{certificate}.pem"))).expect("a certificate");
        let key = PrivateKeyDer::from_pem_file(authority.path(&format!("{certificate}.key"))).expect("a key");
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let config = config.with_safe_default_protocol_versions().expect("versions").with_no_client_auth();
        let config = Arc::new(config.with_single_cert(vec![chain], key).expect("a configuration"));
        Self::start_with(key_set, "https", move |stream, shared| {
            let connection = ServerConnection::new(Arc::clone(&config)).expect("a connection");
            shared.serve(StreamOwned::new(connection, stream));
        })
    }

    fn start_with(key_set: &str, scheme: &str, serve: impl Fn(TcpStream, &Shared) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("{scheme}://{}/jwks.json", listener.local_addr().expect("an address"));
        let server = Self { url, shared: Arc::default() };
        server.set(key_set);
        let shared = Arc::clone(&server.shared);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { continue };
                let response = shared.response.lock().clone();
                if let KeySetResponse::Silence = response {
                    shared.silent.lock().push(stream);
                } else {
                    serve(stream, &shared);
                }
            }
        });
        server
    }

    /// Sets the key set.
    pub fn set(&self, key_set: &str) {
        self.respond(&format!(
            "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{key_set}",
            key_set.len()
        ));
    }

    /// Sets the whole response.
    pub fn respond(&self, response: &str) {
        *self.shared.response.lock() = KeySetResponse::Bytes(response.into());
    }

    /// Closes each connection without a response.
    pub fn fail(&self) {
        *self.shared.response.lock() = KeySetResponse::Close;
    }

    /// Keeps each connection open without a response, and counts no request.
    pub fn hang(&self) {
        *self.shared.response.lock() = KeySetResponse::Silence;
    }

    /// Returns the number of connections without a response so far.
    pub fn silent_connections(&self) -> usize {
        self.shared.silent.lock().len()
    }

    /// Returns the number of requests so far.
    pub fn requests(&self) -> usize {
        self.shared.requests.load(Ordering::SeqCst)
    }
}

impl Shared {
    /// Reads a request and sends the response.
    fn serve(&self, mut stream: impl Read + Write) {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count == 1) {
            head.extend(byte);
        }
        self.requests.fetch_add(1, Ordering::SeqCst);
        if let KeySetResponse::Bytes(response) = &*self.response.lock() {
            _ = stream.write_all(response); // the client may have closed the connection
        }
    }
}
