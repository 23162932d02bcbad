//! Parses configurations of nginx: directives, blocks, quotes, comments and `include`.

mod include;
mod lexer;
mod words;

#[cfg(test)]
mod tests;

use self::lexer::{Lexer, Token};
pub(crate) use self::words::Word;
use crate::error::ConvertError;
use crate::report::Place;
use crate::sources::{Input, Text};

/// The deepest nesting of blocks.
const MAX_DEPTH: usize = 32;

/// The most directives of all files together.
const MAX_DIRECTIVES: usize = 200_000;

/// A directive, such as `listen 80;`, or an entry of a `map` or `geo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Directive {
    /// The first word.
    pub(crate) name: Word,
    /// The other words.
    pub(crate) args: Vec<Word>,
    /// The directives in its braces. `None` if it ends with a semicolon.
    pub(crate) block: Option<Vec<Directive>>,
    pub(crate) place: Place,
}

/// Parses files, with the files that they include.
struct Parser<'p, 'a> {
    input: &'p mut Input<'a>,
    /// The folder at which relative paths of `include` start.
    folder: std::path::PathBuf,
    directives: usize,
    /// Includes that matched no file.
    missing: Vec<Directive>,
}

/// The directives of a file and of all files that it includes.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) directives: Vec<Directive>,
    /// The `include` directives that matched no file.
    pub(crate) missing: Vec<Directive>,
}

/// Parses a file. Relative paths of `include` start at its folder, as nginx resolves them.
///
/// # Errors
/// Fails if a file cannot be read, is not well formed, or a bound is exceeded.
pub(crate) fn parse(input: &mut Input<'_>, path: &std::path::Path) -> Result<Parsed, ConvertError> {
    let start = Place::start_of(path.display().to_string());
    let text = input.enter(path, &start)?;
    let folder = path.parent().map(std::path::Path::to_path_buf).unwrap_or_default();
    let mut parser = Parser { input, folder, directives: 0, missing: Vec::new() };
    let mut directives = Vec::new();
    parser.file(&text, 0, &mut directives)?;
    let missing = parser.missing;
    input.leave();
    Ok(Parsed { directives, missing })
}

// === impl Parser ===

impl Parser<'_, '_> {
    /// Adds the directives of a file to `into`. `depth` is the nesting of the `include`.
    fn file(&mut self, text: &Text, depth: usize, into: &mut Vec<Directive>) -> Result<(), ConvertError> {
        let mut lexer = Lexer::new(&text.text);
        self.block(&mut lexer, text, depth, None, into)
    }

    /// Adds the directives up to the end of a block, or of the file if `opened` is `None`.
    fn block(
        &mut self,
        lexer: &mut Lexer<'_>,
        text: &Text,
        depth: usize,
        opened: Option<&Place>,
        into: &mut Vec<Directive>,
    ) -> Result<(), ConvertError> {
        if depth > MAX_DEPTH {
            let message = format!("blocks are nested more than {MAX_DEPTH} levels deep");
            return Err(ConvertError::syntax(&text.place(lexer.line), message));
        }
        let mut words: Vec<Word> = Vec::new();
        let mut start = lexer.line;
        loop {
            let token = lexer.next().map_err(|fault| ConvertError::syntax(&text.place(lexer.line), fault))?;
            let unexpected =
                |letter| ConvertError::syntax(&text.place(lexer.line), format!("`{letter}` is not expected here"));
            match (token, words.is_empty()) {
                (Some(Token::Word(word)), is_first) => {
                    start = if is_first { lexer.line } else { start };
                    words.push(word);
                }
                (Some(Token::End), false) => {
                    let directive = self.directive(&mut words, text.place(start))?;
                    self.end(directive, depth, into)?;
                }
                (Some(Token::Open), false) => {
                    let mut directive = self.directive(&mut words, text.place(start))?;
                    directive.block = Some(self.inner(lexer, text, depth, &directive)?);
                    into.push(directive);
                }
                (Some(Token::Close), true) if opened.is_some() => return Ok(()),
                (Some(Token::End), true) => return Err(unexpected(';')),
                (Some(Token::Open), true) => return Err(unexpected('{')),
                (Some(Token::Close), _) => return Err(unexpected('}')),
                (None, true) => return opened.map_or(Ok(()), |place| Err(not_closed(place))),
                (None, false) => return Err(not_ended(&words, &text.place(start))),
            }
        }
    }

    /// Reads the block of a directive. A block of Lua is skipped.
    fn inner(
        &mut self,
        lexer: &mut Lexer<'_>,
        text: &Text,
        depth: usize,
        directive: &Directive,
    ) -> Result<Vec<Directive>, ConvertError> {
        let mut block = Vec::new();
        if directive.name.text.ends_with("_by_lua_block") {
            lexer.skip_lua().map_err(|fault| ConvertError::syntax(&directive.place, fault))?;
        } else {
            self.block(lexer, text, depth + 1, Some(&directive.place), &mut block)?;
        }
        Ok(block)
    }

    fn directive(&mut self, words: &mut Vec<Word>, place: Place) -> Result<Directive, ConvertError> {
        self.directives += 1;
        if self.directives > MAX_DIRECTIVES {
            return Err(ConvertError::Bound(format!("the files have more than {MAX_DIRECTIVES} directives")));
        }
        let mut words = std::mem::take(words).into_iter();
        let name = words.next().unwrap_or_default();
        Ok(Directive { name, args: words.collect(), block: None, place })
    }
}

fn not_ended(words: &[Word], place: &Place) -> ConvertError {
    let name = words.first().map(|word| word.text.as_str()).unwrap_or_default();
    ConvertError::syntax(place, format!("the directive `{name}` has no `;`"))
}

fn not_closed(place: &Place) -> ConvertError {
    ConvertError::syntax(place, "the block is not closed")
}

// === impl Directive ===

impl Directive {
    /// Returns the name.
    pub(crate) fn name(&self) -> &str {
        &self.name.text
    }

    /// Returns the text of an argument, starting at 0.
    pub(crate) fn arg(&self, index: usize) -> Option<&str> {
        self.args.get(index).map(|word| word.text.as_str())
    }

    /// Returns the texts of all arguments.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> + Clone {
        self.args.iter().map(|word| word.text.as_str())
    }

    /// Returns the value of an argument such as `burst=5`.
    pub(crate) fn option(&self, key: &str) -> Option<&str> {
        self.texts().find_map(|text| text.strip_prefix(key)?.strip_prefix('='))
    }

    /// Returns the directives of the block, or an empty list without a block.
    pub(crate) fn inner(&self) -> &[Directive] {
        self.block.as_deref().unwrap_or_default()
    }
}
