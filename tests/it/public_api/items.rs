//! Lists the public items of the library with their signatures, and the names in these signatures.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::Span;
use syn::parse::Parse;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Fields, ImplItem, Item, ItemImpl, Meta, Path, TraitItem, Type, Visibility};

use super::source::{Definition, Library, Module, is_test};

/// A public type or trait.
#[derive(Default)]
pub(super) struct PublicItem {
    pub(super) header: String,
    /// The attributes that users depend on, and the derived traits.
    pub(super) attributes: Vec<String>,
    /// The fields or variants, in the order of their declaration.
    pub(super) parts: Vec<String>,
    /// Methods and implemented traits, sorted.
    pub(super) members: BTreeSet<String>,
    /// The definitions of the names in all signatures.
    pub(super) names: BTreeSet<Definition>,
    /// Whether it is an enum, or a struct with public fields that have names.
    pub(super) can_grow: bool,
}

impl PublicItem {
    /// Returns `true` for an enum of `words!`.
    pub(super) fn is_setting(&self) -> bool {
        self.members.iter().any(|member| member.starts_with("pub const ALL"))
    }
}

/// The public items by their names, with their modules.
pub(super) type PublicItems = BTreeMap<String, PublicItem>;

/// Returns the items that `lib.rs` and its public modules export.
pub(super) fn public_items(library: &Library) -> PublicItems {
    let mut names = BTreeMap::new();
    let mut items = PublicItems::new();
    let modules = library.public_modules();
    for exporting in std::iter::once(Module::new()).chain(modules) {
        let prefix = exporting.last().map(|name| format!("{name}::")).unwrap_or_default();
        let mut add = |definition: Definition, name: &str, attributes: &[Attribute]| {
            let Definition::Own(module, defined) = &definition else { panic!("{name} is of another crate") };
            let item = library.item(module, defined).expect("an item");
            let mut public = PublicItem::default();
            public.attributes.extend(cfg(attributes));
            declare(&mut public, library, module, item);
            let name = format!("{prefix}{name}");
            names.insert(definition, name.clone());
            items.insert(name, public);
        };
        for import in library.imports(&exporting).into_iter().filter(|import| import.is_public) {
            if library.public_modules().contains(&import.path) {
                continue;
            }
            let definition = library.resolve(&exporting, &import.path);
            let definition = definition.unwrap_or_else(|| panic!("no definition of {:?}", import.path));
            add(definition, &import.name, import.attributes);
        }
        for name in library.public_types(&exporting) {
            add(Definition::Own(exporting.clone(), name.clone()), &name, &[]);
        }
    }
    for (module, file) in library.files() {
        for item in file {
            let Item::Impl(item) = item else { continue };
            let definition = (!is_test(&item.attrs) && !is_hidden(&item.attrs))
                .then(|| named_type(library, module, &item.self_ty))
                .flatten();
            let Some(name) = definition.and_then(|definition| names.get(&definition)) else { continue };
            add_impl(items.get_mut(name).expect("an item"), library, module, item, &names);
        }
    }
    items
}

