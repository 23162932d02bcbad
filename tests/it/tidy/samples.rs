//! Bad samples: the rules find what they look for.

use super::*;

pub(super) fn sample(path: &str, text: &str) -> Source {
    Source { path: path.to_owned(), text: text.to_owned() }
}

#[test]
fn a_reference_upward_is_found_in_whatever_form_it_is_written() {
    for text in [
        "use crate::server::bind;",
        "\nfn f() { crate::server::bind() }",
        "use crate::{clock, server::{self, bind}};",
        "use super::server::bind;",
        "use crate::{\n    limit::{Charge, Quota},\n    server,\n};",
    ] {
        assert_eq!(upward(&sample("src/store/mod.rs", text)).len(), 1, "{text}");
        assert_eq!(upward(&sample("src/gateway.rs", text)).len(), 0, "{text}");
    }
    assert_eq!(upward(&sample("src/store/redis/hash_slots.rs", "use super::super::super::config::Config;")).len(), 1);
    assert_eq!(upward(&sample("src/store/redis/hash_slots.rs", "use super::server::Name;")).len(), 0);
    assert_eq!(upward(&sample("src/store/memory.rs", "/// See [`crate::config`].\nuse crate::clock::Clock;")).len(), 0);
}

#[test]
fn strangers_and_the_homeless_are_found() {
    assert_eq!(upward(&sample("src/admission.rs", "use crate::config::Config;")).len(), 1);
    assert_eq!(upward(&sample("src/config/check.rs", "use crate::admission::Permit;")).len(), 1);
    assert_eq!(upward(&sample("src/gateway.rs", "use crate::Config;")).len(), 1);
    assert_eq!(upward(&sample("src/attic.rs", "use crate::clock::Clock;")).len(), 1);
    assert_eq!(upward(&sample("src/gateway.rs", "use crate::wire::soon;")).len(), 1);
    assert_eq!(upward(&sample("src/server/tests.rs", "use crate::wire::soon;")).len(), 0);
}

#[test]
fn what_is_unfinished_asleep_blank_or_long_is_found() {
    let text = ["fn f() { to", "do!() }\n// to", "do!\n#[ign", "ore]\n"].concat();
    assert_eq!(unfinished(&sample("src/a.rs", &text)).len(), 2);

    let nap = "fn f() { sleep(LONG) }\n";
    let tests = format!("{nap}#[cfg(test)]\nmod tests {{\n{nap}}}\n");
    assert_eq!(sleeps(&sample("src/a.rs", &tests)), ["src/a.rs:4"]);
    assert_eq!(sleeps(&sample("tests/it/a.rs", nap)), ["tests/it/a.rs:1"]);

    assert_eq!(trailing(&sample("a.md", "a\nb \nc\t\nd\r\n")).len(), 3);
    let long = "//! Why.\n".to_owned() + &"f();\n".repeat(LONGEST_FILE);
    assert_eq!(too_long(&sample("src/a.rs", &long)), None);
    assert!(too_long(&sample("src/a.rs", &(long + "f();\n"))).is_some());

    let sources = [sample("src/a.rs", ""), sample("src/a/b.rs", ""), sample("src/ab.rs", "")];
    let beside: Vec<_> = sources.iter().filter_map(|source| beside_its_folder(&source.path, &sources)).collect();
    assert_eq!(beside, ["src/a.rs stands beside src/a/, and should be src/a/mod.rs"]);
}

#[test]
fn a_script_without_its_contract_and_a_link_to_nowhere_are_found() {
    let script = "-- a script\n-- KEYS  one\n\n-- ARGV  none\n";
    assert_eq!(without_contract(&sample("lua/a.lua", script)), ["lua/a.lua: no ARGV", "lua/a.lua: no Invariant:"]);

    let page = "[a](src/lib.rs#L1) [b](https://example.com) [c](#here) ![d](docs/none.png)";
    assert_eq!(links(page), ["src/lib.rs", "docs/none.png"]);
    assert_eq!(dangling(&sample("README.md", page), "src/lib.rs"), None);
    assert!(dangling(&sample("README.md", page), "docs/none.png").is_some());
}
