//! The rules of routers, such as ``Host(`a.example.com`) && !PathPrefix(`/x`)``, as a list of alternatives.

/// The longest rule, in bytes.
const MAX_LENGTH: usize = 16_384;

/// The deepest nesting of parentheses and `!`.
const MAX_DEPTH: usize = 32;

/// The most alternatives, and the most conditions of all of them together.
const MAX_ALTERNATIVES: usize = 64;
const MAX_CONDITIONS: usize = 1_024;

/// A condition, such as `Host` with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) name: String,
    pub(super) arguments: Vec<String>,
    /// Whether requests must not meet it.
    pub(super) is_negated: bool,
}

/// A part of a rule.
#[derive(Clone, Debug)]
enum Expression {
    Call(Call),
    All(Vec<Expression>),
    Any(Vec<Expression>),
}

/// Reads a rule.
struct Reader<'r> {
    rest: &'r str,
    depth: usize,
}

/// Returns the alternatives of a rule: a request matches if it meets all conditions of one of them.
///
/// # Errors
/// Fails with a message if the text is not a rule, or exceeds a bound.
pub(super) fn alternatives(rule: &str) -> Result<Vec<Vec<Call>>, &'static str> {
    if rule.len() > MAX_LENGTH {
        return Err("the rule is too long");
    }
    let mut reader = Reader { rest: rule.trim_start(), depth: 0 };
    let expression = reader.any().ok_or("not a rule")?;
    if !reader.rest.is_empty() {
        return Err("not a rule");
    }
    expand(&expression).ok_or("the rule has too many alternatives")
}

/// Multiplies an expression out.
fn expand(expression: &Expression) -> Option<Vec<Vec<Call>>> {
    let found = match expression {
        Expression::Call(call) => vec![vec![call.clone()]],
        Expression::Any(parts) => {
            let parts: Option<Vec<_>> = parts.iter().map(expand).collect();
            parts?.into_iter().flatten().collect()
        }
        Expression::All(parts) => {
            let mut all = vec![Vec::new()];
            for part in parts {
                let part = expand(part)?;
                if all.len() * part.len() > MAX_ALTERNATIVES {
                    return None;
                }
                let with = |first: &Vec<Call>| -> Vec<Vec<Call>> {
                    part.iter().map(|second| first.iter().chain(second).cloned().collect()).collect()
                };
                all = all.iter().flat_map(with).collect();
            }
            all
        }
    };
    let conditions: usize = found.iter().map(Vec::len).sum();
    (found.len() <= MAX_ALTERNATIVES && conditions <= MAX_CONDITIONS).then_some(found)
}

// === impl Reader ===

impl Reader<'_> {
    fn any(&mut self) -> Option<Expression> {
        let mut parts = vec![self.all()?];
        while self.skip("||") {
            parts.push(self.all()?);
        }
        Some(Expression::Any(parts))
    }

    fn all(&mut self) -> Option<Expression> {
        let mut parts = vec![self.one()?];
        while self.skip("&&") {
            parts.push(self.one()?);
        }
        Some(Expression::All(parts))
    }

    fn one(&mut self) -> Option<Expression> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let found = if self.skip("!") {
            negated(self.one()?)
        } else if self.skip("(") {
            let inner = self.any()?;
            self.skip(")").then_some(inner)?
        } else {
            Expression::Call(self.call()?)
        };
        self.depth -= 1;
        Some(found)
    }

    fn call(&mut self) -> Option<Call> {
        let length = self.rest.bytes().take_while(u8::is_ascii_alphanumeric).count();
        let (name, rest) = self.rest.split_at(length);
        self.rest = rest.trim_start();
        if name.is_empty() || !self.skip("(") {
            return None;
        }
        let mut arguments = Vec::new();
        while !self.skip(")") {
            arguments.push(self.text()?);
            if !self.skip(",") && !self.rest.starts_with(')') {
                return None;
            }
        }
        Some(Call { name: name.to_owned(), arguments, is_negated: false })
    }

    fn text(&mut self) -> Option<String> {
        let quote = self.rest.chars().next().filter(|quote| matches!(quote, '`' | '"' | '\''))?;
        let mut text = String::new();
        let mut letters = self.rest.char_indices().skip(1);
        while let Some((position, letter)) = letters.next() {
            if letter == quote {
                self.rest = self.rest[position + 1..].trim_start();
                return Some(text);
            }
            match letter {
                '\\' if quote != '`' => text.push(letters.next()?.1),
                letter => text.push(letter),
            }
        }
        None
    }

    /// Skips a token and the spaces after it. Returns `false` if the rest does not begin with it.
    fn skip(&mut self, token: &str) -> bool {
        let Some(rest) = self.rest.strip_prefix(token) else { return false };
        self.rest = rest.trim_start();
        true
    }
}

/// Returns the opposite of an expression.
fn negated(expression: Expression) -> Expression {
    match expression {
        Expression::Call(call) => Expression::Call(Call { is_negated: !call.is_negated, ..call }),
        Expression::All(parts) => Expression::Any(parts.into_iter().map(negated).collect()),
        Expression::Any(parts) => Expression::All(parts.into_iter().map(negated).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(rule: &str) -> Vec<String> {
        let show = |call: &Call| {
            format!("{}{}({})", if call.is_negated { "!" } else { "" }, call.name, call.arguments.join(","))
        };
        let alternatives = alternatives(rule).unwrap();
        alternatives.iter().map(|calls| calls.iter().map(show).collect::<Vec<_>>().join(" ")).collect()
    }

    #[test]
    fn rules_are_multiplied_out() {
        assert_eq!(
            shown("Host(`a`, `b`) && (Path('/x') || !Method(\"GET\"))"),
            ["Host(a,b) Path(/x)", "Host(a,b) !Method(GET)"]
        );
        assert_eq!(shown("!(A(`1`) && !B(`2`))"), ["!A(1)", "B(2)"]);
        assert_eq!(shown("  A(`a)(`)||B() "), ["A(a)()", "B()"]);
    }

    #[test]
    fn hostile_rules_end_with_an_error() {
        for rule in ["", "A", "A(", "A(`x", "A(`x`) B(`y`)", "A(`x`) &&", ")", "A(`x` `y`)"] {
            assert_eq!(alternatives(rule), Err("not a rule"), "{rule}");
        }
        assert!(alternatives(&"!".repeat(10_000)).is_err());
        assert!(alternatives(&"(".repeat(10_000)).is_err());
        let factor = "(A(`x`)||B(`y`))&&";
        assert!(alternatives(&format!("{}A(`x`)", factor.repeat(40))).is_err());
        assert!(alternatives(&" ".repeat(20_000)).is_err());
    }
}
