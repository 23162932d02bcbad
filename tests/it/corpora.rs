//! Runs the fuzz targets over their corpora without a fuzzer. The target `bucket` needs a Redis.

use std::fs;
use std::path::Path;

#[path = "../../fuzz/targets/mod.rs"]
mod targets;

#[test]
fn fuzz_targets_accept_their_corpora() {
    let mut failures = Vec::new();
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    for (name, target) in targets::TARGETS {
        let files = fs::read_dir(corpora.join(name)).expect("a corpus").map(|file| file.expect("a file").path());
        let mut count = 0;
        for file in files {
            let bytes = fs::read(&file).expect("bytes");
            if std::panic::catch_unwind(|| target(&bytes)).is_err() {
                failures.push(format!("{}: {:?}", file.display(), String::from_utf8_lossy(&bytes)));
            }
            count += 1;
        }
        assert!(count > 0, "no corpus of {name}");
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
