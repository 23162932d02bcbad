//! Text for HTML and for data in scripts. Logs contain text of clients, which may be hostile.

use std::fmt;

use serde::Serialize;

/// Shows text as HTML text or in an attribute with quotes. Replaces control characters and marks that reorder text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Escaped<'t>(pub(super) &'t str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.0.chars() {
            match letter {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                _ if is_unsafe(letter) => f.write_str("\u{fffd}")?,
                _ => fmt::Write::write_char(f, letter)?,
            }
        }
        Ok(())
    }
}

fn is_unsafe(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Returns JSON that can be the content of a `script` element.
pub(super) fn script_json(value: &impl Serialize) -> String {
    let json = serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned());
    let mut safe = String::with_capacity(json.len());
    for letter in json.chars() {
        match letter {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => safe.push_str(&format!("\\u{:04x}", u32::from(letter))),
            _ => safe.push(letter),
        }
    }
    safe
}

/// Returns a number with a comma before each three digits.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns a share in percent. `page.js` has the same function.
pub(super) fn percent(part: u64, of: u64) -> String {
    let percent = to_float(part) / to_float(of.max(1)) * 100.0;
    if part == 0 || percent >= 10.0 { format!("{percent:.0} %") } else { format!("{percent:.2} %") }
}

/// Returns a short number for the scale of a chart.
pub(super) fn short(number: f64) -> String {
    let units = [(1e9, "G"), (1e6, "M"), (1e3, "k")];
    let (number, unit) =
        units.into_iter().find(|(size, _)| number >= *size).map_or((number, ""), |(size, unit)| (number / size, unit));
    let text = format!("{number:.1}");
    format!("{}{unit}", text.strip_suffix(".0").unwrap_or(&text))
}

#[expect(clippy::cast_precision_loss, reason = "for charts and shares")]
pub(super) fn to_float(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "</script><img src=x onerror='a(\"&\")'>\u{2028}\u{202e}\0\n";

    #[test]
    fn hostile_text_is_escaped_in_html() {
        let shown = Escaped(HOSTILE).to_string();
        assert!(!shown.contains(['<', '>', '"', '\'', '\u{2028}', '\u{202e}', '\0', '\n']), "{shown}");
        assert_eq!(Escaped("a<b>&\"'\u{e9}").to_string(), "a&lt;b&gt;&amp;&quot;&#39;\u{e9}");
    }

    #[test]
    fn hostile_text_is_escaped_in_scripts() {
        let json = script_json(&HOSTILE);
        assert!(!json.contains(['<', '>', '&', '\u{2028}']), "{json}");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), HOSTILE);
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([0.0, 2.5, 1_000.0, 25_000.0, 1_500_000.0].map(short), ["0", "2.5", "1k", "25k", "1.5M"]);
        assert_eq!([(0, 0), (1, 3), (1, 30)].map(|(part, of)| percent(part, of)), ["0 %", "33 %", "3.33 %"]);
    }
}
