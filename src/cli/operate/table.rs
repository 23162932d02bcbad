//! Aligned tables for terminals.

use crate::cli::logging::is_unsafe;

/// Returns a table of two columns.
pub(in crate::cli) fn rows(table: &[(&str, String)]) -> String {
    let width = table.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    table.iter().map(|(name, value)| format!("{name:width$}  {}\n", printable(value))).collect()
}

/// Returns a table with a line of column names.
pub(in crate::cli) fn columns<const N: usize>(heads: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let mut lines = vec![heads.map(str::to_owned)];
    lines.extend(rows.map(|row| row.map(|cell| printable(&cell))));
    let widths: Vec<usize> =
        (0..N).map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0)).collect();
    let line = |cells: &[String; N]| {
        let cells = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    lines.iter().map(line).collect()
}

/// Replaces characters that could change a terminal or mislead a reader: control, invisible and bidirectional
/// characters, and line separators.
pub(in crate::cli) fn printable(text: &str) -> String {
    text.chars().map(|letter| if is_unsafe(letter) { '\u{fffd}' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_aligned_and_printable() {
        let table = rows(&[("used", "1".to_owned()), ("remaining", "2\u{1b}[m".to_owned())]);
        assert_eq!(table, "used       1\nremaining  2\u{fffd}[m\n");
        assert_eq!(printable("a\u{202e}b\u{200b}c\u{2028}d e"), "a\u{fffd}b\u{fffd}c\u{fffd}d e");
        let cells = [["a", "bcd"], ["ef", ""]].map(|row| row.map(str::to_owned));
        assert_eq!(columns(["A", "B"], cells.into_iter()), "A   B\na   bcd\nef\n");
    }
}
