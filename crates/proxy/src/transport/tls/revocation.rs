//! Reads the revocation lists of the authorities that sign client certificates (CRLs, RFC 5280 section 5).

use blake3::Hash;
use rustls::pki_types::CertificateRevocationListDer;

use super::certificate;
use tidegate_rules::settings::files::{ConfiguredFile, TlsFileError};
use tidegate_store::tls::pem::PemFile;
use tidegate_store::tls::pem::der::{Der, GENERALIZED_TIME, INTEGER, SEQUENCE, UTC_TIME};

/// The revocation lists in a file.
#[derive(Debug)]
pub(super) struct RevocationLists {
    pub(super) lists: Vec<CertificateRevocationListDer<'static>>,
    /// The earliest `nextUpdate` of the lists, in seconds since the Unix epoch.
    pub(super) not_after: Option<i64>,
    pub(super) hash: Hash,
}

impl RevocationLists {
    /// Reads a file. rustls checks the contents of each list.
    ///
    /// # Errors
    /// The file cannot be read, or contains no revocation list in PEM.
    pub(super) fn read(file: ConfiguredFile<'_>) -> Result<Self, TlsFileError> {
        let text = file.read()?;
        let lists = file.revocation_lists(&text)?;
        let not_after = lists.iter().filter_map(|list| next_update(list)).min();
        Ok(Self { lists, not_after, hash: blake3::hash(&text) })
    }
}

/// Returns the `nextUpdate` of a list, in seconds since the Unix epoch.
fn next_update(der: &[u8]) -> Option<i64> {
    let mut body = Der(der).enter(SEQUENCE)?.enter(SEQUENCE)?;
    _ = body.optional(INTEGER); // version
    body.value(SEQUENCE)?; // signature
    body.value(SEQUENCE)?; // issuer
    body.next()?; // thisUpdate
    let time = body.next().filter(|(tag, _)| matches!(*tag, UTC_TIME | GENERALIZED_TIME))?;
    certificate::time(time)
}

#[cfg(test)]
mod tests {
    use rcgen::{
        BasicConstraints, CertificateParams, CertificateRevocationListParams, IsCa, Issuer, KeyIdMethod, KeyPair,
        SerialNumber, date_time_ymd,
    };

    use super::*;

    #[test]
    fn next_update_of_a_list_is_parsed() {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = Issuer::new(params, KeyPair::generate().unwrap());
        for (year, seconds) in [(2031, 1_927_843_200), (2051, 2_558_995_200)] {
            let list = CertificateRevocationListParams {
                this_update: date_time_ymd(2001, 2, 3),
                next_update: date_time_ymd(year, 2, 3),
                crl_number: SerialNumber::from(1_u64),
                issuing_distribution_point: None,
                revoked_certs: Vec::new(),
                key_identifier_method: KeyIdMethod::Sha256,
            };
            let list = list.signed_by(&issuer).unwrap();
            assert_eq!(next_update(list.der()), Some(seconds), "{year}");
            let cut_off = &list.der()[..list.der().len() - 1];
            assert_eq!(next_update(cut_off), None);
        }
    }
}
