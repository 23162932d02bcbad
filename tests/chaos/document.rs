//! Writes measurements into the documentation.

use std::fs;
use std::path::Path;

/// Replaces the text between the two `name` marks in a page of docs/.
pub fn write(file: &str, name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(file);
    let page = fs::read_to_string(&path).expect("a page");
    let [begin, end] = ["begin", "end"].map(|side| format!("<!-- {name}: {side} -->\n"));
    let (before, rest) = page.split_once(&begin).expect("a begin");
    let (_, after) = rest.split_once(&end).expect("an end");
    fs::write(&path, format!("{before}{begin}{text}{end}{after}")).expect("written");
}
