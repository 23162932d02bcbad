//! Checks that the defaults of `docs/rules.md` are correct.

use std::fs;
use std::path::Path;

use tidegate::Gateway;
use tidegate::internals::ConfigInternals;
use tidegate_limit::AlgorithmName;

fn page() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/rules.md")).expect("the page")
}

/// Returns the cells of each table row in the section with this heading.
fn rows<'p>(page: &'p str, section: &str) -> Vec<Vec<&'p str>> {
    let (_, rest) = page.split_once(&format!("\n## {section}\n")).expect(section);
    let section = rest.split("\n## ").next().expect("a section");
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect()).collect()
}

#[test]
fn docs_describe_each_algorithm() {
    let read = |page: &str| fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(page)).expect(page);
    let (algorithms, redis) = (read("docs/algorithms.md"), read("docs/redis.md"));
    for name in AlgorithmName::ALL {
        let name = name.name();
        assert!(algorithms.contains(&format!("\n## {name}\n")), "docs/algorithms.md has no section `{name}`");
        assert!(redis.contains(&format!("`{name}`")), "docs/redis.md has no format of `{name}`");
    }
}

/// Returns a rule file of a gateway with one more key in this section. Without a key, the other lines have the same numbers.
fn file(section: &str, key: &str) -> String {
    let at = |place: &str| if place == section { format!(", {key}") } else { String::new() };
    let permits = match section {
        "`permits`" => format!(", permits: {{ header: x-cost, {key} }}"),
        _ => String::new(),
    };
    let alone = |place: &str| if place == section { format!("{{ {key} }}") } else { "{}".to_owned() };
    let own = if section == "The rule file" { format!("{key}\n") } else { String::new() };
    format!(
        "{own}clients: {}
requests: {}
upstreams: {{ up: {{ targets: [builtin:echo]{} }} }}
routes:
  - name: one
    match: {{}}
    upstream: up{}
    limits: [{{ name: all, mode: PER_CLIENT, client: path, rate: 5, interval: 1s{permits}{} }}]\n{}{}",
        alone("`clients`"),
        alone("`requests`"),
        at("An upstream"),
        if section == "A route" && !key.starts_with("limits") { format!("\n    {key}") } else { String::new() },
        at("A limit"),
        if own.starts_with("listen") {
            String::new()
        } else {
            format!("listen: {{ address: 127.0.0.1:0{} }}\n", at("An entry of `listen`"))
        },
        if own.starts_with("store") {
            String::new()
        } else {
            format!("store: {{ url: 'redis://db'{} }}\n", at("The store"))
        },
    )
}

fn read(text: &str) -> String {
    let config = Gateway::parse_config(text).unwrap_or_else(|problems| panic!("{text}\n{problems}"));
    config.describe()
}

#[test]
fn defaults_on_the_rules_page_are_correct() {
    let (page, mut tried) = (page(), 0);
    let sections = [
        "The rule file",
        "An entry of `listen`",
        "The store",
        "`clients`",
        "`requests`",
        "An upstream",
        "A route",
        "A limit",
        "`permits`",
    ];
    for section in sections {
        let without = match section {
            "`permits`" => file(section, "max: 5"),
            section => file(section, ""),
        };
        for row in rows(&page, section) {
            let key = row[0].trim_matches('`');
            let Some(value) = row[3].strip_prefix('`').and_then(|value| value.strip_suffix('`')) else { continue };
            if matches!((section, key), ("The rule file", "store") | ("A route", "limits")) {
                continue; // the test file sets these keys itself
            }
            let key = match section {
                "`permits`" => format!("max: 5, {key}: {value}"),
                _ => format!("{key}: {value}"),
            };
            assert_eq!(read(&file(section, &key)), read(&without), "{section}: {key}");
            tried += 1;
        }
    }
    assert!(tried > 30, "{tried} defaults");
}

#[test]
fn links_on_the_rules_page_lead_to_headings() {
    let page = page();
    let anchor = |heading: &str| {
        let kept = heading.to_lowercase().replace('`', "");
        kept.replace(' ', "-")
    };
    let anchors: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("## ")).map(anchor).collect();
    let links: Vec<_> = page.split("](#").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    assert!(links.len() > 10, "{links:?}");
    for link in links {
        assert!(anchors.iter().any(|anchor| anchor == link), "#{link}");
    }
    assert!(!page.contains("hTTP") && !page.contains("tLS"), "a name lost its capital");
}
