//! The steps from the text of a rule file to its configuration.

use super::descriptors::read_descriptors;
use super::include::{has_teams, include};
use super::prices::read_prices;
use crate::check::{Parts, PriceFiles, RouteInput};
use crate::descriptors::DescriptorFiles;
use crate::file::File;
use crate::file::include::RouteSources;
use crate::file::read::is_fixed_word;
use crate::problem::{Checked, Problems, Reported};
use crate::sources::SourceFiles;
use crate::sources::text::decode;
use crate::yaml::node::Node;
use crate::yaml::placeholders::Placeholders;
use crate::yaml::{self, Usage};
use crate::{Config, FileChecks, Purpose, Source, check};
use tidegate_rules::client::ClientFunction;

/// The files that are parts of the rules.
struct FileParts {
    /// The defaults and the team of each included file.
    routes: RouteSources,
    descriptors: DescriptorFiles,
    prices: PriceFiles,
}

/// Parses, validates and converts a rule file.
pub(crate) fn run(bytes: Vec<u8>, source: Source<'_>, sources: &mut SourceFiles) -> Result<Config, Problems> {
    let mut problems = Problems::default();
    problems.add_file(source.name);
    let checked = read_tree(bytes, source, sources, &mut problems);
    let checked = checked.and_then(|(root, parts)| run_tree_steps(root, parts, source, &mut problems));
    finish(checked, problems)
}

/// Validates and converts a tree that a program has built. `problems` has its parts.
pub(super) fn check_built(
    root: Node,
    functions: &[ClientFunction],
    checks: &'static dyn FileChecks,
    mut problems: Problems,
) -> Result<Config, Problems> {
    let source = Source { functions: Some(functions), ..Source::text(Purpose::Layer).with_checks(checks) };
    let parts = FileParts {
        routes: RouteSources::default(),
        descriptors: DescriptorFiles::after(1),
        prices: PriceFiles::default(),
    };
    let checked = run_tree_steps(root, parts, source, &mut problems);
    finish(checked, problems)
}

fn finish(checked: Checked<Config>, mut problems: Problems) -> Result<Config, Problems> {
    problems.mask(is_fixed_word);
    match checked {
        Ok(config) if problems.is_empty() && problems.unknown_values() == 0 => {
            Ok(Config { secrets: problems.secrets().clone(), warnings: problems.take_warnings(), ..config })
        }
        Ok(_) | Err(Reported { .. }) => Err(problems),
    }
}

fn read_tree(
    bytes: Vec<u8>,
    source: Source<'_>,
    sources: &mut SourceFiles,
    problems: &mut Problems,
) -> Checked<(Node, FileParts)> {
    let text = decode(bytes, 0, problems)?;
    let mut placeholders = Placeholders::new(source.files, sources);
    let mut usage = Usage::default();
    let mut root = yaml::read(&text, 0, &mut usage, &mut placeholders, problems)?;
    let keeps_texts = source.keeps_texts || has_teams(&root);
    if keeps_texts {
        placeholders.sources().keep_main(text);
    }
    let source = Source { keeps_texts, ..source };
    let routes = include(&mut root, source, &mut usage, &mut placeholders, problems);
    let descriptors = read_descriptors(&root, source, &mut usage, &mut placeholders, problems);
    let prices = read_prices(&root, &routes, source, &mut usage, &mut placeholders, problems);
    Ok((root, FileParts { routes, descriptors, prices }))
}

fn run_tree_steps(
    mut root: Node,
    FileParts { routes: mut sources, descriptors, prices }: FileParts,
    source: Source<'_>,
    problems: &mut Problems,
) -> Checked<Config> {
    sources.bound(root.get("routes").map(Node::items).unwrap_or_default(), problems);
    let others = root.split_items("routes");
    let first = root.first_item_mut("routes").map(|route| sources.inherit(route)).unwrap_or_default();
    if root.get("service").is_some() && root.get("listen").is_none() {
        problems.note_unneeded(root.location, "routes");
    }
    let file = File::from_root(&root, problems)?;
    drop(root); // the values of the file have copies of its texts
    let route_input = RouteInput { first, others, sources };
    check::config(&file, Parts { route_input, descriptors, prices }, source, problems)
}
