//! Pins the public API: `tests/it/snapshots/public_api.txt` lists the items that `src/lib.rs` and its public modules export,
//! with their signatures.

mod items;
mod source;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::sync::LazyLock;

use self::items::{PublicItems, public_items};
use self::source::{Definition, Library};
use crate::support::pages;

/// The items, and the definitions that users can name. Read once, since that takes seconds.
static PUBLIC: LazyLock<(PublicItems, BTreeSet<Definition>)> = LazyLock::new(|| {
    let library = Library::read(pages::root());
    (public_items(&library), definitions(&library))
});

const SNAPSHOT: &str = "tests/it/snapshots/public_api.txt";

/// The crates whose items are in public signatures: their breaking releases are breaking releases of this crate.
/// redis-rs and deadpool-redis are not, so that the client of Redis can change.
const CRATES: [&str; 5] = ["bytes", "http", "http_body_util", "std", "tower"];

/// Enums whose variants the gateway matches on, from another crate than the one that defines them.
const CLOSED: [&str; 2] = ["ConfigLoadError", "ListenAddress"];

/// The highest number of public types of the crate, and of each public module, so that users can read the list.
const MAX_TYPES: usize = 42;

#[test]
fn public_items_match_the_snapshot() {
    let path = pages::root().join(SNAPSHOT);
    let listed = list(&PUBLIC.0);
    if std::env::var_os("UPDATE_PUBLIC_API").is_some() {
        fs::write(&path, &listed).expect("the snapshot can be written");
    }
    let pinned = fs::read_to_string(&path).unwrap_or_default();
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
    let (before, now) = (lines(&pinned), lines(&listed));
    let removed: Vec<_> = before.difference(&now).collect();
    let added: Vec<_> = now.difference(&before).collect();
    assert!(
        pinned == listed,
        "the public API has changed.\nremoved: {removed:#?}\nadded: {added:#?}\nIf this is intended, describe it in \
         CHANGELOG.md and run UPDATE_PUBLIC_API=1 cargo test --test it -- public_api"
    );
}

#[test]
fn library_exports_at_most_42_types() {
    let mut counts = BTreeMap::new();
    for name in PUBLIC.0.keys() {
        *counts.entry(name.split_once("::").map(|(module, _)| module.to_owned())).or_insert(0) += 1;
    }
    let full: Vec<_> = counts.iter().filter(|(_, count)| **count > MAX_TYPES).collect();
    assert!(full.is_empty() && counts.len() == 3, "keep a type private, or merge two: {counts:?}");
}

#[test]
fn public_enums_and_structs_are_non_exhaustive() {
    // The crates of the workspace match on all words of a setting, so that the compiler finds the places for a new word.
    let growing = PUBLIC.0.iter().filter(|(_, item)| item.can_grow && !item.is_setting());
    let growing = growing.filter(|(name, _)| !CLOSED.contains(&name.as_str()));
    let closed: Vec<_> = growing.filter(|(_, item)| !item.attributes.contains(&"#[non_exhaustive]".into())).collect();
    let closed: Vec<_> = closed.into_iter().map(|(name, _)| name).collect();
    assert!(closed.is_empty(), "a new variant or field would break users, add #[non_exhaustive]: {closed:?}");
}

#[test]
fn signatures_name_only_public_types_and_known_crates() {
    let (items, own) = &*PUBLIC;
    let mut crates = BTreeSet::new();
    let mut private = Vec::new();
    for (name, item) in items {
        for definition in &item.names {
            match definition {
                Definition::Foreign(name) => _ = crates.insert(name.as_str()),
                Definition::Own(_, inner) if !own.contains(definition) => private.push(format!("{name}: {inner}")),
                Definition::Own(..) => {}
            }
        }
    }
    assert!(private.is_empty(), "users cannot name these types: {private:?}");
    assert_eq!(crates, BTreeSet::from(CRATES), "list the crates of all public signatures in `CRATES`");
}

/// Compiles only if the types can be shared by threads.
#[test]
fn main_types_are_send_and_sync() {
    fn assert_send_sync<T: Send + Sync + 'static>() {}
    assert_send_sync::<tidegate::Store>();
    assert_send_sync::<tidegate::redisson::RateLimiter>();
    assert_send_sync::<tidegate::redisson::RateLimiterError>();
    assert_send_sync::<tidegate::RateLimitLayer>();
    assert_send_sync::<tidegate::RateLimited<()>>();
    assert_send_sync::<tidegate::LayerError>();
    assert_send_sync::<tidegate::Metrics>();
    assert_send_sync::<tidegate::Config>();
    assert_send_sync::<tidegate::Gateway>();
    assert_send_sync::<tidegate::GatewayStartError>();
}

/// Returns the definitions that `lib.rs` and its public modules export.
fn definitions(library: &Library) -> BTreeSet<Definition> {
    let mut own = BTreeSet::new();
    for module in std::iter::once(vec![]).chain(library.public_modules()) {
        let imports = library.imports(&module).into_iter().filter(|import| import.is_public);
        own.extend(imports.filter_map(|import| library.resolve(&module, &import.path)));
        own.extend(library.public_types(&module).into_iter().map(|name| Definition::Own(module.clone(), name)));
    }
    own
}

fn list(items: &PublicItems) -> String {
    let mut list =
        "The public API. UPDATE_PUBLIC_API=1 cargo test --test it -- public_api writes this file.\n".to_owned();
    for (name, item) in items {
        let mut attributes = item.attributes.clone();
        attributes.sort();
        list.push('\n');
        attributes.iter().for_each(|attribute| writeln!(list, "{attribute}").expect("text"));
        let module = name.rsplit_once("::").map(|(module, _)| format!(" in {module}")).unwrap_or_default();
        writeln!(list, "pub {}{module}", item.header.trim_start_matches("pub ")).expect("text");
        item.parts.iter().for_each(|part| writeln!(list, "    {part}").expect("text"));
        item.members.iter().for_each(|member| writeln!(list, "    {member}").expect("text"));
    }
    list
}
