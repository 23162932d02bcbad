//! YAML scalars, resolved by the core schema of YAML 1.2: `off` and `no` are text.

/// A scalar of the file with its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scalar {
    /// The text, with quotes and escapes resolved.
    pub text: String,
    pub kind: ScalarKind,
    pub origin: Origin,
}

/// The source of a scalar's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The rule file.
    Written,
    /// Variables, at least in part. Such a value has the type that its key needs.
    Variables,
    /// Files, at least in part. These texts are secret. Such a value has the type that its key needs.
    Files(Box<[String]>),
}

/// The type of a scalar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScalarKind {
    /// `null`, `~` or nothing at all.
    Null,
    /// `true` or `false`.
    Bool,
    /// A whole number. Numbers out of range become the nearest `i64`.
    Int(i64),
    /// Any other number.
    Float,
    /// Any other scalar, and any scalar in quotes.
    Text,
    /// A scalar whose placeholders have errors, which were reported.
    Invalid,
}

impl Scalar {
    /// Creates a scalar that was written in quotes or as a block.
    pub(crate) fn quoted(text: String) -> Self {
        Self { text, kind: ScalarKind::Text, origin: Origin::Written }
    }

    /// Creates a scalar that was written without quotes.
    pub(crate) fn plain(text: String) -> Self {
        let kind = match text.as_str() {
            "" | "~" | "null" | "Null" | "NULL" => ScalarKind::Null,
            "true" | "True" | "TRUE" | "false" | "False" | "FALSE" => ScalarKind::Bool,
            word => match int(word) {
                Some(number) => ScalarKind::Int(number),
                None if is_float(word) => ScalarKind::Float,
                None => ScalarKind::Text,
            },
        };
        Self { text, kind, origin: Origin::Written }
    }

    /// Creates a scalar whose text comes from placeholders.
    pub(crate) fn replaced(text: String, origin: Origin) -> Self {
        let scalar = Self::plain(text);
        // Only YAML has words for null.
        let is_word = scalar.is_null() && !scalar.is_absent();
        Self { kind: if is_word { ScalarKind::Text } else { scalar.kind }, origin, ..scalar }
    }

    /// Creates a scalar whose errors were reported.
    pub(crate) fn invalid() -> Self {
        Self { text: String::new(), kind: ScalarKind::Invalid, origin: Origin::Written }
    }

    /// Returns `true` if the text stands for a text: also a number, if it replaced a placeholder.
    pub(crate) fn is_text(&self) -> bool {
        match self.kind {
            ScalarKind::Text => true,
            ScalarKind::Null | ScalarKind::Invalid => false,
            ScalarKind::Bool | ScalarKind::Int(_) | ScalarKind::Float => self.origin != Origin::Written,
        }
    }

    /// Returns `true` for a null value.
    pub(crate) fn is_null(&self) -> bool {
        self.kind == ScalarKind::Null
    }

    /// Returns `true` if no text was written at all.
    pub(crate) fn is_absent(&self) -> bool {
        self.is_null() && self.text.is_empty()
    }
}

fn int(word: &str) -> Option<i64> {
    for (prefix, radix) in [("0o", 8), ("0x", 16)] {
        if let Some(digits) = word.strip_prefix(prefix) {
            let valid = !digits.is_empty() && digits.chars().all(|digit| digit.is_digit(radix));
            return valid.then(|| i64::from_str_radix(digits, radix).unwrap_or(i64::MAX));
        }
    }
    let digits = word.strip_prefix(['-', '+']).unwrap_or(word);
    let valid = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let nearest = if word.starts_with('-') { i64::MIN } else { i64::MAX };
    valid.then(|| word.parse().unwrap_or(nearest))
}

fn is_float(word: &str) -> bool {
    let unsigned = word.strip_prefix(['-', '+']).unwrap_or(word);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(word, ".nan" | ".NaN" | ".NAN") {
        return true;
    }
    // Rust also parses words such as `infinity`, so only the letters of an exponent are allowed.
    unsigned.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'-' | b'+'))
        && unsigned.starts_with(|first: char| first == '.' || first.is_ascii_digit())
        && unsigned.parse::<f64>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_follow_the_core_schema() {
        use ScalarKind::*;
        for (word, kind) in [
            ("", Null),
            ("~", Null),
            ("True", Bool),
            ("12", Int(12)),
            ("-12", Int(-12)),
            ("+012", Int(12)),
            ("0x1F", Int(31)),
            ("0o17", Int(15)),
            ("1e3", Float),
            ("-.5", Float),
            ("1.", Float),
            (".inf", Float),
            (".NaN", Float),
        ] {
            assert_eq!(Scalar::plain(word.into()).kind, kind, "{word}");
        }
        for word in ["off", "no", "yes", "nULL", "1_000", "0b1", "1:30", "10s", "-", "+", ".", "inf", "nan", "1e", "0x"]
        {
            assert_eq!(Scalar::plain(word.into()).kind, Text, "{word}");
        }
        assert_eq!(Scalar::quoted("12".into()).kind, Text);
        assert_eq!(Scalar::plain("9".repeat(100)).kind, Int(i64::MAX));
    }
}
