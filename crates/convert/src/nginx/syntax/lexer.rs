//! The tokens of nginx's configuration grammar.

use super::words::Word;

/// A token, with the number of its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Word(Word),
    /// `;`, the end of a directive.
    End,
    /// `{`
    Open,
    /// `}`
    Close,
}

/// Reads the tokens of a text.
#[derive(Debug)]
pub(super) struct Lexer<'t> {
    text: &'t str,
    /// The position of the next byte.
    at: usize,
    /// The line of the next byte, starting at 1.
    pub(super) line: u32,
}

/// An error, at the line of the lexer.
pub(super) type Fault = &'static str;

// === impl Lexer ===

impl<'t> Lexer<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, at: 0, line: 1 }
    }

    /// Returns the next token. Returns `None` at the end of the text.
    pub(super) fn next(&mut self) -> Result<Option<Token>, Fault> {
        self.skip_blank();
        let Some(byte) = self.peek() else { return Ok(None) };
        let token = match byte {
            b';' => Token::End,
            b'{' => Token::Open,
            b'}' => Token::Close,
            b'"' | b'\'' => return self.quoted(byte).map(|word| Some(Token::Word(word))),
            _ => return Ok(Some(Token::Word(self.unquoted()))),
        };
        self.advance();
        Ok(Some(token))
    }

    /// Skips whitespace and comments.
    fn skip_blank(&mut self) {
        while let Some(byte) = self.peek() {
            match byte {
                b'#' => self.skip_line(),
                _ if byte.is_ascii_whitespace() => self.advance(),
                _ => return,
            }
        }
    }

    fn skip_line(&mut self) {
        let rest = &self.text.as_bytes()[self.at..];
        self.at += memchr::memchr(b'\n', rest).unwrap_or(rest.len());
    }

    /// Reads a word between quotes. Only whitespace, `;`, `{` or `)` may follow.
    fn quoted(&mut self, quote: u8) -> Result<Word, Fault> {
        self.advance();
        let start = self.at;
        loop {
            match self.peek() {
                None => return Err("a quote is not closed"),
                Some(b'\\') => self.advance_two(),
                Some(byte) if byte == quote => break,
                Some(_) => self.advance(),
            }
        }
        let word = Word::quoted(&self.text[start..self.at]);
        self.advance();
        match self.peek() {
            None | Some(b';' | b'{' | b')') => Ok(word),
            Some(byte) if byte.is_ascii_whitespace() => Ok(word),
            Some(_) => Err("a quoted text must end with whitespace, `;` or `{`"),
        }
    }

    /// Reads a word up to whitespace, `;` or `{`. `${` does not end it.
    fn unquoted(&mut self) -> Word {
        let start = self.at;
        let mut after_dollar = false;
        while let Some(byte) = self.peek() {
            match byte {
                b'\\' => {
                    self.advance_two();
                    after_dollar = false;
                    continue;
                }
                b'{' if after_dollar => {}
                b';' | b'{' => break,
                _ if byte.is_ascii_whitespace() => break,
                _ => {}
            }
            after_dollar = byte == b'$';
            self.advance();
        }
        Word::unquoted(&self.text[start..self.at])
    }

    /// Skips a block of Lua after its `{`, up to and including its `}`. Braces in its texts and comments do not count.
    pub(super) fn skip_lua(&mut self) -> Result<(), Fault> {
        let mut depth = 1_usize;
        while let Some(byte) = self.peek() {
            let rest = &self.text.as_bytes()[self.at..];
            match byte {
                b'-' if rest.starts_with(b"--[[") => self.skip_past("]]"),
                b'-' if rest.starts_with(b"--") => self.skip_line(),
                b'[' if rest.starts_with(b"[[") => self.skip_past("]]"),
                b'"' | b'\'' => self.skip_lua_text(byte),
                _ => {
                    self.advance();
                    match byte {
                        b'{' => depth += 1,
                        b'}' => depth -= 1,
                        _ => {}
                    }
                    if depth == 0 {
                        return Ok(());
                    }
                }
            }
        }
        Err("a block of Lua is not closed")
    }

    fn skip_lua_text(&mut self, quote: u8) {
        self.advance();
        while let Some(byte) = self.peek() {
            match byte {
                b'\\' => self.advance_two(),
                b'\n' => return, // a text of one line ends with its line
                _ => {
                    self.advance();
                    if byte == quote {
                        return;
                    }
                }
            }
        }
    }

    fn skip_past(&mut self, end: &str) {
        let rest = &self.text.as_bytes()[self.at..];
        let length = memchr::memmem::find(rest, end.as_bytes()).map_or(rest.len(), |found| found + end.len());
        (0..length).for_each(|_| self.advance());
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn advance(&mut self) {
        if self.peek() == Some(b'\n') {
            self.line += 1;
        }
        self.at += 1;
    }

    /// Skips a backslash and the letter after it.
    fn advance_two(&mut self) {
        self.advance();
        if self.peek().is_some() {
            self.advance();
        }
    }
}
