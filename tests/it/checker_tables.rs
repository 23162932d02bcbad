//! The tables of the stress and chaos runs have a limit with each algorithm.

#[path = "../chaos/table.rs"]
#[allow(dead_code, reason = "the chaos run uses the rest")]
mod chaos_table;

use tidegate_limit::AlgorithmName;

use crate::stress::run::checker::Rule;
use crate::stress::run::{checker, rule_file, table};

#[test]
fn tables_of_loads_have_every_algorithm() {
    let stress = table::limits(1).iter().map(|limit| limit.rules[0]).collect();
    let chaos = chaos_table::LIMITS.map(|limit| limit.rule).to_vec();
    let tables: [(&str, Vec<Rule>); 2] = [("examples/stress/run", stress), ("tests/chaos", chaos)];
    for (folder, rules) in tables {
        for name in AlgorithmName::ALL {
            let has_name = |rule: &Rule| rule.algorithm.keys(rule.interval).split(',').next() == Some(name.name());
            assert!(rules.iter().any(has_name), "add a limit with `{}` to {folder}/table.rs", name.name());
        }
    }
}
