//! Reads the files of all crates of the workspace, and resolves names through their `use` declarations.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use syn::{Attribute, Item, Meta, UseTree};

use super::words;

/// The modules of a path, such as `["layer", "peer"]`, or `["tidegate_limit", "clock"]` for a module of another crate of
/// the workspace. Empty for `lib.rs`.
pub(super) type Module = Vec<String>;

/// The files of the library by module, without tests.
pub(super) struct Library {
    files: BTreeMap<Module, syn::File>,
}

/// The definition that a name refers to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Definition {
    /// An item of the library: its module and name.
    Own(Module, String),
    /// An item of this crate.
    Foreign(String),
}

/// A name that a `use` declaration imports, with the path of the item.
pub(super) struct Import<'f> {
    pub(super) name: String,
    pub(super) path: Vec<String>,
    pub(super) attributes: &'f [Attribute],
    pub(super) is_public: bool,
}

impl Library {
    pub(super) fn read(root: &Path) -> Self {
        let mut files = BTreeMap::new();
        read_crate(&Module::new(), &root.join("src"), &mut files);
        for entry in fs::read_dir(root.join("crates")).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").display().to_string();
            read_crate(&vec![format!("tidegate_{name}")], &path.join("src"), &mut files);
        }
        let template = files.values().find_map(words::template).expect("the macro `words!`");
        files.values_mut().for_each(|file| words::expand(file, &template));
        Self { files }
    }

    /// Returns the files with their modules.
    pub(super) fn files(&self) -> impl Iterator<Item = (&Module, &[Item])> {
        self.files.iter().map(|(module, file)| (module, file.items.as_slice()))
    }

    /// Returns the modules of other crates that `lib.rs` re-exports.
    pub(super) fn public_modules(&self) -> Vec<Module> {
        let imports = self.imports(&Module::new()).into_iter().filter(|import| import.is_public);
        imports.map(|import| import.path).filter(|path| self.files.contains_key(path)).collect()
    }

    /// Returns the public types that a public module defines.
    pub(super) fn public_types(&self, module: &Module) -> Vec<String> {
        let items = self.files.get(module).filter(|_| !module.is_empty()).map_or(&[][..], |file| &file.items);
        let types = items.iter().filter_map(|item| match item {
            Item::Struct(syn::ItemStruct { vis, ident, .. }) | Item::Enum(syn::ItemEnum { vis, ident, .. }) => {
                matches!(vis, syn::Visibility::Public(_)).then(|| ident.to_string())
            }
            _ => None,
        });
        types.collect()
    }

    /// Returns the item with this name in a module.
    pub(super) fn item(&self, module: &Module, name: &str) -> Option<&Item> {
        self.files.get(module)?.items.iter().find(|item| defined_name(item).is_some_and(|defined| defined == name))
    }

    /// Returns the imports of a module.
    pub(super) fn imports(&self, module: &Module) -> Vec<Import<'_>> {
        let mut imports = Vec::new();
        for item in self.files.get(module).map_or(&[][..], |file| &file.items) {
            let Item::Use(item) = item else { continue };
            let is_public = matches!(item.vis, syn::Visibility::Public(_));
            let mut found = Vec::new();
            flatten(&item.tree, &mut Vec::new(), &mut found);
            let attributes = item.attrs.as_slice();
            imports.extend(found.into_iter().map(|(name, path)| Import { name, path, attributes, is_public }));
        }
        imports
    }

    /// Resolves a path that is written in a module. Returns `None` for generic parameters and the prelude.
    pub(super) fn resolve(&self, module: &Module, path: &[String]) -> Option<Definition> {
        let (first, rest) = path.split_first()?;
        let absolute = |base: &[String]| {
            let (name, modules) = rest.split_last()?;
            self.resolve(&[base, modules].concat(), std::slice::from_ref(name))
        };
        match first.as_str() {
            "crate" => {
                let root = crate_of(module).to_vec();
                let named =
                    self.imports(&root).into_iter().find(|it| Some(&it.name) == rest.first() && is_crate(&it.path[0]));
                return match named {
                    Some(named) => self.resolve(&root, &[named.path.as_slice(), &rest[1..]].concat()),
                    None => absolute(&root),
                };
            }
            name if is_crate(name) => return absolute(&path[..1]),
            "self" => return absolute(module),
            "super" if rest.first().is_some_and(|next| next == "super") => {
                return self.resolve(&module.split_last()?.1.to_vec(), rest);
            }
            "super" => return absolute(module.split_last()?.1),
            _ => {}
        }
        if rest.is_empty() && self.item(module, first).is_some() {
            return Some(Definition::Own(module.clone(), first.clone()));
        }
        if self.files.contains_key(&[module.as_slice(), &path[..1]].concat()) {
            return absolute(&[module.as_slice(), &path[..1]].concat());
        }
        if let Some(import) = self.imports(module).into_iter().find(|import| import.name == *first) {
            return self.resolve_import(module, &[import.path.as_slice(), rest].concat());
        }
        let is_crate = first.starts_with(|c: char| c.is_ascii_lowercase()); // not `Self` or a generic parameter
        (is_crate && !rest.is_empty()).then(|| Definition::Foreign(first.clone()))
    }

    fn resolve_import(&self, module: &Module, path: &[String]) -> Option<Definition> {
        let is_own = ["crate", "self", "super"].contains(&path[0].as_str())
            || is_crate(&path[0])
            || self.imports(module).iter().any(|it| it.name == path[0] && is_crate(&it.path[0]))
            || self.files.contains_key(&[module.as_slice(), &path[..1]].concat());
        if is_own { self.resolve(module, path) } else { Some(Definition::Foreign(path[0].clone())) }
    }
}

