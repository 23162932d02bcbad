//! Formats an X.500 name, such as a certificate's subject, as RFC 4514 text: `CN=alice,O=Example`.

use std::fmt::Write;

use tidegate_limit::text::hex;
use tidegate_store::tls::pem::der::{Der, OID, SEQUENCE, SET};

/// Short names of attributes from RFC 4514, and two other common names.
const ATTRIBUTES: [(&[u8], &str); 11] = [
    (&[0x55, 4, 3], "CN"),
    (&[0x55, 4, 5], "serialNumber"),
    (&[0x55, 4, 6], "C"),
    (&[0x55, 4, 7], "L"),
    (&[0x55, 4, 8], "ST"),
    (&[0x55, 4, 9], "STREET"),
    (&[0x55, 4, 10], "O"),
    (&[0x55, 4, 11], "OU"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1], "UID"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25], "DC"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1], "emailAddress"),
];

const UTF8: u8 = 0x0c;
const PRINTABLE: u8 = 0x13;
const LATIN1: u8 = 0x14;
const ASCII: u8 = 0x16;
const UTF32: u8 = 0x1c;
const UTF16: u8 = 0x1e;

/// Formats a name. Returns `None` if the name is empty or malformed.
pub(super) fn format_name(name: &[u8]) -> Option<String> {
    let relative: Vec<String> =
        Der(name).map(|(tag, set)| (tag == SET).then(|| format_relative_name(set))?).collect::<Option<_>>()?;
    let most_specific_first: Vec<&str> = relative.iter().rev().map(String::as_str).collect();
    (!most_specific_first.is_empty()).then(|| most_specific_first.join(","))
}

fn format_relative_name(set: &[u8]) -> Option<String> {
    let values: Vec<String> =
        Der(set).map(|(tag, value)| (tag == SEQUENCE).then(|| format_attribute(value))?).collect::<Option<_>>()?;
    Some(values.join("+"))
}

fn format_attribute(attribute: &[u8]) -> Option<String> {
    let mut der = Der(attribute);
    let oid = der.value(OID)?;
    let encoded_value = der.0;
    let (tag, value) = der.next()?;
    let known = ATTRIBUTES.iter().find(|(known, _)| *known == oid).map(|(_, name)| *name);
    let name = known.map_or_else(|| format_oid(oid), str::to_owned);
    Some(match known.and_then(|_| decode(tag, value)) {
        Some(text) => format!("{name}={}", escape(&text)),
        None => format!("{name}=#{}", hex::encode(encoded_value)),
    })
}

fn decode(tag: u8, value: &[u8]) -> Option<String> {
    match tag {
        UTF8 | PRINTABLE | ASCII => String::from_utf8(value.to_vec()).ok(),
        LATIN1 => Some(value.iter().map(|byte| char::from(*byte)).collect()),
        UTF16 => {
            let (pairs, rest) = value.as_chunks::<2>();
            let units = pairs.iter().map(|pair| u16::from_be_bytes(*pair));
            rest.is_empty().then(|| char::decode_utf16(units).collect::<Result<_, _>>().ok())?
        }
        UTF32 => {
            let (words, rest) = value.as_chunks::<4>();
            let characters = words.iter().map(|word| char::from_u32(u32::from_be_bytes(*word)));
            rest.is_empty().then(|| characters.collect::<Option<String>>())?
        }
        _ => None,
    }
}

/// Escapes special characters (section 2.4), so that different names never have the same text.
fn escape(text: &str) -> String {
    let last = text.chars().count().saturating_sub(1);
    let mut out = String::with_capacity(text.len());
    for (at, character) in text.chars().enumerate() {
        match character {
            '"' | '+' | ',' | ';' | '<' | '>' | '\\' | '=' => out.extend(['\\', character]),
            '#' if at == 0 => out.push_str("\\#"),
            ' ' if at == 0 || at == last => out.push_str("\\ "),
            control if control.is_ascii_control() => _ = write!(out, "\\{:02x}", u32::from(control)),
            character => out.push(character),
        }
    }
    out
}

/// Formats an object identifier in dotted decimal.
fn format_oid(oid: &[u8]) -> String {
    let mut numbers: Vec<u64> = vec![0];
    for byte in oid {
        let last = numbers.len() - 1;
        numbers[last] = numbers[last].wrapping_shl(7) | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            numbers.push(0);
        }
    }
    numbers.pop();
    let first = numbers.first().copied().unwrap_or_default();
    let root = (first / 40).min(2);
    let rest = numbers.iter().skip(1).map(u64::to_string);
    [root.to_string(), (first - 40 * root).to_string()].into_iter().chain(rest).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodes a value with its tag and length.
    fn der(tag: u8, value: &[u8]) -> Vec<u8> {
        [&[tag, u8::try_from(value.len()).unwrap()], value].concat()
    }

    fn attribute(oid: &[u8], tag: u8, value: &[u8]) -> Vec<u8> {
        der(SEQUENCE, &[der(OID, oid), der(tag, value)].concat())
    }

    const CN: &[u8] = &[0x55, 4, 3];
    const O: &[u8] = &[0x55, 4, 10];

    #[test]
    fn most_specific_relative_name_comes_first() {
        let name = [
            der(SET, &attribute(O, PRINTABLE, b"Example")),
            der(SET, &[attribute(CN, UTF8, "Zoë".as_bytes()), attribute(O, ASCII, b"x")].concat()),
        ];
        assert_eq!(format_name(&name.concat()).as_deref(), Some("CN=Zoë+O=x,O=Example"));
        assert_eq!(format_name(&[]), None);
    }

    #[test]
    fn different_names_have_different_texts() {
        let cn = |tag, value: &[u8]| format_name(&der(SET, &attribute(CN, tag, value))).unwrap();
        assert_eq!(cn(UTF8, b"a,O=b"), r"CN=a\,O\=b");
        assert_eq!(cn(UTF8, b" #a "), r"CN=\ #a\ ");
        assert_eq!(cn(UTF8, b"#0c01"), r"CN=\#0c01");
        assert_eq!(cn(UTF8, b"a\0b"), r"CN=a\00b");
        assert_eq!(cn(UTF8, b"\xff"), "CN=#0c01ff");
        assert_eq!(cn(UTF16, b"\0a\0b"), "CN=ab");
        assert_eq!(cn(UTF32, b"\0\0\0a"), "CN=a");
        assert_eq!(cn(LATIN1, b"\xe9"), "CN=é");
    }

    #[test]
    fn unknown_attribute_is_formatted_as_oid_and_hex_bytes() {
        let oid = [0x2b, 0x06, 0x01, 0x04, 0x01, 0x82, 0x37];
        let name = der(SET, &attribute(&oid, UTF8, b"a"));
        assert_eq!(format_name(&name).as_deref(), Some("1.3.6.1.4.1.311=#0c0161"));
    }

    #[test]
    fn malformed_name_has_no_text() {
        for bad in [&[1, 2, 3][..], &der(SEQUENCE, b""), &der(SET, &der(SEQUENCE, b"")), &der(SET, &[OID, 1, 5])] {
            assert_eq!(format_name(bad), None, "{bad:?}");
        }
    }
}