/// Adds the declaration of a type or a trait.
fn declare(public: &mut PublicItem, library: &Library, module: &Module, item: &Item) {
    let mut paths = Paths::new(library, module);
    let (attributes, header) = match item {
        Item::Struct(item) => {
            paths.visit_generics(&item.generics);
            let fields: Vec<_> =
                item.fields.iter().filter(|field| is_public(&field.vis) && !is_hidden(&field.attrs)).collect();
            fields.iter().for_each(|field| paths.visit_type(&field.ty));
            public.parts = fields.iter().map(|field| text(field.vis.span(), field.ty.span())).collect();
            public.can_grow = fields.iter().any(|field| field.ident.is_some());
            (&item.attrs, format!("struct {}{}", item.ident, source(&item.generics)))
        }
        Item::Enum(item) => {
            paths.visit_generics(&item.generics);
            for variant in &item.variants {
                variant.fields.iter().for_each(|field| paths.visit_type(&field.ty));
                public.parts.push(format!("{}{}", variant.ident, fields_of_variant(&variant.fields)));
                let is_from = |attribute: &&Attribute| attribute.path().is_ident("from");
                let converted = variant.fields.iter().filter(|field| field.attrs.iter().any(|one| is_from(&one)));
                public.members.extend(converted.map(|field| format!("impl From<{}>", source(&field.ty))));
            }
            public.can_grow = true;
            (&item.attrs, format!("enum {}{}", item.ident, source(&item.generics)))
        }
        Item::Trait(item) => {
            item.supertraits.iter().for_each(|bound| paths.visit_type_param_bound(bound));
            for part in &item.items {
                let TraitItem::Fn(function) = part else { panic!("describe this item of a trait") };
                paths.visit_signature(&function.sig);
                public.members.insert(source(&function.sig));
            }
            (&item.attrs, format!("trait {}: {}", item.ident, source(&item.supertraits)))
        }
        Item::Type(item) => {
            paths.visit_type(&item.ty);
            (&item.attrs, text(item.type_token.span(), item.ty.span()))
        }
        _ => panic!("describe this kind of a public item"),
    };
    public.header = header;
    public.attributes.extend(attributes.iter().filter_map(relevant));
    public.names.extend(paths.found);
}

fn fields_of_variant(fields: &Fields) -> String {
    let parts = |fields: &mut dyn Iterator<Item = &syn::Field>| {
        let text = |field: &syn::Field| {
            let ty = source(&field.ty);
            field.ident.as_ref().map_or(ty.clone(), |name| format!("{name}: {ty}"))
        };
        fields.map(text).collect::<Vec<_>>().join(", ")
    };
    match fields {
        Fields::Named(fields) => format!(" {{ {} }}", parts(&mut fields.named.iter())),
        Fields::Unnamed(fields) => format!("({})", parts(&mut fields.unnamed.iter())),
        Fields::Unit => String::new(),
    }
}

/// Adds the public members of an `impl`.
fn add_impl(
    public: &mut PublicItem,
    library: &Library,
    module: &Module,
    item: &ItemImpl,
    exported: &BTreeMap<Definition, String>,
) {
    let mut paths = Paths::new(library, module);
    if let Some((path, _)) = &item.trait_ {
        let definition = library.resolve(module, &segments(path));
        if matches!(&definition, Some(own @ Definition::Own(..)) if !exported.contains_key(own)) {
            return; // a private trait
        }
        paths.visit_generics(&item.generics);
        paths.visit_path(path);
        let where_clause = item.generics.where_clause.as_ref().map(source).unwrap_or_default();
        let header = text(item.impl_token.span(), item.self_ty.span());
        let mut entry = format!("{header} {where_clause}").trim_end().trim_end_matches(',').to_owned();
        for part in &item.items {
            if let ImplItem::Type(part) = part {
                paths.visit_type(&part.ty);
                entry.push_str(&format!("\n        {}", source(part)));
            }
        }
        public.members.insert(entry);
    } else {
        for part in &item.items {
            if let ImplItem::Macro(part) = part {
                for (signature, types) in setters(&part.mac) {
                    types.iter().for_each(|ty| paths.visit_type(ty));
                    public.members.insert(signature);
                }
                continue;
            }
            let (attributes, signature) = match part {
                ImplItem::Fn(part) if is_public(&part.vis) && !is_hidden(&part.attrs) => {
                    paths.visit_signature(&part.sig);
                    (&part.attrs, text(part.vis.span(), part.sig.span()))
                }
                ImplItem::Const(part) if is_public(&part.vis) && !is_hidden(&part.attrs) => {
                    paths.visit_type(&part.ty);
                    (&part.attrs, text(part.vis.span(), part.ty.span()))
                }
                _ => continue,
            };
            let attributes: String = cfg(attributes).map(|attribute| attribute + " ").collect();
            public.members.insert(attributes + &signature);
        }
    }
    public.names.extend(paths.found);
}

