//! Expands the macro `words!` of `crates/limit/src/text/words.rs`, which defines enums of the public API.

use proc_macro2::{Delimiter, Group, Ident, TokenStream, TokenTree};
use syn::{Item, ItemEnum};

/// The names that the macro binds.
struct Names {
    name: Ident,
    /// The default variant.
    default: Option<Ident>,
}

/// Returns the text into which `words!` expands. Returns `None` for a file that does not define the macro.
pub(super) fn template(file: &syn::File) -> Option<TokenStream> {
    let is_words =
        |item: &&Item| matches!(item, Item::Macro(item) if item.ident.as_ref().is_some_and(|it| it == "define_words"));
    let Item::Macro(definition) = file.items.iter().find(is_words)? else { return None };
    let groups = definition.mac.tokens.clone().into_iter().filter_map(|token| match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => Some(group.stream()),
        _ => None,
    });
    groups.last()
}

/// Replaces each `words!` of a file by its enum and the `impl` blocks of the macro.
pub(super) fn expand(file: &mut syn::File, template: &TokenStream) {
    let items = std::mem::take(&mut file.items);
    for item in items {
        match item {
            Item::Macro(item)
                if item.ident.is_none() && item.mac.path.segments.last().is_some_and(|last| last.ident == "words") =>
            {
                file.items.extend(expanded(item.mac.tokens, template));
            }
            item => file.items.push(item),
        }
    }
}

fn expanded(invocation: TokenStream, template: &TokenStream) -> Vec<Item> {
    let tokens: Vec<TokenTree> = invocation.into_iter().collect();
    let comma = tokens.iter().position(|token| matches!(token, TokenTree::Punct(it) if it.as_char() == ','));
    let default = comma.map(|comma| match &tokens[comma + 2] {
        TokenTree::Ident(variant) => variant.clone(),
        other => panic!("{other} after `default`"),
    });
    let end = comma.unwrap_or(tokens.len() - 1);
    let declaration = tokens[..end].iter().chain(tokens.last()).cloned().collect();
    let mut declared: ItemEnum = syn::parse2(declaration).expect("an enum");
    let names = Names { name: declared.ident.clone(), default };
    let file: syn::File = syn::parse2(substitute(template.clone(), &names)).expect("the expansion of `words!`");
    let mut items = file.items.into_iter();
    let Some(Item::Enum(expanded)) = items.next() else { panic!("`words!` begins with the enum") };
    declared.attrs.extend(expanded.attrs);
    std::iter::once(Item::Enum(declared)).chain(items).collect()
}

/// Substitutes the names. Omits repetitions, which are contents of functions and constants, except the default value.
fn substitute(template: TokenStream, names: &Names) -> TokenStream {
    let mut result = Vec::new();
    let mut tokens = template.into_iter();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(dollar) if dollar.as_char() == '$' => match tokens.next() {
                Some(TokenTree::Group(group)) => {
                    let ends =
                        |token: &TokenTree| matches!(token, TokenTree::Punct(it) if "+*?".contains(it.as_char()));
                    let operator = tokens.find(ends).expect("an operator");
                    if operator.to_string() == "?" && names.default.is_some() {
                        result.extend(substitute(group.stream(), names));
                    }
                }
                Some(TokenTree::Ident(name)) if name == "name" => result.push(names.name.clone().into()),
                Some(TokenTree::Ident(name)) if name == "default" => {
                    result.extend(names.default.clone().map(Into::into));
                }
                other => result.extend(other), // `$crate`
            },
            TokenTree::Group(group) => {
                let mut substituted = Group::new(group.delimiter(), substitute(group.stream(), names));
                substituted.set_span(group.span()); // for the text of signatures
                result.push(substituted.into());
            }
            token => result.push(token),
        }
    }
    result.into_iter().collect()
}
