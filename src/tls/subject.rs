//! A name of X.500, as a certificate's subject is one, in the text form of RFC 4514: `CN=alice,O=Example`.

use std::fmt::Write;

use super::der::{Der, OID, SEQUENCE, SET};

/// Attributes with a name: those of RFC 4514, and two that are found everywhere.
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

/// The text of a name; nothing of one that is empty, or none.
pub(super) fn text(name: &[u8]) -> Option<String> {
    let parts: Vec<String> =
        Der(name).map(|(tag, part)| (tag == SET).then(|| relative(part))?).collect::<Option<_>>()?;
    let parts: Vec<&str> = parts.iter().rev().map(String::as_str).collect();
    (!parts.is_empty()).then(|| parts.join(","))
}

fn relative(part: &[u8]) -> Option<String> {
    let values: Vec<String> =
        Der(part).map(|(tag, value)| (tag == SEQUENCE).then(|| attribute(value))?).collect::<Option<_>>()?;
    Some(values.join("+"))
}

fn attribute(attribute: &[u8]) -> Option<String> {
    let mut der = Der(attribute);
    let kind = der.value(OID)?;
    let written = der.0;
    let (tag, value) = der.next()?;
    let known = ATTRIBUTES.iter().find(|(oid, _)| *oid == kind).map(|(_, name)| *name);
    let name = known.map_or_else(|| dotted(kind), str::to_owned);
    Some(match known.and_then(|_| decode(tag, value)) {
        Some(text) => format!("{name}={}", escaped(&text)),
        None => written.iter().fold(format!("{name}=#"), |mut out, byte| {
            _ = write!(out, "{byte:02x}");
            out
        }),
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

/// So that no two names are the same text (section 2.4).
fn escaped(text: &str) -> String {
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

/// An object identifier in digits.
fn dotted(oid: &[u8]) -> String {
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

    /// A value with its tag and its length.
    fn der(tag: u8, value: &[u8]) -> Vec<u8> {
        [&[tag, u8::try_from(value.len()).unwrap()], value].concat()
    }

    fn one(oid: &[u8], tag: u8, value: &[u8]) -> Vec<u8> {
        der(SEQUENCE, &[der(OID, oid), der(tag, value)].concat())
    }

    const CN: &[u8] = &[0x55, 4, 3];
    const O: &[u8] = &[0x55, 4, 10];

    #[test]
    fn the_most_specific_part_comes_first_and_parts_of_one_level_stay_together() {
        let name = [
            der(SET, &one(O, PRINTABLE, b"Example")),
            der(SET, &[one(CN, UTF8, "Zoë".as_bytes()), one(O, ASCII, b"x")].concat()),
        ];
        assert_eq!(text(&name.concat()).as_deref(), Some("CN=Zoë+O=x,O=Example"));
        assert_eq!(text(&[]), None);
    }

    #[test]
    fn no_two_names_are_the_same_text() {
        let of = |tag, value: &[u8]| text(&der(SET, &one(CN, tag, value))).unwrap();
        assert_eq!(of(UTF8, b"a,O=b"), r"CN=a\,O\=b");
        assert_eq!(of(UTF8, b" #a "), r"CN=\ #a\ ");
        assert_eq!(of(UTF8, b"#0c01"), r"CN=\#0c01");
        assert_eq!(of(UTF8, b"a\0b"), r"CN=a\00b");
        assert_eq!(of(UTF8, b"\xff"), "CN=#0c01ff");
        assert_eq!(of(UTF16, b"\0a\0b"), "CN=ab");
        assert_eq!(of(UTF32, b"\0\0\0a"), "CN=a");
        assert_eq!(of(LATIN1, b"\xe9"), "CN=é");
    }

    #[test]
    fn an_attribute_without_a_name_is_told_by_its_number_and_its_bytes() {
        let oid = [0x2b, 0x06, 0x01, 0x04, 0x01, 0x82, 0x37];
        assert_eq!(text(&der(SET, &one(&oid, UTF8, b"a"))).as_deref(), Some("1.3.6.1.4.1.311=#0c0161"));
    }

    #[test]
    fn what_is_no_name_has_no_text() {
        for bad in [&[1, 2, 3][..], &der(SEQUENCE, b""), &der(SET, &der(SEQUENCE, b"")), &der(SET, &[OID, 1, 5])] {
            assert_eq!(text(bad), None, "{bad:?}");
        }
    }
}