/// Returns the signatures and argument types of the methods that a macro of `build` defines.
fn setters(call: &syn::Macro) -> Vec<(String, Vec<Type>)> {
    let parse = |input: syn::parse::ParseStream<'_>| {
        let mut found = Vec::new();
        while !input.is_empty() {
            input.call(Attribute::parse_outer)?;
            let name: syn::Ident = input.parse()?;
            let arguments;
            syn::parenthesized!(arguments in input);
            let arguments = arguments.parse_terminated(syn::FnArg::parse, syn::Token![,])?;
            let texts: Vec<_> = arguments.iter().map(source).collect();
            let typed = arguments.into_iter().filter_map(|argument| match argument {
                syn::FnArg::Typed(argument) => Some(*argument.ty),
                syn::FnArg::Receiver(_) => None,
            });
            found.push((format!("pub fn {name}(self, {}) -> Self", texts.join(", ")), typed.collect()));
            while !input.peek(syn::Token![;]) {
                input.parse::<proc_macro2::TokenTree>()?;
            }
            input.parse::<syn::Token![;]>()?;
        }
        Ok(found)
    };
    call.parse_body_with(parse).expect("setters")
}

/// Returns the definition of the type that an `impl` is for.
fn named_type(library: &Library, module: &Module, ty: &Type) -> Option<Definition> {
    match ty {
        Type::Path(ty) => library.resolve(module, &segments(&ty.path)),
        Type::Reference(ty) => named_type(library, module, &ty.elem),
        _ => None,
    }
}

/// Collects the definitions of all paths in signatures.
struct Paths<'l> {
    library: &'l Library,
    module: &'l Module,
    found: BTreeSet<Definition>,
}

impl<'l> Paths<'l> {
    fn new(library: &'l Library, module: &'l Module) -> Self {
        Self { library, module, found: BTreeSet::new() }
    }
}

impl<'a> Visit<'a> for Paths<'_> {
    fn visit_path(&mut self, path: &'a Path) {
        self.found.extend(self.library.resolve(self.module, &segments(path)));
        visit::visit_path(self, path);
    }
}

fn segments(path: &Path) -> Vec<String> {
    path.segments.iter().map(|segment| segment.ident.to_string()).collect()
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// Returns an attribute that users depend on.
fn relevant(attribute: &Attribute) -> Option<String> {
    let names = ["derive", "non_exhaustive", "must_use"];
    let name = names.into_iter().find(|name| attribute.path().is_ident(name))?;
    match &attribute.meta {
        Meta::List(_) => Some(source(attribute)),
        _ => Some(format!("#[{name}]")),
    }
}

/// Returns `true` for items that the documentation omits: other crates of the project use them.
fn is_hidden(attributes: &[Attribute]) -> bool {
    let is_hidden = |list: &syn::MetaList| list.path.is_ident("doc") && list.tokens.to_string() == "hidden";
    attributes.iter().any(|attribute| matches!(&attribute.meta, Meta::List(list) if is_hidden(list)))
}

fn cfg(attributes: &[Attribute]) -> impl Iterator<Item = String> {
    attributes.iter().filter(|attribute| attribute.path().is_ident("cfg")).map(source)
}

fn source(tokens: &impl Spanned) -> String {
    let span = tokens.span();
    text(span, span)
}

/// Returns the source text between two tokens on one line.
fn text(first: Span, last: Span) -> String {
    let text = first.join(last).and_then(|span| span.source_text()).unwrap_or_default();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = text.replace("( ", "(").replace(", )", ")").replace(" )", ")");
    text.replace("(mut self", "(self").trim_end_matches(',').to_owned() // `mut` is no part of the signature
}
