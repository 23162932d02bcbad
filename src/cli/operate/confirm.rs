//! Asks the operator to confirm a change with a large effect.

use std::io::{self, BufRead, IsTerminal, Write, stdin};

/// The longest answer in bytes.
const MAX_ANSWER: u64 = 64;

/// Asks a question if the standard input is a terminal. Returns `true` if the operator answers yes, or cannot be asked.
pub(super) fn is_confirmed(question: &str, errors: &mut impl Write) -> io::Result<bool> {
    let input = stdin();
    if input.is_terminal() { ask(question, input.lock(), errors) } else { Ok(true) }
}

fn ask(question: &str, input: impl BufRead, errors: &mut impl Write) -> io::Result<bool> {
    write!(errors, "{question} (yes/no) ")?;
    errors.flush()?;
    let mut answer = String::new();
    input.take(MAX_ANSWER).read_line(&mut answer)?;
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_yes_confirms_a_change() {
        for (answer, expected) in
            [("yes\n", true), ("Y\n", true), (" YES \r\n", true), ("no\n", false), ("\n", false), ("", false)]
        {
            let mut shown = Vec::new();
            assert_eq!(ask("reset a?", answer.as_bytes(), &mut shown).expect("an answer"), expected, "{answer:?}");
            assert_eq!(shown, b"reset a? (yes/no) ");
        }
        let long = "y".repeat(1_000);
        assert!(!ask("reset a?", long.as_bytes(), &mut io::sink()).expect("an answer"));
    }
}
