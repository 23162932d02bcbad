//! The memory of a gateway whose rule file has many routes, while it reads the file.

use std::fmt::Write as _;
use std::io::BufRead;

use crate::support::case_count;
use crate::support::process::{Program, RuleFile};

/// The bounds for each route with two limits, in bytes: at the start (3.2 KB measured), and at reloads (12 KB). A reload
/// compares the previous rules with the new ones, so it has both, and the allocator returns memory after a time.
const MAX_PER_ROUTE: [usize; 2] = [6_000, 20_000];

fn rules(routes: usize, rate: usize) -> String {
    let mut text = "listen: 127.0.0.1:0
admin: 127.0.0.1:0
upstreams: { echo: { targets: ['builtin:echo'] } }
routes:
"
    .to_owned();
    for number in 0..routes {
        let route = format!(
            "  - name: route-{number}
    match: {{ host: h{host}.example.com, path: /api/v1/resource-{number}/**, methods: [GET, POST] }}
    upstream: echo
    limits:
      - {{ name: each, mode: PER_CLIENT, client: ip, rate: {rate}, interval: 1m }}
      - {{ name: total, mode: OVERALL, rate: 1000, interval: 1s, algorithm: gcra, burst: 2000 }}\n",
            host = number % 50,
        );
        text.write_str(&route).expect("written");
    }
    text
}

/// Returns the peaks of the memory after the start, and after the reloads.
fn peaks(routes: usize) -> [usize; 2] {
    let file = RuleFile::new(&format!("many-routes-{routes}"), &rules(routes, 100));
    let (mut program, ..) = Program::run(&file, &["--workers", "1"]);
    let start = program.peak_memory();
    // Each reload changes all routes.
    for reload in 1..=case_count(6) as usize {
        std::fs::write(file.path(), rules(routes, 100 + reload)).expect("written");
        program.signal("HUP");
        let mut line = String::new();
        while !line.contains("rules reloaded") {
            line.clear();
            assert_ne!(program.stderr.read_line(&mut line).expect("text"), 0, "the gateway ended");
            assert!(!line.contains("ERROR"), "{line}");
        }
    }
    [start, program.peak_memory()]
}

#[test]
fn start_and_reloads_need_little_memory_for_each_route() {
    let (few, many) = (100, 100 + case_count(2_500).max(1_250) as usize);
    let (base, full) = (peaks(few), peaks(many));
    let each = [0, 1].map(|when| full[when].saturating_sub(base[when]) / (many - few));
    assert!(
        each[0] <= MAX_PER_ROUTE[0] && each[1] <= MAX_PER_ROUTE[1],
        "{each:?} bytes at the start and at the reloads"
    );
}