/// Reads the files of a crate below its module.
fn read_crate(own: &Module, root: &Path, files: &mut BTreeMap<Module, syn::File>) {
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let relative = path.strip_prefix(root).expect("a path in the folder").with_extension("");
            let below = relative.iter().map(|name| name.display().to_string());
            let mut module: Module = own.iter().cloned().chain(below).collect();
            let name = module.last().expect("a name").clone();
            if ["tests", "testing", "main", "internals"].contains(&name.as_str()) {
                continue; // `internals` is hidden
            }
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            if path.extension().is_none_or(|extension| extension != "rs") {
                continue; // text that a module includes
            }
            if ["mod", "lib"].contains(&name.as_str()) {
                module.pop();
            }
            let text = fs::read_to_string(&path).expect("text");
            files.insert(module, syn::parse_file(&text).expect("Rust"));
        }
    }
}

/// Returns `true` for the name of another crate of the workspace.
fn is_crate(name: &str) -> bool {
    name.starts_with("tidegate_")
}

/// Returns the module of the crate that a module belongs to.
fn crate_of(module: &Module) -> &[String] {
    let is_other = module.first().is_some_and(|first| is_crate(first));
    &module[..usize::from(is_other)]
}

/// Returns `true` if the attributes restrict an item to test builds.
pub(super) fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let Meta::List(list) = &attribute.meta else { return false };
        list.path.is_ident("cfg") && list.tokens.to_string() == "test"
    })
}

fn defined_name(item: &Item) -> Option<&syn::Ident> {
    match item {
        Item::Struct(item) => Some(&item.ident),
        Item::Enum(item) => Some(&item.ident),
        Item::Trait(item) => Some(&item.ident),
        Item::Type(item) => Some(&item.ident),
        Item::Const(item) => Some(&item.ident),
        Item::Fn(item) => Some(&item.sig.ident),
        _ => None,
    }
}

fn flatten(tree: &UseTree, before: &mut Vec<String>, found: &mut Vec<(String, Vec<String>)>) {
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            flatten(&path.tree, before, found);
            before.pop();
        }
        UseTree::Name(name) if name.ident == "self" => {
            found.push((before.last().cloned().unwrap_or_default(), before.clone()));
        }
        UseTree::Name(name) => {
            let name = name.ident.to_string();
            found.push((name.clone(), [before.as_slice(), &[name]].concat()));
        }
        UseTree::Rename(rename) if rename.ident == "self" => {
            found.push((rename.rename.to_string(), before.clone()));
        }
        UseTree::Rename(rename) => {
            let path = [before.as_slice(), &[rename.ident.to_string()]].concat();
            found.push((rename.rename.to_string(), path));
        }
        UseTree::Group(group) => group.items.iter().for_each(|tree| flatten(tree, before, found)),
        _ => {} // a glob imports no name of the public API
    }
}
